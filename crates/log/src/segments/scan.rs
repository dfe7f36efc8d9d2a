//! Scans a segment from its first byte and distinguishes a torn tail from damage in the middle. Pure.
//!
//! After a crash the end of the last segment may be in any state: the last write may be present, missing, or
//! present in parts, not necessarily the first parts. None of it was acknowledged as durable, so it may be
//! truncated. A bad record among durable ones is different: truncating there would lose acknowledged records.
//! Three facts distinguish the two:
//!
//! 1. Whether a valid record follows. If none does, the bad record is the tail.
//! 2. The `unsynced` counts of the following records: how many records before each were not yet on the disk
//!    when it was written. If a count implies that the bad record was on the disk, it is damage.
//! 3. Whether a disk sector between the bad position and the next valid record is all zeros. The file is only
//!    written at its end, so a sector that did not reach the disk reads as zeros, while damage does not look
//!    like that. Without such a sector it is damage.
//!
//! Bounds: one window of [`WINDOW_BYTES`] in memory, regardless of the size of the segment and its records.

use std::io;

use thiserror::Error;

use crate::segments::format::{
    BadRecord, Checksum, HeaderFault, RECORD_HEADER_BYTES, RecordHead, SEGMENT_HEADER_BYTES, SegmentHeader,
};

/// Size of the part of a segment that is in memory during a scan.
pub const WINDOW_BYTES: usize = 1 << 20;

/// Unit of disk writes: a sector is written completely or not at all.
const SECTOR_BYTES: u64 = 512;

/// Bytes with random access.
pub trait ByteSource {
    /// Returns the number of bytes.
    fn len(&self) -> io::Result<u64>;

    /// Returns whether there are no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from `pos` on, up to the end of the bytes; returns the number of bytes read.
    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<usize>;
}

impl ByteSource for [u8] {
    fn len(&self) -> io::Result<u64> {
        Ok(<[u8]>::len(self) as u64)
    }

    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<usize> {
        let from = usize::try_from(pos).unwrap_or(usize::MAX).min(<[u8]>::len(self));
        let n = buf.len().min(<[u8]>::len(self) - from);
        buf[..n].copy_from_slice(&self[from..from + n]);
        Ok(n)
    }
}

/// Result of scanning a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// Header of the segment.
    pub header: SegmentHeader,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Position after the last whole group.
    pub end_pos: u64,
    /// Offset after the last whole group.
    pub next: u64,
    /// Records below this offset were on the disk when a later record was written.
    pub known_durable: u64,
    /// Fault that ended the scan before the end of the file; `None` if there was none.
    pub fault: Option<Fault>,
}

/// A position at which a valid record is expected and not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Position in bytes.
    pub pos: u64,
    /// Offset that the record should have.
    pub expected: u64,
    /// Fault of the record; `None` if the file ends inside a group.
    pub record_fault: Option<BadRecord>,
    /// Classification of the fault.
    pub kind: FaultKind,
    /// Number of valid records at or after [`Scan::end_pos`]; they are lost when the segment is truncated
    /// there.
    pub records_after: u64,
}

/// Classification of a [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The rest of the file is zeros: allocated but never written.
    Zeros,
    /// The last write reached the disk only in part.
    Torn,
    /// The last record of the last group was not written.
    Unfinished,
    /// Valid records follow: the record was valid once.
    Damaged {
        /// Position and offset of the next valid record; `None` when the search exceeded its budget.
        next_valid: Option<(u64, u64)>,
    },
}

