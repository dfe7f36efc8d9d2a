//! Queue of rows in order of arrival.

use std::collections::VecDeque;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::store::RowId;

/// Queue of ascending row ids, stored as ranges: without gaps it costs two numbers, however many rows it
/// contains.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RowQueue {
    /// The oldest rows, up to the first gap; empty only if the queue is empty.
    first: Range<RowId>,
    /// The ranges after `first`, ascending.
    later: VecDeque<Range<RowId>>,
    len: u64,
}

impl RowQueue {
    #[inline]
    pub(crate) fn push(&mut self, seq: RowId) {
        self.push_all(seq..seq + 1);
    }

    #[inline]
    pub(crate) fn push_all(&mut self, rows: Range<RowId>) {
        let last = self.later.back_mut().unwrap_or(&mut self.first);
        self.len += rows.end - rows.start;
        if last.end == rows.start {
            last.end = rows.end;
        } else {
            self.push_after_gap(rows);
        }
    }

    #[cold]
    fn push_after_gap(&mut self, rows: Range<RowId>) {
        if rows.is_empty() {
            return;
        }
        if self.first.is_empty() {
            self.first = rows;
        } else {
            self.later.push_back(rows);
        }
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<RowId> {
        (!self.first.is_empty()).then_some(self.first.start)
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<RowId> {
        let seq = self.front()?;
        self.first.start += 1;
        self.len -= 1;
        if self.first.is_empty()
            && let Some(next) = self.later.pop_front()
        {
            self.first = next;
        }
        Some(seq)
    }

    /// Removes the oldest `count` rows. The queue must not have gaps.
    pub(crate) fn pop_all(&mut self, count: u64) {
        debug_assert!(self.later.is_empty() && count <= self.len);
        self.first.start += count;
        self.len -= count;
    }

    /// Returns whether the queue has no gap and would have none after `next` is pushed.
    pub(crate) fn is_contiguous_with(&self, next: RowId) -> bool {
        self.is_empty() || self.later.is_empty() && self.first.end == next
    }

    /// Removes the row that was pushed last.
    pub(crate) fn pop_back(&mut self) {
        if self.is_empty() {
            return;
        }
        self.len -= 1;
        let last = self.later.back_mut().unwrap_or(&mut self.first);
        last.end -= 1;
        if last.is_empty() {
            self.later.pop_back();
        }
    }

    /// Returns whether the queue contains a row.
    #[inline]
    pub(crate) fn contains(&self, seq: RowId) -> bool {
        if self.first.contains(&seq) {
            return true;
        }
        let later = self.later.partition_point(|rows| rows.end <= seq);
        self.later.get(later).is_some_and(|rows| rows.contains(&seq))
    }

    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn clear(&mut self) {
        self.first = 0..0;
        self.later.clear();
        self.len = 0;
    }

    /// Returns the rows, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = RowId> + '_ {
        std::iter::once(&self.first).chain(&self.later).cloned().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_kept() {
        let mut fifo = RowQueue::default();
        fifo.push(3);
        fifo.push_all(4..6);
        fifo.push(9);
        assert_eq!((fifo.len(), fifo.iter().collect::<Vec<_>>()), (4, vec![3, 4, 5, 9]));
        assert_eq!((fifo.pop(), fifo.pop(), fifo.pop(), fifo.front()), (Some(3), Some(4), Some(5), Some(9)));
        fifo.pop_back();
        assert_eq!((fifo.pop(), fifo.is_empty()), (None, true));
    }
}
