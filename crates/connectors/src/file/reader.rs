//! Reads the next records of a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;

use super::records::{Behind, Framing};

/// Bytes that are read at once, unless a record is longer.
const READ_BYTES: usize = 256 << 10;
/// Records that are returned at once.
const RECORDS_MAX: usize = 4096;

/// Settings for reading a file.
#[derive(Debug)]
pub(super) struct Reading {
    pub framing: Framing,
    /// Lines at the beginning that are skipped.
    pub header_lines: usize,
    pub part: Part,
    /// Bytes of the longest record.
    pub bytes_max: usize,
}

/// Selection of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    All,
    First,
    Last,
    AllButLast,
}

/// Records behind a position.
#[derive(Debug)]
pub(super) struct Records {
    /// Each with the position at which it begins.
    pub records: Vec<(u64, Bytes)>,
    /// Position behind them.
    pub position: u64,
    /// True if they are the last records of the file.
    pub is_end: bool,
}

/// Why records cannot be read.
#[derive(Debug)]
pub(super) enum ReadError {
    Io(io::Error),
    /// The content is not as the options say.
    Unfit(String),
}

impl From<io::Error> for ReadError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl Reading {
    /// Returns whether a file is read by one message, so that nothing follows it.
    pub(super) fn is_single(&self) -> bool {
        matches!(self.framing, Framing::Whole) || matches!(self.part, Part::First | Part::Last)
    }

    /// Returns the end of the part that tells contents apart: the first line, or the first record.
    pub(super) fn fingerprint_end(&self, start: &[u8], first_record: (u64, usize)) -> usize {
        match (&self.framing, self.header_lines) {
            (Framing::Lines, _) | (_, 1..) => memchr::memchr(b'\n', start).map_or(start.len(), |n| n + 1),
            _ => (first_record.0 as usize).saturating_add(first_record.1),
        }
    }

    /// Reads the records of a file of `len` bytes behind `position`; none if they are not complete. `ends` says that the
    /// file does not grow.
    pub(super) fn read(
        &self,
        file: &File,
        position: u64,
        len: u64,
        ends: bool,
    ) -> Result<Records, ReadError> {
        if self.part == Part::Last {
            return self.read_last(file, len);
        }
        let mut wanted = match self.framing {
            Framing::Whole => self.bytes_max,
            Framing::Chunks(size) => READ_BYTES.max(size.saturating_add(1)),
            _ => READ_BYTES,
        };
        let left = usize::try_from(len.saturating_sub(position)).unwrap_or(usize::MAX);
        loop {
            let bytes = read_at(file, position, wanted.min(left))?;
            if bytes.len() < wanted.min(left) {
                let message = "the file became shorter while it was read";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message).into());
            }
            let is_rest = bytes.len() == left;
            let behind = match (is_rest, ends) {
                (false, _) => Behind::More,
                (true, true) => Behind::End,
                (true, false) => Behind::Nothing,
            };
            // whether a record is the last is known when there is another, or the end
            let holds = ends && wanted < self.bytes_max;
            let found = self.find(&bytes, position, behind, holds);
            if found.position > position || !found.records.is_empty() || is_rest {
                return Ok(found);
            }
            if wanted >= self.bytes_max {
                return Err(ReadError::Unfit(format!(
                    "what begins at byte {position} has more than {} bytes, the limit of `max.message.bytes`",
                    self.bytes_max
                )));
            }
            wanted = wanted.saturating_mul(2).min(self.bytes_max);
        }
    }

    fn find(&self, bytes: &Bytes, position: u64, behind: Behind, holds: bool) -> Records {
        let none = |consumed: usize| Records {
            records: vec![],
            position: position + consumed as u64,
            is_end: behind == Behind::End,
        };
        let header = if position == 0 { self.header_end(bytes) } else { Some(0) };
        let Some(header) = header else {
            return none(if behind == Behind::End { bytes.len() } else { 0 });
        };
        let content = bytes.slice(header..);
        let mut found = self.framing.find(&content, behind, RECORDS_MAX);
        let is_end = behind == Behind::End && found.consumed == content.len();
        match (self.part, is_end) {
            (Part::First, _) => found.records.truncate(1),
            (Part::AllButLast, true) => drop(found.records.pop()),
            (Part::AllButLast, false) if holds => {
                found.hold_last();
                found.hold_last();
            }
            (_, false) if holds => found.hold_last(),
            _ => {}
        }
        if found.records.is_empty() && found.consumed == 0 && behind == Behind::More {
            // the header is read again together with the first record
            return none(0);
        }
        let at = |start: usize| position + (header + start) as u64;
        Records {
            position: at(found.consumed),
            records: found.records.into_iter().map(|r| (at(r.start), content.slice(r))).collect(),
            is_end,
        }
    }

    /// Returns where the header ends; `None` if it is not complete.
    fn header_end(&self, bytes: &[u8]) -> Option<usize> {
        match self.header_lines {
            0 => Some(0),
            lines => memchr::memchr_iter(b'\n', bytes).nth(lines - 1).map(|n| n + 1),
        }
    }

    /// Reads the last line that is not empty.
    fn read_last(&self, file: &File, len: u64) -> Result<Records, ReadError> {
        let mut wanted = READ_BYTES as u64;
        loop {
            let start = len.saturating_sub(wanted);
            let bytes = read_at(file, start, (len - start) as usize)?;
            let text = bytes.trim_ascii_end();
            let line = memchr::memrchr(b'\n', text).map(|n| n + 1);
            if let Some(line) = line.or((start == 0).then_some(0)) {
                let record = bytes.slice(line..text.len());
                let records = if record.is_empty() { vec![] } else { vec![(start + line as u64, record)] };
                return Ok(Records { records, position: len, is_end: true });
            }
            if wanted >= self.bytes_max as u64 {
                return Err(ReadError::Unfit(format!(
                    "the last line has more than {} bytes, the limit of `max.message.bytes`",
                    self.bytes_max
                )));
            }
            wanted = (wanted * 2).min(self.bytes_max as u64);
        }
    }
}

