//! Reads a segment from its first byte and tells a torn tail from a damaged middle. Pure.
//!
//! A crash leaves the end of the last segment in any state in which the disk happened to be: the last write may
//! be there, missing, or there in parts, not necessarily the first parts. Nothing of it was acknowledged as
//! durable, so it may be cut. A bad record among those that were on the disk is another matter: cutting there
//! would lose what was promised. Three facts tell the two apart:
//!
//! 1. Whether a valid record comes later. If none does, the bad one is the tail.
//! 2. What the later ones say. A record says how many before it were not yet on the disk when it was written. If
//!    one says that the bad record was, the bad record is damage.
//! 3. Whether a disk sector between the bad place and the next valid record is all zeros. The file is only ever
//!    written at its end, so a sector that did not make it to the disk reads as zeros, while damage does not
//!    look like that. Without such a sector it is damage.
//!
//! Bounds: one window of [`WINDOW_BYTES`] in memory, however long the segment and its records are.

use std::io;

use thiserror::Error;

use crate::format::{
    BadRecord, Checksum, HeaderFault, RECORD_HEADER_BYTES, RecordHead, SEGMENT_HEADER_BYTES, SegmentHeader,
};

/// How much of a segment is in memory while it is scanned.
pub const WINDOW_BYTES: usize = 1 << 20;

/// The unit in which disks write: all of a sector or nothing of it.
const SECTOR_BYTES: u64 = 512;

/// Bytes that can be read at any place.
pub trait ByteSource {
    /// How many there are.
    fn len(&self) -> io::Result<u64>;

    /// Whether there are none.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from `pos` on as far as the bytes go; returns how far that was.
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

/// What a segment holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan {
    /// Its header.
    pub header: SegmentHeader,
    /// Bytes in the file.
    pub file_bytes: u64,
    /// The byte after its last whole group.
    pub end_pos: u64,
    /// The offset after its last whole group.
    pub next: u64,
    /// Every record below this offset is said by a later one to have been on the disk.
    pub known_durable: u64,
    /// Why the scan ended before the end of the file, if it did.
    pub fault: Option<Fault>,
}

/// A place where a record should be and is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The first byte of that place.
    pub pos: u64,
    /// The offset that the record should have.
    pub expected: u64,
    /// What is wrong there.
    pub record_fault: Option<BadRecord>,
    /// What that means.
    pub kind: FaultKind,
    /// Whole records at or behind [`Scan::end_pos`], found valid, that go when the segment is cut there.
    pub records_after: u64,
}

/// What a fault means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The rest of the file is zeros: room that was never written.
    Zeros,
    /// The last write did not get to the disk as a whole.
    Torn,
    /// A group whose last record was not written.
    Unfinished,
    /// Valid records follow: the place was good once.
    Damaged {
        /// Where the next valid record begins; `None` when the search was given up.
        next_valid: Option<(u64, u64)>,
    },
}

/// Why a segment cannot be scanned.
#[derive(Debug, Error)]
pub enum ScanError {
    /// Reading failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The header cannot be used.
    #[error(transparent)]
    Header(#[from] HeaderFault),
}

/// Scans `source` and shows every valid record, with its first byte's place, to `visit`.
///
/// Records of an unfinished group at the end are shown too; those before [`Scan::next`] count.
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

/// Decides what a bad record at `pos` means by what follows it.
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
    // A payload full of almost-records must not make recovery quadratic.
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

/// How a search for a valid record ended.
enum RecordSearch {
    Found(u64, RecordHead),
    Nothing,
    GaveUp,
}

/// A part of the source in memory.
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

    /// The `n` bytes from `pos` on, fewer only at the end; `n` is at most [`WINDOW_BYTES`].
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

    /// The record that begins at `pos` and has offset `expected`, or what is wrong with it.
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
            // What is left of the window first, so that small records share one read.
            let rest = (self.base + self.buf.len() as u64).saturating_sub(at);
            let n = (end - at).min(if rest > 0 { rest } else { WINDOW_BYTES as u64 });
            crc = Checksum::extend(crc, self.bytes(at, n as usize)?);
            at += n;
        }
        Ok(crc)
    }

    /// The first valid record at or after `from` with an offset of at least `least`.
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
            // No more records fit into what is left than that.
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

    /// Whether all bytes in `from..to` are zero.
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

    /// Whether a sector that ends in `from..=to` holds only zeros from `from` on.
    ///
    /// The sector in which `to` lies is left out: the valid record at `to` shows that it was written.
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
