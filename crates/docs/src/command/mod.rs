//! Commands: changes that are written to the log and applied by the owner of a partition.

mod codec;
pub(crate) mod definition;
mod kinds;
mod ordered;
mod outcome;
mod trial_update;
mod upsert;

use bson::oid::ObjectId;
use bson::raw::RawDocument;
use tidemill_types::{Timestamp, budget};

use crate::DocBytes;
use crate::collation::Collation;
use crate::collection::{Collection, with_id_first};
use crate::error::{DocsError, ErrorCode, Result};
use crate::filter::Filter;
use crate::find::FindOptions;
use crate::memory::HeldMemory;
use crate::rows::RowIndex;
use crate::sequence::Sequence;
use crate::sort::SortOrder;
use crate::spec::{BsonDocument, CollectionChange, CollectionSpec, IndexSpec};
use crate::store::Store;
use crate::update::Update;
use crate::values::key::Key;
use crate::values::raw::{OwnedRawValue, elements, field};
use crate::writing::changes::ChangeKind;
pub use trial_update::{UpdateTrial, update_limits};
use upsert::{upsert_replaced, upsert_updated};

/// A change of one store. Filters and updates stay BSON, as received, and are parsed when the command is
/// applied.
#[derive(Debug, Clone, PartialEq)]
pub enum DocumentCommand {
    /// Inserts documents, each with its `_id`.
    Insert {
        /// Name of the collection.
        collection: String,
        /// The new documents.
        docs: Vec<DocBytes>,
        /// True if the first rejected document ends the command; otherwise the others are inserted.
        ordered: bool,
    },
    /// Updates documents by operators.
    Update {
        /// Name of the collection.
        collection: String,
        /// Filter of the documents to update.
        filter: DocBytes,
        /// Update operators.
        update: DocBytes,
        /// True to update all documents that match, false for only the first.
        multi: bool,
        /// True to insert a document if none matches.
        upsert: bool,
        /// `_id` of an inserted document if neither filter nor update has one.
        upsert_id: Option<ObjectId>,
    },
    /// Replaces the first document that matches; its `_id` stays.
    Replace {
        /// Name of the collection.
        collection: String,
        /// Filter of the document to replace.
        filter: DocBytes,
        /// The new document; without `_id` it gets that of the old one.
        doc: DocBytes,
        /// True to insert the document if none matches.
        upsert: bool,
        /// `_id` of an inserted document if neither filter nor document has one.
        upsert_id: Option<ObjectId>,
    },
    /// Deletes documents.
    Delete {
        /// Name of the collection.
        collection: String,
        /// Filter of the documents to delete.
        filter: DocBytes,
        /// True to delete all documents that match, false for only the first.
        multi: bool,
    },
    /// Changes the first document that matches, and returns it: MongoDB's `findAndModify`.
    FindAndModify {
        /// Name of the collection.
        collection: String,
        /// Filter of the document.
        filter: DocBytes,
        /// Order that decides which document is the first; that of the plan if `None`.
        sort: Option<DocBytes>,
        /// The change.
        change: Modification,
        /// True to insert a document if none matches. A removal inserts none.
        upsert: bool,
        /// `_id` of an inserted document if neither filter nor change has one.
        upsert_id: Option<ObjectId>,
    },
    /// Creates an index over the existing documents.
    CreateIndex {
        /// Name of the collection.
        collection: String,
        /// Definition of the index.
        index: IndexSpec,
    },
    /// Drops an index.
    DropIndex {
        /// Name of the collection.
        collection: String,
        /// Name of the index.
        name: String,
    },
    /// Creates a collection.
    CreateCollection(CollectionSpec),
    /// Drops a collection with its documents.
    Drop {
        /// Name of the collection.
        collection: String,
    },
    /// Tells those who follow changes that no collection has this prefix any more. Nothing else happens.
    EndDatabase {
        /// Prefix that the names of its collections had.
        prefix: String,
    },
    /// Gives a collection another name.
    Rename {
        /// Name of the collection.
        collection: String,
        /// Its new name.
        to: String,
        /// True to drop a collection that has the new name.
        drop_target: bool,
    },
    /// Changes the definition of a collection.
    Modify {
        /// Name of the collection.
        collection: String,
        /// The change.
        change: CollectionChange,
    },
    /// Deletes the documents that have expired, by the time of the command.
    Expire {
        /// Name of the collection.
        collection: String,
    },
    /// A command that writes documents without validation.
    Unvalidated(Box<DocumentCommand>),
    /// A command of a log that was written before documents of entities had to have their key as `_id`, and before its steps had
    /// a limit. It does when it is replayed what it did then.
    BeforeIdentity(Box<DocumentCommand>),
    /// A command that compares strings by this collation instead of that of its collection.
    Collated {
        /// MongoDB's document; that of the simple collation compares bytes.
        collation: BsonDocument,
        /// A command that finds documents.
        command: Box<DocumentCommand>,
    },
    /// A part of an insert into several partitions.
    Sequenced {
        /// When each document counts as inserted, unless a later one is there.
        sequences: Vec<Sequence>,
        /// The insert of as many documents.
        command: Box<DocumentCommand>,
    },
    /// An update of many documents that ends early in this partition, as another one refuses a document.
    First {
        /// Number of documents that it changes at most.
        documents: u64,
        /// The update.
        command: Box<DocumentCommand>,
    },
}

