//! Values and how often each is held, in the order in which they came.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::state::{decode, encode};
use crate::value::Key;

/// Values with counts. A value keeps the place at which it first came until the last of it leaves. Adding and taking
/// out cost O(log n).
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    counts: BTreeMap<Key, Held>,
    order: BTreeMap<u64, Key>,
    next: u64,
}

#[derive(Debug, Clone)]
struct Held {
    place: u64,
    count: u64,
}

impl Tally {
    pub(super) fn add(&mut self, key: Key) {
        self.add_many(key, 1);
    }

    fn add_many(&mut self, key: Key, count: u64) {
        match self.counts.get_mut(&key) {
            Some(held) => held.count += count,
            None => {
                self.order.insert(self.next, key.clone());
                self.counts.insert(key, Held { place: self.next, count });
                self.next += 1;
            }
        }
    }

    /// Takes one out, if it is there.
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

    /// How many different values there are.
    pub(super) fn len(&self) -> usize {
        self.counts.len()
    }

    /// Values and counts in the order in which they came.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&Key, u64)> {
        self.order.values().map(|key| (key, self.counts.get(key).map_or(0, |held| held.count)))
    }

    /// Values and counts from the least to the greatest.
    pub(super) fn sorted(&self) -> impl DoubleEndedIterator<Item = (&Key, u64)> {
        self.counts.iter().map(|(key, held)| (key, held.count))
    }

    pub(super) fn save(&self) -> Json {
        self.in_order().map(|(key, count)| json!([encode(&key.0), count])).collect()
    }

    /// A saved one; none if it is not readable.
    pub(super) fn restored(state: &Json) -> Option<Self> {
        let mut tally = Self::default();
        for entry in state.as_array()? {
            let count = entry.get(1)?.as_u64().filter(|count| *count > 0)?;
            tally.add_many(Key(decode(entry.get(0)?)?), count);
        }
        Some(tally)
    }
}
