//! Reading the changes of a partition, in this process or for another one.
//!
//! The change log has a record for each record of the log that changed documents; those of a large one are several:
//!
//! ```text
//! change log   0          1              2              3
//! record       7          12             12             30
//! changes      7.0 7.1    12.0 … 12.99   12.100 …       30.0
//! ```
//!
//! A reader after (12, 100) begins at 2. It finds that place by the offset of the record, which is the same at all nodes, and
//! keeps a cursor for the next time.

use std::hash::{BuildHasher, Hasher, RandomState};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidemill_log::{LocalLog, Log, Record};
use tidemill_types::{Error, ErrorKind, Offset, PartitionId, Result, Timestamp};

use super::codec;

/// Bytes that are read of a partition at once.
pub const READ_BYTES: usize = 1 << 20;

/// Place in the files of one replica, for the one who continues there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeCursor {
    /// Number of the opened files. Others have another one.
    opened: u64,
    /// Record of the change log.
    pub offset: Offset,
    /// Record of the log whose changes come first in the record before, and the number of them up to here.
    before: Option<(Offset, u32)>,
}

/// A record of the change log.
#[derive(Debug, Clone)]
pub struct ChangePayload {
    /// Its offset in the change log of the replica.
    pub offset: Offset,
    /// The number of its first change among those of the record of the log.
    pub first: u32,
    /// The changes, see [`codec::decode`].
    pub payload: Bytes,
}

/// Changes of a partition that were read.
#[derive(Debug)]
pub struct ReadChanges {
    /// Records of the change log. The first one may have changes before the place.
    pub payloads: Vec<ChangePayload>,
    /// Place after them.
    pub cursor: ChangeCursor,
    /// True if there were no more below the given end.
    pub is_all: bool,
}

/// Changes of a partition that another process may have asked for.
#[derive(Debug)]
pub struct ChangesPart {
    /// Offset after the last record of the log that readers see.
    pub next: Offset,
    /// The changes.
    pub read: ReadChanges,
}

/// The changes of a partition.
pub struct PartitionChanges {
    pub(super) log: LocalLog,
    id: PartitionId,
    opened: u64,
}

impl PartitionChanges {
    pub(super) fn new(log: LocalLog, id: PartitionId) -> Self {
        Self { log, id, opened: RandomState::new().build_hasher().finish() }
    }

    /// Returns the first offset that is kept.
    pub fn start(&self) -> Offset {
        self.log.start(self.id)
    }

    /// Returns the offset after the last change.
    pub fn end(&self) -> Offset {
        self.log.end(self.id)
    }

    /// Returns the cursor at an offset of the change log with which the changes of a record begin.
    pub fn cursor(&self, offset: Offset) -> ChangeCursor {
        ChangeCursor { opened: self.opened, offset, before: None }
    }

    /// Returns the cursor with which a reader continues after a place in the log: a record, and the number of its changes that were read.
    ///
    /// Errors: `NotFound` if changes after it are not kept.
    pub fn cursor_after(&self, (record, _): (Offset, u32)) -> Result<ChangeCursor> {
        let (start, end) = (self.start(), self.end());
        // the first one that is kept may have lost its first part, and the mark of a history has the record before it
        let is_kept = start < end && self.source(start)?.0 < record;
        match is_kept {
            true => Ok(self.cursor(self.first(|source, _| source >= record)?)),
            false => Err(not_kept()),
        }
    }

    /// Returns whether a cursor was made by this replica since it was opened.
    pub fn has_made(&self, cursor: &ChangeCursor) -> bool {
        cursor.opened == self.opened
    }

    /// Returns the first offset of the change log whose changes were made at `time` or later.
    ///
    /// Errors: `NotFound` if such changes are not kept any more.
    pub fn first_at(&self, time: Timestamp) -> Result<Offset> {
        let start = self.start();
        // the first record that is kept says how far back the history goes
        if start < self.end() && self.source(start)?.1 > time {
            return Err(not_kept());
        }
        self.first(|_, made| made >= time)
    }

    /// Returns the place in the log of the first change at an offset of the change log; `None` at its end.
    pub fn place_of(&self, offset: Offset) -> Result<Option<(Offset, u32)>> {
        let Some(record) = self.read(offset, 1)?.into_iter().next() else { return Ok(None) };
        let (source, _) = codec::source(&record.payload)?;
        // a history begins after its mark
        let is_mark = codec::count(&record.payload)? == 0;
        Ok(Some((if is_mark { source.next() } else { source }, 0)))
    }