/// Change of a [`DocumentCommand::FindAndModify`].
#[derive(Debug, Clone, PartialEq)]
pub enum Modification {
    /// Applies update operators.
    Update(DocBytes),
    /// Replaces the document; its `_id` stays.
    Replace(DocBytes),
    /// Deletes the document.
    Remove,
}

/// Result of a command.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CommandOutcome {
    /// Number of documents inserted by an insert.
    pub inserted: u64,
    /// Number of documents that the filter matched.
    pub matched: u64,
    /// Number of documents that became different.
    pub modified: u64,
    /// Number of documents deleted.
    pub deleted: u64,
    /// `_id` of the document that an upsert inserted.
    pub upserted_id: Option<bson::Bson>,
    /// The document that a [`DocumentCommand::FindAndModify`] found, as it was before.
    pub before: Option<DocBytes>,
    /// The document that a [`DocumentCommand::FindAndModify`] changed or inserted, as it is now.
    pub after: Option<DocBytes>,
    /// Errors of rejected documents; the counts cover the others.
    pub errors: Vec<DocumentError>,
}

/// Error of one document of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct DocumentError {
    /// Index of the document in the command; 0 for commands on one document.
    pub index: usize,
    /// MongoDB's error code, and the message.
    pub error: DocsError,
}

impl Store {
    /// Applies a command. `now` is the time of its record.
    ///
    /// If a command on several documents fails for some, the changes of the others stay, and
    /// [`CommandOutcome::errors`] lists the failures. Errors: the command itself is invalid (collection,
    /// filter, operators), or it needs more than the thread's [budget](tidemill_types::budget) has; nothing is changed then.
    pub fn apply(&mut self, command: &DocumentCommand, now: Timestamp) -> Result<CommandOutcome> {
        if !self.may_stop_halfway(command) {
            return self.apply_by(command, now, None);
        }
        let before = self.statement_savepoint();
        let outcome = self.apply_by(command, now, None);
        if let Err(stop) = budget::check() {
            self.roll_back_statement(&before);
            return Err(stop.into());
        }
        outcome
    }

    /// Returns whether a command evaluates something for each of several documents, between which it may have to end.
    fn may_stop_halfway(&self, command: &DocumentCommand) -> bool {
        match command.plain() {
            DocumentCommand::Update { multi, .. } => *multi,
            DocumentCommand::Insert { collection, docs, .. } => {
                docs.len() > 1 && self.collection(collection).is_some_and(|c| c.validator.is_some())
            }
            _ => false,
        }
    }

