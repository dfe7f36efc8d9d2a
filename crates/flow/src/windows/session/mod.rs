//! `session(gap [, key [, latency]])`: the events of a key until none arrives for `gap`.

mod sessions;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use tidemill_types::FieldType;

use self::sessions::{InsertOutcome, Session, Sessions};
use super::build::arity;
use crate::columns::value::format_time;
use crate::eval_error::EvalError;
use crate::registry::{Parameter, WindowInput};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore};
use crate::window::{RetainedRows, StatusContext, Window, WindowConstructor, WindowContext, WindowStatus};

pub(super) fn build(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 1..=3, "session(gap [, key [, latency]])")?;
    let gap = span(&parameters[0], "the gap")?;
    let key = parameters.get(1).map(|p| p.column("the key", &[FieldType::String])).transpose()?;
    let latency = parameters.get(2).map(|p| span(p, "the latency")).transpose()?.unwrap_or(0);
    if latency > gap {
        return Err("the latency must not be longer than the gap".into());
    }
    Ok(Arc::new(move || Box::new(SessionWindow { gap, key, latency, ..SessionWindow::default() })))
}

/// Returns a span parameter. As in Siddhi 5.1 a bare int is rejected, because it does not state its unit.
fn span(parameter: &Parameter, what: &str) -> Result<i64, String> {
    if parameter.expr.ty == FieldType::Int {
        let text = &parameter.text;
        return Err(format!("{what} must be a time or a long such as `5 sec` or `5000L`, found `{text}`"));
    }
    parameter.span(what)
}

/// Emits events on arrival and expires them with their session; they keep their timestamps.
///
/// A session ends by a timer, `gap` after its last event. With a latency it accepts late events for that much
/// longer before its events expire.
#[derive(Default)]
struct SessionWindow {
    gap: i64,
    key: Option<usize>,
    latency: i64,
    sessions: HashMap<Arc<str>, Sessions>,
    /// Open sessions, and ended ones that still accept late events.
    open: SessionOrder,
    ended: SessionOrder,
    /// Number of rows of all sessions.
    rows: usize,
    /// Number of keys that were ever created; numbers the keys.
    keys_created: u64,
}

/// Sessions ordered by their end, then by the creation order of their keys.
type SessionOrder = BTreeSet<(i64, u64, Arc<str>)>;

impl SessionWindow {
    fn key(&self, seq: RowId, rows: &RowStore) -> Arc<str> {
        let text = self.key.and_then(|column| rows.text(seq, column)).unwrap_or_default();
        match self.sessions.get_key_value(text) {
            Some((key, _)) => Arc::clone(key),
            None => text.into(),
        }
    }

    /// Changes the sessions of a key and keeps `open` and `ended` consistent.
    fn update_sessions<T>(&mut self, key: &Arc<str>, change: impl FnOnce(&mut Sessions) -> T) -> T {
        let mut sessions = self.sessions.remove(key).unwrap_or_else(|| {
            self.keys_created += 1;
            Sessions { born: self.keys_created, ..Sessions::default() }
        });
        let place = |session: &Session, born| (session.end, born, Arc::clone(key));
        for (order, session) in [(&mut self.open, &sessions.open), (&mut self.ended, &sessions.ended)] {
            if let Some(session) = session {
                order.remove(&place(session, sessions.born));
            }
        }
        let changed = change(&mut sessions);
        for (order, session) in [(&mut self.open, &sessions.open), (&mut self.ended, &sessions.ended)] {
            if let Some(session) = session {
                order.insert(place(session, sessions.born));
            }
        }
        if sessions.open.is_some() || sessions.ended.is_some() {
            self.sessions.insert(Arc::clone(key), sessions);
        }
        changed
    }

    fn expire(&mut self, session: Option<Session>, context: &mut WindowContext<'_>) {
        for seq in session.into_iter().flat_map(|session| session.rows) {
            self.rows -= 1;
            context.out.expired(seq, context.rows.time(seq));
        }
    }

    /// Retires a session that a new one replaces. This happens only within a chunk; otherwise a timer ends
    /// the session first. Returns the session that expires after the chunk, if any.
    fn retire_session(
        &mut self,
        key: &Arc<str>,
        session: Session,
        context: &mut WindowContext<'_>,
    ) -> Option<Session> {
        if self.latency == 0 {
            // in Siddhi 5.1 the new event would belong to no session and never expire
            self.expire(Some(session), context);
            return None;
        }
        context.timers.schedule(session.end.saturating_add(self.latency));
        self.update_sessions(key, |sessions| sessions.ended.replace(session))
    }
}

