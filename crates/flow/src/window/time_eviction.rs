//! Rows that leave by age.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::EvictionCounts;
use super::row_queue::RowQueue;
use crate::store::{RowId, RowStore};

/// Rows in the order of their arrival, of which the head leaves when it is `span` old. Only the head is looked at: a row
/// with an older timestamp waits for those before it.
#[derive(Debug, Clone)]
pub(super) struct TimeEviction {
    span: i64,
    state: State,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct State {
    held: RowQueue,
    /// When the head is to leave; the end of time when there is none. Kept apart, as it is asked for at each arrival.
    due: i64,
}

impl TimeEviction {
    pub(super) fn new(span: i64) -> Self {
        Self { span, state: State { held: RowQueue::default(), due: i64::MAX } }
    }

    /// When a row of this time is to leave.
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

    /// Takes the head if it is due at `now`.
    #[inline]
    pub(super) fn pop_due(&mut self, now: i64, rows: &RowStore) -> Option<RowId> {
        if now < self.state.due { None } else { self.pop(rows) }
    }

    /// Takes the head.
    pub(super) fn pop(&mut self, rows: &RowStore) -> Option<RowId> {
        let seq = self.state.held.pop()?;
        self.state.due = self.state.held.front().map_or(i64::MAX, |head| self.due(rows.time(head)));
        Some(seq)
    }

    /// Rows arrive one by one at the instants `clocks`, and before each those leave that are due; behind the last
    /// those that are due at `until`.
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
        // those due at `now` leave, of the rows before `end`
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

    /// What is to be saved.
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Takes what was saved back.
    pub(super) fn resume(&mut self, saved: State) {
        self.state = saved;
    }
}
