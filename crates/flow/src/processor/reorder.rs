//! `#reorder:kslack(ts [, timeout [, max.k]] [, discard.late])`: events in order of an attribute, delayed by
//! the greatest lateness seen so far.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tidemill_types::FieldType;

use super::reorder_buffer::{ReorderBuffer, SavedReorderBuffer};
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::registry::{BoundStreamProcessor, ProcessorEvent, StreamProcessor};

pub(super) const FORM: &str = "reorder:kslack(ts [, timeout [, max.k]] [, discard.late])";

pub(super) fn build(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let (discard, numbers) = match args.split_last() {
        Some((last, rest)) if last.ty == FieldType::Bool => (constant_bool(last, FORM)?, rest),
        _ => (false, args),
    };
    let (timeout, k_max) = match numbers {
        [ts] if is_long(ts) => (None, None),
        [ts, timeout] if is_long(ts) => (constant_long(timeout, FORM)?, None),
        [ts, timeout, k] if is_long(ts) => (constant_long(timeout, FORM)?, constant_long(k, FORM)?),
        _ => {
            return Err(format!(
                "expected {FORM}, where `ts` is a long attribute and the others are constants"
            ));
        }
    };
    let k_max = k_max.unwrap_or(i64::MAX);
    let made = move || SlackReorder { timeout, k_max, discard, ..SlackReorder::default() };
    Ok((Arc::new(move || Box::new(made())), vec![]))
}

pub(super) fn is_long(arg: &ArgumentType) -> bool {
    matches!(arg.ty, FieldType::Long | FieldType::Time)
}

/// Returns a constant long; `None` if it is negative, which stands for no value.
pub(super) fn constant_long(arg: &ArgumentType, form: &str) -> Result<Option<i64>, String> {
    let value = arg.constant.as_ref().filter(|_| is_long(arg)).and_then(Value::as_i64);
    let value = value.ok_or_else(|| format!("{form}: expected a constant long such as `1000L`"))?;
    Ok((value >= 0).then_some(value))
}

pub(super) fn constant_bool(arg: &ArgumentType, form: &str) -> Result<bool, String> {
    let value = arg.constant.as_ref().ok_or_else(|| format!("{form}: `discard.late` must be a constant"))?;
    Ok(value.is_true())
}

/// Returns the timestamp by which an event is sorted. Errors: it is null.
pub(super) fn sorted_by(args: &[Value], name: &str) -> Result<i64, EvalError> {
    let ts = args.first().and_then(Value::as_i64);
    ts.ok_or_else(|| EvalError::null(format!("{name}: `ts`")))
}

#[derive(Default)]
struct SlackReorder {
    timeout: Option<i64>,
    k_max: i64,
    discard: bool,
    /// All buffered events. Those that arrived since the greatest timestamp need no buffer of their own,
    /// because they matter only for K, through `least`.
    waiting: ReorderBuffer,
    now: ReorderState,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct ReorderState {
    k: i64,
    greatest: Option<i64>,
    last_sent: Option<i64>,
    /// The smallest timestamp that was buffered since the last event with a timestamp greater than all
    /// before.
    least: Option<i64>,
}

impl StreamProcessor for SlackReorder {
    fn start(&mut self, now: i64) {
        self.waiting.start(now);
    }

    fn process(
        &mut self,
        event: ProcessorEvent,
        args: &[Value],
        now: i64,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError> {
        let ts = sorted_by(args, "reorder:kslack")?;
        if self.discard && self.now.last_sent.is_some_and(|sent| ts < sent) {
            return Ok(());
        }
        self.waiting.add(ts, event, now);
        let least = self.now.least.map_or(ts, |least| least.min(ts));
        if self.now.greatest.is_some_and(|greatest| ts <= greatest) {
            self.now.least = Some(least);
            return Ok(());
        }
        self.now.greatest = Some(ts);
        self.now.least = None;
        self.now.k = self.now.k.max(ts.saturating_sub(least).min(self.k_max));
        let last = self.waiting.release(ts.saturating_sub(self.now.k), out);
        self.now.last_sent = last.or(self.now.last_sent);
        Ok(())
    }

    fn due(&self) -> Option<i64> {
        self.timeout.and(self.waiting.due())
    }

    fn on_timer(&mut self, now: i64, out: &mut Vec<ProcessorEvent>) {
        if let Some(timeout) = self.timeout {
            let last = self.waiting.release_expired(timeout, now, out);
            self.now.last_sent = self.now.last_sent.max(last);
        }
    }

    fn save(&self) -> Json {
        json!({ "waiting": self.waiting.save(), "progress": self.now })
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let wrong = |e: &dyn std::fmt::Display| {
            EvalError::state(format!("the saved state does not match reorder:kslack: {e}"))
        };
        let saved = SavedReorderBuffer::deserialize(&state["waiting"]).map_err(|e| wrong(&e))?;
        self.waiting.restore(&saved).ok_or_else(|| wrong(&"cannot read the buffered events"))?;
        self.now = ReorderState::deserialize(&state["progress"]).map_err(|e| wrong(&e))?;
        Ok(())
    }
}