/// Reason why a segment cannot be scanned.
#[derive(Debug, Error)]
pub enum ScanError {
    /// Reading failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The header is invalid.
    #[error(transparent)]
    Header(#[from] HeaderFault),
}

/// Scans `source` and passes every valid record and its position to `visit`.
///
/// Records of an unfinished group at the end are passed too; only those below [`Scan::next`] belong to the
/// log.
pub fn scan<S: ByteSource + ?Sized>(
    source: &S,
    mut visit: impl FnMut(&RecordHead, u64),
) -> Result<Scan, ScanError> {
    let mut window = ScanWindow::new(source)?;
    let header = SegmentHeader::decode(window.bytes(0, SEGMENT_HEADER_BYTES)?)?;
    let checksum = Checksum::new(header.salt);
    let mut pos = SEGMENT_HEADER_BYTES as u64;
    let mut scan = Scan {
        header,
        file_bytes: window.len,
        end_pos: pos,
        next: header.base,
        known_durable: header.base,
        fault: None,
    };
    let mut expected = header.base;
    while pos < window.len {
        let head = match window.check(pos, expected, checksum)? {
            Ok(head) => head,
            Err(bad) => {
                let mut fault = classify(&mut window, pos, expected, bad, checksum)?;
                fault.records_after += expected - scan.next;
                scan.fault = Some(fault);
                return Ok(scan);
            }
        };
        visit(&head, pos);
        pos += head.record_bytes() as u64;
        expected = expected.saturating_add(1);
        scan.known_durable = scan.known_durable.max(head.offset.saturating_sub(u64::from(head.unsynced)));
        if head.group_end {
            (scan.end_pos, scan.next) = (pos, expected);
        }
    }
    if scan.end_pos < pos {
        scan.fault = Some(Fault {
            pos,
            expected,
            record_fault: None,
            kind: FaultKind::Unfinished,
            records_after: expected - scan.next,
        });
    }
    Ok(scan)
}

/// Classifies a bad record at `pos` by the bytes that follow it.
fn classify<S: ByteSource + ?Sized>(
    window: &mut ScanWindow<'_, S>,
    pos: u64,
    expected: u64,
    bad: BadRecord,
    checksum: Checksum,
) -> io::Result<Fault> {
    let fault = |meaning, records_behind| Fault {
        pos,
        expected,
        record_fault: Some(bad),
        kind: meaning,
        records_after: records_behind,
    };
    if window.zeros(pos, window.len)? {
        return Ok(fault(FaultKind::Zeros, 0));
    }
    // Limit the search, so that a payload full of near-records does not make recovery quadratic.
    let mut budget = window.len.saturating_mul(4).saturating_add(64 << 20);
    let (mut at, mut least) = (pos + 1, expected);
    let (mut first, mut behind, mut proven) = (None, 0, 0);
    loop {
        let (found, head) = match window.next_valid(at, least, checksum, &mut budget)? {
            RecordSearch::Found(found, head) => (found, head),
            RecordSearch::Nothing => break,
            RecordSearch::GaveUp if first.is_some() => break,
            RecordSearch::GaveUp => return Ok(fault(FaultKind::Damaged { next_valid: None }, 0)),
        };
        first = first.or(Some((found, head.offset)));
        behind += 1;
        proven = proven.max(head.offset.saturating_sub(u64::from(head.unsynced)));
        at = found + head.record_bytes() as u64;
        least = head.offset.saturating_add(1);
    }
    let Some((next, offset)) = first else {
        return Ok(fault(FaultKind::Torn, 0));
    };
    let was_on_disk = proven > expected;
    if !was_on_disk && window.has_zero_sector(pos, next)? {
        return Ok(fault(FaultKind::Torn, behind));
    }
    Ok(fault(FaultKind::Damaged { next_valid: Some((next, offset)) }, behind))
}

/// Result of a search for a valid record.
enum RecordSearch {
    Found(u64, RecordHead),
    Nothing,
    GaveUp,
}

/// A part of the source in memory, at most [`WINDOW_BYTES`].
struct ScanWindow<'a, S: ByteSource + ?Sized> {
    source: &'a S,
    len: u64,
    base: u64,
    buf: Vec<u8>,
}

impl<'a, S: ByteSource + ?Sized> ScanWindow<'a, S> {
    fn new(source: &'a S) -> io::Result<Self> {
        Ok(Self { source, len: source.len()?, base: 0, buf: Vec::new() })
    }

