//! Decimals in the binary format: digits of base 10,000, and the power of the first of them.

use bytes::{BufMut, BytesMut};

use crate::error::{PgError, Result, code};

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
/// Decimal digits of a digit in the binary format.
const GROUP: usize = 4;

/// Appends a decimal such as `-12.50` in the binary format, without its length.
pub(crate) fn encode(text: &str, out: &mut BytesMut) {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (NEGATIVE, rest),
        None => (POSITIVE, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole = whole.trim_start_matches('0');
    // whole groups on both sides of the point
    let padding = (GROUP - whole.len() % GROUP) % GROUP;
    let trailing = (GROUP - fraction.len() % GROUP) % GROUP;
    let digits = std::iter::repeat_n(b'0', padding)
        .chain(whole.bytes())
        .chain(fraction.bytes())
        .chain(std::iter::repeat_n(b'0', trailing));
    let digits: Vec<u8> = digits.collect();
    let groups: Vec<u16> =
        digits.chunks(GROUP).map(|group| group.iter().fold(0, |n, d| n * 10 + u16::from(d - b'0'))).collect();
    let first = groups.iter().position(|group| *group != 0).unwrap_or(groups.len());
    let last = groups.iter().rposition(|group| *group != 0).map_or(first, |last| last + 1);
    let kept = &groups[first..last];
    // decimals have at most 76 digits
    let weight = ((whole.len() + padding) / GROUP) as i16 - 1 - first as i16;
    out.put_u16(kept.len() as u16);
    out.put_i16(if kept.is_empty() { 0 } else { weight });
    out.put_u16(if kept.is_empty() { POSITIVE } else { sign });
    out.put_u16(fraction.len() as u16);
    kept.iter().for_each(|group| out.put_u16(*group));
}

/// Maximum decimal digits of a value of a client, on each side of the point: as many as the longest decimal of a column.
const DIGITS_MAX: i32 = 76;

/// Returns the text of a decimal in the binary format.
///
/// Errors: it is malformed, has too many digits, or is `NaN` or infinite, which decimals of the database cannot be.
pub(crate) fn decode(bytes: &[u8]) -> Result<String> {
    let malformed =
        || PgError::new(code::INVALID_BINARY, "a numeric value in the binary format is malformed");
    let (numbers, rest) = bytes.as_chunks::<2>();
    let numbers: Vec<u16> = numbers.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
    let ([count, weight, sign, scale], groups) = numbers.split_first_chunk::<4>().ok_or_else(malformed)?;
    let is_whole = rest.is_empty() && groups.len() == usize::from(*count);
    if !is_whole || groups.iter().any(|group| *group > 9_999) {
        return Err(malformed());
    }
    let (weight, scale) = (i32::from(weight.cast_signed()), i32::from(*scale));
    match *sign {
        POSITIVE | NEGATIVE => {}
        0xC000 | 0xD000 | 0xF000 => {
            return Err(PgError::new(
                code::OUT_OF_RANGE,
                "NaN and infinity are no decimals here: send them as double precision",
            ));
        }
        _ => return Err(malformed()),
    }
    if scale > DIGITS_MAX || weight.saturating_mul(4) > DIGITS_MAX || weight < -DIGITS_MAX {
        return Err(PgError::new(
            code::OUT_OF_RANGE,
            format!("a numeric value has more than {DIGITS_MAX} digits before or behind the point"),
        ));
    }
    let group = |power: i32| {
        let at = usize::try_from(weight - power).ok();
        at.and_then(|at| groups.get(at)).copied().unwrap_or(0)
    };
    let mut text = if *sign == NEGATIVE { "-".to_owned() } else { String::new() };
    let whole: String = (0..=weight.max(0)).rev().map(|power| format!("{:04}", group(power))).collect();
    let whole = whole.trim_start_matches('0');
    text += if whole.is_empty() { "0" } else { whole };
    if scale > 0 {
        let fraction: String = (1..=(scale + 3) / 4).map(|power| format!("{:04}", group(-power))).collect();
        text.push('.');
        // the groups have at least as many digits
        text += &fraction[..scale.unsigned_abs() as usize];
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn there_and_back(text: &str) -> String {
        let mut out = BytesMut::new();
        encode(text, &mut out);
        decode(&out).unwrap()
    }

    #[test]
    fn decimals_have_their_digits_and_scale() {
        let mut out = BytesMut::new();
        encode("-12345.60", &mut out);
        assert_eq!(out.as_ref(), [0, 3, 0, 1, 0x40, 0, 0, 2, 0, 1, 9, 0x29, 0x17, 0x70]);
        for text in ["0", "0.00", "1", "10000", "-0.0001", "0.00001", "123456789.987654321", "99990000"] {
            assert_eq!(there_and_back(text), text);
        }
        assert!(decode(&[0, 0, 0, 0, 0xC0, 0, 0, 0]).unwrap_err().message.contains("NaN"));
        for malformed in [
            &[][..],
            &[0, 1, 0, 0, 0, 0, 0, 0],
            &[0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
            &[0, 0, 0, 0, 0, 1, 0, 0],
        ] {
            assert!(decode(malformed).is_err(), "{malformed:?}");
        }
        assert_eq!(decode(&[0, 1, 0x7f, 0xff, 0, 0, 0, 0, 0, 1]).unwrap_err().code, code::OUT_OF_RANGE);
    }

    proptest! {
        #[test]
        fn a_decimal_stays_the_same(number: i64, scale in 0_usize..15) {
            let digits = format!("{:020}", number.unsigned_abs());
            let (whole, fraction) = digits.split_at(20 - scale);
            let whole = whole.trim_start_matches('0');
            let whole = if whole.is_empty() { "0" } else { whole };
            let sign = if number < 0 { "-" } else { "" };
            let text = if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") };
            prop_assert_eq!(there_and_back(&text), text);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }
}
