//! `externalTimeBatch(attribute, span [, start [, timeout [, replace]]])`: the events of each span of an
//! attribute's values as a batch; `unique:externalTimeBatch(key, …)` keeps the newest of each key.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_types::FieldType;

use super::build::arity;
use super::external_time::require_times;
use super::key::KeyEncoder;
use super::time_batch::grid_end;
use super::unique::UniqueBatch;
use crate::columns::value::format_time;
use crate::eval_error::EvalError;
use crate::expr::Node;
use crate::registry::{Parameter, WindowInput};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore};
use crate::window::{RetainedRows, StatusContext, Window, WindowConstructor, WindowContext, WindowStatus};

pub(super) fn build(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 2..=5, "externalTimeBatch(attribute, span [, start [, timeout [, replace]]])")?;
    make(parameters, None)
}

pub(super) fn build_unique(
    parameters: &[Parameter],
    _: &WindowInput<'_>,
) -> Result<WindowConstructor, String> {
    arity(parameters, 3..=6, "externalTimeBatch(key, attribute, span [, start [, timeout [, replace]]])")?;
    make(&parameters[1..], Some(KeyEncoder::unique(&parameters[..1])?))
}

fn make(parameters: &[Parameter], keys: Option<KeyEncoder>) -> Result<WindowConstructor, String> {
    let column = parameters[0].column("the time", &[FieldType::Long])?;
    let span = parameters[1].period("the span")?;
    let start = match parameters.get(2) {
        None => SpanStart::FirstEvent,
        Some(p) if matches!(p.expr.node, Node::Column { .. }) => {
            SpanStart::Attribute(p.column("the start", &[FieldType::Long])?)
        }
        Some(p) => SpanStart::Constant(p.instant("the start")?),
    };
    let timeout = parameters.get(3).map(|p| p.span_or_none("the timeout")).transpose()?.flatten();
    let replace = parameters.get(4).map(|p| p.flag("replace")).transpose()?.unwrap_or(false);
    Ok(Arc::new(move || {
        let (current, sent) = (BatchBuffer::new(keys.is_some()), BatchBuffer::new(keys.is_some()));
        let state = State { current, sent, span: None, latest: i64::MIN, due: 0, flushed: false };
        Box::new(ExternalTimeBatch { column, span, start, timeout, replace, keys: keys.clone(), state })
    }))
}

/// Start of the first span.
#[derive(Clone, Copy)]
enum SpanStart {
    FirstEvent,
    Constant(i64),
    /// Column of the first event that contains the start.
    Attribute(usize),
}

struct ExternalTimeBatch {
    column: usize,
    span: i64,
    start: SpanStart,
    /// Milliseconds that the clock may advance in a span before the rows collected so far are emitted; `None`
    /// to wait for an event that ends the span.
    timeout: Option<i64>,
    /// True if the attribute is set to the end of the span.
    replace: bool,
    keys: Option<KeyEncoder>,
    state: State,
}

#[derive(Serialize, Deserialize)]
struct State {
    /// Rows that are not emitted yet.
    current: BatchBuffer,
    /// Rows emitted last: the previous span, or after a timeout those of the running span so far.
    sent: BatchBuffer,
    /// Start of the first span, and end of the running one; `None` before the first event.
    span: Option<(i64, i64)>,
    /// Greatest value of the attribute so far.
    latest: i64,
    /// Due time of the effective timer; timers scheduled for earlier times do nothing.
    due: i64,
    /// Set once a timeout has emitted part of the running span.
    flushed: bool,
}

/// Rows of a batch.
#[derive(Serialize, Deserialize)]
enum BatchBuffer {
    All(Vec<RowId>),
    Unique(UniqueBatch),
}

impl BatchBuffer {
    fn new(unique: bool) -> Self {
        if unique { Self::Unique(UniqueBatch::default()) } else { Self::All(vec![]) }
    }

    fn as_slice(&self) -> &[RowId] {
        match self {
            Self::All(rows) => rows,
            Self::Unique(rows) => rows.rows(),
        }
    }

    fn append(&mut self, later: &Self) {
        match (self, later) {
            (Self::All(rows), Self::All(later)) => rows.extend(later),
            (Self::Unique(rows), Self::Unique(later)) => rows.put_all(later),
            _ => {}
        }
    }

    fn clear(&mut self) {
        match self {
            Self::All(rows) => rows.clear(),
            Self::Unique(rows) => rows.clear(),
        }
    }
}

impl ExternalTimeBatch {
    fn schedule_timeout(&mut self, context: &mut WindowContext<'_>) {
        if let Some(timeout) = self.timeout {
            self.state.due = context.now.saturating_add(timeout);
            context.timers.schedule(self.state.due);
        }
    }

    fn begin(&mut self, first: RowId, context: &mut WindowContext<'_>) {
        if self.state.span.is_some() {
            return;
        }
        let time = context.rows.long(first, self.column).unwrap_or_default();
        self.state.span = Some(match self.start {
            SpanStart::FirstEvent => (time, time.saturating_add(self.span)),
            SpanStart::Constant(start) => (start, grid_end(time, start, self.span)),
            SpanStart::Attribute(column) => {
                let start = context.rows.long(first, column).unwrap_or(time);
                (start, start.saturating_add(self.span))
            }
        });
        self.schedule_timeout(context);
    }

