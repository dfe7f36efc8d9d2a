//! Sessions of a key.

use std::collections::VecDeque;
use std::mem;

use serde::{Deserialize, Serialize};

use crate::store::RowId;

/// The open session and, with a latency, the one before it, which has ended but still accepts late events.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Sessions {
    pub(super) open: Option<Session>,
    pub(super) ended: Option<Session>,
    /// Creation number of the key; orders sessions of different keys.
    pub(super) born: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Session {
    /// Oldest timestamp, in milliseconds.
    pub(super) start: i64,
    /// Time at which the session ends if no event arrives, in milliseconds.
    pub(super) end: i64,
    pub(super) rows: VecDeque<RowId>,
}

/// Outcome of inserting an event.
pub(super) enum InsertOutcome {
    /// The event belongs to the open session, whose end moved. Contains the previous session if the event
    /// began a new one; the caller retires it.
    Open(Option<Session>),
    /// The event is late and joined a session; the end of the open session did not move, so no timer is
    /// needed.
    Late,
    /// The event is too late and belongs to no session.
    Lost,
}

impl Session {
    fn of(seq: RowId, time: i64, gap: i64) -> Self {
        Self { start: time, end: time.saturating_add(gap), rows: VecDeque::from([seq]) }
    }
}

impl Sessions {
    /// Inserts an event.
    pub(super) fn insert(&mut self, seq: RowId, time: i64, gap: i64) -> InsertOutcome {
        match &mut self.open {
            None => self.open = Some(Session::of(seq, time, gap)),
            Some(open) if time < open.start => return self.late(seq, time, gap),
            Some(open) if time <= open.end => {
                open.rows.push_back(seq);
                open.end = time.saturating_add(gap);
            }
            Some(open) => return InsertOutcome::Open(Some(mem::replace(open, Session::of(seq, time, gap)))),
        }
        InsertOutcome::Open(None)
    }

    /// Inserts an event that is older than the open session.
    fn late(&mut self, seq: RowId, time: i64, gap: i64) -> InsertOutcome {
        let Some(open) = &mut self.open else { return InsertOutcome::Lost };
        if time >= open.start.saturating_sub(gap) {
            open.rows.push_front(seq);
            open.start = time;
        } else {
            let Some(ended) = self.ended.as_mut().filter(|e| time >= e.start.saturating_sub(gap)) else {
                return InsertOutcome::Lost;
            };
            ended.rows.push_back(seq);
            if time < ended.start && time <= ended.end.saturating_sub(gap) {
                ended.start = time;
                return InsertOutcome::Late;
            }
            ended.end = time.saturating_add(gap);
        }
        self.merge(gap);
        InsertOutcome::Late
    }

    /// Merges the two sessions if the gap between them is closed.
    fn merge(&mut self, gap: i64) {
        let Some(open) = &mut self.open else { return };
        let near = |ended: &mut Session| ended.end >= open.start.saturating_sub(gap);
        if let Some(mut ended) = self.ended.take_if(near) {
            ended.rows.append(&mut open.rows);
            open.rows = ended.rows;
            open.start = ended.start;
        }
    }

    /// Ends the open session and merges into it an ended one that still accepts late events.
    pub(super) fn end_open(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        if let Some(mut ended) = self.ended.take() {
            ended.rows.append(&mut open.rows);
            open.rows = ended.rows;
        }
        self.ended = Some(open);
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = RowId> + '_ {
        self.ended.iter().chain(&self.open).flat_map(|session| session.rows.iter().copied())
    }
}
