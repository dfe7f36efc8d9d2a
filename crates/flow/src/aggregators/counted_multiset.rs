//! Multiset of values with their counts, in order of arrival.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::state::{decode, encode};
use super::{VALUES_MAX, check_capacity};
use crate::columns::value::Key;
use crate::eval_error::EvalError;

/// Multiset that keeps a value at the position of its first arrival until its last occurrence is removed.
/// Insertion and removal take O(log n).
#[derive(Debug, Clone)]
pub(super) struct CountedMultiset {
    counts: BTreeMap<Key, CountedValue>,
    order: BTreeMap<u64, Key>,
    next: u64,
    most: usize,
}

impl Default for CountedMultiset {
    fn default() -> Self {
        Self::of_at_most(VALUES_MAX)
    }
}

#[derive(Debug, Clone)]
struct CountedValue {
    place: u64,
    count: u64,
}

impl CountedMultiset {
    /// Creates an empty multiset of at most `most` distinct values.
    pub(super) fn of_at_most(most: usize) -> Self {
        Self { counts: BTreeMap::new(), order: BTreeMap::new(), next: 0, most }
    }

    /// Adds a value. Errors: it is a new value, and the limit on distinct values is reached.
    pub(super) fn add(&mut self, key: Key) -> Result<(), EvalError> {
        self.add_many(key, 1)
    }

    fn add_many(&mut self, key: Key, count: u64) -> Result<(), EvalError> {
        match self.counts.get_mut(&key) {
            Some(held) => held.count += count,
            None => {
                check_capacity(self.counts.len(), self.most)?;
                self.order.insert(self.next, key.clone());
                self.counts.insert(key, CountedValue { place: self.next, count });
                self.next += 1;
            }
        }
        Ok(())
    }

    /// Removes one occurrence, if there is one.
    pub(super) fn remove(&mut self, key: &Key) {
        let Some(held) = self.counts.get_mut(key) else { return };
        held.count -= 1;
        if held.count == 0 {
            self.order.remove(&held.place);
            self.counts.remove(key);
        }
    }

    pub(super) fn clear(&mut self) {
        self.counts.clear();
        self.order.clear();
    }

    /// Returns the number of distinct values.
    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    /// Returns values and counts in order of first arrival.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&Key, u64)> {
        self.order.values().map(|key| (key, self.counts.get(key).map_or(0, |held| held.count)))
    }

    /// Returns values and counts in ascending order.
    pub(super) fn sorted(&self) -> impl DoubleEndedIterator<Item = (&Key, u64)> {
        self.counts.iter().map(|(key, held)| (key, held.count))
    }

    pub(super) fn save(&self) -> Json {
        self.in_order().map(|(key, count)| json!([encode(&key.0), count])).collect()
    }

    /// Restores a saved multiset; `None` if it is not readable.
    pub(super) fn restored(state: &Json) -> Option<Self> {
        let mut tally = Self::default();
        for entry in state.as_array()? {
            let count = entry.get(1)?.as_u64().filter(|count| *count > 0)?;
            tally.add_many(Key(decode(entry.get(0)?)?), count).ok()?;
        }
        Some(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::value::Value;

    #[test]
    fn a_full_tally_takes_only_what_it_has() {
        let mut tally = CountedMultiset::of_at_most(1);
        let key = |n| Key(Value::Int(n));
        tally.add(key(1)).expect("room for one");
        tally.add(key(1)).expect("it is there");
        tally.add(key(2)).expect_err("another");
        assert_eq!(tally.in_order().map(|(_, count)| count).collect::<Vec<_>>(), [2]);
    }
}
