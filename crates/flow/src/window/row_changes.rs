//! What windows put out.

use super::row_queue::RowQueue;
use crate::batch::EventKind;
use crate::store::{RowId, RowStore};

/// What a window says of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowChange {
    /// What happened to it.
    pub kind: EventKind,
    /// The row; nothing for a reset.
    pub seq: RowId,
    /// The timestamp that the event has from here on.
    pub time: i64,
}

/// What a window puts out, in chunks.
#[derive(Debug, Clone, Default)]
pub struct RowChanges {
    /// The events in order.
    pub items: Vec<RowChange>,
    /// Where each chunk ends.
    pub ends: Vec<usize>,
}

/// A place in [`RowChanges`].
#[derive(Debug, Clone, Copy)]
pub struct Savepoint {
    items: usize,
    ends: usize,
}

impl RowChanges {
    /// A row arrived; it keeps its timestamp `time`.
    #[inline]
    pub fn current(&mut self, seq: RowId, time: i64) {
        self.items.push(RowChange { kind: EventKind::Current, seq, time });
    }

    /// A row left; `time` is its timestamp from here on.
    #[inline]
    pub fn expired(&mut self, seq: RowId, time: i64) {
        self.items.push(RowChange { kind: EventKind::Expired, seq, time });
    }

    /// A batch ended.
    pub fn reset(&mut self, time: i64) {
        self.items.push(RowChange { kind: EventKind::Reset, seq: 0, time });
    }

    /// What was put out since the last end is one chunk.
    #[inline]
    pub fn end_chunk(&mut self) {
        if self.ends.last().copied().unwrap_or(0) < self.items.len() {
            self.ends.push(self.items.len());
        }
    }

    /// The events of each chunk.
    pub fn chunks(&self) -> impl Iterator<Item = &[RowChange]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.items[start..*end])
    }

    /// Nothing was put out.
    pub fn clear(&mut self) {
        self.items.clear();
        self.ends.clear();
    }

    /// The place behind everything so far, for [`Self::rewind`].
    pub fn mark(&self) -> Savepoint {
        Savepoint { items: self.items.len(), ends: self.ends.len() }
    }

    /// Takes back what was put out since `mark`.
    pub fn rewind(&mut self, mark: Savepoint) {
        self.items.truncate(mark.items);
        self.ends.truncate(mark.ends);
    }

    /// All of `rows` left at `time`.
    pub(super) fn all_expired(&mut self, rows: &RowQueue, time: i64) {
        self.items.extend(rows.iter().map(|seq| RowChange { kind: EventKind::Expired, seq, time }));
    }

    /// All of `rows` arrived; they keep their timestamps.
    pub(super) fn all_current(&mut self, rows: &RowQueue, store: &RowStore) {
        self.items.extend(rows.iter().map(|seq| RowChange {
            kind: EventKind::Current,
            seq,
            time: store.time(seq),
        }));
    }
}