    fn add(&mut self, seq: RowId, end: i64, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        if self.replace {
            context.rows.set_long(seq, self.column, end);
        }
        match (&mut self.state.current, &mut self.keys) {
            (BatchBuffer::Unique(rows), Some(keys)) => rows.put(keys.encode(seq, context)?, seq),
            (BatchBuffer::All(rows), _) => rows.push(seq),
            _ => {}
        }
        Ok(())
    }

    fn all_current(rows: &BatchBuffer, context: &mut WindowContext<'_>) {
        for seq in rows.as_slice() {
            context.out.current(*seq, context.rows.time(*seq));
        }
    }

    fn all_expired(&self, context: &mut WindowContext<'_>) {
        if context.wants_expired {
            for seq in self.state.sent.as_slice() {
                context.out.expired(*seq, self.state.latest);
            }
        }
    }

    /// Expires the batch emitted before and emits the collected rows.
    fn flush(&mut self, by_timer: bool, context: &mut WindowContext<'_>) {
        self.all_expired(context);
        self.state.sent.clear();
        if !self.state.current.as_slice().is_empty() {
            context.out.reset(self.state.latest);
            Self::all_current(&self.state.current, context);
        }
        mem::swap(&mut self.state.current, &mut self.state.sent);
        self.drop_sent(by_timer, context);
        context.out.end_chunk();
    }

    /// Emits the rows that a timeout emitted once more, followed by the rows collected since.
    fn flush_rest(&mut self, by_timer: bool, context: &mut WindowContext<'_>) {
        if self.state.current.as_slice().is_empty() {
            return;
        }
        self.all_expired(context);
        context.out.reset(self.state.latest);
        if self.keys.is_some() {
            // an emitted event is replaced by a later one of its key
            self.state.sent.append(&self.state.current);
            Self::all_current(&self.state.sent, context);
        } else {
            Self::all_current(&self.state.sent, context);
            Self::all_current(&self.state.current, context);
            self.state.sent.append(&self.state.current);
        }
        self.state.current.clear();
        self.drop_sent(by_timer, context);
        context.out.end_chunk();
    }

    /// Drops the emitted batch, unless a timeout emitted it, in which case it is emitted once more with the
    /// rest, or the batch is retained for expired events or searches.
    fn drop_sent(&mut self, by_timer: bool, context: &WindowContext<'_>) {
        if !by_timer && !context.retains_sent_batches() {
            self.state.sent.clear();
        }
    }
}

impl Window for ExternalTimeBatch {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        require_times(rows.clone(), self.column, context.rows)?;
        if !rows.is_empty() {
            self.begin(rows.start, context);
        }
        for seq in rows {
            let time = context.rows.long(seq, self.column).unwrap_or_default();
            self.state.latest = self.state.latest.max(time);
            let Some((start, end)) = self.state.span else { continue };
            if time < end {
                self.add(seq, end, context)?;
                continue;
            }
            if mem::take(&mut self.state.flushed) {
                self.flush_rest(false, context);
            } else {
                self.flush(false, context);
            }
            let end = grid_end(self.state.latest, start, self.span);
            self.state.span = Some((start, end));
            self.add(seq, end, context)?;
            self.schedule_timeout(context);
        }
        Ok(())
    }

    fn on_timer(&mut self, due: i64, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        if due < self.state.due {
            return Ok(());
        }
        if mem::replace(&mut self.state.flushed, true) {
            self.flush_rest(true, context);
        } else {
            self.flush(true, context);
        }
        self.schedule_timeout(context);
        Ok(())
    }

    fn rows(&self) -> Vec<RowId> {
        self.state.sent.as_slice().to_vec()
    }

    fn retained_rows(&self) -> RetainedRows {
        let (sent, current) = (self.state.sent.as_slice(), self.state.current.as_slice());
        match self.keys {
            None => RetainedRows::from_oldest(sent.first().or(current.first()).copied()),
            Some(_) => RetainedRows::sparse(sent.len() + current.len()),
        }
    }

    fn sparse_rows(&self) -> Vec<RowId> {
        [self.state.sent.as_slice(), self.state.current.as_slice()].concat()
    }

    fn rewritten_column(&self) -> Option<usize> {
        self.replace.then_some(self.column)
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let current = self.state.current.as_slice();
        let between = look.time_range(current.iter().copied());
        let Some((_, end)) = self.state.span else {
            return WindowStatus::new(0, None, "an event, with which the first batch begins");
        };
        let mut waits_for = format!("an event with {} from {} on", look.name(self.column), format_time(end));
        let due = self.timeout.map(|_| self.state.due);
        if let Some(due) = due {
            waits_for +=
                &format!(", or the clock: without an event the batch is emitted at {}", format_time(due));
        }
        WindowStatus::new(current.len() as u64, between, waits_for).due(due)
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.state(&self.state)
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        self.state = from.state()?;
        Ok(())
    }
}
