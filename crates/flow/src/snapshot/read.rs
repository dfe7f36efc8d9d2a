//! Reading of states.

use std::io::{self, ErrorKind, Read};

use serde::de::DeserializeOwned;

use super::{BLOCK_BYTES_MAX, END, Error, HEAD_BYTES, MAGIC, MORE, SECTION, checksum};
use crate::columns::value::OpaqueValue;

/// Reads a state section by section. Blocks are interpreted only after their checksum was verified, and
/// allocations are limited by the number of bytes read.
pub struct Reader<'r> {
    input: &'r mut dyn Read,
    /// Number of bytes read.
    at: u64,
    contents: Vec<u8>,
    /// Index of the next byte of the contents.
    place: usize,
    /// Number of blocks read.
    number: u64,
    section: String,
    /// Set once the end was read.
    has_ended: bool,
    /// Objects that may be referenced again, by id.
    pub(super) objects: Vec<OpaqueValue>,
}

impl<'r> Reader<'r> {
    /// Reads the head of a state. Errors: it is not a state, or has another format version.
    pub fn new(input: &'r mut dyn Read) -> Result<Self, Error> {
        let (contents, section) = (Vec::new(), String::new());
        let mut reader =
            Self { input, at: 0, contents, place: 0, number: 0, section, has_ended: false, objects: vec![] };
        let mut magic = [0; MAGIC.len()];
        reader.fill(&mut magic)?;
        let [name @ .., version] = magic;
        if name[..] != MAGIC[..name.len()] {
            reader.at = 0;
            return Err(reader.damaged("not a saved state"));
        }
        match version {
            found if found == MAGIC[name.len()] => Ok(reader),
            found => Err(Error::Version { found }),
        }
    }

