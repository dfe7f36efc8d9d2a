//! `distinctCount`, `unionSet`.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value as Json;

use super::counted_multiset::CountedMultiset;
use super::{add, cloning_constructor, foreign_state};
use crate::columns::value::{Key, OpaqueValue, Value};
use crate::eval_error::EvalError;
use crate::registry::{Aggregator, Registry};

pub(super) fn register(registry: &mut Registry) {
    let form = "string|int|long|float|double x -> long";
    add(registry, "distinctCount", &[form], |_| cloning_constructor(DistinctCount::default()));
    add(registry, "unionSet", &["object set -> object"], |_| cloning_constructor(UnionSet::default()));
}

/// Number of distinct values; null is one of them.
#[derive(Clone, Default)]
struct DistinctCount(CountedMultiset);

impl Aggregator for DistinctCount {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        self.0.add(Key(args[0].clone()))
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError> {
        self.0.remove(&Key(args[0].clone()));
        Ok(())
    }

    fn reset(&mut self) {
        self.0.clear();
    }

    fn value(&self) -> Value {
        Value::Long(self.0.len() as i64)
    }

    fn save(&self) -> Json {
        self.0.save()
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        self.0 = CountedMultiset::restored(state).ok_or_else(foreign_state)?;
        Ok(())
    }
}

/// Union of sets. An element is dropped with the last set that contains it.
#[derive(Clone, Default)]
struct UnionSet(CountedMultiset);

impl UnionSet {
    fn each(set: &Value, mut take: impl FnMut(&Key) -> Result<(), EvalError>) -> Result<(), EvalError> {
        match set {
            Value::Null => Ok(()),
            Value::Object(OpaqueValue::Set(set)) => set.lock().keys().try_for_each(&mut take),
            other => Err(EvalError::argument(format!("unionSet: `{other}` is not a set"))),
        }
    }
}

impl Aggregator for UnionSet {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        Self::each(&args[0], |key| self.0.add(key.clone()))
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError> {
        Self::each(&args[0], |key| {
            self.0.remove(key);
            Ok(())
        })
    }

    fn reset(&mut self) {
        self.0.clear();
    }

    fn value(&self) -> Value {
        let elements = self.0.sorted().map(|(key, _)| (key.clone(), 1)).collect();
        Value::Object(OpaqueValue::Set(Arc::new(Mutex::new(elements))))
    }

    fn save(&self) -> Json {
        self.0.save()
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        self.0 = CountedMultiset::restored(state).ok_or_else(foreign_state)?;
        Ok(())
    }
}
