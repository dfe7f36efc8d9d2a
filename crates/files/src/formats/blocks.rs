//! The blocks of an Avro container: split, checked and decompressed independently, so that a damaged block
//! does not affect the others.

use std::io::{self, BufRead, BufReader, Read};

use arrow_avro::compression::CompressionCodec;
use bytes::Bytes;
use flate2::Crc;
use flate2::read::DeflateDecoder;
use memchr::memmem;
use tidemill_types::{BadRow, RowOrigin};

use crate::formats::avro_layout::RowLayout;

/// Marker at the end of every block.
pub(crate) type SyncMarker = [u8; 16];
/// Maximum size of a block in bytes, compressed and decompressed.
const BLOCK_BYTES_MAX: usize = 256 << 20;

/// A valid block.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// Position in the file in bytes.
    pub(crate) offset: u64,
    /// Index of its first row among those of the blocks that were returned.
    pub(crate) first: u64,
    /// Row number of its first row in the file, where a damaged block counts as one row.
    pub(crate) number: u64,
    /// Number of rows.
    pub(crate) rows: u64,
    /// The block, encoded as in an uncompressed container.
    pub(crate) bytes: Bytes,
}

/// Blocks of an input positioned after the header. Those with rows before the row number `start` only are
/// skipped.
pub(crate) struct Blocks {
    input: BufReader<Box<dyn Read + Send>>,
    codec: Option<CompressionCodec>,
    layout: RowLayout,
    sync: SyncMarker,
    offset: u64,
    start: u64,
    /// Number of rows of the blocks returned so far.
    rows: u64,
    /// Row number of the next row or damaged block.
    number: u64,
    raw: Vec<u8>,
    pub(crate) rejected: Vec<BadRow>,
}

/// Reason why a block cannot be read.
enum BlockError {
    /// The framing is damaged: reading continues after the next sync marker.
    Framing(String),
    /// The content is damaged: reading continues after the block.
    Content(String),
    /// The file ends inside the block.
    End(String),
    Io(io::Error),
}

impl From<io::Error> for BlockError {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::UnexpectedEof => Self::End("the file ends inside a block".into()),
            _ => Self::Io(e),
        }
    }
}

impl Blocks {
    pub(crate) fn new(
        input: BufReader<Box<dyn Read + Send>>,
        codec: Option<CompressionCodec>,
        shape: RowLayout,
        sync: SyncMarker,
        offset: u64,
    ) -> Self {
        let (start, rows, number) = (0, 0, 0);
        Self { input, codec, layout: shape, sync, offset, start, rows, number, raw: vec![], rejected: vec![] }
    }

    /// Skips blocks with rows before the row number `start` only.
    pub(crate) fn starting_at(self, start: u64) -> Self {
        Self { start, ..self }
    }

    /// Returns the number of rows and damaged blocks read so far.
    pub(crate) fn rows_read(&self) -> u64 {
        self.number
    }

    /// Returns the next valid block; `None` at the end of the file. Bad blocks are added to `rejected`.
    pub(crate) fn next(&mut self) -> io::Result<Option<Block>> {
        loop {
            if self.input.fill_buf()?.is_empty() {
                return Ok(None);
            }
            let begins = self.offset;
            let (message, more) = match self.read(begins) {
                Ok(block) if block.number + block.rows > self.start => {
                    self.rows += block.rows;
                    return Ok(Some(block));
                }
                Ok(_) => continue,
                Err(BlockError::Io(e)) => return Err(e),
                Err(BlockError::Content(message)) => (message, true),
                Err(BlockError::End(message)) => (message, false),
                Err(BlockError::Framing(message)) => (message, self.skip_to_sync()?),
            };
            if self.number >= self.start {
                self.rejected.push(bad_block(self.number, begins, message));
            }
            self.number += 1;
            if !more {
                return Ok(None);
            }
        }
    }

