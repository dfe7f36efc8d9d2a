//! `sum`, `avg`, `count`.

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tidemill_types::FieldType;

use super::{add, cloning_constructor, foreign_state};
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::registry::{Aggregator, BuiltinAggregate, Registry};

pub(super) fn register(registry: &mut Registry) {
    add(registry, "sum", &["whole x -> long", "decimal x -> double"], |args| match args[0].ty {
        FieldType::Float | FieldType::Double => {
            cloning_constructor(FloatSum { sum: 0.0, count: 0, mean: false })
        }
        _ => cloning_constructor(IntegerSum { sum: 0, count: 0 }),
    });
    add(registry, "avg", &["number x -> double"], |_| {
        cloning_constructor(FloatSum { sum: 0.0, count: 0, mean: true })
    });
    add(registry, "count", &[" -> long", "any x -> long"], |_| cloning_constructor(CountAccumulator(0)));
}

/// Sum of whole numbers. Wraps around like other arithmetic on longs, and stays exact when events are
/// removed; Siddhi 5.1 then loses digits beyond 2^53.
#[derive(Clone)]
struct IntegerSum {
    sum: i64,
    count: i64,
}

impl Aggregator for IntegerSum {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        if let Some(n) = args[0].as_i64() {
            self.sum = self.sum.wrapping_add(n);
            self.count += 1;
        }
        Ok(())
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError> {
        if let Some(n) = args[0].as_i64() {
            self.sum = self.sum.wrapping_sub(n);
            self.count -= 1;
        }
        Ok(())
    }

    fn reset(&mut self) {
        *self = Self { sum: 0, count: 0 };
    }

    fn value(&self) -> Value {
        if self.count == 0 { Value::Null } else { Value::Long(self.sum) }
    }

    fn builtin(&self) -> Option<BuiltinAggregate> {
        Some(BuiltinAggregate::IntegerSum)
    }

    fn save(&self) -> Json {
        json!([self.sum, self.count])
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let [sum, count] = <[i64; 2]>::deserialize(state).map_err(|_| foreign_state())?;
        *self = Self { sum, count };
        Ok(())
    }
}

/// Sum or mean of numbers as doubles. Rounding errors remain in the sum, even after all events are removed.
#[derive(Clone)]
struct FloatSum {
    sum: f64,
    count: i64,
    mean: bool,
}

impl Aggregator for FloatSum {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        if let Some(n) = args[0].as_f64() {
            self.sum += n;
            self.count += 1;
        }
        Ok(())
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError> {
        if let Some(n) = args[0].as_f64() {
            self.sum -= n;
            self.count -= 1;
        }
        Ok(())
    }

    fn reset(&mut self) {
        (self.sum, self.count) = (0.0, 0);
    }

    fn value(&self) -> Value {
        match self.count {
            0 => Value::Null,
            count if self.mean => Value::Double(self.sum / count as f64),
            _ => Value::Double(self.sum),
        }
    }

    fn builtin(&self) -> Option<BuiltinAggregate> {
        Some(if self.mean { BuiltinAggregate::Mean } else { BuiltinAggregate::FloatSum })
    }

    fn save(&self) -> Json {
        json!([self.sum.to_bits(), self.count])
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let (sum, count) = <(u64, i64)>::deserialize(state).map_err(|_| foreign_state())?;
        (self.sum, self.count) = (f64::from_bits(sum), count);
        Ok(())
    }
}

/// Number of events; negative if more are removed than added, as after a window that emits only expired
/// events.
#[derive(Clone)]
struct CountAccumulator(i64);

impl Aggregator for CountAccumulator {
    fn add(&mut self, _: &[Value]) -> Result<(), EvalError> {
        self.0 += 1;
        Ok(())
    }

    fn remove(&mut self, _: &[Value]) -> Result<(), EvalError> {
        self.0 -= 1;
        Ok(())
    }

    fn reset(&mut self) {
        self.0 = 0;
    }

    fn value(&self) -> Value {
        Value::Long(self.0)
    }

    fn builtin(&self) -> Option<BuiltinAggregate> {
        Some(BuiltinAggregate::Count)
    }

    fn save(&self) -> Json {
        json!(self.0)
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        self.0 = state.as_i64().ok_or_else(foreign_state)?;
        Ok(())
    }
}
