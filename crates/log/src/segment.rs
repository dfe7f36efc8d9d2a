//! One segment file: its name, what is known of it, and reading records from it.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use tidemill_types::{Error, Offset, Result, Timestamp};

use crate::api::Record;
use crate::disk::{DiskFile, read_full};
use crate::failure::IoResultExt;
use crate::format::{Checksum, RECORD_HEADER_BYTES, RecordHead, decode_record};

/// Every so many bytes a record's place is remembered.
const INDEX_BYTES: u64 = 64 << 10;

/// The file name of the segment that begins with `base`.
pub(crate) fn file_name(base: u64) -> String {
    format!("{base:020}.seg")
}

/// The first offset that a segment's file name gives, if it is one.
pub(crate) fn base_of_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg")?;
    (digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// What is known of a segment.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    /// Its first offset.
    pub base: u64,
    /// The offset after its last record that is on the disk.
    pub next: u64,
    /// The byte after that record.
    pub end_pos: u64,
    /// Checksum of its records.
    pub checksum: Checksum,
    /// Places of some records: (offset, byte), ascending.
    pub index: Index,
}

/// Places of some of a segment's records, about one every 64 KiB.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index(Vec<(u64, u64)>);

impl Index {
    /// Notes that the record `offset` begins at `pos`, unless its neighbour is close or it is known already.
    pub(crate) fn note(&mut self, offset: u64, pos: u64) {
        let far = self.0.last().is_none_or(|(o, p)| offset > *o && pos >= p + INDEX_BYTES);
        if far {
            self.0.push((offset, pos));
        }
    }

    /// The nearest noted place at or before `offset`.
    pub(crate) fn floor(&self, offset: u64) -> Option<(u64, u64)> {
        let after = self.0.partition_point(|(o, _)| *o <= offset);
        after.checked_sub(1).map(|i| self.0[i])
    }

    /// Forgets what begins at or after `pos`.
    pub(crate) fn cut(&mut self, pos: u64) {
        self.0.truncate(self.0.partition_point(|(_, p)| *p < pos));
    }
}

/// Where to read: a part of a segment that does not change any more.
pub(crate) struct Span {
    /// Place and offset of the first record looked at, at or before the wanted one.
    pub offset: u64,
    pub pos: u64,
    /// The byte after the last record.
    pub end_pos: u64,
    pub checksum: Checksum,
    pub path: PathBuf,
}

/// Reads records from `from` on: about `max_bytes`, at least one, none beyond the span.
pub(crate) fn read_records(
    file: &dyn DiskFile,
    span: &Span,
    from: u64,
    max_bytes: usize,
) -> Result<Vec<Record>> {
    let (mut pos, mut expected) = (span.pos, span.offset);
    let mut out = Vec::new();
    let mut want = max_bytes.clamp(RECORD_HEADER_BYTES, 64 << 20) + INDEX_BYTES as usize;
    while pos < span.end_pos && out.is_empty() {
        let n = (span.end_pos - pos).min(want as u64) as usize;
        let buf = read_bytes(file, &span.path, pos, n)?;
        let mut at = 0;
        let mut taken = 0;
        while let Some(size) = whole_record(&buf[at..]) {
            let head = decode_record(&buf[at..], span.checksum, expected)
                .map_err(|bad| corrupt(&span.path, pos + at as u64, expected, bad))?;
            if head.offset >= from {
                if !out.is_empty() && taken + size > max_bytes {
                    return Ok(out);
                }
                taken += size;
                out.push(record(&head, buf.slice(at + RECORD_HEADER_BYTES..at + head.payload_end())));
            }
            at += size;
            expected += 1;
        }
        // The next record did not fit: read it alone, as long as it says it is.
        want = match buf[at..].len() {
            n if n >= RECORD_HEADER_BYTES => RecordHead::decode(&buf[at..])
                .map_err(|bad| corrupt(&span.path, pos + at as u64, expected, bad))?
                .record_bytes()
                .max(want),
            _ => want,
        };
        if at == 0 && n == (span.end_pos - pos) as usize {
            return Err(corrupt(&span.path, pos, expected, "the record goes on after the segment's end"));
        }
        pos += at as u64;
    }
    Ok(out)
}

/// The record's size if all of it is in `buf`.
fn whole_record(buf: &[u8]) -> Option<usize> {
    let size = match RecordHead::decode(buf) {
        Ok(head) => head.record_bytes(),
        // Let the full check say what is wrong, once there are enough bytes to say it.
        Err(_) if buf.len() >= RECORD_HEADER_BYTES => RECORD_HEADER_BYTES,
        Err(_) => return None,
    };
    (size <= buf.len()).then_some(size)
}

fn read_bytes(file: &dyn DiskFile, path: &Path, pos: u64, n: usize) -> Result<Bytes> {
    let mut buf = vec![0; n];
    let got = read_full(file, pos, &mut buf).during("read", path)?;
    if got < n {
        return Err(Error::corrupt(format!(
            "{} ends at byte {}, expected at least {}: it was cut while the log was open",
            path.display(),
            pos + got as u64,
            pos + n as u64
        )));
    }
    Ok(Bytes::from(buf))
}

pub(crate) fn record(head: &RecordHead, payload: Bytes) -> Record {
    Record { offset: Offset(head.offset), time: Timestamp(head.time), payload }
}

/// A damaged place, for people.
pub(crate) fn corrupt(path: &Path, pos: u64, expected: u64, what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!(
        "{} is damaged at byte {pos}, where offset {expected} is expected: {what}",
        path.display()
    ))
}