    /// Runs work during which a collection leaves out a check.
    fn bypassing<T>(
        &mut self,
        collection: &str,
        flag: for<'c> fn(&'c mut Collection) -> &'c mut bool,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        *flag(self.require(collection)?) = true;
        let done = work(self);
        if let Some(collection) = self.collection_mut(collection) {
            *flag(collection) = false;
        }
        done
    }

    /// Applies a command with a collation, which may be the simple one, or with that of the collection.
    fn apply_by(
        &mut self,
        command: &DocumentCommand,
        now: Timestamp,
        given: Option<Option<Collation>>,
    ) -> Result<CommandOutcome> {
        let mut outcome = CommandOutcome::default();
        self.refuse_view(command)?;
        let by = given.clone().unwrap_or_else(|| self.collation_of(command));
        let by = by.as_ref();
        match command {
            DocumentCommand::Insert { collection, docs, ordered } => {
                let sequences = std::mem::take(&mut self.sequences);
                let collection = self.require(collection)?;
                for (index, doc) in docs.iter().enumerate() {
                    match sequences.get(index) {
                        // a transaction has them only of documents that it moves
                        Some(sequence) if collection.changes.is_of_transaction() => {
                            collection.changes.set_moved(*sequence);
                        }
                        Some(sequence) => collection.changes.set_sequence(*sequence),
                        None => {}
                    }
                    match collection.load(doc) {
                        Ok(_) => outcome.inserted += 1,
                        Err(error) => outcome.errors.push(DocumentError { index, error }),
                    }
                    if *ordered && !outcome.errors.is_empty() {
                        break;
                    }
                }
            }
            DocumentCommand::Update { collection, filter, update, multi, upsert, upsert_id } => {
                let many = self.documents_max.take();
                let many = many.map_or(usize::MAX, |many| usize::try_from(many).unwrap_or(usize::MAX));
                let collection = self.require(collection)?;
                let filter = Filter::parse_by(document("filter", filter)?, by)?;
                let update = Update::parse_by(document("update", update)?, now, by)?;
                let slots = collection.matching(&filter, if *multi { many } else { 1 })?;
                if slots.is_empty() && *upsert {
                    upsert_updated(collection, &filter, &update, *upsert_id, now, &mut outcome);
                } else {
                    update_slots(collection, &filter, &slots, &update, now, &mut outcome);
                }
            }
            DocumentCommand::Replace { collection, filter, doc, upsert, upsert_id } => {
                let collection = self.require(collection)?;
                let filter = Filter::parse_by(document("filter", filter)?, by)?;
                document("replacement", doc)?;
                replace(collection, &filter, doc, *upsert, *upsert_id, &mut outcome)?;
            }
            DocumentCommand::Delete { collection, filter, multi } => {
                let collection = self.require(collection)?;
                let filter = Filter::parse_by(document("filter", filter)?, by)?;
                outcome.deleted = delete(collection, &filter, *multi)?;
                outcome.matched = outcome.deleted;
            }
            DocumentCommand::FindAndModify { collection, filter, sort, change, upsert, upsert_id } => {
                let collection = self.require(collection)?;
                let filter = Filter::parse_by(document("filter", filter)?, by)?;
                let sort = match sort {
                    Some(sort) => {
                        SortOrder::parse_query(document("sort", sort)?)?.with_collation(by.cloned())
                    }
                    None => SortOrder::default(),
                };
                let first = FindOptions { sort, limit: Some(1), ..FindOptions::default() };
                let slot = collection.find_slots(&filter, &first)?.first().copied();
                let upsert_id = upsert.then_some(*upsert_id);
                let context = ModificationContext { now, collation: by };
                find_and_modify(collection, &filter, slot, change, upsert_id, context, &mut outcome)?;
            }
            DocumentCommand::CreateIndex { collection, index } => {
                self.require(collection)?.create_index(index.clone())?;
                let described = || definition::of_index(index);
                self.changes.collect_definition(ChangeKind::CreateIndex, collection, described);
            }
            DocumentCommand::DropIndex { collection, name } => {
                let found = self.require(collection)?;
                let index = found.spec().indexes.iter().find(|index| index.name == *name).cloned();
                found.drop_index(name)?;
                let described = || index.as_ref().map(definition::of_index).unwrap_or_default();
                self.changes.collect_definition(ChangeKind::DropIndex, collection, described);
            }
            DocumentCommand::CreateCollection(spec) => {
                let is_new = self.collection(&spec.name).is_none();
                self.create_collection(spec)?;
                if is_new {
                    let described = || definition::of_collection(spec);
                    self.changes.collect_definition(ChangeKind::Create, &spec.name, described);
                }
            }
            DocumentCommand::Drop { collection } => {
                self.require(collection)?;
                self.drop_collection(collection);
            }
            DocumentCommand::EndDatabase { prefix } => self.changes.collect_drop(prefix),
            DocumentCommand::Rename { collection, to, drop_target } => {
                self.rename_collection(collection, to, *drop_target)?
            }
            DocumentCommand::Modify { collection, change } => {
                self.require(collection)?.modify(change)?;
                let described = || definition::of_change(change);
                self.changes.collect_definition(ChangeKind::Modify, collection, described);
            }
            DocumentCommand::Expire { collection } => {
                outcome.deleted = self.require(collection)?.delete_expired(now)?;
            }
            DocumentCommand::Unvalidated(inner) => {
                let apply = |store: &mut Self| store.apply_by(inner, now, given);
                return self.bypassing(inner.collection(), |c| &mut c.bypass_validation, apply);
            }
            DocumentCommand::BeforeIdentity(inner) => {
                let apply = |store: &mut Self| store.apply_by(inner, now, given);
                return self.bypassing(inner.collection(), |c| &mut c.bypass_identity, apply);
            }
            DocumentCommand::Collated { collation, command } => {
                return self.apply_by(command, now, Some(Collation::parse(collation.as_raw())?));
            }
            DocumentCommand::First { documents, command } => {
                self.documents_max = Some(*documents);
                let done = self.apply_by(command, now, given);
                self.documents_max = None;
                return done;
            }
            DocumentCommand::Sequenced { sequences, command } => {
                self.sequences = sequences.clone();
                let done = self.apply_by(command, now, given);
                self.sequences = Vec::new();
                return done;
            }
        }
        Ok(outcome)
    }

    /// Returns the collation of the collection of a command.
    fn collation_of(&self, command: &DocumentCommand) -> Option<Collation> {
        self.collection(command.collection())?.collation().cloned()
    }

    /// Refuses a command that needs documents on a view.
    fn refuse_view(&self, command: &DocumentCommand) -> Result<()> {
        let needs_documents = !matches!(
            command,
            DocumentCommand::CreateCollection(_)
                | DocumentCommand::Drop { .. }
                | DocumentCommand::EndDatabase { .. }
                | DocumentCommand::Modify { .. }
                | DocumentCommand::Expire { .. }
        );
        let name = command.collection();
        let is_view = self.collection(name).is_some_and(|c| c.spec().options.view.is_some());
        match needs_documents && is_view {
            true => Err(DocsError::new(ErrorCode::CommandNotSupportedOnView, format!("`{name}` is a view"))),
            false => Ok(()),
        }
    }
}

