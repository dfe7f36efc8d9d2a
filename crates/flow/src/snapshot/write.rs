//! Writing of states, at once or [later](FrozenState).

use std::io::{self, Write};

use hashbrown::HashMap;
use serde::Serialize;

use super::{BLOCK_BYTES_MAX, END, Error, HEAD_BYTES, MAGIC, MORE, SECTION, checksum};

/// Writes a state section by section, in blocks of at most [`BLOCK_BYTES_MAX`] bytes of contents.
pub struct SnapshotWriter<'w> {
    target: Target<'w>,
    /// Kind and contents of the current block.
    kind: u8,
    contents: Vec<u8>,
    /// Number of blocks written.
    number: u64,
    /// Ids of objects that may be referenced again, by address.
    pub(super) objects: HashMap<usize, u64>,
}

enum Target<'w> {
    Stream(&'w mut dyn Write),
    Frozen(Vec<Part>),
    /// Contents before those of the writer, without blocks.
    Contents(Vec<u8>),
}

/// Part of a [`FrozenState`].
enum Part {
    /// The begin of a section with this name.
    Section(String),
    Bytes(Vec<u8>),
    Later(DeferredPart),
}

type DeferredPart = Box<dyn FnOnce(&mut SnapshotWriter<'_>) -> Result<(), Error> + Send>;

/// State of an app at one moment, to be written while the app continues.
///
/// Small elements are in it as bytes. Large ones are shared with the app, which copies what it changes, until
/// [`Self::write_to`] has written them.
#[derive(Default)]
pub struct FrozenState(Vec<Vec<Part>>);

impl FrozenState {
    /// Adds a state that is written behind this one.
    pub(crate) fn then(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Writes the state: the same bytes that the app would have written at the moment.
    ///
    /// Errors: writing failed.
    pub fn write_to(self, out: &mut dyn Write) -> Result<(), Error> {
        for parts in self.0 {
            let mut out = SnapshotWriter::new(out)?;
            for part in parts {
                match part {
                    Part::Section(name) => out.section(&name)?,
                    Part::Bytes(bytes) => out.bytes(&bytes)?,
                    Part::Later(write) => write(&mut out)?,
                }
            }
            out.finish()?;
        }
        Ok(())
    }
}

impl<'w> SnapshotWriter<'w> {
    /// Writes the head of a state.
    pub fn new(out: &'w mut dyn Write) -> Result<Self, Error> {
        out.write_all(&MAGIC)?;
        Ok(Self::to(Target::Stream(out)))
    }

    /// Creates a writer of a [`FrozenState`].
    pub(crate) fn freezing() -> Self {
        Self::to(Target::Frozen(vec![]))
    }

    /// Creates a writer of contents that [`Self::bytes`] of another writer takes. They must not have objects, which are
    /// numbered in the order in which they are written. `memory` is used again.
    pub(crate) fn of_contents(mut memory: Vec<u8>) -> Self {
        memory.clear();
        Self { contents: memory, ..Self::to(Target::Contents(vec![])) }
    }

    /// Returns the contents.
    pub(crate) fn into_contents(self) -> Vec<u8> {
        match self.target {
            Target::Contents(mut before) if !before.is_empty() => {
                before.extend_from_slice(&self.contents);
                before
            }
            _ => self.contents,
        }
    }

    fn to(target: Target<'w>) -> Self {
        let contents = match target {
            Target::Contents(_) => vec![],
            _ => Vec::with_capacity(BLOCK_BYTES_MAX),
        };
        Self { target, kind: END, contents, number: 0, objects: HashMap::new() }
    }

    /// Returns whether the state is written later, so that large elements [defer](Self::defer) their part.
    pub(crate) fn is_freezing(&self) -> bool {
        matches!(self.target, Target::Frozen(_))
    }

    /// Leaves a part to be written later: `write` owns what it needs, or shares it with the app. It must not write objects,
    /// which are numbered in the order in which they are written.
    ///
    /// Errors: those of `write`, if the state is not frozen.
    pub(crate) fn defer(
        &mut self,
        write: impl FnOnce(&mut SnapshotWriter<'_>) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        if !self.is_freezing() {
            return write(self);
        }
        self.close()?;
        if let Target::Frozen(parts) = &mut self.target {
            parts.push(Part::Later(Box::new(write)));
        }
        Ok(())
    }

    /// Ends the current section and begins another one.
    pub fn section(&mut self, name: &str) -> Result<(), Error> {
        self.close()?;
        if let Target::Frozen(parts) = &mut self.target {
            parts.push(Part::Section(name.to_owned()));
            return Ok(());
        }
        self.kind = SECTION;
        self.text(name)
    }

    /// Ends the state.
    pub fn finish(mut self) -> Result<(), Error> {
        self.close()?;
        self.block(END)?;
        match self.target {
            Target::Stream(out) => Ok(out.flush()?),
            Target::Frozen(_) | Target::Contents(_) => Ok(()),
        }
    }

    /// Ends a state that is written later.
    pub(crate) fn into_frozen(mut self) -> Result<FrozenState, Error> {
        self.close()?;
        match self.target {
            Target::Frozen(parts) => Ok(FrozenState(vec![parts])),
            Target::Stream(_) | Target::Contents(_) => Ok(FrozenState::default()),
        }
    }

    /// Ends the current block.
    fn close(&mut self) -> Result<(), Error> {
        if self.contents.is_empty() { Ok(()) } else { self.block(self.kind) }
    }

    fn block(&mut self, kind: u8) -> Result<(), Error> {
        match &mut self.target {
            Target::Stream(out) => {
                let checksum = checksum(self.number, kind, &self.contents);
                let mut head = [kind; HEAD_BYTES];
                head[1..5].copy_from_slice(&(self.contents.len() as u32).to_le_bytes());
                head[5..].copy_from_slice(&checksum.to_le_bytes());
                out.write_all(&head)?;
                out.write_all(&self.contents)?;
                self.contents.clear();
                self.number += 1;
                self.kind = MORE;
            }
            Target::Frozen(parts) => parts.push(Part::Bytes(std::mem::take(&mut self.contents))),
            Target::Contents(before) => before.append(&mut self.contents),
        }
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
        self.numbers_of(numbers.len(), numbers)
    }

    /// Writes a list as [`Self::numbers`] does; `len` is the number of its numbers.
    pub(crate) fn numbers_of(&mut self, len: usize, numbers: impl Iterator<Item = u64>) -> Result<(), Error> {
        self.number(len as u64)?;
        let mut before = 0_u64;
        for n in numbers {
            self.signed(n.wrapping_sub(before).cast_signed())?;
            before = n;
        }
        Ok(())
    }
}

struct WriteAdapter<'a, 'w>(&'a mut SnapshotWriter<'w>);

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
