//! Transactions of several partitions: a partition votes, waits until they are decided, and shows them together with the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidemill_docs::TransactionWrites;
use tidemill_types::{Offset, PartitionId};

use super::{Partition, PendingRecord, RETRY_INTERVAL};
use crate::apply;
use crate::commit::{Decision, Participant, SharedCommit, Step, TransactionId, TransactionPart, Votes};
use crate::entry::{ArrivalKind, Entry};
use crate::host::Participants;
use crate::state::view::PartitionView;

/// Area of the problem of a partition that others keep from applying its records.
const AREA: &str = "transactions";
/// Time for which a partition waits for the others before it is a problem.
const TELL_AFTER: Duration = Duration::from_secs(5);

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
            if !commits.wait_after(seen, RETRY_INTERVAL) && self.look_for_decision(commit) {
                self.vote(part, offset);
            }
        }
    }

    /// Applies the records behind a transaction of several partitions, once its votes are there. Returns early when the engine stops.
    pub(super) fn wait_for_votes(&self) {
        let (began, subject) = (self.host.clock.monotonic(), self.id.to_string());
        while self.waiting.lock().is_some() && !self.is_stopping() {
            let seen = self.host.commits.changes();
            if self.apply_waiting() || self.host.commits.wait_after(seen, RETRY_INTERVAL) {
                continue;
            }
            self.look_at_participants();
            let is_long = self.host.clock.monotonic().saturating_sub(began) >= TELL_AFTER;
            if let Some(reason) = self.waits_for_votes().filter(|_| is_long) {
                self.host.health.report_problem_of(AREA, &subject, reason);
            }
        }
        self.host.health.clear_problem_of(AREA, &subject);
    }

    /// Makes up for what the board lacks about the transaction in the way, from the replicas in this process: those that have come and gone meanwhile
    /// may have taken it off the board.
    fn look_at_participants(&self) {
        let mut waiting = self.waiting.lock();
        if let Some(held) = waiting.participant.applied() {
            let id = held.id;
            drop(waiting);
            self.show_if_applied(id);
        } else if let Some(commit) = waiting.records.front().and_then(PendingRecord::shared_commit)
            && self.look_for_decision(&commit)
        {
            waiting.participant.vote_again();
        }
    }

    /// Looks for the decision on a transaction in the other replicas. Returns whether this partition has to vote again for it to come.
    fn look_for_decision(&self, commit: &SharedCommit) -> bool {
        if let Some(decision) = self.participants().and_then(|participants| participants.decision(commit)) {
            self.host.commits.add_known([(&commit.id, &decision)]);
        }
        self.host.commits.lacks_vote(commit.id, self.id)
    }

    /// Shows a committed transaction that this partition has applied, if all replicas in this process have.
    pub(super) fn show_if_applied(&self, id: TransactionId) {
        let decision = self.state.try_read().and_then(|state| state.decisions.get(&id).cloned());
        let is_applied =
            |decision| self.participants().is_some_and(|participants| participants.have_applied(decision));
        // of those that share the board some may be in other processes
        if !self.host.commits.is_shared() && decision.as_ref().is_some_and(is_applied) {
            self.host.commits.show(id);
        }
    }

    fn participants(&self) -> Option<Arc<dyn Participants>> {
        self.host.participants.get()?.upgrade()
    }

    /// Returns the reason why records are not applied, if a transaction of several partitions is in the way.
    pub(super) fn waits_for_votes(&self) -> Option<String> {
        let waiting = self.waiting.lock();
        let first = || waiting.records.front().and_then(PendingRecord::shared_commit);
        let commit = waiting.participant.applied().cloned().or_else(first)?;
        let others = commit.participants.iter().filter(|other| **other != self.id);
        Some(format!(
            "partition {} waits for others that take part in a transaction: partitions {}",
            self.id,
            others.map(PartitionId::to_string).collect::<Vec<_>>().join(", ")
        ))
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
                // the board shows it with the others, but what it had for this partition may be gone
                if self.with_view(|view| view.next) < self.applied() {
                    self.publish();
                }
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

#[cfg(test)]
mod tests {
    use tidemill_log::Durability;

    use super::*;
    use crate::app::App;
    use crate::node::Node;
    use crate::process::clock::ManualClock;
    use crate::queries::compile::compile_app;
    use crate::testing::test_engine::open_in_memory;

    const BOTH: [PartitionId; 2] = [PartitionId(0), PartitionId(1)];

    /// Opens two partitions, in whose logs is a transaction of both. Neither has read it.
    fn two_participants() -> (Node, SharedCommit, [Arc<Partition>; 2]) {
        let mut app = App::from_texts("t", Some("entity Account key id;"), &[]);
        app.settings.partitions = 2;
        let compiled = compile_app(&app).unwrap();
        let node = open_in_memory(&app, &compiled, Arc::new(ManualClock::default())).unwrap();
        let part = TransactionPart {
            id: TransactionId::new(),
            order: 1,
            participants: BOTH.to_vec(),
            since: Offset(0),
            writes: TransactionWrites::of_changes(Vec::new()).to_bytes().unwrap(),
            session: None,
            places: None,
            cause: None,
        };
        let commit = SharedCommit::of(&part).unwrap();
        for id in BOTH {
            let entry = Entry::Transaction(part.clone());
            node.host.append(id, entry, Durability::Memory, None).unwrap().wait().unwrap();
        }
        let partitions = BOTH.map(|id| node.owned.get(id).unwrap());
        (node, commit, partitions)
    }

    fn apply_all(partitions: &[Arc<Partition>; 2]) {
        while partitions.iter().any(|partition| partition.apply_pending()) {}
    }

    /// Checks that both have applied the transaction, show it, and wait for nothing, after each has looked at the other.
    fn assert_ends(partitions: &[Arc<Partition>; 2]) {
        apply_all(partitions);
        let stuck = partitions.iter().filter(|partition| partition.waits_for_votes().is_some());
        assert_ne!(stuck.count(), 0, "the board has all that they need");
        for _ in BOTH {
            partitions.iter().for_each(|partition| partition.look_at_participants());
            apply_all(partitions);
        }
        for partition in partitions {
            assert_eq!(partition.waits_for_votes(), None);
            assert_eq!((partition.applied(), partition.view().next), (Offset(1), Offset(1)));
        }
    }

    #[test]
    fn a_vote_that_is_not_on_the_board_any_more_is_given_again() {
        let (node, _, partitions) = two_participants();
        partitions[0].apply_pending();
        // takes all transactions off the board
        node.host.commits.end_recovery();
        assert_ends(&partitions);
    }

    #[test]
    fn a_decision_that_is_not_on_the_board_any_more_is_found_in_the_other_replica() {
        let (node, commit, partitions) = two_participants();
        partitions.iter().for_each(|partition| _ = partition.apply_pending());
        assert!(partitions[1].state.read().decisions.contains_key(&commit.id));
        assert_eq!(partitions[0].applied(), Offset(0));
        node.host.commits.end_recovery();
        assert_ends(&partitions);
    }

    #[test]
    fn a_transaction_that_both_have_applied_is_shown_although_the_board_counts_a_later_owner() {
        let (node, _, partitions) = two_participants();
        node.host.commits.take_over(BOTH[1], Offset(0));
        assert_ends(&partitions);
    }
}
