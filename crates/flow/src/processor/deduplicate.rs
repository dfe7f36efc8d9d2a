//! `#unique:deduplicate(key, interval)`: one event per key within an interval.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashSet;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tidemill_types::FieldType;

use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::ArgumentType;
use crate::registry::{BoundStreamProcessor, ProcessorEvent, StreamProcessor};

pub(super) fn build(args: &[ArgumentType]) -> Result<BoundStreamProcessor, String> {
    let form = "unique:deduplicate(key, interval)";
    let [key, interval] = args else {
        return Err(format!("expected {form}, found {} parameters", args.len()));
    };
    if key.ty == FieldType::Object {
        return Err(format!("{form}: the key cannot be an object"));
    }
    let interval = interval.constant.as_ref().and_then(Value::as_i64).filter(|i| *i >= 0);
    let interval =
        interval.ok_or_else(|| format!("{form}: the interval must be a constant time such as `30 sec`"))?;
    Ok((Arc::new(move || Box::new(Deduplicate { interval, passed: DeduplicateState::default() })), vec![]))
}

/// Passes an event unless an event of its key passed within the interval before it, by the events'
/// timestamps.
struct Deduplicate {
    /// Milliseconds; an event exactly this much later still is a duplicate.
    interval: i64,
    passed: DeduplicateState,
}

#[derive(Debug, Default)]
struct DeduplicateState {
    keys: HashSet<String>,
    /// Time at which each key passed, in order; expired keys are removed from the front.
    order: VecDeque<(i64, String)>,
}

impl StreamProcessor for Deduplicate {
    fn process(
        &mut self,
        event: ProcessorEvent,
        args: &[Value],
        _now: i64,
        out: &mut Vec<ProcessorEvent>,
    ) -> Result<(), EvalError> {
        let key = match args.first() {
            None | Some(Value::Null) => return Err(EvalError::null("unique:deduplicate: the key")),
            Some(key) => key.to_string(),
        };
        let is_over = |passed: i64| event.time.saturating_sub(passed) > self.interval;
        while let Some((_, key)) = self.passed.order.pop_front_if(|(at, _)| is_over(*at)) {
            self.passed.keys.remove(&key);
        }
        if self.passed.keys.insert(key.clone()) {
            self.passed.order.push_back((event.time, key));
            out.push(event);
        }
        Ok(())
    }

    fn save(&self) -> Json {
        json!(self.passed.order)
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let order = VecDeque::<(i64, String)>::deserialize(state);
        let order = order.map_err(|e| {
            EvalError::state(format!("the saved state does not match unique:deduplicate: {e}"))
        })?;
        self.passed = DeduplicateState { keys: order.iter().map(|(_, key)| key.clone()).collect(), order };
        Ok(())
    }
}
