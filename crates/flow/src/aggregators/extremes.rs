//! `min`, `max`, `minForever`, `maxForever`.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::state::{decode, encode};
use super::{add, copies, foreign};
use crate::expr::Failure;
use crate::registry::{Aggregator, Registry, Total};
use crate::value::{Key, Value};

pub(super) fn register(registry: &mut Registry) {
    for (name, greatest) in [("min", false), ("max", true)] {
        add(registry, name, &["N x -> N"], move |_| copies(Held { values: BTreeMap::new(), greatest }));
        let name = format!("{name}Forever");
        add(registry, &name, &["N x -> N"], move |_| copies(Ever { best: Value::Null, greatest }));
    }
}

/// The least or greatest of what is held, from counts in order: events need not leave in the order in which they came.
#[derive(Clone)]
struct Held {
    values: BTreeMap<Key, u64>,
    greatest: bool,
}

impl Aggregator for Held {
    fn add(&mut self, args: &[Value]) -> Result<(), Failure> {
        if !args[0].is_null() {
            *self.values.entry(Key(args[0].clone())).or_insert(0) += 1;
        }
        Ok(())
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), Failure> {
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

    fn total(&self) -> Option<Total> {
        Some(if self.greatest { Total::Greatest } else { Total::Least })
    }

    fn save(&self) -> Json {
        self.values.iter().map(|(key, count)| json!([encode(&key.0), count])).collect()
    }

    fn restore(&mut self, state: &Json) -> Result<(), Failure> {
        let entry = |e: &Json| Some((Key(decode(e.get(0)?)?), e.get(1)?.as_u64().filter(|n| *n > 0)?));
        let entries = state.as_array().and_then(|all| all.iter().map(entry).collect());
        self.values = entries.ok_or_else(foreign)?;
        Ok(())
    }
}

/// The least or greatest that ever came. The end of a batch does not end it, as it does in the reference.
#[derive(Clone)]
struct Ever {
    best: Value,
    greatest: bool,
}

impl Aggregator for Ever {
    fn add(&mut self, args: &[Value]) -> Result<(), Failure> {
        if args[0].is_null() {
            return Ok(());
        }
        let order = Key(args[0].clone()).cmp(&Key(self.best.clone()));
        if self.best.is_null() || if self.greatest { order.is_gt() } else { order.is_lt() } {
            self.best = args[0].clone();
        }
        Ok(())
    }

    fn remove(&mut self, _: &[Value]) -> Result<(), Failure> {
        Ok(())
    }

    fn reset(&mut self) {}

    fn value(&self) -> Value {
        self.best.clone()
    }

    fn save(&self) -> Json {
        encode(&self.best)
    }

    fn restore(&mut self, state: &Json) -> Result<(), Failure> {
        self.best = decode(state).ok_or_else(foreign)?;
        Ok(())
    }
}
