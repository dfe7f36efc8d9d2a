//! The writes of a transaction: new versions of documents, applied together or not at all.

use bson::raw::{RawBsonRef, RawDocument};
use bytes::Bytes;

use crate::DocBytes;
use crate::changes::{ChangeKind, DocumentChange};
use crate::error::{DocsError, ErrorCode, Result};
use crate::key::Key;
use crate::raw::{RawValue, close_document, elements, field, put_element, tag};
use crate::store::{Collections, Store};

/// The writes of a transaction to the documents of one store, in the order in which it first wrote each document.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TransactionWrites(Vec<DocumentWrite>);

#[derive(Debug, Clone, PartialEq)]
struct DocumentWrite {
    collection: String,
    key: Key,
    /// The new version, or `{ _id: … }` of a document that is deleted.
    document: DocBytes,
    kind: ChangeKind,
}

impl TransactionWrites {
    /// Returns the writes that lead from the first version of each document to its last.
    pub fn of_changes(changes: Vec<DocumentChange>) -> Self {
        let mut writes: Vec<DocumentWrite> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for change in changes {
            let DocumentChange { mut kind, collection, key, before, after } = change;
            let Some(document) = after.or_else(|| before.as_deref().map(only_id)) else { continue };
            let place = *places.entry((collection.clone(), key.clone())).or_insert(writes.len());
            kind = match (writes.get(place).map(|earlier| earlier.kind), kind) {
                (None | Some(ChangeKind::Update), kind) | (_, kind @ ChangeKind::Delete) => kind,
                (Some(ChangeKind::Insert), _) => ChangeKind::Insert,
                // a document that was deleted and inserted again, or replaced and updated
                _ => ChangeKind::Replace,
            };
            let write = DocumentWrite { collection: collection.to_string(), key, document, kind };
            match writes.get_mut(place) {
                Some(earlier) => *earlier = write,
                None => writes.push(write),
            }
        }
        Self(writes)
    }

    /// Returns whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Encodes the writes as an array of `{ c: COLLECTION, KIND: {…} }` with the kinds `insert`, `update`, `replace` and `delete`, the last with
    /// `{ _id: … }`.
    pub fn to_bytes(&self) -> Bytes {
        let mut out = vec![0; 4];
        for (at, write) in self.0.iter().enumerate() {
            out.push(tag::DOCUMENT);
            out.extend_from_slice(at.to_string().as_bytes());
            out.push(0);
            let inner = out.len();
            out.extend_from_slice(&[0; 4]);
            let name = crate::raw::OwnedRawValue::string(&write.collection);
            put_element(&mut out, b"c", name.as_raw());
            put_element(
                &mut out,
                kind_name(write.kind),
                RawValue { tag: tag::DOCUMENT, bytes: &write.document },
            );
            close_document(&mut out, inner);
        }
        close_document(&mut out, 0);
        out.into()
    }

    /// Decodes what [`Self::to_bytes`] encoded; documents share `bytes`.
    ///
    /// Errors: other bytes.
    pub fn from_bytes(bytes: &Bytes) -> Result<Self> {
        let damaged =
            |why: &str| DocsError::new(ErrorCode::InvalidBson, format!("writes of a transaction: {why}"));
        let limits = crate::Limits { document_bytes_max: usize::MAX, ..crate::Limits::default() };
        let limits = crate::Limits { depth_max: limits.depth_max + 2, ..limits };
        crate::validate::check(bytes, &limits).map_err(|e| damaged(&e.to_string()))?;
        let mut writes = Vec::new();
        for element in elements(bytes) {
            if element.value.tag != tag::DOCUMENT {
                return Err(damaged("expected an array of documents"));
            }
            let inner = element.value.bytes;
            let collection = field(inner, b"c").and_then(|e| e.value.text());
            let collection = collection.ok_or_else(|| damaged("a write has no collection"))?.to_owned();
            let found = KINDS.iter().find_map(|kind| Some((*kind, field(inner, kind_name(*kind))?.value)));
            let (kind, document) = found.ok_or_else(|| damaged("a write of unknown kind"))?;
            let id = (document.tag == tag::DOCUMENT).then(|| field(document.bytes, b"_id")).flatten();
            let id = id.ok_or_else(|| damaged("a document has no _id"))?;
            let key = Key::of_raw(id.value);
            writes.push(DocumentWrite { collection, key, document: bytes.slice_ref(document.bytes), kind });
        }
        Ok(Self(writes))
    }
}

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
    /// For each write what [`crate::changes::ChangeRecorder::last`] was.
    last: Vec<u64>,
}

impl Store {
    /// Applies the writes of a transaction that has read the documents as they were after the records below `since`:
    /// all, or none if there is an error.
    ///
    /// Errors: `WriteConflict` if one of the documents has been changed since; those of an insert or a replacement.
    pub fn commit(&mut self, writes: &TransactionWrites, since: u64) -> Result<()> {
        self.check_unchanged(writes, since)?;
        let before = self.savepoint(writes);
        if self.apply_writes(writes).is_ok() {
            return Ok(());
        }
        self.roll_back(&before, writes);
        // one document may take over the unique value that another one gives up: without both it can be inserted
        let done = self.apply_writes_anew(writes);
        if done.is_err() {
            self.roll_back(&before, writes);
        }
        done
    }

    /// Returns what [`Self::commit`] would, and changes nothing.
    pub fn check_commit(&mut self, writes: &TransactionWrites, since: u64) -> Result<()> {
        let before = self.savepoint(writes);
        self.commit(writes, since)?;
        self.roll_back(&before, writes);
        Ok(())
    }

    fn check_unchanged(&self, writes: &TransactionWrites, since: u64) -> Result<()> {
        match writes.0.iter().find(|write| self.changes.last(&write.collection, &write.key) > since) {
            None => Ok(()),
            Some(write) => Err(write_conflict(&write.collection, &write.document)),
        }
    }

    fn savepoint(&self, writes: &TransactionWrites) -> Savepoint {
        let last = writes.0.iter().map(|write| self.changes.last(&write.collection, &write.key));
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
        for (write, last) in writes.0.iter().zip(&to.last) {
            self.changes.set_last(&write.collection, &write.key, *last);
        }
    }

    fn apply_writes(&mut self, writes: &TransactionWrites) -> Result<()> {
        for write in &writes.0 {
            let collection = self.require(&write.collection)?;
            match write.kind {
                ChangeKind::Delete => collection.delete_by_key(&write.key)?,
                kind => collection.put(&write.document, kind)?,
            }
        }
        Ok(())
    }

    /// Deletes all documents that are written, then inserts their new versions.
    fn apply_writes_anew(&mut self, writes: &TransactionWrites) -> Result<()> {
        for write in &writes.0 {
            self.require(&write.collection)?.delete_by_key(&write.key)?;
        }
        for write in writes.0.iter().filter(|write| write.kind != ChangeKind::Delete) {
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
