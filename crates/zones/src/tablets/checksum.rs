//! Checksums of a file's blocks, so that any part of it can be verified without reading the rest.
//!
//! Parquet has no checksum over its footer, indexes, Bloom filters and page headers, and the writer creates
//! none for pages; a flipped bit in any of them may decode to other data. The Delta log therefore stores a
//! CRC-32C of every block of every tablet, and tablets are read in whole blocks, which are verified.

use std::ops::Range;

/// Minimum size of a block in bytes; a read of one page is extended to it.
const BLOCK_BYTES_MIN: u64 = 16 << 10;
/// Maximum number of blocks of a file. Their checksums take eight hexadecimal digits each in the Delta log.
const BLOCKS_MAX: u64 = 512;

/// CRC-32C of each block of a file. The last block may be shorter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksums {
    size: u64,
    block: u64,
    sums: Box<[u32]>,
}

impl Checksums {
    /// Computes the checksums of a file with the content `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let size = bytes.len() as u64;
        let block = size.div_ceil(BLOCKS_MAX).next_power_of_two().max(BLOCK_BYTES_MIN);
        let sums = bytes.chunks(usize::try_from(block).unwrap_or(usize::MAX)).map(crc32c::crc32c);
        Self { size, block, sums: sums.collect() }
    }

    /// Returns the length of the file in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Formats the checksums: the block size, as in `16384:`, and eight hexadecimal digits for each block.
    pub fn to_text(&self) -> String {
        let sums: String = self.sums.iter().map(|sum| format!("{sum:08x}")).collect();
        format!("{}:{sums}", self.block)
    }

    /// Parses the output of [`Self::to_text`] for a file of `size` bytes; `None` for any other string.
    pub fn parse(text: &str, size: u64) -> Option<Self> {
        let (block, digits) = text.split_once(':')?;
        let block: u64 = block.parse().ok().filter(|b| *b > 0)?;
        let blocks = size.div_ceil(block);
        if !digits.is_ascii() || digits.len() as u64 != blocks.checked_mul(8)? {
            return None;
        }
        let sums = digits.as_bytes().chunks(8).map(|eight| {
            let eight = std::str::from_utf8(eight).ok()?;
            u32::from_str_radix(eight, 16).ok()
        });
        Some(Self { size, block, sums: sums.collect::<Option<_>>()? })
    }

    /// Extends `range` to whole blocks.
    pub fn blocks(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start.min(self.size) / self.block * self.block;
        let end = range.end.min(self.size).div_ceil(self.block).saturating_mul(self.block).min(self.size);
        start..end.max(start)
    }

    /// Verifies `bytes`, which begin with a block at `start`. The error is the first range that differs.
    pub fn check(&self, start: u64, bytes: &[u8]) -> Result<(), Range<u64>> {
        let first = usize::try_from(start / self.block).unwrap_or(usize::MAX);
        let block = usize::try_from(self.block).unwrap_or(usize::MAX);
        for (index, part) in bytes.chunks(block).enumerate() {
            let at = start + index as u64 * self.block;
            if self.sums.get(first.saturating_add(index)) != Some(&crc32c::crc32c(part)) {
                return Err(at..at + part.len() as u64);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_byte_is_found_in_whatever_part_is_read() {
        let bytes: Vec<u8> = (0..40_000_u32).map(|i| (i * 7 + i / 251) as u8).collect();
        let sums = Checksums::of(&bytes);
        assert_eq!(Checksums::parse(&sums.to_text(), 40_000), Some(sums.clone()));
        assert_eq!(sums.blocks(&(16_384..16_385)), 16_384..32_768);
        assert_eq!(sums.blocks(&(32_000..40_000)), 16_384..40_000);
        assert_eq!(sums.blocks(&(40_000..50_000)), 32_768..40_000);
        sums.check(16_384, &bytes[16_384..]).unwrap();
        for at in (16_384..40_000).step_by(97) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let found = sums.check(16_384, &damaged[16_384..]).unwrap_err();
            assert!(found.contains(&(at as u64)), "{at}: {found:?}");
        }
    }

    #[test]
    fn large_files_have_larger_blocks_and_foreign_text_is_none() {
        let sums = Checksums::of(&vec![7; 20 << 20]);
        assert_eq!((sums.block, sums.sums.len()), (64 << 10, 320));
        for text in ["", "16384", "16384:zz", "0:00000000", "16384:0000000", "16384:0000000é"] {
            assert_eq!(Checksums::parse(text, 9), None, "{text}");
        }
        assert_eq!(Checksums::parse("16384:", 0), Some(Checksums::of(&[])));
    }
}
