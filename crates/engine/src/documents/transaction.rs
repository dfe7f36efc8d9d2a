//! A transaction as its caller sees it.

use std::collections::HashSet;
use std::sync::Arc;

use tidemill_docs::{
    CollectionChange, CollectionSpec, CommandOutcome, DocBytes, DocsError, DocumentChange, DocumentCommand,
    ErrorCode, Key, Sequence, Store, TransactionWrites, write_conflict,
};
use tidemill_log::Durability;
use tidemill_types::budget::{Budget, Reservation, Stop};
use tidemill_types::{Error, PartitionId, Result};

use crate::commit::{SessionWrite, TransactionId, TransactionPart};
use crate::documents::PendingReplies;
use crate::documents::routing::{
    collation_of, collection_spec_of, filter_of, merge_outcomes, route, runs_in_order, sort_of,
};
use crate::documents::snapshot::DocumentSnapshot;
use crate::entry::Entry;
use crate::node::Node;
use crate::partition::PendingReply;

/// A transaction on documents: it reads the documents of the moment at which it began, with its own writes, and writes all or
/// nothing (snapshot isolation). Of two transactions that write the same document at the same time the second one fails.
///
/// Dropping it takes its writes back. What it reads stays in memory until then.
pub struct Transaction {
    node: Arc<Node>,
    id: TransactionId,
    documents: DocumentSnapshot,
    /// The documents with the own writes, of the partitions that have some.
    stores: Vec<Option<Store>>,
    /// The own writes by partition.
    changes: Vec<Vec<DocumentChange>>,
    /// Number of those.
    places: u32,
    /// The collections that it has created, which no one else sees.
    created: Vec<String>,
    locked: HashSet<(Arc<str>, Key)>,
    /// Memory of the own writes.
    held: Reservation,
    /// Why it can only be taken back.
    failed: Option<(Option<i32>, String)>,
}

impl Transaction {
    /// Begins a transaction.
    ///
    /// Errors: those of [`DocumentSnapshot::now`].
    pub(crate) fn new(node: Arc<Node>) -> Result<Self> {
        let partitions = node.host.partitions();
        let memory = &node.host.process.transaction_memory;
        let budget = Budget::builder()
            .bytes(node.app.deployment.settings.transaction_bytes(memory.bytes_max()))
            .pool(memory.clone())
            .build();
        Ok(Self {
            held: budget.reservation(),
            id: TransactionId::new(),
            documents: DocumentSnapshot::now(&node)?,
            stores: (0..partitions).map(|_| None).collect(),
            changes: vec![Vec::new(); partitions],
            places: 0,
            created: Vec::new(),
            locked: HashSet::new(),
            failed: None,
            node,
        })
    }

    /// Returns the documents as the transaction sees them.
    pub fn documents(&self) -> &DocumentSnapshot {
        &self.documents
    }

    /// Runs a command on documents. What it changes only this transaction sees until it is committed.
    ///
    /// Errors: those of the command; `Conflict` with MongoDB's code 112 if another writer has changed one of the documents since the
    /// transaction began, or another transaction is about to. After any error, also one of
    /// [`CommandOutcome::errors`], the transaction can only be taken back.
    pub fn write(&mut self, command: DocumentCommand) -> Result<CommandOutcome> {
        self.check_not_failed()?;
        let outcome = self.apply(command);
        self.failed = match &outcome {
            Err(e) => Some((e.document_code(), e.to_string())),
            Ok(outcome) => outcome.errors.first().map(|e| (Some(e.error.code()), e.error.to_string())),
        };
        outcome
    }

    /// Returns why the transaction can only be taken back: MongoDB's code, if there is one, and the message.
    pub fn failure(&self) -> Option<(Option<i32>, String)> {
        self.failed.clone()
    }

