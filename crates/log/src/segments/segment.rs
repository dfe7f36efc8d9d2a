//! Segment files: their names, their in-memory metadata, and reading records from them.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use tidemill_types::{Error, Offset, Result, Timestamp};

use crate::appender_clock::clock_at;
use crate::disks::disk::{DiskFile, read_full};
use crate::disks::failure::IoResultExt;
use crate::encryption::StoredRecord;
use crate::record::Record;
use crate::segments::format::{Checksum, RECORD_HEADER_BYTES, RecordHead, decode_record};

/// Minimum distance in bytes between two entries of a segment's [`SparseIndex`].
const INDEX_BYTES: u64 = 64 << 10;

/// Returns the file name of the segment whose first offset is `base`.
pub(crate) fn file_name(base: u64) -> String {
    format!("{base:020}.seg")
}

/// Parses the first offset from a segment's file name; `None` if `name` is not a segment file name.
pub(crate) fn base_of_name(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".seg")?;
    (digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
}

/// Metadata of a segment.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    /// First offset.
    pub base: u64,
    /// Offset after the last durable record.
    pub next: u64,
    /// Position after the last durable record, in bytes.
    pub end_pos: u64,
    pub checksum: Checksum,
    /// Sparse index from offsets to positions.
    pub index: SparseIndex,
}

/// Sparse index of a segment: ascending (offset, byte position) pairs, about one every 64 KiB.
#[derive(Debug, Clone, Default)]
pub(crate) struct SparseIndex(Vec<(u64, u64)>);

impl SparseIndex {
    /// Adds the record `offset` at `pos` if it is after the last entry and at least 64 KiB away from it.
    pub(crate) fn note(&mut self, offset: u64, pos: u64) {
        let far = self.0.last().is_none_or(|(o, p)| offset > *o && pos >= p + INDEX_BYTES);
        if far {
            self.0.push((offset, pos));
        }
    }

    /// Returns the last entry at or before `offset`.
    pub(crate) fn floor(&self, offset: u64) -> Option<(u64, u64)> {
        let after = self.0.partition_point(|(o, _)| *o <= offset);
        after.checked_sub(1).map(|i| self.0[i])
    }

    /// Removes the entries at or after `pos`.
    pub(crate) fn cut(&mut self, pos: u64) {
        self.0.truncate(self.0.partition_point(|(_, p)| *p < pos));
    }
}

/// The immutable part of a segment that a read may access.
pub(crate) struct SegmentSpan {
    /// Offset of the first record to decode, at or before the requested one; `pos` is its position.
    pub offset: u64,
    pub pos: u64,
    /// Position after the last readable record.
    pub end_pos: u64,
    pub checksum: Checksum,
    pub path: PathBuf,
}

/// Reads records from offset `from` on: about `max_bytes`, at least one, none beyond the span.
pub(crate) fn read_records(
    file: &dyn DiskFile,
    span: &SegmentSpan,
    from: u64,
    max_bytes: usize,
) -> Result<Vec<StoredRecord>> {
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
        // The next record did not fit: read at least its whole length next time.
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

/// Returns the size of the record at the start of `buf` if `buf` holds all of it.
fn whole_record(buf: &[u8]) -> Option<usize> {
    let size = match RecordHead::decode(buf) {
        Ok(head) => head.record_bytes(),
        // With a complete header, return its size so that the full check runs and reports the fault.
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

pub(crate) fn record(head: &RecordHead, payload: Bytes) -> StoredRecord {
    let time = Timestamp(head.time);
    let record = Record { offset: Offset(head.offset), time, clock: clock_at(time), payload };
    StoredRecord { record, is_encrypted: head.encrypted }
}

/// Returns the error for a damaged position of a segment file.
pub(crate) fn corrupt(path: &Path, pos: u64, expected: u64, what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!(
        "{} is damaged at byte {pos}, where offset {expected} is expected: {what}",
        path.display()
    ))
}
