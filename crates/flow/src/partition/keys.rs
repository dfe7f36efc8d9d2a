//! Routing of events to keys: chunks are split wherever the key changes.

use std::borrow::Cow;
use std::fmt::Write as _;

use smallvec::SmallVec;

use super::plan::{KeyPart, PartitionPlan};
use crate::columns::batch::Batch;
use crate::columns::column::{Column, Data};
use crate::eval_error::EvalError;
use crate::expr::{EvalContext, Expr, Frame, Node};

/// Destination of the events of a stream.
pub enum EventDestination {
    /// All existing keys.
    AllKeys,
    /// These keys in order, up to the first event whose key could not be computed.
    Runs(SmallVec<[KeyRun; 1]>, Option<EvalError>),
}

/// Consecutive events of one key.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyRun {
    /// Text of the key.
    pub key: String,
    /// Rows of the events, ascending. A row appears twice if two parts give it this key.
    rows: SmallVec<[usize; 1]>,
}

impl KeyRun {
    /// Returns the events of the run, in their chunks.
    pub fn of<'b>(&self, events: &'b Batch) -> Cow<'b, Batch> {
        if self.rows.iter().copied().eq(0..events.len()) {
            return Cow::Borrowed(events);
        }
        let mut cut = Batch::new(events.columns.iter().map(Column::ty));
        let mut rows = self.rows.iter().copied().peekable();
        for (chunk, clock) in events.chunks() {
            while let Some(row) = rows.next_if(|row| *row < chunk.end) {
                cut.push_row(events, row, events.kinds[row], events.times[row]);
            }
            cut.end_chunk(clock);
        }
        Cow::Owned(cut)
    }
}

impl PartitionPlan {
    /// Determines the keys to which events of a stream go. Stops at the first event whose key cannot be
    /// computed, and drops the run before it.
    pub fn route(&self, stream: usize, events: &Batch, now: i64, host: &dyn EvalContext) -> EventDestination {
        let Some(keys) = self.keys.iter().find(|k| k.stream == stream) else {
            return EventDestination::AllKeys;
        };
        let mut cuts: SmallVec<[KeyRun; 1]> = SmallVec::new();
        let mut text = String::new();
        for row in 0..events.len() {
            let rows = [Some((events.columns.as_slice(), row))];
            let frame = Frame { rows: &rows, time: events.times[row], now, host };
            for part in &keys.parts {
                text.clear();
                match part.write_key(&frame, &mut text) {
                    Ok(false) => {}
                    Ok(true) => match cuts.last_mut().filter(|cut| cut.key == text) {
                        Some(cut) => cut.rows.push(row),
                        None => cuts.push(KeyRun { key: text.clone(), rows: SmallVec::from_elem(row, 1) }),
                    },
                    Err(failure) => {
                        cuts.pop();
                        return EventDestination::Runs(cuts, Some(failure));
                    }
                }
            }
        }
        EventDestination::Runs(cuts, None)
    }
}

impl KeyPart {
    /// Appends the event's key to `text`. Returns whether the event has one.
    pub(super) fn write_key(&self, frame: &Frame<'_>, text: &mut String) -> Result<bool, EvalError> {
        match self {
            Self::Value(key) => write_value(key, frame, text),
            Self::Range(condition, name) => {
                let within = condition.is_true(frame)?;
                if within {
                    text.push_str(name);
                }
                Ok(within)
            }
        }
    }
}

/// Appends the text of a value. Returns false for null.
fn write_value(key: &Expr, frame: &Frame<'_>, text: &mut String) -> Result<bool, EvalError> {
    // most keys are string columns
    if let Node::Column { slot: crate::expr::INPUT, column } = key.node
        && let Some(Some((columns, row))) = frame.rows.first()
        && let Data::Str(texts) = columns[column].data()
    {
        let there = !columns[column].is_null(*row);
        if there {
            text.push_str(texts.get(*row));
        }
        return Ok(there);
    }
    let value = key.eval(frame)?;
    if value.is_null() {
        return Ok(false);
    }
    write!(text, "{value}").map_err(|_| EvalError::internal("the partition key cannot be formatted"))?;
    Ok(true)
}
