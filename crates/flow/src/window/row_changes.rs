//! Output of windows: changes of rows, in chunks.

use super::row_queue::RowQueue;
use crate::columns::batch::EventKind;
use crate::store::{RowId, RowStore};

/// Change of a row by a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowChange {
    /// Kind of change.
    pub kind: EventKind,
    /// The row; 0 for a reset.
    pub seq: RowId,
    /// Timestamp of the emitted event, in milliseconds.
    pub time: i64,
}

/// Output of a window: row changes in order, grouped into chunks.
#[derive(Debug, Clone, Default)]
pub struct RowChanges {
    /// Row changes of all chunks.
    pub items: Vec<RowChange>,
    /// End index of each chunk in `items`.
    pub ends: Vec<usize>,
}

/// Position in [`RowChanges`] that [`RowChanges::rewind`] returns to.
#[derive(Debug, Clone, Copy)]
pub struct ChangeMark {
    items: usize,
    ends: usize,
}

impl RowChanges {
    /// Records the arrival of a row, which keeps its timestamp `time`.
    #[inline]
    pub fn current(&mut self, seq: RowId, time: i64) {
        self.items.push(RowChange { kind: EventKind::Current, seq, time });
    }

    /// Records that a row left; `time` becomes its timestamp.
    #[inline]
    pub fn expired(&mut self, seq: RowId, time: i64) {
        self.items.push(RowChange { kind: EventKind::Expired, seq, time });
    }

    /// Records the end of a batch.
    pub fn reset(&mut self, time: i64) {
        self.items.push(RowChange { kind: EventKind::Reset, seq: 0, time });
    }

    /// Ends a chunk of the changes since the last end; does nothing without changes.
    #[inline]
    pub fn end_chunk(&mut self) {
        if self.ends.last().copied().unwrap_or(0) < self.items.len() {
            self.ends.push(self.items.len());
        }
    }

    /// Returns the changes of each chunk.
    pub fn chunks(&self) -> impl Iterator<Item = &[RowChange]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.items[start..*end])
    }

    /// Removes all changes.
    pub fn clear(&mut self) {
        self.items.clear();
        self.ends.clear();
    }

    /// Returns the current position, for [`Self::rewind`].
    pub fn mark(&self) -> ChangeMark {
        ChangeMark { items: self.items.len(), ends: self.ends.len() }
    }

    /// Removes the changes since `mark`.
    pub fn rewind(&mut self, mark: ChangeMark) {
        self.items.truncate(mark.items);
        self.ends.truncate(mark.ends);
    }

    /// Records that all of `rows` left; `time` becomes their timestamp.
    pub(crate) fn all_expired(&mut self, rows: &RowQueue, time: i64) {
        self.items.extend(rows.iter().map(|seq| RowChange { kind: EventKind::Expired, seq, time }));
    }

    /// Records the arrival of all of `rows`, which keep their timestamps.
    pub(crate) fn all_current(&mut self, rows: &RowQueue, store: &RowStore) {
        self.items.extend(rows.iter().map(|seq| RowChange {
            kind: EventKind::Current,
            seq,
            time: store.time(seq),
        }));
    }
}
