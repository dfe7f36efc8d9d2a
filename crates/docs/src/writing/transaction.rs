//! The writes of a transaction: new versions of documents, applied together or not at all.

use bson::raw::{RawBsonRef, RawDocument};
use bytes::Bytes;
use tidemill_types::Timestamp;

use crate::DocBytes;
use crate::command::definition;
use crate::error::{DocsError, ErrorCode, Result};
use crate::sequence::Sequence;
use crate::spec::CollectionSpec;
use crate::store::{Collections, Store};
use crate::values::key::Key;
use crate::values::raw::{RawValue, close_document, elements, field, put_element, tag};
use crate::writing::changes::{ChangeKind, DocumentChange};
use crate::writing::write_digest::WriteDigest;

/// The writes of a transaction to the documents of one store, in the order in which it first wrote each document, and the collections
/// that it created.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TransactionWrites {
    created: Vec<CollectionSpec>,
    documents: Vec<DocumentWrite>,
}

#[derive(Debug, Clone, PartialEq)]
struct DocumentWrite {
    collection: String,
    key: Key,
    /// The new version, or `{ _id: … }` of a document that is deleted.
    document: DocBytes,
    kind: ChangeKind,
    /// Place among the writes of the transaction, over all partitions.
    place: u32,
    /// The sequence that a document keeps which has moved from another partition.
    moved: Option<Sequence>,
}

impl TransactionWrites {
    /// Returns the writes that lead from the first version of each document to its last.
    pub fn of_changes(changes: Vec<DocumentChange>) -> Self {
        let mut writes: Vec<DocumentWrite> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for change in changes {
            let DocumentChange { mut kind, collection, key, before, after, place: order, moved } = change;
            let Some(document) = after.or_else(|| before.as_deref().map(only_id)) else { continue };
            let place = *places.entry((collection.clone(), key.clone())).or_insert(writes.len());
            kind = match (writes.get(place).map(|earlier| earlier.kind), kind) {
                (None | Some(ChangeKind::Update), kind) | (_, kind @ ChangeKind::Delete) => kind,
                (Some(ChangeKind::Insert), _) => ChangeKind::Insert,
                // a document that was deleted and inserted again, or replaced and updated
                _ => ChangeKind::Replace,
            };
            let order = writes.get(place).map_or(order, |earlier| earlier.place);
            let write = DocumentWrite {
                collection: collection.to_string(),
                key,
                document,
                kind,
                place: order,
                moved,
            };
            match writes.get_mut(place) {
                Some(earlier) => *earlier = write,
                None => writes.push(write),
            }
        }
        Self { created: Vec::new(), documents: writes }
    }

    /// Returns the writes with the definitions of collections that the transaction created, with their indexes.
    pub fn with_created(self, created: Vec<CollectionSpec>) -> Self {
        Self { created, ..self }
    }

