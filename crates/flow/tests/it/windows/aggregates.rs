//! Aggregates for window conditions, so that the window tests do not depend on the built-in ones.

use std::sync::Arc;

use tidemill_flow::EvalError;
use tidemill_flow::registry::{Aggregator, AggregatorConstructor};
use tidemill_flow::{Registry, Value};
use tidemill_types::FieldType;

pub fn registry() -> Registry {
    let mut registry = Registry::standard();
    registry.aggregator("count", |_| Ok((make(true), FieldType::Long)));
    registry.aggregator("sum", |_| Ok((make(false), FieldType::Long)));
    registry
}

fn make(counts: bool) -> AggregatorConstructor {
    Arc::new(move || Box::new(Total { counts, events: 0, total: 0 }))
}

/// `count()`, or `sum` of whole numbers.
struct Total {
    counts: bool,
    events: i64,
    total: i64,
}

impl Total {
    fn change(&mut self, args: &[Value], sign: i64) {
        let value = if self.counts { Some(1) } else { args.first().and_then(Value::as_i64) };
        if let Some(value) = value {
            self.events += sign;
            self.total += sign * value;
        }
    }
}

impl Aggregator for Total {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        self.change(args, 1);
        Ok(())
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError> {
        self.change(args, -1);
        Ok(())
    }

    fn reset(&mut self) {
        (self.events, self.total) = (0, 0);
    }

    fn value(&self) -> Value {
        if self.events == 0 && !self.counts { Value::Null } else { Value::Long(self.total) }
    }

    fn save(&self) -> serde_json::Value {
        serde_json::json!([self.events, self.total])
    }

    fn restore(&mut self, state: &serde_json::Value) -> Result<(), EvalError> {
        let saved: (i64, i64) =
            serde_json::from_value(state.clone()).map_err(|e| EvalError::argument(e.to_string()))?;
        (self.events, self.total) = saved;
        Ok(())
    }
}
