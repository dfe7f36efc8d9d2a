//! Rows and indexes that a write reads and changes, before it is committed.

use std::collections::{BTreeSet, HashMap};

use super::layout::Layout;
use tidemill_connect::StoredRow;

/// Row at a key.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Row in Redis.
    pub stored: Option<StoredRow>,
    /// Row after the write.
    pub row: Option<StoredRow>,
    /// Why the key cannot have a row.
    pub blocked: Option<String>,
}

/// Rows and sets that a write has read, with its changes.
#[derive(Debug, Default)]
pub(super) struct Workspace {
    slots: HashMap<String, Slot>,
    /// Sets of indexes, as they are changed.
    sets: HashMap<String, BTreeSet<String>>,
    /// Keys of slots in the order of their changes.
    changed: Vec<String>,
}

impl Workspace {
    /// Returns whether a row was read.
    pub(super) fn knows_row(&self, key: &str) -> bool {
        self.slots.contains_key(key)
    }

    /// Returns whether a set was read.
    pub(super) fn knows_set(&self, key: &str) -> bool {
        self.sets.contains_key(key)
    }

    /// Adds a row that was read.
    pub(super) fn add_row(&mut self, key: String, row: Option<StoredRow>) {
        self.slots.insert(key, Slot { stored: row.clone(), row, blocked: None });
    }

    /// Adds a key that cannot have a row.
    pub(super) fn add_blocked(&mut self, key: String, why: String) {
        self.slots.insert(key, Slot { blocked: Some(why), ..Slot::default() });
    }

    /// Adds a set that was read.
    pub(super) fn add_set(&mut self, key: String, members: BTreeSet<String>) {
        self.sets.insert(key, members);
    }

    /// Returns the members of a set.
    pub(super) fn members(&self, set: &str) -> impl Iterator<Item = &String> {
        self.sets.get(set).into_iter().flatten()
    }

    /// Returns the row at a key.
    pub(super) fn row(&self, key: &str) -> Option<&StoredRow> {
        self.slots.get(key)?.row.as_ref()
    }

    /// Returns why a new row cannot be at a key.
    pub(super) fn obstacle(&self, key: &str) -> Option<String> {
        let slot = self.slots.get(key)?;
        let taken = || slot.row.is_some().then(|| "a row with the same primary key exists".to_owned());
        slot.blocked.clone().or_else(taken)
    }

    /// Puts a row at a key, or removes it.
    pub(super) fn put(&mut self, layout: &Layout, key: &str, row: Option<StoredRow>) {
        let slot = self.slots.entry(key.to_owned()).or_default();
        for set in slot.row.iter().flat_map(|row| layout.index_keys(row)) {
            self.sets.get_mut(&set).map(|members| members.remove(key));
        }
        for set in row.iter().flat_map(|row| layout.index_keys(row)) {
            self.sets.get_mut(&set).map(|members| members.insert(key.to_owned()));
        }
        slot.row = row;
        self.changed.push(key.to_owned());
    }

    /// Returns the changed rows, each once.
    pub(super) fn changes(&self) -> Vec<(&str, &Slot)> {
        let mut seen = BTreeSet::new();
        let keys = self.changed.iter().filter(|key| seen.insert(key.as_str()));
        let changed = keys.filter_map(|key| Some((key.as_str(), self.slots.get(key)?)));
        changed.filter(|(_, slot)| slot.row.is_some() || slot.stored.is_some()).collect()
    }

    /// Returns sets with members whose rows do not exist, such as expired ones.
    pub(super) fn dangling(&self) -> Vec<(&str, &str)> {
        let gone = |key: &String| {
            self.slots.get(key).is_some_and(|slot| slot.stored.is_none() && slot.row.is_none())
        };
        let mut found = vec![];
        for (set, members) in &self.sets {
            found.extend(members.iter().filter(|key| gone(key)).map(|key| (set.as_str(), key.as_str())));
        }
        found
    }
}
