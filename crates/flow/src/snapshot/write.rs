//! Writing of states.

use std::io::{self, Write};

use hashbrown::HashMap;
use serde::Serialize;

use super::{BLOCK_BYTES_MAX, END, Error, HEAD_BYTES, MAGIC, MORE, SECTION, checksum};

/// Writes a state section by section, in blocks of at most [`BLOCK_BYTES_MAX`] bytes of contents.
pub struct Writer<'w> {
    out: &'w mut dyn Write,
    /// Kind and contents of the current block.
    kind: u8,
    contents: Vec<u8>,
    /// Number of blocks written.
    number: u64,
    /// Ids of objects that may be referenced again, by address.
    pub(super) objects: HashMap<usize, u64>,
}

impl<'w> Writer<'w> {
    /// Writes the head of a state.
    pub fn new(out: &'w mut dyn Write) -> Result<Self, Error> {
        out.write_all(&MAGIC)?;
        let contents = Vec::with_capacity(BLOCK_BYTES_MAX);
        Ok(Self { out, kind: END, contents, number: 0, objects: HashMap::new() })
    }

    /// Ends the current section and begins another one.
    pub fn section(&mut self, name: &str) -> Result<(), Error> {
        self.close()?;
        self.kind = SECTION;
        self.text(name)
    }

    /// Ends the state.
    pub fn finish(mut self) -> Result<(), Error> {
        self.close()?;
        self.block(END)?;
        Ok(self.out.flush()?)
    }

    /// Ends the current block.
    fn close(&mut self) -> Result<(), Error> {
        if self.contents.is_empty() { Ok(()) } else { self.block(self.kind) }
    }

    fn block(&mut self, kind: u8) -> Result<(), Error> {
        let checksum = checksum(self.number, kind, &self.contents);
        let mut head = [kind; HEAD_BYTES];
        head[1..5].copy_from_slice(&(self.contents.len() as u32).to_le_bytes());
        head[5..].copy_from_slice(&checksum.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(&self.contents)?;
        self.contents.clear();
        self.number += 1;
        self.kind = MORE;
        Ok(())
    }

    /// Writes raw bytes. The reader must know their number.
    #[inline]
    pub fn bytes(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while self.contents.len() + bytes.len() > BLOCK_BYTES_MAX {
            let (now, later) = bytes.split_at(BLOCK_BYTES_MAX - self.contents.len());
            self.contents.extend_from_slice(now);
            self.block(self.kind)?;
            bytes = later;
        }
        self.contents.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes an unsigned integer; smaller ones take fewer bytes.
    #[inline]
    pub fn number(&mut self, mut n: u64) -> Result<(), Error> {
        let mut bytes = [0; 10];
        let mut len = 0;
        loop {
            bytes[len] = (n & 0x7f) as u8 | if n > 0x7f { 0x80 } else { 0 };
            len += 1;
            n >>= 7;
            if n == 0 {
                return self.bytes(&bytes[..len]);
            }
        }
    }

    /// Writes a signed integer; those nearer to 0 take fewer bytes.
    #[inline]
    pub fn signed(&mut self, n: i64) -> Result<(), Error> {
        self.number(((n << 1) ^ (n >> 63)).cast_unsigned())
    }

    /// Writes a bool.
    pub fn flag(&mut self, flag: bool) -> Result<(), Error> {
        self.bytes(&[u8::from(flag)])
    }

    /// Writes a string.
    pub fn text(&mut self, text: &str) -> Result<(), Error> {
        self.number(text.len() as u64)?;
        self.bytes(text.as_bytes())
    }

    /// Writes a small value as JSON.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let text = serde_json::to_vec(value).map_err(io::Error::from)?;
        self.number(text.len() as u64)?;
        self.bytes(&text)
    }

    /// Writes a value of any size as CBOR, without an intermediate copy.
    pub fn state(&mut self, value: &impl Serialize) -> Result<(), Error> {
        ciborium::into_writer(value, WriteAdapter(self)).map_err(|e| match e {
            ciborium::ser::Error::Io(e) => e.into(),
            ciborium::ser::Error::Value(e) => io::Error::other(e).into(),
        })
    }

    /// Writes a list of unsigned integers. Ascending ones take a byte or two each.
    pub fn numbers(&mut self, numbers: impl ExactSizeIterator<Item = u64>) -> Result<(), Error> {
        self.number(numbers.len() as u64)?;
        let mut before = 0_u64;
        for n in numbers {
            self.signed(n.wrapping_sub(before).cast_signed())?;
            before = n;
        }
        Ok(())
    }
}

struct WriteAdapter<'a, 'w>(&'a mut Writer<'w>);

impl Write for WriteAdapter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.bytes(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(Error::Io(e)) => Err(e),
            Err(e) => Err(io::Error::other(e)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