    /// Returns the place in the log of a change of the change log: the one with the number `at` in the record at `offset`.
    ///
    /// Errors: `NotFound` if it, or what comes before it of the same record of the log, is not kept; `Invalid` for another place.
    pub fn place_of_change(&self, offset: Offset, at: u32) -> Result<(Offset, u32)> {
        let record = |offset| {
            let record = self.read(offset, 1)?.into_iter().next();
            let payload = record.ok_or_else(not_kept)?.payload;
            Ok::<_, Error>((codec::source(&payload)?.0, codec::count(&payload)?))
        };
        if offset < self.start() {
            return Err(not_kept());
        }
        let (source, count) = record(offset)?;
        match (at, count) {
            // a history begins after its mark
            (0, 0) => return Ok((source.next(), 0)),
            _ if at >= count => return Err(Error::invalid("the position of a change names none")),
            _ => {}
        }
        let mut first = 0;
        for before in (self.start().0..offset.0).rev().map(Offset) {
            match record(before)? {
                (same, count) if same == source && count > 0 => first += count,
                _ => return Ok((source, first + at)),
            }
        }
        // the changes of the record that come first may be missing
        Err(not_kept())
    }

    /// Returns the first record of the log that is out of order, or not below `end`: the log has lost it, and its changes are kept.
    ///
    /// Errors: those of reading the files.
    pub fn lost_record(&self, end: Offset) -> Result<Option<Offset>> {
        let (mut at, mut before) = (self.start(), Offset(0));
        while at < self.end() {
            let records = self.read(at, READ_BYTES)?;
            let Some(last) = records.last() else { break };
            at = last.offset.next();
            for record in &records {
                let (source, _) = codec::source(&record.payload)?;
                if source < before || source >= end {
                    return Ok(Some(source));
                }
                before = source;
            }
        }
        Ok(None)
    }

    /// Returns the first offset for which `is_after` holds, which holds for all behind it.
    fn first(&self, is_after: impl Fn(Offset, Timestamp) -> bool) -> Result<Offset> {
        let (mut low, mut high) = (self.start(), self.end());
        while low < high {
            let middle = Offset(low.0 + (high.0 - low.0) / 2);
            let (source, time) = self.source(middle)?;
            match is_after(source, time) {
                true => high = middle,
                false => low = middle.next(),
            }
        }
        Ok(low)
    }

    fn source(&self, offset: Offset) -> Result<(Offset, Timestamp)> {
        let record = self.read(offset, 1)?.into_iter().next();
        codec::source(&record.ok_or_else(not_kept)?.payload)
    }

    /// Returns the record of the log whose changes come last.
    pub(super) fn last_source(&self) -> Result<Option<Offset>> {
        match self.end().0.checked_sub(1) {
            Some(last) if Offset(last) >= self.start() => {
                self.source(Offset(last)).map(|(source, _)| Some(source))
            }
            _ => Ok(None),
        }
    }

    /// Reads about `bytes` of changes below `end`, an offset of the change log.
    ///
    /// Errors: `NotFound` if they are not kept any more.
    pub fn read_from(&self, cursor: ChangeCursor, end: Offset, bytes: usize) -> Result<ReadChanges> {
        let mut read = ReadChanges { payloads: Vec::new(), cursor, is_all: cursor.offset >= end };
        if read.is_all {
            return Ok(read);
        }
        for record in self.read(cursor.offset, bytes)?.into_iter().take_while(|record| record.offset < end) {
            let (source, _) = codec::source(&record.payload)?;
            let first =
                read.cursor.before.filter(|(before, _)| *before == source).map_or(0, |(_, count)| count);
            let count = codec::count(&record.payload)?;
            read.cursor.offset = record.offset.next();
            read.cursor.before = Some((source, first + count));
            read.payloads.push(ChangePayload { offset: record.offset, first, payload: record.payload });
        }
        read.is_all = read.cursor.offset >= end;
        Ok(read)
    }

    fn read(&self, from: Offset, bytes: usize) -> Result<Vec<Record>> {
        self.log.read(self.id, from, bytes).map_err(|e| match e.kind() {
            ErrorKind::NotFound => not_kept(),
            _ => e,
        })
    }

