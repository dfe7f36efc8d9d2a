//! Changes of existing documents: replace, update, upsert.

use std::borrow::Cow;
use std::cell::RefCell;

use bson::oid::ObjectId;
use bytes::Bytes;
use tidemill_types::{Timestamp, Value, budget};

use crate::DocBytes;
use crate::error::{DocsError, ErrorCode, Result};
use crate::filter::Filter;
use crate::index::{Index, IndexKeys};
use crate::rows::RowIndex;
use crate::update::{Update, UpdateContext, UpdateOutcome};
use crate::values::key::Key;
use crate::values::order::equal;
use crate::values::raw::{OwnedRawValue, RawValue, close_document, elements, field, put_element};
use crate::values::validate::{check, too_large};
use crate::writing::changes::ChangeKind;

use super::{Collection, id_of, with_identity};

/// An index by its number, with the old and the new keys of a document.
type ChangedKeys = (usize, IndexKeys, IndexKeys);

thread_local! {
    /// The document that an update builds. Kept, so that an update does not grow a new buffer.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Calls `build` with an empty buffer.
fn with_scratch<T>(build: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut buffer = SCRATCH.take();
    buffer.clear();
    let result = build(&mut buffer);
    SCRATCH.set(buffer);
    result
}

impl Collection {
    /// Replaces the document with this `_id`. If it does not exist, nothing changes and `before` is `None`.
    /// Errors: as [`Self::insert`].
    pub fn replace(&mut self, doc: DocBytes) -> Result<UpdateOutcome> {
        check(&doc, &self.limits)?;
        let doc = &*self.identified(&doc)?;
        let key = Key::of_raw(id_of(doc)?);
        match self.slot(&key) {
            Some(slot) => self.replace_row(slot, doc, ChangeKind::Replace, |_| true),
            None => Ok(UpdateOutcome::default()),
        }
    }

    /// Inserts a document, or replaces the one with its `_id`, as a change of this kind.
    pub(crate) fn put(&mut self, doc: &DocBytes, kind: ChangeKind) -> Result<()> {
        check(doc, &self.limits)?;
        let id = Key::of_raw(id_of(doc)?);
        // the statement that made the version has validated it, or was not to
        let bypass = std::mem::replace(&mut self.bypass_validation, true);
        let bypass_identity = std::mem::replace(&mut self.bypass_identity, true);
        let done = match self.slot(&id) {
            Some(slot) => self.replace_row(slot, doc, kind, |_| true).map(|_| ()),
            None => self.insert(doc.clone()).map(|_| ()),
        };
        self.bypass_validation = bypass;
        self.bypass_identity = bypass_identity;
        done
    }

    /// Replaces the document in this row with `doc`; the `_id` must be equal.
    pub(crate) fn replace_slot(&mut self, slot: RowIndex, doc: &[u8]) -> Result<UpdateOutcome> {
        check(doc, &self.limits)?;
        let doc = self.with_kept_key(doc);
        self.replace_row(slot, &doc, ChangeKind::Replace, |_| true)
    }

    /// Applies `update` to the document with this `_id`. If it does not exist, nothing changes and both sides
    /// are `None`.
    ///
    /// Errors: those of the operators, a changed `_id` or shard key, unique indexes, limits. Nothing is
    /// changed then.
    pub fn update_one_by_id(
        &mut self,
        id: &Value<'_>,
        update: &Update,
        now: Timestamp,
    ) -> Result<UpdateOutcome> {
        match self.slot(&Key::of(id)) {
            Some(slot) => self.update_slot(slot, update, now, None),
            None => Ok(UpdateOutcome::default()),
        }
    }

    /// Updates as [`Self::update_one_by_id`], or inserts `{_id: id}` with the update applied if there is no
    /// such document.
    pub fn upsert_by_id(&mut self, id: &Value<'_>, update: &Update, now: Timestamp) -> Result<UpdateOutcome> {
        if let Some(slot) = self.slot(&Key::of(id)) {
            return self.update_slot(slot, update, now, None);
        }
        let base = OwnedRawValue::from_value(id).as_raw().in_document("_id");
        let key = self.insert_updated(&base, update, now, None)?;
        Ok(UpdateOutcome { before: None, after: self.get_key(&key).cloned() })
    }

    /// Inserts `base` with `update` applied, as an upsert does. A document that has no `_id` then gets `new_id`.
    pub(crate) fn insert_updated(
        &mut self,
        base: &[u8],
        update: &Update,
        now: Timestamp,
        new_id: Option<ObjectId>,
    ) -> Result<Key> {
        with_scratch(|out| {
            update.apply_bytes(base, UpdateContext::insert(now), out)?;
            check(out, &self.limits)?;
            let out = &*with_some_id(out, self.checked_key(), new_id)?;
            let (before, after) = (field(base, b"_id"), field(out, b"_id"));
            if let (Some(before), after) = (before, after)
                && after.is_none_or(|a| !equal(a.value, before.value))
            {
                return Err(immutable_field("_id"));
            }
            // an `_id` that the update created is among the fields at the end
            match after {
                Some(id) if id.start > 4 => self.insert_checked(&with_id_first(out, id.value)),
                _ => self.insert_checked(out),
            }
        })
    }

    pub(crate) fn update_slot(
        &mut self,
        slot: RowIndex,
        update: &Update,
        now: Timestamp,
        matched: Option<u32>,
    ) -> Result<UpdateOutcome> {
        with_scratch(|out| {
            let Some(before) = self.doc_at(slot) else {
                return Ok(UpdateOutcome::default());
            };
            let kept = self.updated(before, update, now, matched, out)?;
            self.replace_row(slot, &kept, ChangeKind::Update, |top| update.touches(top))
        })
    }

    /// Replaces the document in a row. Only top-level fields for which `touches` returns true may differ.
    fn replace_row(
        &mut self,
        slot: RowIndex,
        doc: &[u8],
        kind: ChangeKind,
        touches: impl Fn(&[u8]) -> bool,
    ) -> Result<UpdateOutcome> {
        let Some(before) = self.doc_at(slot).cloned() else {
            return Ok(UpdateOutcome::default());
        };
        if before == doc {
            return Ok(UpdateOutcome { after: Some(before.clone()), before: Some(before) });
        }
        let changed = self.check_change(slot, &before, doc, !self.bypass_validation, &touches)?;
        let added: u64 = changed.iter().map(|(_, _, new)| Index::cost(new)).sum::<u64>() + doc.len() as u64;
        let freed: u64 =
            changed.iter().map(|(_, old, _)| Index::cost(old)).sum::<u64>() + before.len() as u64;
        match added.checked_sub(freed) {
            Some(more) => self.reserve(more)?,
            None => self.release(freed - added),
        }
        for (i, old, new) in changed {
            self.indexes[i].remove(old, slot);
            self.indexes[i].add(new, slot);
        }
        let after = Bytes::copy_from_slice(doc);
        self.bytes = self.bytes - before.len() as u64 + after.len() as u64;
        self.supersede(before.len() as u64);
        self.rows.replace(slot, after.clone());
        self.count_contradictions(Some(&before), Some(&after));
        if let Some(row) = self.rows.get(slot) {
            self.note(kind, &row.key, Some(&before), Some(&after));
        }
        Ok(UpdateOutcome { before: Some(before), after: Some(after) })
    }

    /// Checks that a document may get a new version. Returns the indexes whose keys differ.
    fn check_change(
        &self,
        slot: RowIndex,
        before: &[u8],
        after: &[u8],
        validates: bool,
        touches: &impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<ChangedKeys>> {
        if after.len() > self.limits.document_bytes_max {
            return Err(too_large(after.len(), self.limits.document_bytes_max));
        }
        self.check_immutable(before, after, touches)?;
        self.check_identity(before, after, touches)?;
        if validates {
            self.validate(after, Some(before))?;
        }
        self.changed_keys(slot, before, after, touches)
    }

    /// Returns whether there may be a document that an update cannot change.
    pub(crate) fn may_refuse(&self, update: &Update, validates: bool) -> bool {
        let touches = |name: &str| update.touches(name.split('.').next().unwrap_or(name).as_bytes());
        (validates && self.validator.is_some())
            || !update.suits_all()
            || touches("_id")
            || self.shard_key.as_ref().is_some_and(|key| touches(key.as_str()))
            || self.checked_key().is_some_and(touches)
            || self.indexes.iter().any(|index| index.depends_on(&|top: &[u8]| update.touches(top)))
    }

    /// Returns the place of the first of these documents that an update refuses; `None` if it changes all.
    ///
    /// Errors: the work has to end.
    pub(crate) fn first_refused_update(
        &self,
        slots: &[RowIndex],
        filter: &Filter,
        update: &Update,
        validates: bool,
        now: Timestamp,
    ) -> Result<Option<usize>> {
        for (place, slot) in slots.iter().enumerate() {
            budget::step()?;
            match self.check_update(*slot, filter, update, validates, now) {
                Err(error) if error.ends_work() => return Err(error),
                Err(_) => return Ok(Some(place)),
                Ok(()) => {}
            }
        }
        Ok(None)
    }

    fn check_update(
        &self,
        slot: RowIndex,
        filter: &Filter,
        update: &Update,
        validates: bool,
        now: Timestamp,
    ) -> Result<()> {
        let Some(before) = self.doc_at(slot) else { return Ok(()) };
        let matched = update.needs_matched_element().then(|| filter.matched_element(before)).flatten();
        with_scratch(|out| {
            let after = self.updated(before, update, now, matched, out)?;
            if **before == *after {
                return Ok(());
            }
            self.check_change(slot, before, &after, validates, &|top: &[u8]| update.touches(top)).map(drop)
        })
    }

    /// Returns the new version of a document, for which `out` has room.
    fn updated<'o>(
        &self,
        before: &[u8],
        update: &Update,
        now: Timestamp,
        matched: Option<u32>,
        out: &'o mut Vec<u8>,
    ) -> Result<Cow<'o, [u8]>> {
        let context = UpdateContext { matched, ..UpdateContext::update(now) };
        update.apply_bytes(before, context, out)?;
        if update.may_exceed(self.limits.depth_max) {
            check(out, &self.limits)?;
        }
        Ok(match update.is_pipeline() {
            true => self.with_kept_key(out),
            false => Cow::Borrowed(out.as_slice()),
        })
    }

    fn check_immutable(&self, before: &[u8], after: &[u8], touches: &impl Fn(&[u8]) -> bool) -> Result<()> {
        if touches(b"_id") {
            let (old, new) = (field(before, b"_id"), field(after, b"_id"));
            if let Some(old) = old
                && new.is_none_or(|n| !equal(n.value, old.value))
            {
                return Err(immutable_field("_id"));
            }
        }
        let Some(shard_key) = self.shard_key.as_ref().filter(|k| !self.spec.replicated && touches(k.top()))
        else {
            return Ok(());
        };
        match (shard_key.lookup(before), shard_key.lookup(after)) {
            (Some(old), Some(new)) if equal(old, new) => Ok(()),
            (None, None) => Ok(()),
            _ => Err(DocsError::new(
                ErrorCode::ImmutableField,
                format!(
                    "Performing an update on the path '{shard_key}' would modify the shard key of `{}`: delete the document and insert it with the new value",
                    self.spec.name
                ),
            )),
        }
    }

    /// Returns the indexes whose keys differ between two versions: index, old keys, new keys.
    fn changed_keys(
        &self,
        slot: RowIndex,
        before: &[u8],
        after: &[u8],
        touches: &impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<ChangedKeys>> {
        let mut changed = Vec::new();
        for (i, index) in self.indexes.iter().enumerate() {
            if !index.depends_on(touches) {
                continue;
            }
            let (old, new) = (index.stored_keys(before)?, index.keys(after)?);
            if old == new {
                continue;
            }
            if let Some(key) = index.conflict(&new, Some(slot)) {
                return Err(index.duplicate(&self.spec.name, after, key));
            }
            changed.push((i, old, new));
        }
        Ok(changed)
    }
}

/// Returns a new document with an `_id`: its own, the value of its key, or `new_id`.
///
/// Errors: it has none of them.
pub(crate) fn with_some_id<'d>(
    doc: &'d [u8],
    key: Option<&str>,
    new_id: Option<ObjectId>,
) -> Result<Cow<'d, [u8]>> {
    let doc = key.map_or(Cow::Borrowed(doc), |key| with_identity(doc, key));
    if field(&doc, b"_id").is_some() {
        return Ok(doc);
    }
    let id = new_id.ok_or_else(|| {
        DocsError::bad_value("the upsert needs an _id: put one into the filter or the update, or give the command an upsert_id")
    })?;
    let id = OwnedRawValue::from_bson(&id.into()).map_err(DocsError::bad_value)?;
    Ok(Cow::Owned(with_id_first(&doc, id.as_raw())))
}

fn immutable_field(path: &str) -> DocsError {
    DocsError::new(
        ErrorCode::ImmutableField,
        format!("Performing an update on the path '{path}' would modify the immutable field '{path}'"),
    )
}

/// Returns the document with this `_id` before its other fields.
pub(crate) fn with_id_first(doc: &[u8], id: RawValue<'_>) -> Vec<u8> {
    let mut out = vec![0; 4];
    put_element(&mut out, b"_id", id);
    for e in elements(doc).filter(|e| e.name != b"_id") {
        out.extend_from_slice(&doc[e.start..e.end]);
    }
    close_document(&mut out, 0);
    out
}