/// Checks that the bytes are a document. Errors: not BSON; `what` is the subject of the message.
fn document<'a>(what: &str, bytes: &'a DocBytes) -> Result<&'a RawDocument> {
    crate::values::validate::check(bytes, &crate::StoreLimits::default())
        .map_err(|e| DocsError::new(e.error_code(), format!("{what}: {e}")))?;
    RawDocument::from_bytes(bytes).map_err(|e| DocsError::new(ErrorCode::InvalidBson, format!("{what}: {e}")))
}

fn update_slots(
    collection: &mut Collection,
    filter: &Filter,
    slots: &[RowIndex],
    update: &Update,
    now: Timestamp,
    outcome: &mut CommandOutcome,
) {
    // a transaction keeps the new versions beside those of the collection
    let mut held = collection.changes.is_of_transaction().then(HeldMemory::default);
    for slot in slots {
        outcome.matched += 1;
        let matched = match update.needs_matched_element() {
            true => collection.doc_at(*slot).and_then(|doc| filter.matched_element(doc)),
            false => None,
        };
        let changed = collection.update_slot(*slot, update, now, matched).and_then(|changed| {
            if let (Some(held), Some(after)) = (&mut held, &changed.after) {
                held.add(after.len())?;
            }
            Ok(changed)
        });
        match changed {
            Ok(changed) => outcome.modified += u64::from(changed.is_modified()),
            Err(error) => {
                // as MongoDB: the first error ends a multi-update, changes made before it stay
                outcome.errors.push(DocumentError { index: 0, error });
                return;
            }
        }
    }
}

