//! Votes of the owners of partitions on the transactions that they take part in.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tidemill_types::{Offset, PartitionId, Timestamp};

use super::participant::decide;
use super::{SharedCommit, TransactionId, Vote, Votes};

/// Decision on a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// True if all voted yes.
    pub committed: bool,
    /// Offsets of its records, by partition; those that had no record are missing.
    pub offsets: BTreeMap<u32, Offset>,
    /// Of an ordered insert the place of the first document that is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<u32>,
}

/// Knowledge of a partition that another process applies, about a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VoteElsewhere {
    /// Its vote.
    Voted(Vote),
    /// The decision, which it has applied.
    Decided(Decision),
}

/// Decisions of a partition by transaction. They are kept, also in its checkpoints, as long as the log of another participant has
/// its record, because that one may have to apply it again and needs the vote of this one.
pub type Decisions = BTreeMap<TransactionId, Decision>;

/// Votes and decisions of the transactions of several partitions.
///
/// The truth is in the logs and in the states of the partitions: a vote follows from the log, and a decision that was applied is in the state.
/// Partitions come and go, so the board may lack what one of them has said before. One that waits for long looks at the replicas and votes
/// again, see `Partition::wait_for_votes`.
#[derive(Default)]
pub struct CommitBoard {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Order of the last transaction.
    order: Mutex<i64>,
    /// Time of the latest record that was applied, or statement that began, in microseconds.
    latest: AtomicI64,
    published: Mutex<()>,
    /// True if transactions stay on the board when all have left them: another process may apply one again.
    keeps: bool,
}

#[derive(Default)]
struct Inner {
    open: HashMap<TransactionId, OpenCommit>,
    /// Decisions of transactions that a partition may apply again: during recovery those of the checkpoints, later those that the
    /// others know for a partition that is opened again.
    known: HashMap<TransactionId, Decision>,
    /// Progress of the partitions during recovery: a record of an earlier transaction that has not come by
    /// then does not exist.
    replayed: Option<BTreeMap<PartitionId, i64>>,
    /// By partition that has changed its owner, the number of its owners. Others have the first.
    owners: HashMap<PartitionId, u64>,
    /// Number of changes, so that no one waits for one that has happened.
    changes: u64,
}

/// The place of the first document that a partition refuses, if there is one.
pub type FirstRefused = Option<u32>;

/// Shows the view of a partition to readers.
pub type ShowView = Box<dyn FnOnce() + Send>;

/// A transaction that some participants have reached.
#[derive(Default)]
struct OpenCommit {
    votes: BTreeMap<PartitionId, Vote>,
    /// Functions that show the views of those that have applied it; they are called together. One that was opened again, or has a
    /// former owner that continues, may have applied it twice.
    applied: BTreeMap<PartitionId, Vec<ShowView>>,
    shown: bool,
    /// Participants that have nothing more to ask.
    left: BTreeSet<PartitionId>,
}

impl OpenCommit {
    fn show(&mut self) {
        std::mem::take(&mut self.applied).into_values().flatten().for_each(|show| show());
        self.shown = true;
    }

    /// Shows the transaction if all of so many participants have applied it, or it was shown before. Returns whether it is shown. No view is
    /// published meanwhile.
    fn show_if_applied_by(&mut self, participants: usize, published: &Mutex<()>) -> bool {
        let is_shown = self.shown || self.applied.len() == participants;
        if is_shown {
            let _shown_together = published.lock();
            self.show();
        }
        is_shown
    }
}

impl CommitBoard {
    /// Creates a board for processes that own partitions in turn. It keeps all transactions.
    #[cfg(feature = "sim")]
    pub fn keeping() -> Self {
        Self { keeps: true, ..Self::default() }
    }

    /// Returns whether several processes share the board.
    pub fn is_shared(&self) -> bool {
        self.keeps
    }