    fn check_not_failed(&self) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some((_, e)) => {
                Err(Error::conflict(format!("the transaction has failed before: {e}; take it back")))
            }
        }
    }

    fn apply(&mut self, command: DocumentCommand) -> Result<CommandOutcome> {
        if !command.writes_documents() {
            return self.define(command);
        }
        let collection = command.collection();
        match self.documents.spec(collection) {
            Err(_) if command.may_insert() => self.create_collection(collection)?,
            Ok(spec) if spec.options.capped.is_some() => {
                return Err(Error::invalid(format!(
                    "`{collection}` is a capped collection: a transaction cannot write to it"
                )));
            }
            _ => {}
        }
        let same = collection_spec_of(&self.documents, &command)?.is_some_and(|spec| spec.replicated);
        // before the documents of the command are copied; what they are in the end is counted behind
        let given = command.document_bytes();
        self.hold(given)?;
        let (ordered, inserts) = (command.is_ordered_insert(), command.inserts());
        let mut routed = route(&self.node, &self.documents, command)?;
        if inserts && !same {
            routed = runs_in_order(routed);
        }
        let now = self.node.host.clock.now();
        let mut outcomes = Vec::new();
        for part in &routed {
            let p = part.partition.0 as usize;
            // behind what the transaction has read; the commit says for others when it was
            let sequence = Sequence::new(self.node.host.commits.time_of_statement(now), self.places);
            let (outcome, mut changes) = match self.documents.here(p) {
                Some(documents) => {
                    let store = self.stores[p].get_or_insert_with(|| Store::fork(documents));
                    store.set_sequence(sequence);
                    let outcome = store.apply(&part.command, now)?;
                    let changes = store.take_changes();
                    self.documents.set_store(p, store.snapshot());
                    (outcome, changes)
                }
                None => self.write_elsewhere(p, &part.command, sequence)?,
            };
            outcomes.push(outcome);
            self.hold(changes.iter().map(change_bytes).sum())?;
            for change in &mut changes {
                change.place = self.places;
                self.places += 1;
                self.lock(p, change)?;
            }
            self.changes[p].extend(changes);
            if ordered && outcomes.last().is_some_and(|outcome| !outcome.errors.is_empty()) {
                break;
            }
        }
        self.held.shrink(given);
        Ok(merge_outcomes(&routed, outcomes, same))
    }

    /// Runs a command on documents of a partition of another process: those that it may find are fetched.
    fn write_elsewhere(
        &mut self,
        partition: usize,
        command: &DocumentCommand,
        sequence: Sequence,
    ) -> Result<(CommandOutcome, Vec<DocumentChange>)> {
        let collation = collation_of(&self.documents, command)?;
        let filter = filter_of(command.plain());
        let filter =
            filter.map(|filter| self.documents.parsed_bytes(filter, collation.as_ref())).transpose()?;
        let sort = sort_of(command.plain(), collation)?;
        let key = self.node.entity_key(command.collection());
        let mut store = self.documents.fetch_for_write(partition, command, (filter.as_ref(), &sort), key)?;
        store.set_sequence(sequence);
        let outcome = store.apply(command, self.node.host.clock.now())?;
        let changes = store.take_changes();
        self.documents.note_changes(partition, &changes, &store);
        Ok((outcome, changes))
    }

    /// Counts memory that the transaction is about to hold. Errors: one transaction, or all of them, may not have so much.
    fn hold(&mut self, bytes: usize) -> Result<()> {
        self.held.grow(bytes).map_err(|stop| match stop {
            Stop::SharedBytes(pool, limit) => {
                let message = format!(
                    "the open transactions hold all of the {limit} bytes of {pool}: run the transaction again later"
                );
                DocsError::new(ErrorCode::TemporarilyUnavailable, message).into()
            }
            stop => {
                let message = format!(
                    "the transaction {stop} (setting transaction_bytes): write less in one transaction"
                );
                DocsError::new(ErrorCode::TransactionTooLarge, message).into()
            }
        })
    }

    /// Returns whether the transaction has created the collection.
    pub fn has_created(&self, collection: &str) -> bool {
        self.created.iter().any(|name| name == collection)
    }

    /// Creates a collection, or an index of one that the transaction has created.
    fn define(&mut self, command: DocumentCommand) -> Result<CommandOutcome> {
        let command = self.node.with_entity_definition(command)?;
        let command = self.node.app.deployment.queries.document_tables.checked(command)?;
        match command {
            DocumentCommand::CreateCollection(spec) => {
                if let Ok(old) = self.documents.spec(&spec.name) {
                    let same = old.is_same(&spec);
                    let exists = || namespace_exists(&spec.name);
                    return same.then(CommandOutcome::default).ok_or_else(exists);
                }
                self.in_all_partitions(&DocumentCommand::CreateCollection(spec.clone()))?;
                self.created.push(spec.name);
            }
            DocumentCommand::CreateIndex { ref collection, ref index } if self.has_created(collection) => {
                let spec = self.documents.spec(collection)?;
                let by_id = index.fields.first().is_some_and(|(path, _)| path == "_id");
                // each partition keeps its own indexes
                if index.unique && !by_id && !spec.replicated && !spec.gathered && self.stores.len() > 1 {
                    if self.node.entity_spec(collection).is_some()
                        || self.documents.len(collection)? != Some(0)
                    {
                        return Err(Error::invalid(format!(
                            "a transaction can create a unique index of `{collection}` only before its first document, and not of \
                             an entity of the app"
                        )));
                    }
                    let change = CollectionChange { gathered: true, ..CollectionChange::default() };
                    self.in_all_partitions(&DocumentCommand::Modify {
                        collection: collection.clone(),
                        change,
                    })?;
                }
                self.in_all_partitions(&command)?;
            }
            DocumentCommand::DropIndex { ref collection, .. } if self.has_created(collection) => {
                self.in_all_partitions(&command)?;
            }
            _ => {
                return Err(Error::invalid(
                    "a transaction can create collections, and indexes of these; it cannot change or drop others: do it before",
                ));
            }
        }
        Ok(CommandOutcome::default())
    }

    /// Applies a command about a collection, for this transaction alone.
    fn in_all_partitions(&mut self, command: &DocumentCommand) -> Result<()> {
        let now = self.node.host.clock.now();
        let mut is_any_here = false;
        for (p, store) in self.stores.iter_mut().enumerate() {
            let Some(documents) = self.documents.here(p) else { continue };
            let store = store.get_or_insert_with(|| Store::fork(documents));
            store.apply(command, now)?;
            // the definition is committed as it is then
            store.take_changes();
            self.documents.set_store(p, store.snapshot());
            is_any_here = true;
        }
        if !is_any_here {
            let mut store = Store::fork(self.documents.definitions()?);
            store.apply(command, now)?;
            self.documents.set_definitions(store.snapshot());
        }
        Ok(())
    }

    /// Creates a collection as an insert outside of a transaction does.
    fn create_collection(&mut self, name: &str) -> Result<()> {
        let spec = self.node.new_collection(name);
        self.define(DocumentCommand::CreateCollection(spec)).map(drop)
    }

    /// Sees to it that no other open transaction writes a document that this one has written.
    fn lock(&mut self, partition: usize, change: &DocumentChange) -> Result<()> {
        let document = (change.collection.clone(), change.key.clone());
        if self.locked.contains(&document) {
            return Ok(());
        }
        let free = self.node.host.write_locks.lock(&document.0, &document.1, self.id);
        if free {
            self.locked.insert(document);
        }
        // a replica that came here since has the same documents at another place, and may be behind
        let read_here = self.documents.here(partition).is_some();
        let since = self.documents.next(partition);
        let is_unchanged = self.node.with_view(PartitionId(partition as u32), |view| {
            let present = view.documents.collection(&change.collection).and_then(|c| c.get_key(&change.key));
            !read_here || view.next < since || present == change.before.as_ref()
        });
        // what others have changed elsewhere is found by the commit
        if free && is_unchanged.unwrap_or(true) {
            return Ok(());
        }
        let written = change.after.as_ref().or(change.before.as_ref());
        Err(write_conflict(&change.collection, written.map_or(&[], |d| d)).into())
    }

    /// Makes the writes durable and shows them to others, all at once. `session` is remembered, so that a repetition is
    /// recognised.
    ///
    /// Errors: `Conflict` with MongoDB's code 112 if another writer has changed one of the documents since the transaction began: nothing
    /// is written then, and the transaction may be run again. `Unavailable` when the outcome is not known.
    pub fn commit(mut self, durability: Option<Durability>, session: Option<SessionWrite>) -> Result<()> {
        self.check_not_failed()?;
        let changes = std::mem::take(&mut self.changes).into_iter().enumerate();
        let writes = changes.map(|(p, changes)| (p, TransactionWrites::of_changes(changes)));
        let created = self.created.iter().map(|name| self.documents.spec(name).cloned());
        let created: Vec<CollectionSpec> = created.collect::<Result<_>>()?;
        // a collection is in all partitions
        let writes = writes.map(|(p, writes)| (p, writes.with_created(created.clone())));
        let writes: Vec<_> = writes.filter(|(_, writes)| !writes.is_empty()).collect();
        let participants: Vec<_> = writes.iter().map(|(p, _)| PartitionId(*p as u32)).collect();
        let part = |(p, writes): &(usize, TransactionWrites)| {
            Ok(TransactionPart {
                id: self.id,
                order: 0,
                participants: participants.clone(),
                since: self.documents.next(*p),
                writes: writes.to_bytes()?,
                session: session.clone(),
                places: None,
                cause: None,
            })
        };
        let parts = writes.iter().map(part).collect::<Result<Vec<_>>>()?;
        self.node.commit(parts, durability)
    }
}