    /// Returns the `n` bytes from `pos` on, fewer only at the end; `n` is at most [`WINDOW_BYTES`].
    fn bytes(&mut self, pos: u64, n: usize) -> io::Result<&[u8]> {
        let n = self.len.saturating_sub(pos).min(n as u64) as usize;
        let have = self.base..self.base + self.buf.len() as u64;
        if pos < have.start || pos + n as u64 > have.end {
            let fill = self.len.saturating_sub(pos).min(WINDOW_BYTES as u64) as usize;
            self.buf.resize(fill, 0);
            let got = self.source.read_at(pos, &mut self.buf)?;
            self.buf.truncate(got);
            self.base = pos;
            if got < n {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let at = (pos - self.base) as usize;
        Ok(&self.buf[at..at + n])
    }

    /// Decodes and checks the record at `pos`, which should have offset `expected`.
    fn check(
        &mut self,
        pos: u64,
        expected: u64,
        checksum: Checksum,
    ) -> io::Result<Result<RecordHead, BadRecord>> {
        let left = self.len - pos;
        let bytes = self.bytes(pos, RECORD_HEADER_BYTES)?;
        let head = match RecordHead::decode(bytes) {
            Ok(head) => head,
            Err(bad) => return Ok(Err(bad)),
        };
        let crc = checksum.of_head(bytes);
        if head.offset != expected {
            return Ok(Err(BadRecord::Offset { found: head.offset, expected }));
        }
        let needed = head.record_bytes() as u64;
        if needed > left {
            return Ok(Err(BadRecord::PastEnd { needed, left }));
        }
        let computed = self.payload_crc(crc, pos, &head)?;
        Ok(if computed == head.crc { Ok(head) } else { Err(BadRecord::Crc { stored: head.crc, computed }) })
    }

    fn payload_crc(&mut self, mut crc: u32, pos: u64, head: &RecordHead) -> io::Result<u32> {
        let mut at = pos + RECORD_HEADER_BYTES as u64;
        let end = pos + head.record_bytes() as u64;
        while at < end {
            // Use up the window first, so that small records share one read.
            let rest = (self.base + self.buf.len() as u64).saturating_sub(at);
            let n = (end - at).min(if rest > 0 { rest } else { WINDOW_BYTES as u64 });
            crc = Checksum::extend(crc, self.bytes(at, n as usize)?);
            at += n;
        }
        Ok(crc)
    }

    /// Searches for the first valid record at or after `from` with an offset of at least `least`.
    fn next_valid(
        &mut self,
        from: u64,
        least: u64,
        checksum: Checksum,
        budget: &mut u64,
    ) -> io::Result<RecordSearch> {
        let mut at = from;
        while at + RECORD_HEADER_BYTES as u64 <= self.len {
            let left = self.len - at;
            // Upper bound of the offset: no more records fit into the remaining bytes.
            let most = least.saturating_add(left / RECORD_HEADER_BYTES as u64);
            let head = RecordHead::decode(self.bytes(at, RECORD_HEADER_BYTES)?);
            if let Ok(head) = head
                && (least..=most).contains(&head.offset)
                && head.record_bytes() as u64 <= left
            {
                let cost = head.record_bytes() as u64;
                if *budget < cost {
                    return Ok(RecordSearch::GaveUp);
                }
                *budget -= cost;
                if self.check(at, head.offset, checksum)?.is_ok() {
                    return Ok(RecordSearch::Found(at, head));
                }
            }
            at += 1;
        }
        Ok(RecordSearch::Nothing)
    }

    /// Returns whether all bytes in `from..to` are zero.
    fn zeros(&mut self, from: u64, to: u64) -> io::Result<bool> {
        let mut at = from;
        while at < to {
            let n = (to - at).min(WINDOW_BYTES as u64) as usize;
            if self.bytes(at, n)?.iter().any(|b| *b != 0) {
                return Ok(false);
            }
            at += n as u64;
        }
        Ok(true)
    }

    /// Returns whether a sector that ends in `from..=to` holds only zeros from `from` on.
    ///
    /// The sector that contains `to` is excluded: the valid record at `to` shows that it was written.
    fn has_zero_sector(&mut self, from: u64, to: u64) -> io::Result<bool> {
        let mut at = from;
        loop {
            let end = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
            if end > to {
                return Ok(false);
            }
            if self.zeros(at, end)? {
                return Ok(true);
            }
            at = end;
        }
    }
}