    /// Begins a recovery: `known` are the decisions in the checkpoints.
    pub fn begin_recovery<'d>(&self, known: impl IntoIterator<Item = &'d Decisions>) {
        let mut inner = self.inner.lock();
        inner.known = known.into_iter().flatten().map(|(id, decision)| (*id, decision.clone())).collect();
        inner.replayed = Some(BTreeMap::new());
    }

    /// Says that a partition has replayed its log up to its record of the transaction with this order.
    pub fn replayed_to(&self, partition: PartitionId, order: i64) {
        // also after the clock was set back, later transactions come after it
        let mut last = self.order.lock();
        *last = order.max(*last);
        drop(last);
        self.set_replayed(partition, order);
    }

    /// Says that a partition has replayed its log, or cannot.
    pub fn end_replay(&self, partition: PartitionId) {
        self.set_replayed(partition, i64::MAX);
    }

    fn set_replayed(&self, partition: PartitionId, order: i64) {
        let mut inner = self.inner.lock();
        if let Some(replayed) = &mut inner.replayed {
            replayed.insert(partition, order);
        }
        self.notify(inner);
    }

    /// Says that a partition has a new owner, whose state has the records below `next`. A former one that continues, or has applied what the
    /// new one has not come to yet, does not decide any more when a transaction is shown. Returns the number of the owner, for
    /// [`Self::applied`], and the transactions in its state that others have not applied: it must not show its state before they have.
    pub fn take_over(&self, partition: PartitionId, next: Offset) -> (u64, Vec<TransactionId>) {
        let mut inner = self.inner.lock();
        let mut ahead = Vec::new();
        let Inner { open, known, owners, .. } = &mut *inner;
        for (id, open) in open.iter_mut().filter(|(_, open)| !open.shown) {
            let decided = known.get(id).filter(|decision| decision.committed);
            let offset = match open.votes.get(&partition) {
                Some(Vote::Yes(offset, _)) => Some(offset),
                Some(Vote::No(_) | Vote::Absent) => None,
                // the decision came without its vote
                None => decided.and_then(|decision| decision.offsets.get(&partition.0)),
            };
            if offset.is_none_or(|offset| *offset >= next) {
                open.applied.remove(&partition);
                continue;
            }
            open.applied.insert(partition, Vec::new());
            // all have voted, as one has applied it
            let participants = decided.map_or(open.votes.len(), |decision| decision.offsets.len());
            if !open.show_if_applied_by(participants, &self.published) {
                ahead.push(*id);
            }
        }
        let owner = owners.entry(partition).or_default();
        *owner += 1;
        let owner = *owner;
        self.notify(inner);
        (owner, ahead)
    }

    /// Returns the number of the last owner of a partition, for [`Self::applied`].
    pub fn owner(&self, partition: PartitionId) -> u64 {
        self.inner.lock().owners.get(&partition).copied().unwrap_or_default()
    }

    /// Says that a replica of a partition begins with a state in which these transactions are decided. Others that are behind take the decisions
    /// over, and do not wait for it to apply them.
    pub fn begin_with(&self, partition: PartitionId, decisions: &Decisions) {
        let mut inner = self.inner.lock();
        for (id, decision) in decisions {
            inner.known.insert(*id, decision.clone());
            let open = inner.open.get_mut(id).filter(|open| decision.committed && !open.shown);
            let Some(open) = open else { continue };
            open.applied.entry(partition).or_default();
            open.show_if_applied_by(decision.offsets.len(), &self.published);
        }
        self.notify(inner);
    }

    /// Says that this process has no replica of a partition any more. Others here do not wait until it has applied a transaction on which
    /// it has voted: readers compare, see [`crate::documents::snapshot`].
    pub fn close(&self, partition: PartitionId) {
        // with such a board, the next process of the partition is on it, too
        if self.keeps {
            return;
        }
        let mut inner = self.inner.lock();
        let Inner { open, known, .. } = &mut *inner;
        for (id, open) in open.iter_mut().filter(|(_, open)| open.votes.contains_key(&partition)) {
            open.left.insert(partition);
            if open.shown {
                continue;
            }
            open.applied.entry(partition).or_default();
            // all have voted if one has applied it, or the decision came from elsewhere
            let participants = known.get(id).map_or(open.votes.len(), |decision| decision.offsets.len());
            let is_decided = open.applied.values().any(|shows| !shows.is_empty());
            if is_decided {
                open.show_if_applied_by(participants, &self.published);
            }
        }
        self.notify(inner);
    }

    /// Returns whether all participants show a transaction, or it was not committed.
    pub fn is_over(&self, id: TransactionId) -> bool {
        let inner = self.inner.lock();
        inner
            .open
            .get(&id)
            .is_none_or(|open| open.shown || open.votes.values().any(|vote| !matches!(vote, Vote::Yes(..))))
    }

    /// Says that a partition is opened again while the others run: it has to ask for decisions once more. Then the decisions of the
    /// others are read for [`Self::add_known`]. A transaction is on the board until then, or all others have its decision.
    pub fn reopen(&self, partition: PartitionId) {
        self.inner.lock().open.values_mut().for_each(|open| _ = open.left.remove(&partition));
    }

    /// Adds decisions for partitions that are opened again.
    pub fn add_known<'d>(&self, known: impl IntoIterator<Item = (&'d TransactionId, &'d Decision)>) {
        let known = known.into_iter().map(|(id, decision)| (*id, decision.clone()));
        self.inner.lock().known.extend(known);
    }

    /// Forgets decisions and shown transactions that no replica here needs any more, as `is_needed` says of each partition and its record.
    pub fn forget_known(&self, is_needed: impl Fn(PartitionId, Offset) -> bool) {
        let mut inner = self.inner.lock();
        let needed =
            |decision: &Decision| decision.offsets.iter().any(|(id, at)| is_needed(PartitionId(*id), *at));
        inner.known.retain(|_, decision| needed(decision));
        inner.open.retain(|_, open| {
            !open.shown
                || open.votes.iter().any(|(id, vote)| match vote {
                    Vote::Yes(at, _) | Vote::No(at) => is_needed(*id, *at),
                    Vote::Absent => false,
                })
        });
    }

    /// Shows a transaction that all replicas in this process have applied, as their states tell.
    pub fn show(&self, id: TransactionId) {
        let mut inner = self.inner.lock();
        if let Some(open) = inner.open.get_mut(&id) {
            open.show_if_applied_by(open.applied.len(), &self.published);
        }
        self.notify(inner);
    }

    /// Returns whether the board lacks the vote of a partition, and the decision.
    pub fn lacks_vote(&self, id: TransactionId, partition: PartitionId) -> bool {
        let inner = self.inner.lock();
        let voted = inner.open.get(&id).is_some_and(|open| open.votes.contains_key(&partition));
        !voted && !inner.known.contains_key(&id)
    }

    /// Says that no partition is being opened again any more.
    pub fn end_reopening(&self) {
        self.inner.lock().known.clear();
    }

    /// Ends the recovery.
    pub fn end_recovery(&self) {
        let mut inner = self.inner.lock();
        inner.replayed = None;
        inner.known.clear();
        inner.open.clear();
    }

    /// Says that a record of this time is applied, or that there is a document that was inserted then.
    pub fn note_applied(&self, time: Timestamp) {
        self.latest.fetch_max(time.0, Ordering::Relaxed);
    }

    /// Returns the time of a statement over several partitions that begins at `now`: after the records that were applied, and after other such
    /// statements, although the clock was set back.
    pub fn time_of_statement(&self, now: Timestamp) -> Timestamp {
        let later = |latest: i64| now.0.max(latest.saturating_add(1));
        let latest =
            self.latest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |latest| Some(later(latest)));
        Timestamp(latest.map_or(now.0, later))
    }

    /// Returns the order of a transaction that begins its commit at `now`. While the guard is held, no other one begins: the records
    /// must have the same order in all logs.
    pub fn order(&self, now: Timestamp) -> MutexGuard<'_, i64> {
        let mut order = self.order.lock();
        *order = self.time_of_statement(now).0.max(*order + 1);
        order
    }

    /// Locks what readers see: while it is held, no partition publishes a view.
    pub fn lock_views(&self) -> MutexGuard<'_, ()> {
        self.published.lock()
    }

    /// Votes for a partition, `None` against the transaction, that has reached its record at `offset`.
    pub fn vote(&self, id: TransactionId, partition: PartitionId, offset: Offset, yes: Option<FirstRefused>) {
        let vote = yes.map_or(Vote::No(offset), |refused| Vote::Yes(offset, refused));
        let mut inner = self.inner.lock();
        match inner.known.contains_key(&id) {
            // the others may have left it behind
            true => _ = inner.open.get_mut(&id).map(|open| open.votes.insert(partition, vote)),
            false => _ = inner.open.entry(id).or_default().votes.insert(partition, vote),
        }
        self.notify(inner);
    }

    /// Votes for a partition whose log did not take the record.
    pub fn vote_absent(&self, id: TransactionId, partition: PartitionId) {
        let mut inner = self.inner.lock();
        let commit = inner.open.entry(id).or_default();
        commit.votes.insert(partition, Vote::Absent);
        commit.left.insert(partition);
        self.notify(inner);
    }

    /// Returns the vote of a partition, if it has voted and the transaction is on the board.
    pub fn vote_of(&self, id: TransactionId, partition: PartitionId) -> Option<Vote> {
        self.inner.lock().open.get(&id)?.votes.get(&partition).cloned()
    }

    /// Returns the participants whose votes are missing.
    pub fn without_vote(&self, commit: &SharedCommit) -> Vec<PartitionId> {
        let inner = self.inner.lock();
        if inner.known.contains_key(&commit.id) {
            return Vec::new();
        }
        let votes = inner.open.get(&commit.id).map(|open| &open.votes);
        let is_missing = |p: &&PartitionId| votes.is_none_or(|votes| !votes.contains_key(*p));
        commit.participants.iter().filter(is_missing).copied().collect()
    }

    /// Takes over the vote of a partition that has no replica in this process. Those here do not wait until it has applied the
    /// transaction: readers of several processes compare what they have read, see [`crate::documents::snapshot`].
    pub fn note_elsewhere(&self, commit: &SharedCommit, partition: PartitionId, vote: VoteElsewhere) {
        let mut inner = self.inner.lock();
        let open = inner.open.entry(commit.id).or_default();
        open.applied.entry(partition).or_default();
        open.left.insert(partition);
        let decision = match vote {
            VoteElsewhere::Voted(vote) => {
                open.votes.insert(partition, vote);
                None
            }
            VoteElsewhere::Decided(decision) => Some(decision),
        };
        open.show_if_applied_by(commit.participants.len(), &self.published);
        inner.known.extend(decision.map(|decision| (commit.id, decision)));
        self.notify(inner);
    }

    /// Takes what shows the view of a partition, as one of its owners has it, that has applied a committed transaction, and shows the views of all participants once
    /// all have applied it.
    pub fn applied(&self, commit: &SharedCommit, (partition, owner): (PartitionId, u64), show: ShowView) {
        let mut inner = self.inner.lock();
        if inner.owners.get(&partition).copied().unwrap_or_default() != owner {
            return;
        }
        if inner.known.contains_key(&commit.id) && !inner.open.contains_key(&commit.id) {
            // all others have shown it and left it behind
            let _shown_together = self.published.lock();
            return show();
        }
        let open = inner.open.entry(commit.id).or_default();
        open.applied.entry(partition).or_default().push(show);
        open.show_if_applied_by(commit.participants.len(), &self.published);
        self.notify(inner);
    }

    /// Says that a participant has nothing more to ask.
    pub fn leave(&self, commit: &SharedCommit, partition: PartitionId) {
        if self.keeps {
            return;
        }
        let mut inner = self.inner.lock();
        if let Some(open) = inner.open.get_mut(&commit.id) {
            open.left.insert(partition);
            if open.left.len() >= commit.participants.len() {
                inner.open.remove(&commit.id);
            }
        }
    }

    /// Returns the number of changes so far, for [`Self::wait_after`].
    pub fn changes(&self) -> u64 {
        self.inner.lock().changes
    }

    /// Waits until there are more than `seen` changes, at most `most`. Returns whether there are.
    pub fn wait_after(&self, seen: u64, most: Duration) -> bool {
        let mut inner = self.inner.lock();
        if inner.changes == seen {
            self.changed.wait_for(&mut inner, most);
        }
        inner.changes > seen
    }

    fn notify(&self, mut inner: MutexGuard<'_, Inner>) {
        inner.changes += 1;
        self.changed.notify_all();
    }
}

