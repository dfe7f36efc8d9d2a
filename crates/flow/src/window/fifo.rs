//! Rows in the order of their arrival.

use std::collections::VecDeque;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::store::Seq;

/// A queue of rows with ascending numbers: as long as no number is left out it costs two numbers, however many it holds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Fifo {
    ranges: VecDeque<Range<Seq>>,
    len: u64,
}

impl Fifo {
    #[inline]
    pub(super) fn push(&mut self, seq: Seq) {
        self.len += 1;
        match self.ranges.back_mut() {
            Some(last) if last.end == seq => last.end += 1,
            _ => self.ranges.push_back(seq..seq + 1),
        }
    }

    pub(super) fn push_all(&mut self, rows: Range<Seq>) {
        if rows.is_empty() {
            return;
        }
        self.len += rows.end - rows.start;
        match self.ranges.back_mut() {
            Some(last) if last.end == rows.start => last.end = rows.end,
            _ => self.ranges.push_back(rows),
        }
    }

    #[inline]
    pub(super) fn front(&self) -> Option<Seq> {
        self.ranges.front().map(|range| range.start)
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Seq> {
        let first = self.ranges.front_mut()?;
        let seq = first.start;
        first.start += 1;
        if first.is_empty() {
            self.ranges.pop_front();
        }
        self.len -= 1;
        Some(seq)
    }

    /// Takes back the row that was pushed last.
    pub(super) fn pop_back(&mut self) {
        if let Some(last) = self.ranges.back_mut() {
            last.end -= 1;
            if last.is_empty() {
                self.ranges.pop_back();
            }
            self.len -= 1;
        }
    }

    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn clear(&mut self) {
        self.ranges.clear();
        self.len = 0;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Seq> + '_ {
        self.ranges.iter().cloned().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_kept() {
        let mut fifo = Fifo::default();
        fifo.push(3);
        fifo.push_all(4..6);
        fifo.push(9);
        assert_eq!((fifo.len(), fifo.iter().collect::<Vec<_>>()), (4, vec![3, 4, 5, 9]));
        assert_eq!((fifo.pop(), fifo.pop(), fifo.pop(), fifo.front()), (Some(3), Some(4), Some(5), Some(9)));
        fifo.pop_back();
        assert_eq!((fifo.pop(), fifo.is_empty()), (None, true));
    }
}
