//! Batch that keeps one row per key.

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::store::RowId;

/// Rows of distinct keys, in the order of the keys' first arrival.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(String, RowId)>", into = "Vec<(String, RowId)>")]
pub(in crate::windows) struct UniqueBatch {
    rows: Vec<RowId>,
    places: HashMap<Box<str>, usize>,
}

impl UniqueBatch {
    /// Adds a row; it takes the position of an earlier row of its key.
    pub(in crate::windows) fn put(&mut self, key: &str, seq: RowId) {
        match self.places.get(key) {
            Some(place) => self.rows[*place] = seq,
            None => self.add(key.into(), seq),
        }
    }

    /// Adds a row unless there is one of its key.
    pub(in crate::windows) fn put_first(&mut self, key: &str, seq: RowId) {
        if !self.places.contains_key(key) {
            self.add(key.into(), seq);
        }
    }

    fn add(&mut self, key: Box<str>, seq: RowId) {
        self.places.insert(key, self.rows.len());
        self.rows.push(seq);
    }

    /// Adds the rows of another batch with [`Self::put`].
    pub(in crate::windows) fn put_all(&mut self, other: &Self) {
        for (key, seq) in other.entries() {
            self.put(key, seq);
        }
    }

    fn entries(&self) -> Vec<(&str, RowId)> {
        let mut keys: Vec<(usize, &str)> = self.places.iter().map(|(key, place)| (*place, &**key)).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(place, key)| (key, self.rows[place])).collect()
    }

    pub(in crate::windows) fn rows(&self) -> &[RowId] {
        &self.rows
    }

    pub(in crate::windows) fn clear(&mut self) {
        self.rows.clear();
        self.places.clear();
    }
}

impl From<Vec<(String, RowId)>> for UniqueBatch {
    fn from(entries: Vec<(String, RowId)>) -> Self {
        let mut batch = Self::default();
        for (key, seq) in entries {
            batch.put(&key, seq);
        }
        batch
    }
}

impl From<UniqueBatch> for Vec<(String, RowId)> {
    fn from(batch: UniqueBatch) -> Self {
        batch.entries().into_iter().map(|(key, seq)| (key.to_owned(), seq)).collect()
    }
}