/// Returns the memory for which a change of a transaction counts: the new version twice, as it is encoded for the commit.
fn change_bytes(change: &DocumentChange) -> usize {
    const CHANGE_BYTES: usize = 256;
    CHANGE_BYTES + 2 * change.after.as_ref().map_or(0, DocBytes::len)
}

fn namespace_exists(name: &str) -> Error {
    let message = format!("collection `{name}` exists with other options");
    DocsError::new(ErrorCode::NamespaceExists, message).into()
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.node.host.write_locks.release(self.id, &self.locked);
    }
}

impl Node {
    /// Appends the parts of a transaction, and waits until it is decided, durable and applied everywhere.
    fn commit(&self, parts: Vec<TransactionPart>, durability: Option<Durability>) -> Result<()> {
        let durability = durability.unwrap_or(self.app.deployment.settings.durability);
        self.host.check_disk_space()?;
        self.append_parts(parts, durability)?.wait().map(drop)
    }

    /// Sends the parts of what several partitions decide together to the partition that orders them for all nodes of the cluster, and expects
    /// them in their logs.
    ///
    /// Errors: the log does not take them, or a replica is missing here; then none is applied.
    fn order_parts(
        &self,
        parts: Vec<TransactionPart>,
        participants: &[PartitionId],
        durability: Durability,
    ) -> Result<PendingReplies> {
        let Some(id) = parts.first().map(|part| part.id) else { return Ok(PendingReplies::new(Vec::new())) };
        let here: Vec<PartitionId> = participants.iter().copied().filter(|p| self.has_replica(*p)).collect();
        let mut here = here.iter().zip(self.host.part_replies.expect(id, &here)).peekable();
        let reply = |partition: &PartitionId| match here.next_if(|(waiting, _)| *waiting == partition) {
            Some((_, reply)) => Ok(PendingReply::Here(reply)),
            None => self.client(*partition)?.part_outcome(id),
        };
        let replies = participants.iter().map(reply).collect::<Result<Vec<_>>>();
        let appended = replies.and_then(|replies| {
            self.host
                .append(PartitionId::FIRST, Entry::OrderTransaction(parts), durability, None)?
                .wait_assigned()?;
            Ok(replies)
        });
        match appended {
            Ok(replies) => Ok(PendingReplies::of_parts(replies)),
            Err(e) => {
                self.host.part_replies.forget(id);
                Err(e)
            }
        }
    }

