//! Creating and dropping indexes, and computing the index keys of a new document.

use std::sync::Arc;

use tidemill_types::did_you_mean;

use crate::DocBytes;
use crate::error::{DocsError, ErrorCode, Result};
use crate::index::{Index, IndexId, IndexKeys};
use crate::rows::RowIndex;
use crate::spec::IndexSpec;

use super::Collection;

impl Collection {
    /// Creates an index over the existing documents. Does nothing if there is an equal one.
    ///
    /// Errors: another index of that name, the limit on indexes, values that violate a unique index.
    pub fn create_index(&mut self, spec: IndexSpec) -> Result<()> {
        spec.check()?;
        if let Some(old) = self.indexes.iter().find(|i| i.spec.name == spec.name) {
            if *old.spec == spec {
                return Ok(());
            }
            return Err(DocsError::new(
                ErrorCode::IndexOptionsConflict,
                format!(
                    "index `{}` of `{}` already exists with the keys {}: drop it first or choose another name",
                    spec.name,
                    self.spec.name,
                    old.spec.pattern()
                ),
            ));
        }
        if let (Some(_), Some(other)) = (&spec.text, self.indexes.iter().find(|i| i.spec.text.is_some())) {
            return Err(DocsError::new(
                ErrorCode::CannotCreateIndex,
                format!(
                    "only one text index per collection allowed, found existing text index \"{}\" of `{}`",
                    other.spec.name, self.spec.name
                ),
            ));
        }
        if self.indexes.len() >= self.limits.indexes_max {
            return Err(DocsError::new(
                ErrorCode::CannotCreateIndex,
                format!(
                    "collection `{}`: limit of {} indexes reached (indexes_max)",
                    self.spec.name,
                    self.indexes.len()
                ),
            ));
        }
        let mut index = Index::new(spec.clone())?;
        for (slot, row) in self.rows.iter() {
            let keys = index.stored_keys(&row.doc)?;
            if let Some(key) = index.conflict(&keys, Some(slot)) {
                return Err(index.duplicate(&self.spec.name, &row.doc, key));
            }
            index.add(keys, slot);
        }
        self.reserve(index.bytes)?;
        self.indexes.push(index);
        Arc::make_mut(&mut self.spec).indexes.push(spec);
        Ok(())
    }

    /// Drops an index. Errors: the name is unknown.
    pub fn drop_index(&mut self, name: &str) -> Result<()> {
        let Some(at) = self.indexes.iter().position(|i| i.spec.name == name) else {
            let known = self.indexes.iter().map(|i| i.spec.name.as_str());
            return Err(DocsError::new(
                ErrorCode::IndexNotFound,
                format!(
                    "index not found with name [{name}] in `{}`{}",
                    self.spec.name,
                    did_you_mean(name, known)
                ),
            ));
        };
        let index = self.indexes.remove(at);
        self.release(index.bytes);
        Arc::make_mut(&mut self.spec).indexes.retain(|i| i.name != name);
        Ok(())
    }

    /// Creates and drops indexes until the collection has those of `wanted`, in that order.
    ///
    /// Errors: as [`Self::create_index`]; some indexes may have been dropped by then.
    pub(crate) fn set_indexes(&mut self, wanted: &[IndexSpec]) -> Result<()> {
        let surplus: Vec<String> =
            self.spec.indexes.iter().filter(|i| !wanted.contains(i)).map(|i| i.name.clone()).collect();
        for name in surplus {
            self.drop_index(&name)?;
        }
        for index in wanted {
            self.create_index(index.clone())?;
        }
        let place = |name: &str| wanted.iter().position(|i| i.name == name);
        self.indexes.sort_by_key(|i| place(&i.spec.name));
        Arc::make_mut(&mut self.spec).indexes.sort_by_key(|i| place(&i.name));
        Ok(())
    }

    /// Returns two documents that violate the unique index `spec`, the earlier one first; `None` if the index
    /// can be created or is not unique. Nothing is changed.
    ///
    /// Bounds: memory for the index. Errors: a document that cannot be indexed at all.
    pub fn violation(&self, spec: &IndexSpec) -> Result<Option<(DocBytes, DocBytes)>> {
        let mut index = Index::new(spec.clone())?;
        for (slot, row) in self.rows.iter() {
            let keys = index.stored_keys(&row.doc)?;
            if let Some(key) = index.conflict(&keys, Some(slot)) {
                let first = index.equal(key).find_map(|slot| self.doc_at(slot));
                return Ok(first.map(|first| (first.clone(), row.doc.clone())));
            }
            index.add(keys, slot);
        }
        Ok(None)
    }

    /// Returns an index.
    pub(crate) fn index(&self, id: IndexId) -> Option<&Index> {
        match id {
            IndexId::OfId => self.id_order.index(),
            IndexId::Secondary(at) => self.indexes.get(at),
        }
    }

    /// Returns the number of entries of an index; `None` if the name is unknown.
    pub fn index_entries(&self, name: &str) -> Option<u64> {
        self.indexes.iter().find(|index| index.spec.name == name).map(|index| index.entries.len() as u64)
    }

    /// Returns what is wrong with the indexes, each of them compared with one that is made anew; nothing if they are right.
    pub fn check_indexes(&self) -> Vec<String> {
        let is_right = |index: &Index| -> Result<bool> {
            let mut fresh = index.emptied();
            for (slot, row) in self.rows.iter() {
                fresh.add(fresh.keys(&row.doc)?, slot);
            }
            Ok(fresh.entries == index.entries && fresh.bytes == index.bytes)
        };
        let mut wrong = Vec::new();
        for index in &self.indexes {
            match is_right(index) {
                Ok(true) => {}
                Ok(false) => wrong
                    .push(format!("index `{}` does not have the entries of its documents", index.spec.name)),
                Err(error) => wrong.push(error.to_string()),
            }
        }
        wrong.extend(self.check_id_order());
        wrong
    }

    /// Returns the keys of a new document in every index. Errors: as [`Index::keys`]; a unique value that
    /// exists already.
    pub(super) fn new_keys(&self, doc: &[u8], own: Option<RowIndex>) -> Result<Vec<IndexKeys>> {
        self.indexes
            .iter()
            .map(|index| {
                let keys = index.keys(doc)?;
                match index.conflict(&keys, own) {
                    None => Ok(keys),
                    Some(key) => Err(index.duplicate(&self.spec.name, doc, key)),
                }
            })
            .collect()
    }
}
