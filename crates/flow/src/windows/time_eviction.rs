//! Eviction of rows by age.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::store::{RowId, RowStore};
use crate::window::{EvictionCounts, RowQueue};

/// Rows in order of arrival. The oldest is evicted when its age reaches `span`. Only the head is checked: a
/// row with an older timestamp waits for those before it.
#[derive(Debug, Clone)]
pub(super) struct TimeEviction {
    span: i64,
    state: State,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct State {
    held: RowQueue,
    /// Time at which the head is evicted; `i64::MAX` without rows. Cached because every arrival reads it.
    due: i64,
}

impl TimeEviction {
    pub(super) fn new(span: i64) -> Self {
        Self { span, state: State { held: RowQueue::default(), due: i64::MAX } }
    }

    /// Returns when a row with this timestamp is evicted.
    #[inline]
    pub(super) fn due(&self, time: i64) -> i64 {
        time.saturating_add(self.span)
    }

    #[inline]
    pub(super) fn push(&mut self, seq: RowId, time: i64) {
        if self.state.held.is_empty() {
            self.state.due = self.due(time);
        }
        self.state.held.push(seq);
    }

    /// Removes and returns the head if it is due at `now`.
    #[inline]
    pub(super) fn pop_due(&mut self, now: i64, rows: &RowStore) -> Option<RowId> {
        if now < self.state.due { None } else { self.pop(rows) }
    }

    /// Removes and returns the head.
    pub(super) fn pop(&mut self, rows: &RowStore) -> Option<RowId> {
        let seq = self.state.held.pop()?;
        self.state.due = self.state.held.front().map_or(i64::MAX, |head| self.due(rows.time(head)));
        Some(seq)
    }

    /// Adds rows as chunks of their own that arrive at `clocks`. Before each, evicts the rows that are due;
    /// after the last, those that are due at `until`.
    pub(super) fn process_sliding(
        &mut self,
        rows: Range<RowId>,
        clocks: &[i64],
        until: Option<i64>,
        store: &RowStore,
    ) -> EvictionCounts {
        let State { held, due } = &mut self.state;
        let first = held.front().unwrap_or(rows.start);
        let (mut head, span) = (first, self.span);
        let (mut times, mut heads) = (store.time_cursor(), store.time_cursor());
        // evicts the rows due at `now` among those before `end`
        let mut leave = |now: i64, end: RowId, due: &mut i64| {
            let first = head;
            while now >= *due && head < end {
                head += 1;
                *due = if head < end { heads.get(head).saturating_add(span) } else { i64::MAX };
            }
            (head - first) as u32
        };
        let mut before = Vec::with_capacity(clocks.len());
        let mut left = first;
        for (seq, now) in rows.clone().zip(clocks) {
            let leaving = leave(*now, seq, due);
            left += RowId::from(leaving);
            if left == seq {
                *due = times.get(seq).saturating_add(span);
            }
            before.push(leaving);
        }
        let behind = until.map_or(0, |until| leave(until, rows.end, due));
        held.push_all(rows);
        held.pop_all(left - first + RowId::from(behind));
        EvictionCounts { before, after_last: behind }
    }

    pub(super) fn rows(&self) -> &RowQueue {
        &self.state.held
    }

    /// Returns the state to be saved.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Restores a saved state.
    pub(super) fn resume(&mut self, saved: State) {
        self.state = saved;
    }
}