impl Votes for CommitBoard {
    fn decision(&self, commit: &SharedCommit) -> Option<Decision> {
        let inner = self.inner.lock();
        if let Some(known) = inner.known.get(&commit.id) {
            return Some(known.clone());
        }
        let votes = inner.open.get(&commit.id).map(|open| &open.votes)?;
        // one that has replayed a later transaction has no record of this one
        let is_past = |partition: &PartitionId| {
            inner.replayed.as_ref().and_then(|all| all.get(partition)).is_some_and(|to| *to > commit.order)
        };
        decide(&commit.participants, |partition| {
            votes.get(&partition).cloned().or_else(|| is_past(&partition).then_some(Vote::Absent))
        })
    }

    fn is_shown(&self, commit: &SharedCommit) -> bool {
        self.inner.lock().open.get(&commit.id).is_none_or(|open| open.shown)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn commit_of(participants: u32) -> SharedCommit {
        let participants = (0..participants).map(PartitionId).collect();
        SharedCommit { id: TransactionId::new(), order: 1, participants }
    }

    /// Applies a transaction in a partition. Returns whether its view is shown.
    fn apply(board: &CommitBoard, commit: &SharedCommit, partition: u32) -> Arc<AtomicBool> {
        let shown = Arc::new(AtomicBool::new(false));
        let show = Box::new({
            let shown = shown.clone();
            move || shown.store(true, Ordering::Relaxed)
        });
        board.applied(commit, (PartitionId(partition), 0), show);
        shown
    }

    #[test]
    fn a_partition_that_is_closed_between_its_vote_and_its_part_is_not_waited_for() {
        let (board, commit) = (CommitBoard::default(), commit_of(3));
        (0..3).for_each(|p| board.vote(commit.id, PartitionId(p), Offset(5), Some(None)));
        let first = apply(&board, &commit, 0);
        board.close(PartitionId(2));
        assert!(!first.load(Ordering::Relaxed), "partition 1 has not applied it");
        let second = apply(&board, &commit, 1);
        assert!(first.load(Ordering::Relaxed) && second.load(Ordering::Relaxed));
        // and if the others have applied it by then
        let commit = commit_of(2);
        (0..2).for_each(|p| board.vote(commit.id, PartitionId(p), Offset(6), Some(None)));
        let first = apply(&board, &commit, 0);
        assert!(!first.load(Ordering::Relaxed) && !board.is_shown(&commit));
        board.close(PartitionId(1));
        assert!(first.load(Ordering::Relaxed) && board.is_shown(&commit));
    }

    #[test]
    fn a_partition_that_is_closed_does_not_decide_for_those_that_have_not_voted() {
        let (board, commit) = (CommitBoard::default(), commit_of(3));
        board.vote(commit.id, PartitionId(0), Offset(5), Some(None));
        board.close(PartitionId(0));
        assert!(!board.is_shown(&commit) && board.decision(&commit).is_none());
    }

    #[test]
    fn a_partition_whose_decision_came_from_elsewhere_and_that_gets_an_owner_here_is_not_waited_for() {
        let (board, commit) = (CommitBoard::default(), commit_of(2));
        board.vote(commit.id, PartitionId(0), Offset(5), Some(None));
        let offsets = BTreeMap::from([(0, Offset(5)), (1, Offset(7))]);
        let decision = Decision { committed: true, offsets, refused: None };
        board.note_elsewhere(&commit, PartitionId(1), VoteElsewhere::Decided(decision));
        // its state is the one after the transaction
        let (_, ahead) = board.take_over(PartitionId(1), Offset(8));
        assert_eq!(ahead, [commit.id]);
        let shown = apply(&board, &commit, 0);
        assert!(shown.load(Ordering::Relaxed) && board.is_shown(&commit));
    }
}