    /// Returns whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty() && self.created.is_empty()
    }

    /// Encodes the writes as an array of `{ c: COLLECTION, create: {…} }`, with the definition, and then `{ c: COLLECTION, n: PLACE, KIND: {…} }` with the kinds `insert`, `update`, `replace` and `delete`, the last with
    /// `{ _id: … }`. An insert of a document that comes from another partition has its sequence, `s`.
    ///
    /// Errors: a definition that is not a document.
    pub fn to_bytes(&self) -> Result<Bytes> {
        let mut out = vec![0; 4];
        let begin = |out: &mut Vec<u8>, at: usize| {
            out.push(tag::DOCUMENT);
            out.extend_from_slice(at.to_string().as_bytes());
            out.push(0);
            out.extend_from_slice(&[0; 4]);
            out.len() - 4
        };
        for (at, spec) in self.created.iter().enumerate() {
            let inner = begin(&mut out, at);
            let name = crate::values::raw::OwnedRawValue::string(&spec.name);
            put_element(&mut out, b"c", name.as_raw());
            let spec = bson::serialize_to_vec(spec).map_err(|e| DocsError::bad_value(e.to_string()))?;
            put_element(&mut out, CREATE, RawValue { tag: tag::DOCUMENT, bytes: &spec });
            close_document(&mut out, inner);
        }
        for (at, write) in self.documents.iter().enumerate() {
            let inner = begin(&mut out, self.created.len() + at);
            let name = crate::values::raw::OwnedRawValue::string(&write.collection);
            put_element(&mut out, b"c", name.as_raw());
            let place = write.place.cast_signed().to_le_bytes();
            put_element(&mut out, b"n", RawValue { tag: tag::INT32, bytes: &place });
            if let Some(moved) = write.moved {
                let sequence = moved.number().to_le_bytes();
                put_element(&mut out, b"s", RawValue { tag: tag::INT64, bytes: &sequence });
            }
            put_element(
                &mut out,
                kind_name(write.kind),
                RawValue { tag: tag::DOCUMENT, bytes: &write.document },
            );
            close_document(&mut out, inner);
        }
        close_document(&mut out, 0);
        Ok(out.into())
    }

    /// Decodes what [`Self::to_bytes`] encoded; documents share `bytes`.
    ///
    /// Errors: other bytes.
    pub fn from_bytes(bytes: &Bytes) -> Result<Self> {
        let damaged =
            |why: &str| DocsError::new(ErrorCode::InvalidBson, format!("writes of a transaction: {why}"));
        let limits = crate::StoreLimits { document_bytes_max: usize::MAX, ..crate::StoreLimits::default() };
        let limits = crate::StoreLimits { depth_max: limits.depth_max + 2, ..limits };
        crate::values::validate::check(bytes, &limits).map_err(|e| damaged(&e.to_string()))?;
        let (mut created, mut writes) = (Vec::new(), Vec::new());
        for element in elements(bytes) {
            if element.value.tag != tag::DOCUMENT {
                return Err(damaged("expected an array of documents"));
            }
            let inner = element.value.bytes;
            let collection = field(inner, b"c").and_then(|e| e.value.text());
            let collection = collection.ok_or_else(|| damaged("a write has no collection"))?.to_owned();
            if let Some(spec) = field(inner, CREATE) {
                let spec = bson::deserialize_from_slice(spec.value.bytes);
                created.push(spec.map_err(|e| damaged(&format!("the definition of `{collection}`: {e}")))?);
                continue;
            }
            let found = KINDS.iter().find_map(|kind| Some((*kind, field(inner, kind_name(*kind))?.value)));
            let (kind, document) = found.ok_or_else(|| damaged("a write of unknown kind"))?;
            let id = (document.tag == tag::DOCUMENT).then(|| field(document.bytes, b"_id")).flatten();
            let id = id.ok_or_else(|| damaged("a document has no _id"))?;
            let key = Key::of_raw(id.value);
            // logs of earlier versions have no place
            let place = field(inner, b"n").and_then(|e| e.value.bytes.first_chunk());
            let place = place.map_or(0, |bytes| u32::from_le_bytes(*bytes));
            let moved = field(inner, b"s").and_then(|e| e.value.bytes.first_chunk());
            let moved = moved.map(|bytes| Sequence::from_number(u64::from_le_bytes(*bytes)));
            let document = bytes.slice_ref(document.bytes);
            writes.push(DocumentWrite { collection, key, document, kind, place, moved });
        }
        Ok(Self { created, documents: writes })
    }
}

/// Field with the definition of a collection that is created.
const CREATE: &[u8] = b"create";

const KINDS: [ChangeKind; 4] =
    [ChangeKind::Insert, ChangeKind::Update, ChangeKind::Replace, ChangeKind::Delete];

fn kind_name(kind: ChangeKind) -> &'static [u8] {
    match kind {
        ChangeKind::Insert => b"insert",
        ChangeKind::Update => b"update",
        ChangeKind::Replace => b"replace",
        // a transaction writes documents only
        ChangeKind::Delete
        | ChangeKind::Drop
        | ChangeKind::Create
        | ChangeKind::CreateIndex
        | ChangeKind::DropIndex
        | ChangeKind::Modify
        | ChangeKind::Rename => b"delete",
    }
}

/// Returns `{ _id: … }` of a document.
fn only_id(document: &[u8]) -> DocBytes {
    let mut out = vec![0; 4];
    if let Some(id) = field(document, b"_id") {
        put_element(&mut out, b"_id", id.value);
    }
    close_document(&mut out, 0);
    out.into()
}

/// The state of a store to which it can return.
pub struct Savepoint {
    collections: Collections,
    bytes: u64,
    superseded: u64,
    derived: u64,
    collected: usize,
    /// For each write what [`crate::writing::changes::ChangeRecorder::last`] was.
    last: Vec<u64>,
    /// The digest of the writes of the record, if there is one.
    digest: Option<WriteDigest>,
}

impl Store {
    /// Applies the writes of a transaction that has read the documents as they were after the records below `since`:
    /// all, or none if there is an error. `order` is the place of the transaction among all others, a time.
    ///
    /// Errors: `WriteConflict` if one of the documents has been changed since; those of an insert or a replacement.
    pub fn commit(&mut self, writes: &TransactionWrites, since: u64, order: Timestamp) -> Result<()> {
        self.check_unchanged(writes, since)?;
        let before = self.savepoint(writes);
        let done = self.commit_from(&before, writes, order);
        self.changes.set_place(0);
        self.changes.set_sequence(Sequence::new(order, 0));
        done
    }

    fn commit_from(
        &mut self,
        before: &Savepoint,
        writes: &TransactionWrites,
        order: Timestamp,
    ) -> Result<()> {
        if self.apply_writes(writes, order).is_ok() {
            return Ok(());
        }
        self.roll_back(before, writes);
        // one document may take over the unique value that another one gives up: without both it can be inserted
        let done = self.apply_writes_anew(writes, order);
        if done.is_err() {
            self.roll_back(before, writes);
        }
        done
    }

