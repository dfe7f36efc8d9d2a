//! `min`, `max`, `minForever`, `maxForever`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde_json::{Value as Json, json};

use super::state::{decode, encode};
use super::{VALUES_MAX, add, check_capacity, cloning_constructor, foreign_state};
use crate::columns::value::{Key, Value};
use crate::eval_error::EvalError;
use crate::registry::{Aggregator, BuiltinAggregate, Registry};

pub(super) fn register(registry: &mut Registry) {
    for (name, greatest) in [("min", false), ("max", true)] {
        let held = move || SlidingMinMax { values: BTreeMap::new(), greatest, most: VALUES_MAX };
        add(registry, name, &["N x -> N"], move |_| cloning_constructor(held()));
        let name = format!("{name}Forever");
        add(registry, &name, &["N x -> N"], move |_| {
            cloning_constructor(MinMaxForever { best: Value::Null, greatest })
        });
    }
}

/// Minimum or maximum by ordered counts, because events may be removed in any order.
#[derive(Clone)]
struct SlidingMinMax {
    values: BTreeMap<Key, u64>,
    greatest: bool,
    /// Maximum number of distinct values: some windows never remove part of the events they add.
    most: usize,
}

impl Aggregator for SlidingMinMax {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        if args[0].is_null() {
            return Ok(());
        }
        let values = self.values.len();
        match self.values.entry(Key(args[0].clone())) {
            Entry::Occupied(mut count) => *count.get_mut() += 1,
            Entry::Vacant(free) => {
                check_capacity(values, self.most)?;
                free.insert(1);
            }
        }
        Ok(())
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError> {
        let key = Key(args[0].clone());
        if let Some(count) = self.values.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.values.remove(&key);
            }
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.values.clear();
    }

    fn value(&self) -> Value {
        let best = if self.greatest { self.values.last_key_value() } else { self.values.first_key_value() };
        best.map_or(Value::Null, |(key, _)| key.0.clone())
    }

    fn builtin(&self) -> Option<BuiltinAggregate> {
        Some(if self.greatest { BuiltinAggregate::Max } else { BuiltinAggregate::Min })
    }

    fn save(&self) -> Json {
        self.values.iter().map(|(key, count)| json!([encode(&key.0), count])).collect()
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let entry = |e: &Json| Some((Key(decode(e.get(0)?)?), e.get(1)?.as_u64().filter(|n| *n > 0)?));
        let entries = state.as_array().and_then(|all| all.iter().map(entry).collect());
        self.values = entries.ok_or_else(foreign_state)?;
        Ok(())
    }
}

/// Minimum or maximum of all events since the start. Differs from Siddhi 5.1: the end of a batch does not
/// reset it.
#[derive(Clone)]
struct MinMaxForever {
    best: Value,
    greatest: bool,
}

impl Aggregator for MinMaxForever {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        if args[0].is_null() {
            return Ok(());
        }
        let order = Key(args[0].clone()).cmp(&Key(self.best.clone()));
        if self.best.is_null() || if self.greatest { order.is_gt() } else { order.is_lt() } {
            self.best = args[0].clone();
        }
        Ok(())
    }

    fn remove(&mut self, _: &[Value]) -> Result<(), EvalError> {
        Ok(())
    }

    fn reset(&mut self) {}

    fn value(&self) -> Value {
        self.best.clone()
    }

    fn save(&self) -> Json {
        encode(&self.best)
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        self.best = decode(state).ok_or_else(foreign_state)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_that_remembers_too_much_says_so() {
        let mut least = SlidingMinMax { values: BTreeMap::new(), greatest: false, most: 2 };
        for n in [5, 3, 5] {
            least.add(&[Value::Int(n)]).expect("room for two different values");
        }
        let why = least.add(&[Value::Int(1)]).expect_err("a third");
        assert_eq!(why.to_string(), "aggregate full: limit of 2 stored values");
        assert_eq!(least.value().as_i64(), Some(3));
        least.remove(&[Value::Int(3)]).expect("it is held");
        least.add(&[Value::Int(1)]).expect("room again");
        assert_eq!(least.value().as_i64(), Some(1));
    }
}