    /// Appends the parts of what several partitions decide together.
    ///
    /// Errors: one of the logs does not take its part; then none is applied.
    pub fn append_parts(
        &self,
        parts: Vec<TransactionPart>,
        durability: Durability,
    ) -> Result<PendingReplies> {
        let mut waiting = Vec::with_capacity(parts.len());
        let mut failed = None;
        let participants = parts.first().map(|part| part.participants.clone()).unwrap_or_default();
        if participants.len() > 1 && self.cluster.get().is_some() {
            return self.order_parts(parts, &participants, durability);
        }
        let order = self.host.commits.order(self.host.clock.now());
        for (mut part, partition) in parts.into_iter().zip(participants) {
            part.order = *order;
            let id = part.id;
            let append = || self.append_for_reply(partition, Entry::Transaction(part), durability);
            match failed.is_none().then(append) {
                Some(Ok(appended)) => waiting.push(appended),
                refused => {
                    self.host.commits.vote_absent(id, partition);
                    failed = failed.or(refused.and_then(Result::err));
                }
            }
        }
        drop(order);
        let replies = PendingReplies::new(waiting);
        match failed {
            None => Ok(replies),
            Some(failed) => {
                // those that took theirs have decided by then
                let _ = replies.wait();
                Err(failed)
            }
        }
    }
}
