//! `and`, `or`.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::{add, cloning_constructor, foreign_state};
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::registry::{Aggregator, Registry};

pub(super) fn register(registry: &mut Registry) {
    add(registry, "and", &["bool x -> bool"], |_| {
        cloning_constructor(BoolAggregate { counts: [0, 0], all: true })
    });
    add(registry, "or", &["bool x -> bool"], |_| {
        cloning_constructor(BoolAggregate { counts: [0, 0], all: false })
    });
}

/// Conjunction or disjunction of bools; false without input.
#[derive(Clone)]
struct BoolAggregate {
    /// Counts of false and of true values.
    counts: [i64; 2],
    all: bool,
}

impl Aggregator for BoolAggregate {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        match args[0] {
            Value::Bool(b) => self.counts[usize::from(b)] += 1,
            _ => return Err(EvalError::null(format!("{}: `x`", if self.all { "and" } else { "or" }))),
        }
        Ok(())
    }

    /// Ignores nulls: they failed in `add`.
    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError> {
        if let Value::Bool(b) = args[0] {
            self.counts[usize::from(b)] -= 1;
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.counts = [0, 0];
    }

    fn value(&self) -> Value {
        let [no, yes] = self.counts;
        Value::Bool(yes > 0 && !(self.all && no > 0))
    }

    fn save(&self) -> Json {
        json!(self.counts)
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        self.counts = <[i64; 2]>::deserialize(state).map_err(|_| foreign_state())?;
        Ok(())
    }
}
