//! One partition's part in transactions of several partitions, as a function of its log and of the votes.
//!
//! Three partitions have the record of a transaction `T` at these places:
//!
//! ```text
//! p0  … a T b      p1  … T c      p2  … d e T
//! ```
//!
//! `p1` comes to `T` first: it votes, and holds `c` out. `p0` applies `a`, votes, and holds `b` out. When `p2` has voted, all of
//! them know the decision. If it is a commit, each applies its part, and holds out what follows until all have applied theirs,
//! as readers see `T` everywhere or nowhere. If not, each continues at once.
//!
//! A vote follows from the records before `T` in one log, and the decision from the votes. So a partition that replays its log
//! comes to the same decision, and so does another process that takes part.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidemill_types::{Offset, PartitionId};

use super::{Decision, TransactionId, TransactionPart};

/// A transaction of several partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedCommit {
    /// Id of the transaction.
    pub id: TransactionId,
    /// Its place among all transactions.
    pub order: i64,
    /// Partitions that it writes to.
    pub participants: Vec<PartitionId>,
}

impl SharedCommit {
    /// Returns the transaction that a record is a part of, if it is one of several partitions.
    pub fn of(part: &TransactionPart) -> Option<Self> {
        let participants = &part.participants;
        (participants.len() > 1).then(|| Self {
            id: part.id,
            order: part.order,
            participants: participants.clone(),
        })
    }
}

/// The vote of a partition on a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Vote {
    /// Yes, but for the document with this place, and those after it. The record is at this offset.
    Yes(Offset, Option<u32>),
    /// The record at this offset cannot be applied.
    No(Offset),
    /// The log has no record of the transaction.
    Absent,
}

/// Returns the decision that follows from the votes of all participants; `None` while one is missing.
pub fn decide(
    participants: &[PartitionId],
    vote_of: impl Fn(PartitionId) -> Option<Vote>,
) -> Option<Decision> {
    let mut decision = Decision { committed: true, offsets: BTreeMap::new(), refused: None };
    for partition in participants {
        match vote_of(*partition)? {
            Vote::Yes(offset, refused) => {
                decision.offsets.insert(partition.0, offset);
                decision.refused = [decision.refused, refused].into_iter().flatten().min();
            }
            Vote::No(offset) => {
                decision.offsets.insert(partition.0, offset);
                decision.committed = false;
            }
            Vote::Absent => decision.committed = false,
        }
    }
    Some(decision)
}

/// Knowledge of the other participants.
pub trait Votes {
    /// Returns the decision on a transaction, if it is known by now.
    fn decision(&self, commit: &SharedCommit) -> Option<Decision>;

    /// Returns whether all participants have applied a committed transaction.
    fn is_shown(&self, commit: &SharedCommit) -> bool;
}

/// The next step of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// No transaction of several partitions is in the way.
    Free,
    /// It has to vote on the transaction of the first record.
    Vote,
    /// It has to apply the first record with this decision.
    Apply(Decision),
    /// All participants have applied this transaction: the records behind it may be applied.
    Release(SharedCommit),
    /// It holds its records out until others have come as far.
    Wait,
}

/// The state of a partition between the steps.
#[derive(Debug, Default)]
pub struct Participant {
    /// Set once it has voted on the transaction of the first record.
    voted: bool,
    /// The committed transaction that it has applied and some other participant has not.
    applied: Option<SharedCommit>,
}

impl Participant {
    /// Returns whether it has applied a transaction that others have not: no record behind it may be applied.
    pub fn holds_out(&self) -> bool {
        self.applied.is_some()
    }

    /// Returns the committed transaction that it has applied and others have not.
    pub fn applied(&self) -> Option<&SharedCommit> {
        self.applied.as_ref()
    }

    /// Makes it vote on the transaction of the first record once more.
    pub fn vote_again(&mut self) {
        self.voted = false;
    }

