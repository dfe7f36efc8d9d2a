//! Transactions of several partitions: a partition votes, waits until they are decided, and shows them together with the others.

use std::collections::VecDeque;
use std::sync::Arc;

use tidemill_docs::TransactionWrites;
use tidemill_types::Offset;

use super::{Partition, PendingRecord, RETRY_INTERVAL};
use crate::apply;
use crate::commit::{Decision, Participant, SharedCommit, Step, TransactionPart, Votes};
use crate::entry::{ArrivalKind, Entry};
use crate::state::view::PartitionView;

/// Records that wait for the votes on the transaction that is the first of them.
#[derive(Default)]
pub(super) struct BlockedRecords {
    pub(super) records: VecDeque<PendingRecord>,
    participant: Participant,
}

impl BlockedRecords {
    pub(super) fn is_some(&self) -> bool {
        self.participant.holds_out() || !self.records.is_empty()
    }

    /// Takes the records before the first transaction of several partitions.
    pub(super) fn take_free(&mut self) -> Vec<PendingRecord> {
        if self.participant.holds_out() {
            return Vec::new();
        }
        let shared = self.records.iter().position(|record| record.shared_commit().is_some());
        self.records.drain(..shared.unwrap_or(self.records.len())).collect()
    }
}

impl PendingRecord {
    pub(super) fn part(&self) -> Option<&TransactionPart> {
        match &self.record.entry {
            Entry::Transaction(part) => Some(part),
            _ => None,
        }
    }

    /// Returns the transaction of several partitions that the record is a part of.
    fn shared_commit(&self) -> Option<SharedCommit> {
        SharedCommit::of(self.part()?)
    }
}

impl Partition {
    /// Shows the present state, which is the one after a committed transaction, once all its participants have come as far.
    pub(super) fn publish_together(&self, commit: &SharedCommit) {
        let state = self.state.read();
        let view = Arc::new(PartitionView::new(&state, self.host.changes.end(self.id)));
        // those before were shown by the one whose place this one takes
        let place = (state.next >= self.effects_from).then(|| self.view.clone());
        let show = Box::new(move || place.into_iter().for_each(|place| place.store(view.clone())));
        self.host.commits.applied(commit, (self.id, self.owner), show);
        self.host.changes.notify();
        self.counters.publish(&state);
    }

    /// Votes again on a transaction of several partitions, and waits until the others have come as far in their logs.
    pub(super) fn replayed_decision(
        &self,
        part: &TransactionPart,
        commit: &SharedCommit,
        offset: Offset,
    ) -> Decision {
        let commits = &self.host.commits;
        commits.replayed_to(self.id, commit.order);
        if let Some(decision) = commits.decision(commit) {
            return decision;
        }
        self.vote(part, offset);
        loop {
            let seen = commits.changes();
            if let Some(decision) = commits.decision(commit) {
                return decision;
            }
            self.ask_for_votes(Some(commit));
            commits.wait_after(seen, RETRY_INTERVAL);
        }
    }

    /// Applies the records behind a transaction of several partitions, once its votes are there. Returns early when the engine stops.
    pub(super) fn wait_for_votes(&self) {
        while self.waiting.lock().is_some() && !self.is_stopping() {
            let seen = self.host.commits.changes();
            if !self.apply_waiting() {
                self.host.commits.wait_after(seen, RETRY_INTERVAL);
            }
        }
    }

    /// Takes the next step of the transaction of several partitions that waits first, see [`Participant`]. Returns whether there was
    /// anything to do.
    pub(super) fn step_commit(&self) -> bool {
        let mut waiting = self.waiting.lock();
        let first = waiting.records.front().and_then(PendingRecord::shared_commit);
        if first.is_some() && self.has_failed() && !waiting.participant.holds_out() {
            waiting.records.clear();
            return false;
        }
        let is_repeated = |first: &mut PendingRecord| first.part().is_some_and(|part| self.is_repeated(part));
        if !waiting.participant.holds_out()
            && let Some(record) = waiting.records.pop_front_if(is_repeated)
        {
            drop(waiting);
            self.apply_batch(vec![record], None);
            return true;
        }
        match waiting.participant.step(first.as_ref(), &*self.host.commits) {
            Step::Free => false,
            Step::Wait => {
                self.ask_for_votes(first.as_ref());
                false
            }
            Step::Release(commit) => {
                self.host.commits.leave(&commit, self.id);
                true
            }
            Step::Vote => {
                let record = waiting.records.front();
                let part = record.and_then(|record| Some((record.part()?.clone(), record.record.offset)));
                drop(waiting);
                part.inspect(|(part, offset)| self.vote(part, *offset)).is_some()
            }
            Step::Apply(decision) => {
                let (Some(mut record), Some(commit)) = (waiting.records.pop_front(), first) else {
                    return false;
                };
                drop(waiting);
                let committed = decision.committed;
                record.record.decision = Some(decision);
                self.apply_batch(vec![record], committed.then_some(&commit));
                if !committed {
                    // not before the decision is in the state, where one that is opened again looks for it
                    self.host.commits.leave(&commit, self.id);
                }
                true
            }
        }
    }

    /// Asks other processes for the votes on the transaction that waits for them.
    fn ask_for_votes(&self, commit: Option<&SharedCommit>) {
        if let (Some(elsewhere), Some(commit)) = (self.host.votes_elsewhere.get(), commit) {
            elsewhere.ask(commit);
        }
    }

    /// Returns whether a part of a transaction was applied before, from another record of the log.
    pub(super) fn is_repeated(&self, part: &TransactionPart) -> bool {
        part.cause.is_some_and(|cause| self.state.read().has_arrived(ArrivalKind::Transaction, cause))
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
