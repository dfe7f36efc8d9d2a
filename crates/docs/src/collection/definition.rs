//! Changes of the definition of a collection, and the documents that go because of it.

use std::sync::Arc;

use tidemill_types::Timestamp;

use super::Collection;
use super::validation::Validator;
use crate::error::{DocsError, ErrorCode, Result};
use crate::filter::{Comparison, Filter, FilterNode, ValueTest};
use crate::spec::{CollectionChange, CollectionOptions, IndexChange, IndexSpec};
use crate::values::raw::{OwnedRawValue, RawValue, tag};

impl Collection {
    /// Changes the definition. Errors: an unknown index, a validator that is not a filter; nothing is changed
    /// then.
    pub(crate) fn modify(&mut self, change: &CollectionChange) -> Result<()> {
        let old = &self.spec.options;
        let validator = match &change.validator {
            Some(new) => Some(new.clone()).filter(|new| !new.as_raw().is_empty()),
            None => old.validator.clone(),
        };
        let options = CollectionOptions {
            validator,
            validation_level: change.validation_level.unwrap_or(old.validation_level),
            validation_action: change.validation_action.unwrap_or(old.validation_action),
            capped: change.capped.or(old.capped),
            view: change.view.clone().or_else(|| old.view.clone()),
            collation: old.collation.clone(),
            clustered: old.clustered.clone(),
        };
        options.check(!self.indexes.is_empty())?;
        let validator = Validator::new(&options)?;
        if let Some(index) = &change.index {
            self.modify_index(index)?;
        }
        self.validator = validator;
        let spec = Arc::make_mut(&mut self.spec);
        spec.options = options;
        spec.gathered |= change.gathered;
        if change.put_in_order {
            self.put_in_order();
        }
        let spec = Arc::make_mut(&mut self.spec);
        spec.change_images = change.change_images.unwrap_or(spec.change_images);
        self.delete_oldest()
    }

    fn modify_index(&mut self, change: &IndexChange) -> Result<()> {
        let Some(at) = self.indexes.iter().position(|index| index.spec.name == change.name) else {
            return Err(DocsError::new(
                ErrorCode::IndexNotFound,
                format!("index not found with name [{}] in `{}`", change.name, self.spec.name),
            ));
        };
        let old = &self.indexes[at].spec;
        let spec = IndexSpec {
            expire_after_seconds: change.expire_after_seconds.or(old.expire_after_seconds),
            hidden: change.hidden.unwrap_or(old.hidden),
            ..(**old).clone()
        };
        spec.check()?;
        for known in Arc::make_mut(&mut self.spec).indexes.iter_mut().filter(|known| known.name == spec.name)
        {
            *known = spec.clone();
        }
        self.indexes[at].spec = Arc::new(spec);
        Ok(())
    }

    /// Refuses a document that a capped collection has no room for, even alone.
    pub(super) fn check_capped(&self, bytes: usize) -> Result<()> {
        match self.spec.options.capped {
            Some(size) if bytes as u64 > size.bytes => Err(DocsError::bad_value(format!(
                "a document of {bytes} bytes is larger than the capped collection `{}` of {} bytes",
                self.spec.name, size.bytes
            ))),
            _ => Ok(()),
        }
    }

    /// Deletes the oldest documents of a capped collection until it has its size.
    pub(super) fn delete_oldest(&mut self) -> Result<()> {
        let Some(size) = self.spec.options.capped else { return Ok(()) };
        let documents = size.documents.unwrap_or(u64::MAX);
        while self.bytes > size.bytes || self.len() as u64 > documents {
            let Some(oldest) = self.rows.oldest() else { break };
            self.take_slot(oldest)?;
        }
        self.compact_if_sparse();
        Ok(())
    }

    /// Returns whether [`Self::delete_expired`] would delete documents.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expired_filters(now).iter().any(|filter| {
            // a filter that cannot be applied is reported when the documents are deleted
            self.matching(filter, 1).map_or(true, |found| !found.is_empty())
        })
    }

    /// Deletes the documents that have expired at `now` by an index with `expire_after_seconds`. Returns their number.
    pub(crate) fn delete_expired(&mut self, now: Timestamp) -> Result<u64> {
        let mut gone = 0;
        for filter in self.expired_filters(now) {
            let expired = self.matching(&filter, usize::MAX)?;
            gone += self.delete_slots(&expired)?;
        }
        Ok(gone)
    }

    /// Returns for each index with `expire_after_seconds` the filter of the documents that have expired: those with a time, or
    /// an array with a time, that lies so far back.
    fn expired_filters(&self, now: Timestamp) -> Vec<Filter> {
        let of_index = |index: &crate::index::Index| {
            let (path, _) = index.fields.first()?;
            let kept = index.spec.expire_after_seconds?.saturating_mul(1000);
            let last = now.0.div_euclid(1000).saturating_sub(kept).to_le_bytes();
            let last = OwnedRawValue::of(RawValue { tag: tag::DATE, bytes: &last });
            let mut all = vec![FilterNode::Field(path.clone(), ValueTest::Compare(Comparison::Lte, last))];
            all.extend(index.partial.as_ref().map(|partial| partial.node.clone()));
            Some(Filter::of(FilterNode::All(all)))
        };
        self.indexes.iter().filter_map(of_index).collect()
    }
}
