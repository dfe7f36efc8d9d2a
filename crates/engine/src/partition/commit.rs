//! Transactions of several partitions: a partition votes, waits until they are decided, and shows them together with the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemill_docs::TransactionWrites;
use tidemill_types::{Offset, PartitionId};

use super::{Partition, PendingRecord, RETRY_INTERVAL};
use crate::apply;
use crate::commit::{Decision, TransactionId, TransactionPart};
use crate::entry::Entry;
use crate::state::view::PartitionView;

/// Records that wait for the votes on the transaction that is the first of them.
#[derive(Default)]
pub(super) struct Waiting {
    pub(super) records: VecDeque<PendingRecord>,
    /// Whether this partition has voted.
    voted: bool,
    /// The committed transaction that this partition has applied and some other participant has not.
    pub(super) applied: Option<SharedCommit>,
}

impl Waiting {
    pub(super) fn is_some(&self) -> bool {
        self.applied.is_some() || !self.records.is_empty()
    }
}

/// A transaction of several partitions.
#[derive(Clone)]
pub(super) struct SharedCommit {
    id: TransactionId,
    order: i64,
    participants: Vec<PartitionId>,
}

impl PendingRecord {
    fn part(&self) -> Option<&TransactionPart> {
        match &self.record.entry {
            Entry::Transaction(part) => Some(part),
            _ => None,
        }
    }

    /// Returns the transaction of several partitions that the record is a part of.
    pub(super) fn shared_commit(&self) -> Option<SharedCommit> {
        let part = self.part().filter(|part| part.participants.len() > 1)?;
        Some(SharedCommit { id: part.id, order: part.order, participants: part.participants.clone() })
    }
}

impl Partition {
    /// Shows the present state, which is the one after a committed transaction, once all its participants have come as far.
    pub(super) fn publish_together(&self, commit: &SharedCommit) {
        let state = self.state.read();
        let view = Arc::new(PartitionView::new(&state, self.host.changes.end(self.id)));
        let place = self.view.clone();
        let show = Box::new(move || place.store(view));
        self.host.commits.applied(commit.id, commit.participants.len(), show);
        self.host.changes.notify();
        self.counters.publish(&state);
    }

    /// Votes again on a transaction of several partitions, and waits until the others have come as far in their logs.
    pub(super) fn replayed_decision(&self, part: &TransactionPart, offset: Offset) -> Decision {
        let commits = &self.host.commits;
        commits.replayed_to(self.id, part.order);
        if let Some(decision) = commits.decision(part.id, part.order, &part.participants) {
            return decision;
        }
        self.vote(part, offset);
        loop {
            let seen = commits.changes();
            if let Some(decision) = commits.decision(part.id, part.order, &part.participants) {
                return decision;
            }
            commits.wait_after(seen, RETRY_INTERVAL);
        }
    }

    /// Applies the records behind a transaction of several partitions, once its votes are there. Returns early when the engine stops.
    pub(super) fn wait_for_votes(&self) {
        while self.waiting.lock().is_some() && !self.host.is_stopping() {
            let seen = self.host.commits.changes();
            if !self.apply_waiting() {
                self.host.commits.wait_after(seen, RETRY_INTERVAL);
            }
        }
    }

    /// Goes on with the transaction of several partitions that waits first: votes, applies it when it is decided, lets go of it when all
    /// have applied it. Returns whether it went on, or `None` if none waits.
    pub(super) fn step_commit(&self) -> Option<bool> {
        let mut waiting = self.waiting.lock();
        if let Some(commit) = &waiting.applied {
            if !self.host.commits.is_shown(commit.id) {
                return Some(false);
            }
            self.host.commits.leave(commit.id, commit.participants.len());
            waiting.applied = None;
            return Some(true);
        }
        let first = waiting.records.front()?;
        let commit = first.shared_commit()?;
        if self.failed.load(Ordering::Acquire) {
            waiting.records.clear();
            return None;
        }
        if !waiting.voted {
            let offset = first.record.offset;
            let part = first.part()?.clone();
            waiting.voted = true;
            drop(waiting);
            self.vote(&part, offset);
            return Some(true);
        }
        let Some(decision) = self.host.commits.decision(commit.id, commit.order, &commit.participants) else {
            return Some(false);
        };
        waiting.voted = false;
        let committed = decision.committed;
        let mut record = waiting.records.pop_front()?;
        record.record.decision = Some(decision);
        match committed {
            true => waiting.applied = Some(commit.clone()),
            false => self.host.commits.leave(commit.id, commit.participants.len()),
        }
        drop(waiting);
        self.apply_batch(vec![record], committed.then_some(&commit));
        Some(true)
    }

    /// Votes on a transaction of several partitions.
    fn vote(&self, part: &TransactionPart, offset: Offset) {
        let _applying = self.apply_lock.lock();
        let mut state = self.state.write();
        let yes = match &part.places {
            None => TransactionWrites::from_bytes(&part.writes)
                .and_then(|writes| state.store.check_commit(&writes, part.since.0))
                .map(|()| None)
                .ok(),
            Some(places) => apply::first_refused(&self.app.deployment, &mut state, part)
                .map(|refused| refused.and_then(|at| places.get(at).copied()))
                .ok(),
        };
        self.host.commits.vote(part.id, self.id, offset, yes);
    }
}
