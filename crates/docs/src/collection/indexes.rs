//! Making and dropping indexes, and what a new document has in them.

use tidemill_types::did_you_mean;

use crate::error::{DocsError, ErrorCode, Result};
use crate::index::{Index, Keys, Slot};
use crate::spec::IndexSpec;

use super::Collection;

impl Collection {
    /// Makes an index over what is there. The same definition again changes nothing.
    ///
    /// Errors: another index of that name, the limit of indexes, values that a unique index does not allow.
    pub fn create_index(&mut self, spec: IndexSpec) -> Result<()> {
        spec.check()?;
        if let Some(old) = self.indexes.iter().find(|i| i.spec.name == spec.name) {
            if old.spec == spec {
                return Ok(());
            }
            return Err(DocsError::new(
                ErrorCode::IndexOptionsConflict,
                format!(
                    "index `{}` of `{}` is there with the keys {}: drop it first or choose another name",
                    spec.name,
                    self.spec.name,
                    old.spec.pattern()
                ),
            ));
        }
        if self.indexes.len() >= self.limits.indexes_max {
            return Err(DocsError::new(
                ErrorCode::CannotCreateIndex,
                format!(
                    "`{}` has {} indexes, as many as allowed (indexes_max)",
                    self.spec.name,
                    self.indexes.len()
                ),
            ));
        }
        let mut index = Index::new(spec.clone());
        for (slot, row) in (0..).zip(&self.rows) {
            let Some(row) = row else { continue };
            let keys = index.keys(&row.doc)?;
            if let Some(key) = index.conflict(&keys, Some(slot)) {
                return Err(index.duplicate(&self.spec.name, &row.doc, key));
            }
            index.add(keys, slot);
        }
        self.reserve(index.bytes)?;
        self.indexes.push(index);
        self.spec.indexes.push(spec);
        Ok(())
    }

    /// Removes an index. Errors: none of that name.
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
        self.spec.indexes.retain(|i| i.name != name);
        Ok(())
    }

    /// The keys of a new document in every index. Errors: as [`Index::keys`]; a unique value that is there already.
    pub(super) fn new_keys(&self, doc: &[u8], own: Option<Slot>) -> Result<Vec<Keys>> {
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