impl Window for SessionWindow {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        if let Some(column) = self.key
            && rows.clone().any(|seq| context.rows.text(seq, column).is_none())
        {
            return Err(EvalError::null("the key of the session"));
        }
        let mut behind = vec![];
        for seq in rows {
            let (time, gap) = (context.rows.time(seq), self.gap);
            let key = self.key(seq, context.rows);
            match self.update_sessions(&key, |sessions| sessions.insert(seq, time, gap)) {
                InsertOutcome::Lost => continue,
                InsertOutcome::Late => {}
                InsertOutcome::Open(earlier) => {
                    behind.extend(earlier.and_then(|session| self.retire_session(&key, session, context)));
                    context.timers.schedule(time.saturating_add(gap));
                }
            }
            self.rows += 1;
            context.out.current(seq, time);
        }
        for session in behind {
            self.expire(Some(session), context);
        }
        context.out.end_chunk();
        Ok(())
    }

    fn on_timer(&mut self, due: i64, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        while let Some((end, _, key)) = self.open.first().filter(|(end, ..)| *end <= due).cloned() {
            if self.latency > 0 {
                self.update_sessions(&key, Sessions::end_open);
                context.timers.schedule(end.saturating_add(self.latency));
            } else {
                let session = self.update_sessions(&key, |sessions| sessions.open.take());
                self.expire(session, context);
            }
        }
        let latency = self.latency;
        let is_over = |end: i64| end.saturating_add(latency) <= due;
        while let Some((_, _, key)) = self.ended.first().filter(|(end, ..)| is_over(*end)).cloned() {
            let session = self.update_sessions(&key, |sessions| sessions.ended.take());
            self.expire(session, context);
        }
        context.out.end_chunk();
        Ok(())
    }

    // in Siddhi 5.1 joins find nothing; here they find the events of all sessions, which the aggregates cover
    fn rows(&self) -> Vec<RowId> {
        let mut rows = self.sparse_rows();
        rows.sort_unstable();
        rows
    }

    fn retained_rows(&self) -> RetainedRows {
        RetainedRows::sparse(self.rows)
    }

    fn sparse_rows(&self) -> Vec<RowId> {
        self.sessions.values().flat_map(Sessions::rows).collect()
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let between = look.time_range(self.sparse_rows().into_iter());
        let ends = self.open.first().map(|(end, ..)| (end, "ends"));
        let gone = self.ended.first().map(|(end, ..)| (end, "takes late events"));
        let which = match self.open.len() + self.ended.len() {
            1 => "the session".to_owned(),
            count => format!("the first of {count} sessions"),
        };
        let waits_for = match ends.or(gone) {
            None => "an event, with which a session begins".to_owned(),
            Some((end, "ends")) => {
                let (end, gap) = (format_time(*end), self.gap);
                format!("the clock: {which} ends at {end} if no event of its key comes; the gap is {gap} ms")
            }
            Some((end, _)) => {
                let end = format_time(end.saturating_add(self.latency));
                format!("the clock: {which} has ended and takes late events until {end}")
            }
        };
        let leaves =
            [self.open.first(), self.ended.first()].into_iter().flatten().map(|(end, ..)| *end).min();
        WindowStatus::new(self.rows as u64, between, waits_for)
            .due(leaves.map(|end| end.saturating_add(self.latency)))
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        let mut sessions: Vec<(&str, &Sessions)> =
            self.sessions.iter().map(|(key, sessions)| (&**key, sessions)).collect();
        sessions.sort_unstable_by_key(|(_, sessions)| sessions.born);
        out.state(&sessions)
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let saved: Vec<(String, Sessions)> = from.state()?;
        *self = Self { gap: self.gap, key: self.key, latency: self.latency, ..Self::default() };
        for (key, sessions) in saved {
            self.rows += sessions.rows().count();
            self.keys_created = self.keys_created.max(sessions.born);
            let key = key.into();
            self.update_sessions(&key, |fresh| *fresh = sessions);
        }
        Ok(())
    }
}
