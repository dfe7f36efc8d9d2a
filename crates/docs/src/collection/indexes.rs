//! Making and dropping indexes, and what a new document has in them.

use tidemill_types::did_you_mean;

use crate::DocBytes;
use crate::error::{DocsError, ErrorCode, Result};
use crate::index::{Index, IndexKeys, RowIndex};
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

    /// Makes and drops indexes until the collection has those of `wanted`, in that order.
    ///
    /// Errors: as [`Self::create_index`]; indexes may have been dropped then.
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
        self.spec.indexes.sort_by_key(|i| place(&i.name));
        Ok(())
    }

    /// Two documents that cannot be in the unique index `spec` together, the earlier one first; `None` when the index can
    /// be made, and for an index that is not unique. Nothing is changed.
    ///
    /// Bounds: memory for the index. Errors: a document that cannot be indexed at all.
    pub fn violation(&self, spec: &IndexSpec) -> Result<Option<(DocBytes, DocBytes)>> {
        spec.check()?;
        let mut index = Index::new(spec.clone());
        for (slot, row) in (0..).zip(&self.rows) {
            let Some(row) = row else { continue };
            let keys = index.keys(&row.doc)?;
            if let Some(key) = index.conflict(&keys, Some(slot)) {
                let first = index.equal(key).find_map(|slot| self.doc_at(slot));
                return Ok(first.map(|first| (first.clone(), row.doc.clone())));
            }
            index.add(keys, slot);
        }
        Ok(None)
    }

    /// The keys of a new document in every index. Errors: as [`Index::keys`]; a unique value that is there already.
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