    fn read(&mut self, begins: u64) -> Result<Block, BlockError> {
        let (rows, size) = (self.number()?, self.number()?);
        let (Ok(rows), Ok(size)) = (u64::try_from(rows), usize::try_from(size)) else {
            return Err(BlockError::Framing(format!("a block of {rows} rows and {size} bytes")));
        };
        if size > BLOCK_BYTES_MAX {
            return Err(BlockError::Framing(format!(
                "a block of {size} bytes; at most {BLOCK_BYTES_MAX} are read"
            )));
        }
        self.raw.clear();
        (&mut self.input).take(size as u64).read_to_end(&mut self.raw)?;
        self.offset += self.raw.len() as u64;
        let mut sync = SyncMarker::default();
        self.input.read_exact(&mut sync)?;
        self.offset += sync.len() as u64;
        if sync != self.sync {
            return Err(BlockError::Framing("the block does not end where it says".into()));
        }
        let unpacked = self.decompressed().map_err(BlockError::Content)?;
        let content = unpacked.as_deref().unwrap_or(&self.raw);
        // A row takes at least a byte if it has a field: a higher row count would only waste memory.
        if rows > content.len().max(1) as u64 || !self.layout.fits(content, rows) {
            let message = format!("the {} bytes of the block are not {rows} rows", content.len());
            return Err(BlockError::Content(message));
        }
        let mut bytes = Vec::with_capacity(content.len() + 2 * 10 + sync.len());
        put_number(&mut bytes, rows as i64);
        put_number(&mut bytes, content.len() as i64);
        bytes.extend_from_slice(content);
        bytes.extend_from_slice(&sync);
        let number = self.number;
        self.number += rows;
        Ok(Block { offset: begins, first: self.rows, number, rows, bytes: bytes.into() })
    }

    /// Reads an Avro long: zigzag varint, lowest seven bits first.
    fn number(&mut self) -> Result<i64, BlockError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            self.input.read_exact(&mut byte)?;
            self.offset += 1;
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] < 0x80 {
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(BlockError::Framing("a number of more than 64 bits".into()))
    }

    /// Decompresses the block that was read; `None` if it is not compressed.
    fn decompressed(&self) -> Result<Option<Vec<u8>>, String> {
        match self.codec {
            None => Ok(None),
            Some(CompressionCodec::Deflate) => {
                let mut out = Vec::with_capacity(4 * self.raw.len());
                let mut limited = DeflateDecoder::new(self.raw.as_slice()).take(BLOCK_BYTES_MAX as u64 + 1);
                limited.read_to_end(&mut out).map_err(|e| e.to_string())?;
                if out.len() > BLOCK_BYTES_MAX { Err(too_large()) } else { Ok(Some(out)) }
            }
            Some(CompressionCodec::Snappy) => {
                let (packed, sum) = self.raw.split_last_chunk::<4>().ok_or("a block without its checksum")?;
                let length = snap::raw::decompress_len(packed).map_err(|e| e.to_string())?;
                if length > BLOCK_BYTES_MAX {
                    return Err(too_large());
                }
                let out = snap::raw::Decoder::new().decompress_vec(packed).map_err(|e| e.to_string())?;
                let mut found = Crc::new();
                found.update(&out);
                let same = found.sum() == u32::from_be_bytes(*sum);
                same.then_some(Some(out)).ok_or_else(|| "the block does not have its checksum".into())
            }
            Some(other) => Err(format!("compressed with {other:?}, which is not read")),
        }
    }

    /// Skips to the byte after the next sync marker. Returns whether there is one.
    fn skip_to_sync(&mut self) -> io::Result<bool> {
        // Last bytes of the previous buffer, in which a marker may begin.
        let mut seen: Vec<u8> = Vec::new();
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return Ok(false);
            }
            let before = seen.len();
            seen.extend_from_slice(buffer);
            let found = memmem::find(&seen, &self.sync);
            let used = found.map_or(buffer.len(), |at| at + self.sync.len() - before);
            self.input.consume(used);
            self.offset += used as u64;
            if found.is_some() {
                return Ok(true);
            }
            seen.drain(..seen.len().saturating_sub(self.sync.len() - 1));
        }
    }
}

/// Creates the report of a damaged block at byte `offset`.
pub(crate) fn bad_block(number: u64, offset: u64, message: String) -> BadRow {
    BadRow::new(RowOrigin { number, line: None, offset: Some(offset) }, None, message, b"")
}

fn too_large() -> String {
    format!("a block of more than {BLOCK_BYTES_MAX} bytes when decompressed")
}

/// Appends an Avro long.
pub(crate) fn put_number(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