    /// Returns what [`Self::commit`] would, and changes nothing.
    pub fn check_commit(&mut self, writes: &TransactionWrites, since: u64) -> Result<()> {
        let before = self.savepoint(writes);
        self.commit(writes, since, Timestamp(0))?;
        self.roll_back(&before, writes);
        Ok(())
    }

    fn check_unchanged(&self, writes: &TransactionWrites, since: u64) -> Result<()> {
        if let Some(spec) = writes.created.iter().find(|spec| self.collection(&spec.name).is_some()) {
            return Err(DocsError::new(
                ErrorCode::WriteConflict,
                format!(
                    "another writer has created the collection `{}` since the transaction began: run the transaction again",
                    spec.name
                ),
            ));
        }
        match writes.documents.iter().find(|write| self.changes.last(&write.collection, &write.key) > since) {
            None => Ok(()),
            Some(write) => Err(write_conflict(&write.collection, &write.document)),
        }
    }

    fn savepoint(&self, writes: &TransactionWrites) -> Savepoint {
        let last = writes.documents.iter().map(|write| self.changes.last(&write.collection, &write.key));
        Savepoint { last: last.collect(), ..self.statement_savepoint() }
    }

    /// Returns the present state, for [`Self::roll_back_statement`].
    pub fn statement_savepoint(&self) -> Savepoint {
        Savepoint {
            collections: self.collections.clone(),
            bytes: self.bytes(),
            superseded: self.superseded(),
            derived: self.derived(),
            collected: self.changes.collected(),
            last: Vec::new(),
            digest: self.changes.is_digesting().then(|| self.changes.digest().clone()),
        }
    }

    /// Takes back all changes of documents since the savepoint, in a store that collects its changes.
    pub fn roll_back_statement(&mut self, to: &Savepoint) {
        self.roll_back(to, &TransactionWrites::default());
    }

    fn roll_back(&mut self, to: &Savepoint, writes: &TransactionWrites) {
        self.collections = to.collections.clone();
        self.set_usage(to.bytes, to.superseded, to.derived);
        self.changes.truncate(to.collected);
        if let Some(digest) = &to.digest {
            *self.changes.digest() = digest.clone();
        }
        for (write, last) in writes.documents.iter().zip(&to.last) {
            self.changes.set_last(&write.collection, &write.key, *last);
        }
    }

    /// Creates the collections that a transaction created.
    fn create_collections(&mut self, writes: &TransactionWrites) -> Result<()> {
        self.changes.set_place(0);
        for spec in &writes.created {
            self.create_collection(spec)?;
            let described = || definition::of_collection(spec);
            self.changes.collect_definition(ChangeKind::Create, &spec.name, described);
            for index in &spec.indexes {
                let described = || definition::of_index(index);
                self.changes.collect_definition(ChangeKind::CreateIndex, &spec.name, described);
            }
        }
        Ok(())
    }

    fn apply_writes(&mut self, writes: &TransactionWrites, order: Timestamp) -> Result<()> {
        self.create_collections(writes)?;
        for write in &writes.documents {
            self.place_write(write, order);
            let collection = self.require(&write.collection)?;
            match write.kind {
                ChangeKind::Delete => collection.delete_by_key(&write.key)?,
                kind => collection.put(&write.document, kind)?,
            }
        }
        Ok(())
    }

    /// Says where the change of a write belongs, and when its document is inserted.
    fn place_write(&self, write: &DocumentWrite, order: Timestamp) {
        self.changes.set_place(write.place);
        match write.moved {
            Some(sequence) => self.changes.set_moved(sequence),
            None => self.changes.set_sequence(Sequence::new(order, write.place)),
        }
    }

    /// Deletes all documents that are written, then inserts their new versions, which are behind all others from then on.
    fn apply_writes_anew(&mut self, writes: &TransactionWrites, order: Timestamp) -> Result<()> {
        self.create_collections(writes)?;
        for write in &writes.documents {
            self.changes.set_place(write.place);
            self.require(&write.collection)?.delete_by_key(&write.key)?;
        }
        for write in writes.documents.iter().filter(|write| write.kind != ChangeKind::Delete) {
            self.place_write(write, order);
            self.require(&write.collection)?.put(&write.document, write.kind)?;
        }
        Ok(())
    }
}

/// Returns the error that a transaction has written a document which another writer has changed meanwhile.
pub fn write_conflict(collection: &str, document: &[u8]) -> DocsError {
    let id = RawDocument::from_bytes(document).ok().and_then(|d| d.get("_id").ok().flatten());
    let id = id.map_or_else(String::new, |id: RawBsonRef<'_>| format!(" with _id {id:?}"));
    DocsError::new(
        ErrorCode::WriteConflict,
        format!(
            "another writer has changed the document{id} of `{collection}` since the transaction began: run the transaction again"
        ),
    )
}
