//! From events to keys: chunks are cut wherever the key changes.

use std::borrow::Cow;
use std::fmt::Write as _;

use smallvec::SmallVec;

use super::plan::{KeyPart, PartitionPlan};
use crate::batch::Batch;
use crate::column::{Column, Data};
use crate::expr::{EvalContext, EvalError, Expr, Frame, Node};
use crate::select;

/// Where the events of a stream go.
pub enum Route {
    /// To all keys seen so far.
    AllKeys,
    /// To these keys one after the other, until a key could not be computed.
    Runs(SmallVec<[KeyRun; 1]>, Option<EvalError>),
}

/// Events that go to one key together.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyRun {
    /// The key.
    pub key: String,
    /// The events' rows, ascending; one is there twice when two parts give it the same key.
    rows: SmallVec<[usize; 1]>,
}

impl KeyRun {
    /// Its events; they keep their chunks.
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
    /// Where events of a stream go. What could not be routed ends the way: of the chunk in which a key fails only the
    /// cuts before it go on.
    pub fn route(&self, stream: usize, events: &Batch, now: i64, host: &dyn EvalContext) -> Route {
        let Some(keys) = self.keys.iter().find(|k| k.stream == stream) else { return Route::AllKeys };
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
                        return Route::Runs(cuts, Some(failure));
                    }
                }
            }
        }
        Route::Runs(cuts, None)
    }
}

impl KeyPart {
    /// Writes the event's key behind `text`; whether it has one.
    fn write_key(&self, frame: &Frame<'_>, text: &mut String) -> Result<bool, EvalError> {
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

/// Writes the text of a value; false for null.
fn write_value(key: &Expr, frame: &Frame<'_>, text: &mut String) -> Result<bool, EvalError> {
    // most keys are texts as they came
    if let Node::Column { slot: select::INPUT, column } = key.node
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
    write!(text, "{value}").map_err(|_| EvalError("the key has no text".into()))?;
    Ok(true)
}