    /// Drops the oldest changes, if there are more than `bytes_max` bytes.
    ///
    /// Errors: `Unavailable` when files cannot be removed.
    pub(super) fn truncate(&self, bytes_max: u64) -> Result<()> {
        let bytes = self.log.bytes(self.id);
        if bytes <= bytes_max {
            return Ok(());
        }
        let (start, end) = (self.start().0, self.end().0);
        // records are about equally large; whole segments go only, so rather too few than too many
        let surplus = (end - start) as f64 * ((bytes - bytes_max) as f64 / bytes as f64);
        self.log.truncate(self.id, Offset(start + surplus as u64))
    }

    /// Closes the files.
    pub(super) fn close(&self) {
        // what is not on the disk is written again
        let _ = self.log.close();
    }
}

/// Returns the error for changes that are not kept.
pub fn not_kept() -> Error {
    Error::not_found(
        "the changes after this position are not kept any more: begin a new stream, or raise `change_stream_bytes`",
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use bson::rawdoc;
    use tidemill_docs::{ChangeKind, DocBytes, DocumentChange, Key};
    use tidemill_log::disk::OsDisk;

    use super::*;
    use crate::app::settings::Settings;
    use crate::changes::{ChangeLog, RecordChanges};

    const P: PartitionId = PartitionId(0);

    fn open(dir: &Path) -> ChangeLog {
        let log = ChangeLog::new(Arc::new(OsDisk), dir, 1, &Settings::default());
        log.open().unwrap();
        log
    }

    /// Appends the changes of a record, in records of the change log with two changes each.
    fn append(log: &ChangeLog, record: u64, changes: i32) {
        let change = |n: i32| DocumentChange {
            kind: ChangeKind::Insert,
            collection: "Total".into(),
            key: Key::of_bson(&bson::Bson::Int32(n)).unwrap(),
            before: None,
            after: Some(DocBytes::from(rawdoc! { "_id": n }.into_bytes())),
            place: 0,
            moved: None,
        };
        let at = (Offset(record), Timestamp(record.cast_signed()));
        let of =
            |changes: &[DocumentChange]| codec::encode(at, None, changes, |_| false, usize::MAX).unwrap();
        let changes: Vec<DocumentChange> = (0..changes).map(change).collect();
        let payloads = changes.chunks(2).flat_map(of).collect();
        log.append(P, &RecordChanges { offset: at.0, time: at.1, payloads }).unwrap();
    }

    #[test]
    fn a_change_of_the_change_log_has_a_place_in_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path());
        log.append(P, &log.begin(P, Offset(6), Timestamp(0)).unwrap()).unwrap();
        append(&log, 7, 1);
        append(&log, 12, 5);
        append(&log, 30, 1);
        let changes = log.of(P).unwrap();
        let place = |offset, at| changes.place_of_change(Offset(offset), at);
        // 0 is the mark, 1 has record 7, 2 to 4 have record 12, 5 has record 30
        for ((offset, at), expected) in [
            ((0, 0), (7, 0)),
            ((1, 0), (7, 0)),
            ((2, 0), (12, 0)),
            ((2, 1), (12, 1)),
            ((3, 0), (12, 2)),
            ((4, 0), (12, 4)),
            ((5, 0), (30, 0)),
        ] {
            assert_eq!(place(offset, at).unwrap(), (Offset(expected.0), expected.1), "{offset}.{at}");
        }
        for (offset, at) in [(0, 1), (1, 1), (4, 1)] {
            assert_eq!(place(offset, at).unwrap_err().kind(), ErrorKind::Invalid, "{offset}.{at}");
        }
        assert_eq!(place(6, 0).unwrap_err().kind(), ErrorKind::NotFound, "it is behind the end");
    }

    #[test]
    fn changes_of_records_that_the_log_has_lost_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let log = open(dir.path());
        append(&log, 7, 3);
        append(&log, 12, 1);
        let lost = |end| log.of(P).unwrap().lost_record(Offset(end)).unwrap();
        assert_eq!((lost(13), lost(12)), (None, Some(Offset(12))));
        // a power failure took 8 to 12 from the log, and another record got the offset 9
        append(&log, 9, 1);
        assert_eq!(lost(13), Some(Offset(9)));
    }
}
