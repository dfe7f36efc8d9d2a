//! A transaction as its caller sees it.

use std::collections::HashSet;
use std::sync::Arc;

use tidemill_docs::{
    Command, CommandOutcome, DocBytes, DocsError, DocumentChange, ErrorCode, Key, Store, TransactionWrites,
    write_conflict,
};
use tidemill_log::Durability;
use tidemill_types::budget::{Budget, Reservation, Stop};
use tidemill_types::{Error, PartitionId, Result};

use crate::commit::{SessionWrite, TransactionId, TransactionPart};
use crate::core::Core;
use crate::document_routing::{collection_spec_of, merge_outcomes, route, route_to_all};
use crate::document_snapshot::DocumentSnapshot;
use crate::entry::Entry;

/// A transaction on documents: it reads the documents of the moment at which it began, with its own writes, and writes all or
/// nothing (snapshot isolation). Of two transactions that write the same document at the same time the second one fails.
///
/// Dropping it takes its writes back. What it reads stays in memory until then.
pub struct Transaction {
    core: Arc<Core>,
    id: TransactionId,
    documents: DocumentSnapshot,
    /// The documents with the own writes, of the partitions that have some.
    stores: Vec<Option<Store>>,
    /// The own writes by partition.
    changes: Vec<Vec<DocumentChange>>,
    locked: HashSet<(Arc<str>, Key)>,
    /// Memory of the own writes.
    held: Reservation,
    /// Why it can only be taken back.
    failed: Option<(Option<i32>, String)>,
}

impl Transaction {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        let partitions = core.partitions().len();
        let budget = Budget::builder()
            .bytes(core.deployment.settings.transaction_bytes())
            .pool(core.transaction_memory.clone())
            .build();
        Self {
            held: budget.reservation(),
            id: TransactionId::new(),
            documents: DocumentSnapshot::now(&core),
            stores: (0..partitions).map(|_| None).collect(),
            changes: vec![Vec::new(); partitions],
            locked: HashSet::new(),
            failed: None,
            core,
        }
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
    pub fn write(&mut self, command: Command) -> Result<CommandOutcome> {
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

    fn apply(&mut self, command: Command) -> Result<CommandOutcome> {
        if !command.writes_documents() {
            return Err(Error::invalid(
                "collections and indexes cannot be created, changed or dropped in a transaction: do it before",
            ));
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
        let routed = route(&self.core, &self.documents, command)?;
        let now = self.core.clock.now();
        let mut outcomes = Vec::new();
        for part in &routed {
            let p = part.partition.0 as usize;
            let store = self.stores[p].get_or_insert_with(|| Store::fork(self.documents.store(p)));
            outcomes.push(store.apply(&part.command, now)?);
            let changes = store.take_changes();
            let changed = store.snapshot();
            self.hold(changes.iter().map(change_bytes).sum())?;
            for change in &changes {
                self.lock(p, change)?;
            }
            self.changes[p].extend(changes);
            self.documents.set_store(p, changed);
        }
        self.held.shrink(given);
        Ok(merge_outcomes(&routed, outcomes, same))
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

    /// Creates a collection, at once and for everybody, as an insert outside of a transaction does.
    fn create_collection(&mut self, name: &str) -> Result<()> {
        let spec = self.core.new_collection(name);
        let command = Command::CreateCollection(spec.clone());
        let entries = route_to_all(&self.core, &command).into_iter();
        let entries = entries.map(|r| Ok((r.partition, Entry::Command(r.command.to_bytes()?))));
        self.core.write_and_wait(entries.collect::<Result<_>>()?, None)?;
        for (p, store) in self.stores.iter_mut().enumerate() {
            let store = store.get_or_insert_with(|| Store::fork(self.documents.store(p)));
            store.create_collection(&spec)?;
            self.documents.set_store(p, store.snapshot());
        }
        Ok(())
    }

    /// Sees to it that no other open transaction writes a document that this one has written.
    fn lock(&mut self, partition: usize, change: &DocumentChange) -> Result<()> {
        let document = (change.collection.clone(), change.key.clone());
        if self.locked.contains(&document) {
            return Ok(());
        }
        let free = self.core.write_locks.lock(&document.0, &document.1, self.id);
        let view = self.core.partitions()[partition].view();
        let present = view.documents.collection(&change.collection).and_then(|c| c.get_key(&change.key));
        // a document that was not changed is the same bytes at the same place
        let address = |document: Option<&DocBytes>| document.map(|d| (d.as_ptr(), d.len()));
        if free {
            self.locked.insert(document);
        }
        if free && address(present) == address(change.before.as_ref()) {
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
        let writes: Vec<_> = writes.filter(|(_, writes)| !writes.is_empty()).collect();
        let participants: Vec<_> = writes.iter().map(|(p, _)| PartitionId(*p as u32)).collect();
        let part = |(p, writes): &(usize, TransactionWrites)| TransactionPart {
            id: self.id,
            order: 0,
            participants: participants.clone(),
            since: self.documents.next(*p),
            writes: writes.to_bytes(),
            session: session.clone(),
        };
        let parts: Vec<_> = writes.iter().map(part).collect();
        self.core.commit(parts, durability)
    }
}

/// Returns the memory for which a change of a transaction counts: the new version twice, as it is encoded for the commit.
fn change_bytes(change: &DocumentChange) -> usize {
    const CHANGE_BYTES: usize = 256;
    CHANGE_BYTES + 2 * change.after.as_ref().map_or(0, DocBytes::len)
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.core.write_locks.release(self.id, &self.locked);
    }
}

impl Core {
    /// Appends the parts of a transaction, and waits until it is decided, durable and applied everywhere.
    fn commit(&self, parts: Vec<TransactionPart>, durability: Option<Durability>) -> Result<()> {
        let durability = durability.unwrap_or(self.deployment.settings.durability);
        self.check_disk_space()?;
        let mut waiting = Vec::new();
        let mut failed = None;
        let order = self.commits.order(self.clock.now());
        let participants = parts.first().map(|part| part.participants.clone()).unwrap_or_default();
        for (mut part, partition) in parts.into_iter().zip(participants) {
            part.order = *order;
            let id = part.id;
            let (sender, receiver) = crossbeam_channel::bounded(1);
            let home = &self.partitions()[partition.0 as usize];
            let append = || home.append(self, Entry::Transaction(part), durability, Some(sender));
            match failed.is_none().then(append) {
                Some(Ok(ticket)) => waiting.push((ticket, receiver)),
                refused => {
                    self.commits.vote_absent(id, partition);
                    failed = failed.or(refused.and_then(Result::err));
                }
            }
        }
        drop(order);
        for (ticket, receiver) in waiting {
            ticket.wait_assigned()?;
            let stopped = || Err(Error::unavailable("the engine stopped before it answered"));
            let reply = receiver.recv().unwrap_or_else(|_| stopped());
            if let Err(e) = reply {
                failed.get_or_insert(e);
            }
        }
        failed.map_or(Ok(()), Err)
    }
}