/// Refuses a replacement with operators among its fields.
fn check_replacement(doc: &[u8]) -> Result<()> {
    match elements(doc).position(|e| e.name.starts_with(b"$")) {
        None => Ok(()),
        Some(0) => {
            Err(DocsError::parse("the replacement starts with an operator: use update to apply operators"))
        }
        Some(at) => {
            let name =
                elements(doc).nth(at).map_or(String::new(), |e| String::from_utf8_lossy(e.name).into_owned());
            Err(DocsError::new(
                ErrorCode::DollarPrefixedFieldName,
                format!("the dollar ($) prefixed field '{name}' is not allowed in a replacement document"),
            ))
        }
    }
}

fn replace(
    collection: &mut Collection,
    filter: &Filter,
    doc: &DocBytes,
    upsert: bool,
    upsert_id: Option<ObjectId>,
    outcome: &mut CommandOutcome,
) -> Result<()> {
    check_replacement(doc)?;
    match collection.matching(filter, 1)?.first() {
        Some(slot) => replace_slot(collection, *slot, doc, outcome),
        None if upsert => upsert_replaced(collection, filter, doc, upsert_id, outcome),
        None => {}
    }
    Ok(())
}

/// Replaces the document of a slot; the new one gets its `_id` if it has none.
fn replace_slot(collection: &mut Collection, slot: RowIndex, doc: &DocBytes, outcome: &mut CommandOutcome) {
    outcome.matched = 1;
    let old_id = collection.doc_at(slot).and_then(|d| field(d, b"_id")).map(|e| OwnedRawValue::of(e.value));
    let new = match (field(doc, b"_id"), old_id) {
        (None, Some(id)) => with_id_first(doc, id.as_raw()).into(),
        _ => doc.clone(),
    };
    match collection.replace_slot(slot, &new) {
        Ok(changed) => outcome.modified = u64::from(changed.is_modified()),
        Err(error) => outcome.errors.push(DocumentError { index: 0, error }),
    }
}

/// The time of a modification, and the order of strings.
#[derive(Clone, Copy)]
struct ModificationContext<'c> {
    now: Timestamp,
    collation: Option<&'c Collation>,
}

/// Changes the document of `slot`; without one it inserts a document if `upsert_id` is present, which then may have the
/// `_id` to use.
fn find_and_modify(
    collection: &mut Collection,
    filter: &Filter,
    slot: Option<RowIndex>,
    change: &Modification,
    upsert_id: Option<Option<ObjectId>>,
    ModificationContext { now, collation: by }: ModificationContext<'_>,
    outcome: &mut CommandOutcome,
) -> Result<()> {
    if let Modification::Replace(doc) = change {
        document("replacement", doc)?;
        check_replacement(doc)?;
    }
    let Some(slot) = slot else {
        match (change, upsert_id) {
            (Modification::Update(update), Some(id)) => {
                let update = Update::parse_by(document("update", update)?, now, by)?;
                upsert_updated(collection, filter, &update, id, now, outcome);
            }
            (Modification::Replace(doc), Some(id)) => replace(collection, filter, doc, true, id, outcome)?,
            (_, None) | (Modification::Remove, _) => {}
        }
        outcome.after = match &outcome.upserted_id {
            Some(id) => collection.get_key(&Key::of_bson(id)?).cloned(),
            None => None,
        };
        return Ok(());
    };
    outcome.before = collection.doc_at(slot).cloned();
    match change {
        Modification::Update(update) => {
            let update = Update::parse_by(document("update", update)?, now, by)?;
            update_slots(collection, filter, &[slot], &update, now, outcome);
        }
        Modification::Replace(doc) => replace_slot(collection, slot, doc, outcome),
        Modification::Remove => {
            outcome.deleted = collection.delete_slots(&[slot])?;
            outcome.matched = outcome.deleted;
            return Ok(());
        }
    }
    outcome.after = collection.doc_at(slot).cloned();
    Ok(())
}

/// Deletes the documents that match and returns their number.
fn delete(collection: &mut Collection, filter: &Filter, multi: bool) -> Result<u64> {
    if multi && filter.is_all() {
        return Ok(collection.clear());
    }
    let slots = collection.matching(filter, if multi { usize::MAX } else { 1 })?;
    collection.delete_slots(&slots)
}