    /// Returns an error for damage at the current offset.
    pub fn damaged(&self, what: impl Into<String>) -> Error {
        let at = self.at - (self.contents.len() - self.place) as u64;
        Error::Damaged { at, section: self.section.clone(), what: what.into() }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        match self.input.read_exact(bytes) {
            Ok(()) => {
                self.at += bytes.len() as u64;
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => Err(self.damaged("unexpected end of the data")),
            Err(e) => Err(e.into()),
        }
    }

    /// Reads a block and verifies it. Returns its kind.
    fn block(&mut self) -> Result<u8, Error> {
        self.contents.clear();
        self.place = 0;
        let mut head = [0; HEAD_BYTES];
        self.fill(&mut head)?;
        let [kind, l0, l1, l2, l3, c0, c1, c2, c3] = head;
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if len > BLOCK_BYTES_MAX || !(SECTION..=END).contains(&kind) {
            return Err(self.damaged(format!("expected a block, found kind {kind} with {len} bytes")));
        }
        let mut contents = std::mem::take(&mut self.contents);
        contents.resize(len, 0);
        self.fill(&mut contents)?;
        if u32::from_le_bytes([c0, c1, c2, c3]) != checksum(self.number, kind, &contents) {
            return Err(self.damaged(format!("the checksum of the preceding {len} bytes does not match")));
        }
        self.contents = contents;
        self.number += 1;
        Ok(kind)
    }

    /// Reads the head of the next section. Errors: it has another name, or the previous section was not read
    /// completely.
    pub fn section(&mut self, name: &str) -> Result<(), Error> {
        self.complete()?;
        let kind = self.block()?;
        if kind != SECTION {
            return Err(self.damaged(format!("expected the section `{name}`, found a block of kind {kind}")));
        }
        let found = self.text()?;
        if found != name {
            return Err(self.damaged(format!("expected the section `{name}`, found `{found}`")));
        }
        self.section = found;
        Ok(())
    }

    /// Reads the head of a section that is the last one, or the end of the state. Returns whether the section is there.
    /// Errors: as [`Self::section`].
    pub fn last_section(&mut self, name: &str) -> Result<bool, Error> {
        self.complete()?;
        match self.block()? {
            END if self.contents.is_empty() => {
                self.has_ended = true;
                Ok(false)
            }
            SECTION => {
                let found = self.text()?;
                if found != name {
                    return Err(
                        self.damaged(format!("expected the section `{name}` or the end, found `{found}`"))
                    );
                }
                self.section = found;
                Ok(true)
            }
            kind => Err(self.damaged(format!("expected a section or the end, found a block of kind {kind}"))),
        }
    }

    fn complete(&self) -> Result<(), Error> {
        match self.contents.len() - self.place {
            0 => Ok(()),
            left => Err(self.damaged(format!("{left} unexpected bytes at the end of the section"))),
        }
    }

    /// Reads the end of the state. Errors: there is more of it.
    pub fn finish(mut self) -> Result<(), Error> {
        self.complete()?;
        if self.has_ended {
            return Ok(());
        }
        match self.block()? {
            END if self.contents.is_empty() => Ok(()),
            kind => Err(self.damaged(format!("expected the end, found a block of kind {kind}"))),
        }
    }

    /// Returns the next bytes of the section, at least one and at most `max`, which must not be 0.
    fn some(&mut self, max: usize) -> Result<&[u8], Error> {
        while self.place == self.contents.len() {
            let kind = self.block()?;
            if kind != MORE {
                return Err(self.damaged("the section ends too early"));
            }
        }
        let from = self.place;
        self.place = self.contents.len().min(from + max);
        Ok(&self.contents[from..self.place])
    }

    /// Reads raw bytes.
    #[inline]
    pub fn bytes(&mut self, mut out: &mut [u8]) -> Result<(), Error> {
        while !out.is_empty() {
            let some = self.some(out.len())?;
            let (now, later) = out.split_at_mut(some.len());
            now.copy_from_slice(some);
            out = later;
        }
        Ok(())
    }

    /// Appends `len` bytes to `out`.
    pub(super) fn append(&mut self, len: u64, out: &mut Vec<u8>) -> Result<(), Error> {
        let mut left = usize::try_from(len)
            .map_err(|_| self.damaged(format!("a length of {len} bytes is too large")))?;
        while left > 0 {
            let some = self.some(left)?;
            out.extend_from_slice(some);
            left -= some.len();
        }
        Ok(())
    }

    pub(super) fn byte(&mut self) -> Result<u8, Error> {
        let mut byte = [0];
        self.bytes(&mut byte)?;
        Ok(byte[0])
    }

    /// Reads an unsigned integer.
    #[inline]
    pub fn number(&mut self) -> Result<u64, Error> {
        let mut n = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            n |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(n);
            }
        }
        Err(self.damaged("a number has too many bytes"))
    }

    /// Reads an unsigned integer. Errors: it is greater than `max`.
    pub fn number_up_to(&mut self, max: usize) -> Result<usize, Error> {
        let n = self.number()?;
        let fits = usize::try_from(n).ok().filter(|n| *n <= max);
        fits.ok_or_else(|| self.damaged(format!("expected a number of at most {max}, found {n}")))
    }

    /// Reads a signed integer.
    #[inline]
    pub fn signed(&mut self) -> Result<i64, Error> {
        let n = self.number()?;
        Ok((n >> 1).cast_signed() ^ -(n & 1).cast_signed())
    }

    /// Reads a bool.
    pub fn flag(&mut self) -> Result<bool, Error> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.damaged(format!("expected a bool of 0 or 1, found {other}"))),
        }
    }

    /// Reads a string.
    pub fn text(&mut self) -> Result<String, Error> {
        let len = self.number()?;
        let mut bytes = Vec::new();
        self.append(len, &mut bytes)?;
        String::from_utf8(bytes).map_err(|_| self.damaged("a string is not UTF-8"))
    }

    /// Reads a value that was written as JSON.
    pub fn json<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        let len = self.number()?;
        let mut bytes = Vec::new();
        self.append(len, &mut bytes)?;
        serde_json::from_slice(&bytes).map_err(|e| self.damaged(e.to_string()))
    }

    /// Reads a value that was written as CBOR.
    pub fn state<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        ciborium::from_reader(ReadAdapter(self)).map_err(|e| match e {
            ciborium::de::Error::Io(e) => match e.downcast::<Error>() {
                Ok(damaged) => damaged,
                Err(e) => e.into(),
            },
            e => self.damaged(e.to_string()),
        })
    }

    /// Reads a list of unsigned integers.
    pub fn numbers(&mut self) -> Result<Vec<u64>, Error> {
        let count = self.number()?;
        let mut numbers: Vec<u64> = Vec::new();
        let mut before = 0_u64;
        for _ in 0..count {
            if numbers.len() == numbers.capacity() {
                // Grow fourfold, but not beyond the count, which cannot be trusted on its own. The old
                // allocation is then at most a quarter of the new one.
                let left = usize::try_from(count).unwrap_or(usize::MAX) - numbers.len();
                numbers.reserve_exact(left.min((3 * numbers.len()).max(4096)));
            }
            before = before.wrapping_add(self.signed()?.cast_unsigned());
            numbers.push(before);
        }
        Ok(numbers)
    }
}

struct ReadAdapter<'a, 'r>(&'a mut Reader<'r>);

impl Read for ReadAdapter<'_, '_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        match self.0.some(out.len()) {
            Ok(some) => {
                out[..some.len()].copy_from_slice(some);
                Ok(some.len())
            }
            Err(Error::Io(e)) => Err(e),
            Err(e) => Err(io::Error::other(e)),
        }
    }
}
