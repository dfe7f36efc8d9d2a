//! Names in order, found quickly.

use std::collections::HashMap;

/// Different names in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub(super) struct NameList {
    names: Vec<String>,
    places: HashMap<String, usize>,
}

impl NameList {
    /// Adds a name unless it is there.
    pub fn add(&mut self, name: &str) {
        if !self.places.contains_key(name) {
            self.places.insert(name.to_owned(), self.names.len());
            self.names.push(name.to_owned());
        }
    }

    /// Returns the place of a name, from 0.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }
}
