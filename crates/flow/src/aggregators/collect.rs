//! `list:collect`, `list:merge`, `map:collect`, `map:merge`.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};

use serde_json::{Value as Json, json};

use super::counted_multiset::CountedMultiset;
use super::state::{decode, encode};
use super::{VALUES_MAX, add, check_capacity, cloning_constructor, flag, foreign_state};
use crate::columns::value::{Key, OpaqueValue, Value};
use crate::eval_error::EvalError;
use crate::functions::object::{check_depth, equal, list, map};
use crate::registry::{Aggregator, Registry};

pub(super) fn register(registry: &mut Registry) {
    for (name, form, merge) in [
        ("list:collect", "any x, const bool distinct? -> object", false),
        ("list:merge", "object list, const bool distinct? -> object", true),
    ] {
        add(registry, name, &[form], move |args| {
            if flag(args, 1) {
                cloning_constructor(CollectList { merge, held: CountedMultiset::default() })
            } else {
                cloning_constructor(CollectList { merge, held: VecDeque::new() })
            }
        });
    }
    let form = "any key, any value -> object";
    add(registry, "map:collect", &[form], |_| {
        cloning_constructor(CollectMap { merge: false, held: BTreeMap::new() })
    });
    let form = "object map -> object";
    add(registry, "map:merge", &[form], |_| {
        cloning_constructor(CollectMap { merge: true, held: BTreeMap::new() })
    });
}

/// Collection of the items of a list.
trait ItemCollection: Default + Clone + Send + Sync + 'static {
    /// Adds an item. Errors: the limit on values is reached.
    fn push(&mut self, item: Value) -> Result<(), EvalError>;
    fn remove_one(&mut self, item: &Value);
    fn items(&self) -> Vec<Value>;
    fn save(&self) -> Json;
    fn restored(state: &Json) -> Option<Self>;
}

/// All items, in order of arrival.
impl ItemCollection for VecDeque<Value> {
    fn push(&mut self, item: Value) -> Result<(), EvalError> {
        check_capacity(self.len(), VALUES_MAX)?;
        self.push_back(item);
        Ok(())
    }

    fn remove_one(&mut self, item: &Value) {
        // most windows expire the oldest event, so the search ends at once
        if let Some(at) = self.iter().position(|held| equal(held, item)) {
            self.remove(at);
        }
    }

    fn items(&self) -> Vec<Value> {
        self.iter().cloned().collect()
    }

    fn save(&self) -> Json {
        self.iter().map(encode).collect()
    }

    fn restored(state: &Json) -> Option<Self> {
        state.as_array()?.iter().map(decode).collect()
    }
}

/// Each item once. An item is dropped when its last occurrence is removed; in Siddhi 5.1, when its first one
/// is.
impl ItemCollection for CountedMultiset {
    fn push(&mut self, item: Value) -> Result<(), EvalError> {
        self.add(Key(item))
    }

    fn remove_one(&mut self, item: &Value) {
        self.remove(&Key(item.clone()));
    }

    fn items(&self) -> Vec<Value> {
        self.in_order().map(|(key, _)| key.0.clone()).collect()
    }

    fn save(&self) -> Json {
        Self::save(self)
    }

    fn restored(state: &Json) -> Option<Self> {
        Self::restored(state)
    }
}

/// Accumulator of a list of values, or of the items of all lists (`merge`).
#[derive(Clone)]
struct CollectList<I> {
    merge: bool,
    held: I,
}

impl<I: ItemCollection> CollectList<I> {
    fn each(&self, args: &[Value]) -> Result<Vec<Value>, EvalError> {
        if !self.merge {
            check_depth(&args[0]).map_err(|e| EvalError::argument(format!("list:collect: {e}")))?;
            return Ok(vec![args[0].clone()]);
        }
        let list = list(args, 0).map_err(|e| EvalError::argument(format!("list:merge: {e}")))?;
        let items = list.lock().clone();
        Ok(items)
    }
}

impl<I: ItemCollection> Aggregator for CollectList<I> {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        self.each(args)?.into_iter().try_for_each(|item| self.held.push(item))
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError> {
        self.each(args)?.iter().for_each(|item| self.held.remove_one(item));
        Ok(())
    }

    fn reset(&mut self) {
        self.held = I::default();
    }

    fn value(&self) -> Value {
        Value::Object(OpaqueValue::list(self.held.items()))
    }

    fn save(&self) -> Json {
        self.held.save()
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        self.held = I::restored(state).ok_or_else(foreign_state)?;
        Ok(())
    }
}

/// Accumulator of a map of entries, or of the entries of all maps (`merge`). The newest value of a key wins.
#[derive(Clone)]
struct CollectMap {
    merge: bool,
    held: BTreeMap<Key, VecDeque<Value>>,
}

impl CollectMap {
    fn each(&self, args: &[Value]) -> Result<Vec<(Key, Value)>, EvalError> {
        if !self.merge {
            args.iter()
                .try_for_each(check_depth)
                .map_err(|e| EvalError::argument(format!("map:collect: {e}")))?;
            return Ok(vec![(Key(args[0].clone()), args[1].clone())]);
        }
        let map = map(args, 0).map_err(|e| EvalError::argument(format!("map:merge: {e}")))?;
        let entries = map.lock().clone();
        Ok(entries.into_iter().collect())
    }
}

impl Aggregator for CollectMap {
    fn add(&mut self, args: &[Value]) -> Result<(), EvalError> {
        for (key, value) in self.each(args)? {
            let values = self.held.len();
            let of = match self.held.entry(key) {
                Entry::Occupied(of) => of.into_mut(),
                Entry::Vacant(free) => {
                    check_capacity(values, VALUES_MAX)?;
                    free.insert(VecDeque::new())
                }
            };
            of.push(value)?;
        }
        Ok(())
    }

    fn remove(&mut self, args: &[Value]) -> Result<(), EvalError> {
        for (key, value) in self.each(args)? {
            if let Some(values) = self.held.get_mut(&key) {
                values.remove_one(&value);
                if values.is_empty() {
                    self.held.remove(&key);
                }
            }
        }
        Ok(())
    }

    fn reset(&mut self) {
        self.held.clear();
    }

    fn value(&self) -> Value {
        let newest = |(key, values): (&Key, &VecDeque<Value>)| Some((key.clone(), values.back()?.clone()));
        Value::Object(OpaqueValue::map(self.held.iter().filter_map(newest).collect()))
    }

    fn save(&self) -> Json {
        self.held.iter().map(|(key, values)| json!([encode(&key.0), ItemCollection::save(values)])).collect()
    }

    fn restore(&mut self, state: &Json) -> Result<(), EvalError> {
        let entry = |e: &Json| Some((Key(decode(e.get(0)?)?), VecDeque::restored(e.get(1)?)?));
        let entries = state.as_array().and_then(|all| all.iter().map(entry).collect());
        self.held = entries.ok_or_else(foreign_state)?;
        Ok(())
    }
}
