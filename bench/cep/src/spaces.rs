//! Where blanks and line ends are in a text, 64 bytes at a time.

/// Bytes that are looked at together.
pub const BLOCK: usize = 64;

/// Whether a byte is a blank: space, tab, line feed, vertical tab, form feed, carriage return.
#[inline]
pub fn is_space(byte: u8) -> bool {
    byte == b' ' || byte.wrapping_sub(9) < 5
}

/// A text without the blanks at its ends.
pub fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_ascii() && is_space(c as u8))
}

/// A bit for each byte, the first lowest, that says whether it is a blank.
#[inline]
pub fn spaces(block: &[u8; BLOCK]) -> u64 {
    // SAFETY: every x86-64 has SSE2
    #[cfg(target_arch = "x86_64")]
    return unsafe { lanes::spaces(block) };
    #[cfg(not(target_arch = "x86_64"))]
    bits(block, is_space)
}

/// A bit for each byte that says whether it is `byte`.
#[inline]
pub fn places(block: &[u8; BLOCK], byte: u8) -> u64 {
    // SAFETY: every x86-64 has SSE2
    #[cfg(target_arch = "x86_64")]
    return unsafe { lanes::places(block, byte) };
    #[cfg(not(target_arch = "x86_64"))]
    bits(block, |b| b == byte)
}

/// The same, 16 bytes at a time.
#[cfg(target_arch = "x86_64")]
mod lanes {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x,
        _mm_set1_epi8, _mm_sub_epi8,
    };

    use super::BLOCK;

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn spaces(block: &[u8; BLOCK]) -> u64 {
        let (lanes, _) = block.as_chunks::<16>();
        let mut all = 0;
        for (i, lane) in lanes.iter().enumerate() {
            let v = load(lane);
            // 9 to 13 become 0 to 4, everything else more than that
            let control = _mm_sub_epi8(v, _mm_set1_epi8(9));
            let is_control = _mm_cmpeq_epi8(_mm_min_epu8(control, _mm_set1_epi8(4)), control);
            let is_blank = _mm_cmpeq_epi8(v, _mm_set1_epi8(b' ' as i8));
            all |= u64::from(_mm_movemask_epi8(_mm_or_si128(is_control, is_blank)) as u16) << (16 * i);
        }
        all
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn places(block: &[u8; BLOCK], byte: u8) -> u64 {
        let (lanes, _) = block.as_chunks::<16>();
        let wanted = _mm_set1_epi8(byte as i8);
        let mut all = 0;
        for (i, lane) in lanes.iter().enumerate() {
            all |= u64::from(_mm_movemask_epi8(_mm_cmpeq_epi8(load(lane), wanted)) as u16) << (16 * i);
        }
        all
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn load(lane: &[u8; 16]) -> __m128i {
        let number = u128::from_le_bytes(*lane);
        _mm_set_epi64x((number >> 64) as i64, number as i64)
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn bits(block: &[u8; BLOCK], test: impl Fn(u8) -> bool) -> u64 {
    block.iter().enumerate().fold(0, |all, (i, byte)| all | u64::from(test(*byte)) << i)
}

/// The blocks of a text; the last is filled with blanks.
pub fn blocks(text: &[u8]) -> impl Iterator<Item = [u8; BLOCK]> + '_ {
    let (whole, rest) = text.as_chunks::<BLOCK>();
    let mut last = [b' '; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    whole.iter().copied().chain((!rest.is_empty()).then_some(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_told_apart() {
        for byte in 0..=255_u8 {
            let mut block = [b'x'; BLOCK];
            block[byte as usize % BLOCK] = byte;
            let bit = 1 << (byte as usize % BLOCK);
            assert_eq!(spaces(&block), if is_space(byte) { bit } else { 0 }, "{byte}");
            assert_eq!(places(&block, byte) & bit, bit);
        }
    }
}