    /// Returns the next step. `first` is the transaction of several partitions that the first record is a part of, if it is.
    pub fn step(&mut self, first: Option<&SharedCommit>, votes: &impl Votes) -> Step {
        if let Some(commit) = self.applied.take_if(|commit| votes.is_shown(commit)) {
            return Step::Release(commit);
        }
        let first = match (&self.applied, first) {
            (Some(_), _) => return Step::Wait,
            (None, None) => return Step::Free,
            (None, Some(first)) => first,
        };
        if !self.voted {
            self.voted = true;
            return Step::Vote;
        }
        let Some(decision) = votes.decision(first) else { return Step::Wait };
        self.voted = false;
        self.applied = decision.committed.then(|| first.clone());
        Step::Apply(decision)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use bson::oid::ObjectId;
    use rand::rngs::StdRng;
    use rand::seq::IndexedRandom;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// A record of the model: an own one of the partition, or a part of a transaction.
    #[derive(Debug, Clone)]
    enum ModelRecord {
        Own,
        Part(SharedCommit),
    }

    /// The exchange of votes, as the network of a cluster could carry it.
    #[derive(Default)]
    struct Exchange {
        votes: RefCell<BTreeMap<(TransactionId, PartitionId), Vote>>,
        applied: RefCell<BTreeSet<(TransactionId, PartitionId)>>,
    }

    impl Votes for Exchange {
        fn decision(&self, commit: &SharedCommit) -> Option<Decision> {
            decide(&commit.participants, |p| self.votes.borrow().get(&(commit.id, p)).cloned())
        }

        fn is_shown(&self, commit: &SharedCommit) -> bool {
            commit.participants.iter().all(|p| self.applied.borrow().contains(&(commit.id, *p)))
        }
    }

    /// A partition that can crash and replay its log from the start.
    struct ModelPartition {
        id: PartitionId,
        log: Vec<ModelRecord>,
        next: usize,
        machine: Participant,
        /// Decisions in the order in which it applied them, of all lives.
        decisions: BTreeMap<TransactionId, Decision>,
    }

    impl ModelPartition {
        /// The vote is a function of the log: here of the place of the record.
        fn vote(&self) -> Vote {
            match (self.next * 7 + self.id.0 as usize) % 5 {
                0 => Vote::No(Offset(self.next as u64)),
                1 => Vote::Yes(Offset(self.next as u64), Some(self.next as u32)),
                _ => Vote::Yes(Offset(self.next as u64), None),
            }
        }

        /// Takes a step. Returns whether there was anything to do.
        fn step(&mut self, exchange: &Exchange) -> bool {
            let first = match self.log.get(self.next) {
                Some(ModelRecord::Part(commit)) => Some(commit.clone()),
                _ => None,
            };
            match self.machine.step(first.as_ref(), exchange) {
                Step::Free if self.next < self.log.len() => self.next += 1,
                Step::Free | Step::Wait => return false,
                Step::Vote => {
                    let commit = first.expect("a vote is on the first record");
                    let vote = self.vote();
                    let before = exchange.votes.borrow_mut().insert((commit.id, self.id), vote.clone());
                    assert!(before.is_none_or(|before| before == vote), "a replay votes as before");
                }
                Step::Apply(decision) => {
                    let commit = first.expect("the first record is applied");
                    if decision.committed {
                        exchange.applied.borrow_mut().insert((commit.id, self.id));
                    }
                    let before = self.decisions.insert(commit.id, decision.clone());
                    assert!(before.is_none_or(|before| before == decision), "a replay decides as before");
                    self.next += 1;
                }
                Step::Release(commit) => {
                    assert!(exchange.is_shown(&commit), "nothing is released before all have applied it");
                }
            }
            true
        }

        fn crash(&mut self) {
            self.next = 0;
            self.machine = Participant::default();
        }
    }

    /// Logs of several partitions with parts of transactions, which are in one order in all of them.
    fn members(rng: &mut StdRng) -> Vec<ModelPartition> {
        let partitions = rng.random_range(2..5);
        let mut logs = vec![Vec::new(); partitions];
        for order in 0..rng.random_range(1..12) {
            for log in &mut logs {
                log.extend((0..rng.random_range(0..3)).map(|_| ModelRecord::Own));
            }
            let all: Vec<u32> = (0..partitions as u32).collect();
            let chosen_count = rng.random_range(2..=partitions);
            let mut chosen: Vec<_> = all.choose_multiple(rng, chosen_count).copied().collect();
            chosen.sort_unstable();
            let participants: Vec<PartitionId> = chosen.into_iter().map(PartitionId).collect();
            let commit = SharedCommit { id: ObjectId::new(), order, participants };
            for partition in &commit.participants {
                logs[partition.0 as usize].push(ModelRecord::Part(commit.clone()));
            }
        }
        let member = |(p, log)| ModelPartition {
            id: PartitionId(p as u32),
            log,
            next: 0,
            machine: Participant::default(),
            decisions: BTreeMap::new(),
        };
        logs.into_iter().enumerate().map(member).collect()
    }

    #[test]
    fn all_participants_decide_alike_whenever_they_step_and_crash() {
        for seed in 0..2_000 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut members = members(&mut rng);
            let exchange = Exchange::default();
            let mut crashes = rng.random_range(0..4);
            loop {
                let p = rng.random_range(0..members.len());
                if crashes > 0 && rng.random_bool(0.02) {
                    crashes -= 1;
                    members[p].crash();
                }
                if !members[p].step(&exchange) && !members.iter_mut().any(|member| member.step(&exchange)) {
                    break;
                }
            }
            for member in &members {
                assert_eq!(member.next, member.log.len(), "seed {seed}: partition {} is stuck", member.id);
                assert!(!member.machine.holds_out(), "seed {seed}: partition {} holds out", member.id);
                for other in &members {
                    for (id, decision) in &member.decisions {
                        let same = other.decisions.get(id).is_none_or(|theirs| theirs == decision);
                        assert!(same, "seed {seed}: {} and {} differ", member.id, other.id);
                    }
                }
            }
        }
    }

    #[test]
    fn an_absent_record_refuses_a_transaction() {
        let participants = [PartitionId(0), PartitionId(1)];
        let vote = |p: PartitionId| match p.0 {
            0 => Some(Vote::Yes(Offset(5), None)),
            _ => Some(Vote::Absent),
        };
        let decision = decide(&participants, vote).unwrap();
        assert!(!decision.committed);
        assert_eq!(decision.offsets, BTreeMap::from([(0, Offset(5))]));
        assert_eq!(decide(&participants, |p| vote(p).filter(|_| p.0 == 0)), None);
    }
}
