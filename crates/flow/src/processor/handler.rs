//! What stands before and after a window: filters, stream functions and stateful processors.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;
use tidemill_types::FieldType;

use crate::columns::batch::{Batch, EventKind};
use crate::eval_error::EvalError;
use crate::expr::{EvalContext, Expr, Frame, RowExpr};
use crate::processor::StatefulHandler;
use crate::registry::{EventRef, StreamFunction};

/// A step that processes events before or after a window.
#[derive(Debug, Clone)]
pub enum Handler {
    /// `[condition]`
    Filter(Expr),
    /// `#function(…)`
    Function(Arc<dyn StreamFunction>, Vec<Expr>, Vec<FieldType>),
    /// A handler with state.
    Stateful(StatefulHandler),
}

/// Applies the handlers to the events, one after the other.
pub(crate) fn apply_handlers<'b>(
    handlers: &[Handler],
    input: &'b Batch,
    host: &dyn EvalContext,
) -> Result<Cow<'b, Batch>, EvalError> {
    let mut now = Cow::Borrowed(input);
    for handler in handlers {
        if now.is_empty() {
            return Ok(Cow::Owned(Batch::default()));
        }
        now = match handler {
            Handler::Filter(condition) => filter(condition, now, host)?,
            Handler::Function(function, args, added) => {
                Cow::Owned(call_stream_function(function.as_ref(), args, added, &now, host)?)
            }
            Handler::Stateful(_) => {
                return Err(EvalError::internal("a handler with a state cannot run here"));
            }
        };
    }
    Ok(now)
}

/// Returns the events that satisfy the condition; a reset always passes.
fn filter<'b>(
    condition: &Expr,
    input: Cow<'b, Batch>,
    host: &dyn EvalContext,
) -> Result<Cow<'b, Batch>, EvalError> {
    let mut passing: SmallVec<[bool; 16]> = SmallVec::new();
    for (rows, clock) in input.chunks() {
        for row in rows {
            let source = [Some((input.columns.as_slice(), row))];
            let frame = Frame { rows: &source, time: input.times[row], now: clock, host };
            passing.push(input.kinds[row] == EventKind::Reset || condition.is_true(&frame)?);
        }
    }
    if passing.iter().all(|passes| *passes) {
        return Ok(input);
    }
    if !passing.contains(&true) {
        return Ok(Cow::Owned(Batch::default()));
    }
    let mut out = Batch::new(input.columns.iter().map(crate::Column::ty));
    for (rows, clock) in input.chunks() {
        for row in rows.filter(|row| passing[*row]) {
            out.push_row(&input, row, input.kinds[row], input.times[row]);
        }
        out.end_chunk(clock);
    }
    Ok(Cow::Owned(out))
}

fn call_stream_function(
    function: &dyn StreamFunction,
    args: &[Expr],
    added: &[FieldType],
    input: &Batch,
    host: &dyn EvalContext,
) -> Result<Batch, EvalError> {
    let mut out = Batch::new(input.columns.iter().map(crate::Column::ty).chain(added.iter().copied()));
    for (rows, clock) in input.chunks() {
        for row in rows {
            let source = [Some((input.columns.as_slice(), row))];
            let frame = Frame { rows: &source, time: input.times[row], now: clock, host };
            let made = match input.kinds[row] {
                EventKind::Reset => vec![vec![]],
                EventKind::Current | EventKind::Expired => {
                    let args = args.iter().map(|a| a.eval(&frame)).collect::<Result<Vec<_>, _>>()?;
                    let event = EventRef { columns: &input.columns, row, time: input.times[row] };
                    function.call_in(&args, &event, host)?
                }
            };
            for values in made {
                let mut values = values.into_iter();
                for (i, column) in out.columns.iter_mut().enumerate() {
                    match input.columns.get(i) {
                        Some(from) => column.push_from(from, row),
                        None => column.push(values.next().unwrap_or_default()),
                    }
                }
                out.times.push(input.times[row]);
                out.kinds.push(input.kinds[row]);
                if function.emits_separate_chunks() {
                    out.end_chunk(clock);
                }
            }
        }
        out.end_chunk(clock);
    }
    Ok(out)
}

/// Compiles filters. Errors: a handler is not a filter, or its condition calls functions.
pub(crate) fn row_filters(handlers: &[Handler]) -> Result<Vec<RowExpr>, &'static str> {
    let filter = |handler: &Handler| match handler {
        Handler::Filter(condition) => {
            RowExpr::of(condition).ok_or("a filter calls functions or reads tables")
        }
        Handler::Function(..) | Handler::Stateful(_) => Err("it has a stream function"),
    };
    handlers.iter().map(filter).collect()
}
