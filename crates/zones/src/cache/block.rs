//! A block of a tablet, in memory and on the disk of the cache.

use std::io::{Read, Write};

use bytes::Bytes;
use foyer::{Code, Error, ErrorKind, Result};

/// Size of a block; the last one of a file is shorter.
pub(crate) const BLOCK_BYTES: u64 = 1 << 20;

/// A block with what the store said about its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CachedBlock {
    pub file_bytes: u64,
    /// Time at which the file was written, in milliseconds.
    pub modified_ms: i64,
    pub bytes: Bytes,
}

/// Bytes on the disk: size and time of the file, CRC-32C of these and of the content, the content.
impl Code for CachedBlock {
    fn encode(&self, writer: &mut impl Write) -> Result<()> {
        self.file_bytes.encode(writer)?;
        self.modified_ms.encode(writer)?;
        self.checksum().encode(writer)?;
        writer.write_all(&self.bytes).map_err(Error::io_error)
    }

    fn decode(reader: &mut impl Read) -> Result<Self> {
        let (file_bytes, modified_ms) = (u64::decode(reader)?, i64::decode(reader)?);
        let checksum = u32::decode(reader)?;
        let mut bytes = Vec::new();
        reader.take(BLOCK_BYTES + 1).read_to_end(&mut bytes).map_err(Error::io_error)?;
        let block = Self { file_bytes, modified_ms, bytes: bytes.into() };
        match block.checksum() == checksum {
            true => Ok(block),
            false => Err(Error::new(ErrorKind::ChecksumMismatch, "a block of the cache is damaged")),
        }
    }

    fn estimated_size(&self) -> usize {
        8 + 8 + 4 + self.bytes.len()
    }
}

impl CachedBlock {
    fn checksum(&self) -> u32 {
        let head = crc32c::crc32c(&self.file_bytes.to_le_bytes());
        let head = crc32c::crc32c_append(head, &self.modified_ms.to_le_bytes());
        crc32c::crc32c_append(head, &self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_is_found() {
        let block =
            CachedBlock { file_bytes: 7_000_000, modified_ms: 5, bytes: Bytes::from_static(b"some bytes") };
        let mut written = Vec::new();
        block.encode(&mut written).unwrap();
        assert_eq!(written.len(), block.estimated_size());
        assert_eq!(CachedBlock::decode(&mut written.as_slice()).unwrap(), block);
        for bit in 0..written.len() * 8 {
            let mut damaged = written.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(CachedBlock::decode(&mut damaged.as_slice()).is_err(), "bit {bit}");
        }
        assert!(CachedBlock::decode(&mut &written[..15]).is_err());
    }
}