/// Reads this number of bytes, or fewer if the file ends before.
pub(super) fn read_at(file: &File, position: u64, count: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; count];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, position + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(filled);
    Ok(Bytes::from(bytes))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn reading(framing: Framing, header_lines: usize, part: Part) -> Reading {
        Reading { framing, header_lines, part, bytes_max: 1 << 20 }
    }

    /// Reads all records of a text.
    fn read_all(reading: &Reading, text: &str) -> Result<Vec<String>, String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let (mut position, mut all, len) = (0, vec![], text.len() as u64);
        loop {
            match reading.read(&file, position, len, true) {
                Ok(read) => {
                    assert!(read.records.iter().all(|(at, _)| (position..len).contains(at)));
                    let texts = read.records.iter().map(|(_, r)| String::from_utf8_lossy(r).into_owned());
                    all.extend(texts);
                    position = read.position;
                    if read.is_end || reading.part == Part::First {
                        return Ok(all);
                    }
                }
                Err(ReadError::Unfit(message)) => return Err(message),
                Err(ReadError::Io(e)) => panic!("{e}"),
            }
        }
    }

    #[test]
    fn parts_of_files() {
        let text = "h1\nh2\n\na\nb\nend\n\n";
        for (header, part, expected) in [
            (0, Part::All, &["h1", "h2", "a", "b", "end"][..]),
            (2, Part::All, &["a", "b", "end"]),
            (9, Part::All, &[]),
            (0, Part::First, &["h1"]),
            (0, Part::Last, &["end"]),
            (2, Part::AllButLast, &["a", "b"]),
        ] {
            assert_eq!(read_all(&reading(Framing::Lines, header, part), text).unwrap(), expected, "{part:?}");
        }
        assert_eq!(read_all(&reading(Framing::Whole, 2, Part::All), text).unwrap(), ["\na\nb\nend\n\n"]);
        assert_eq!(read_all(&reading(Framing::Lines, 0, Part::Last), "one").unwrap(), ["one"]);
        assert!(read_all(&reading(Framing::Lines, 0, Part::Last), "").unwrap().is_empty());
    }

    #[test]
    fn long_files_are_read_in_parts() {
        let lines: Vec<String> = (0..40_000).map(|n| format!("line {n} {}", "x".repeat(n % 50))).collect();
        let text = lines.join("\n");
        assert_eq!(read_all(&reading(Framing::Lines, 0, Part::All), &text).unwrap(), lines);
        let but_last = read_all(&reading(Framing::Lines, 1, Part::AllButLast), &text).unwrap();
        assert_eq!(but_last, lines[1..lines.len() - 1]);
        let long = format!("{}\nend", "y".repeat(600 << 10));
        assert_eq!(read_all(&reading(Framing::Lines, 0, Part::All), &long).unwrap().len(), 2);
    }

    #[test]
    fn records_have_a_limit() {
        let long = format!("a\n{}\nb", "y".repeat(2 << 20));
        let message = read_all(&reading(Framing::Lines, 0, Part::All), &long).unwrap_err();
        assert!(message.contains("begins at byte 2 has more than 1048576 bytes"), "{message}");
        assert!(read_all(&reading(Framing::Whole, 0, Part::All), &long).is_err());
    }

    #[test]
    fn a_line_waits_for_its_end() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"a\nb").unwrap();
        let reading = reading(Framing::Lines, 0, Part::All);
        let read = reading.read(&file, 0, 3, false).unwrap();
        assert_eq!((read.records.len(), read.position, read.is_end), (1, 2, false));
        let read = reading.read(&file, 2, 3, false).unwrap();
        assert_eq!((read.records.len(), read.position), (0, 2));
    }
}
