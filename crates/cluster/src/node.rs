//! The protocol of one node: joins, heartbeats, removals, take-overs, resignations, stamps.

use std::collections::BTreeMap;

use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::encoding::{PROTOCOL_MAX, PROTOCOL_MIN};
use crate::event::{ClusterEvent, OwnerReason};
use crate::hybrid_time::{HybridClock, HybridTime};
use crate::lease::Lease;
use crate::member::Refusal;
use crate::planted_bugs::{PlantedBug, is_planted};
use crate::record::{ClusterFacts, Heartbeat, Incarnation, Join, NodeName, Record, Remove, Resigned};
use crate::state::{LAG_RECORDS_MAX, Role, State};
use crate::suspicion::Suspicion;
use crate::take_over::TakeOvers;
use crate::timing::{BootTime, Now, Timing};

/// Facts of a node that do not change while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeProfile {
    /// Name, unique in the cluster.
    pub name: NodeName,
    /// Address at which other nodes reach it.
    pub address: String,
    /// Address at which other nodes call it; empty where nodes do not call each other.
    pub calls: String,
    /// Zone of the machine, empty if unknown.
    pub zone: String,
    /// Share of the partitions relative to other nodes.
    pub weight: u32,
    /// Facts that must be those of the cluster.
    pub cluster: ClusterFacts,
}

/// A thing for the driver to do. It may fail: the node decides the same again when the record does not come back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Append a record to the control partition, after those of earlier actions.
    Append(Box<Record>),
    /// Append a barrier record to a partition, and call [`Node::barrier_applied`] when this node has applied it.
    AppendBarrier {
        /// The partition.
        partition: PartitionId,
        /// Epoch of this owner, for the barrier record to name.
        epoch: Offset,
    },
}

/// Standing of a node in its cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Asks to become a member.
    Joining,
    /// Is a member, as far as it has read the log.
    Member,
    /// Was refused, and does not ask again. [`Node::rejoin`] begins once more.
    Refused(Refusal),
    /// Was removed by another node. [`Node::rejoin`] begins once more.
    Removed {
        /// Name of that node.
        by: NodeName,
    },
    /// Has left by itself.
    Left,
}

/// Progress of a node that leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Leaving {
    No,
    /// Its partitions move to other members.
    Draining,
    /// It neither answers nor sends heartbeats, and removes itself.
    Silent,
}

/// The control protocol of one node. See the example of the crate for its driver.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    profile: NodeProfile,
    incarnation: Incarnation,
    state: State,
    standing: Standing,
    lease: Lease,
    suspicion: Suspicion,
    take_overs: TakeOvers,
    clock: HybridClock,
    /// Number of the last heartbeat.
    sequence: u64,
    /// Time of the last join or heartbeat.
    sent_at: Option<BootTime>,
    /// Times of removals that were sent and have not been read back.
    removals: BTreeMap<NodeName, BootTime>,
    first_refused: Option<BootTime>,
    leaving: Leaving,
    /// Time of the last request to drain or to remove itself, of a node that leaves.
    leave_sent_at: Option<BootTime>,
}

impl Node {
    /// Creates a node that asks to become a member of the cluster of `state`: an empty state whose log begins at offset 0, or a snapshot.
    ///
    /// Errors: `Invalid` for a profile that no cluster would admit.
    pub fn new(profile: NodeProfile, incarnation: Incarnation, state: State, now: BootTime) -> Result<Self> {
        let mut node = Self {
            profile,
            incarnation,
            state,
            standing: Standing::Joining,
            lease: Lease::default(),
            suspicion: Suspicion::default(),
            take_overs: TakeOvers::default(),
            clock: HybridClock::default(),
            sequence: 0,
            sent_at: None,
            removals: BTreeMap::new(),
            first_refused: None,
            leaving: Leaving::No,
            leave_sent_at: None,
        };
        Record::Join(node.join(0)).check()?;
        if node.state.next() > Offset(0) {
            node.take_overs.wait_for_unknown(now, &node.profile.cluster.timing);
        }
        for (name, member) in node.state.members() {
            node.suspicion.heard(name, member.incarnation, now);
        }
        Ok(node)
    }

    /// Asks once more to become a member, after a removal or a refusal, in a life that is drawn at random.
    pub fn rejoin(&mut self, incarnation: Incarnation) {
        self.incarnation = incarnation;
        self.standing = Standing::Joining;
        self.lease = Lease::default();
        self.take_overs.end_all();
        self.sequence = 0;
        self.sent_at = None;
        self.removals.clear();
        self.first_refused = None;
        self.leaving = Leaving::No;
        self.leave_sent_at = None;
    }

    /// Leaves the cluster in order: its partitions move to other members, then it removes itself. [`Self::standing`] says when it has.
    pub fn leave(&mut self) {
        if self.leaving == Leaving::No {
            self.leaving = Leaving::Draining;
        }
    }

    /// Applies the record at `offset` of the control partition. `now` must be read after the record was received: an earlier time would shorten the
    /// wait of a take-over.
    ///
    /// Errors: those of [`State::apply`].
    pub fn read(&mut self, offset: Offset, record: &Record, now: BootTime) -> Result<Vec<ClusterEvent>> {
        let events = self.state.apply(offset, record)?;
        match record {
            Record::Join(join) if join.node == self.profile.name && join.incarnation == self.incarnation => {
                self.suspicion.own_record_read();
            }
            Record::Heartbeat(heartbeat) => self.read_heartbeat(heartbeat, now),
            _ => {}
        }
        let mut removed = None;
        for event in &events {
            match event {
                ClusterEvent::Joined { node, incarnation } => self.read_joined(node, *incarnation, now),
                ClusterEvent::Refused { node, incarnation, refusal } if self.is_self(node, *incarnation) => {
                    self.read_refused(refusal, now);
                }
                ClusterEvent::Removed { node, incarnation, by } => {
                    removed = Some(self.suspicion.forget(node).unwrap_or(now));
                    self.removals.remove(node);
                    if self.is_self(node, *incarnation) {
                        self.standing =
                            if by == node { Standing::Left } else { Standing::Removed { by: by.clone() } };
                        self.take_overs.end_all();
                    }
                }
                ClusterEvent::Owner(change) => {
                    if change.reason == OwnerReason::Removed {
                        let last_heartbeat = removed.unwrap_or(now);
                        let timing = &self.profile.cluster.timing;
                        self.take_overs.owner_removed(change.partition, last_heartbeat, timing);
                    }
                    let has_duties = self.is_member() && self.leaving != Leaving::Silent;
                    if change.to.as_ref() == Some(&self.profile.name) && has_duties {
                        self.begin_take_over(change.partition, change.epoch);
                    } else {
                        self.take_overs.end(change.partition);
                    }
                }
                _ => {}
            }
        }
        Ok(events)
    }

    /// Decides what to do now. `applied` has, for each partition that the node follows, the offset of the record that it applies next, in ascending order.
    ///
    /// The driver calls it after [`Self::read`] and [`Self::barrier_applied`], and at least every few milliseconds.
    pub fn decide(&mut self, now: Now, applied: &[(PartitionId, Offset)]) -> Vec<Action> {
        let mut actions = Vec::new();
        match self.standing {
            Standing::Joining => {
                if self.is_due(now.boot) {
                    self.sent_at = Some(now.boot);
                    actions.push(Action::Append(Box::new(Record::Join(self.join(now.clock_ms)))));
                }
                // a node that was refused for its facts has no say; this one may be refused because of members that are lost
                if self.sent_at.is_some() {
                    self.remove_silent(now.boot, &mut actions);
                }
            }
            Standing::Member => {
                let has_duties = self.leaving == Leaving::No || self.decide_leave(now.boot, &mut actions);
                if has_duties && self.is_due(now.boot) {
                    actions.push(Action::Append(Box::new(self.heartbeat(now, applied))));
                }
                self.remove_silent(now.boot, &mut actions);
                if has_duties {
                    self.resign_moved(now, applied, &mut actions);
                    let barriers = self.take_overs.send_barriers(now.boot, &self.profile.cluster.timing);
                    let barrier = |(partition, epoch)| Action::AppendBarrier { partition, epoch };
                    actions.extend(barriers.into_iter().map(barrier));
                }
            }
            Standing::Refused(_) | Standing::Removed { .. } | Standing::Left => {}
        }
        actions
    }

    /// Notes that this node has applied its barrier record of `epoch`, and everything before it. Returns whether it owns the partition from now on.
    pub fn barrier_applied(&mut self, partition: PartitionId, epoch: Offset) -> bool {
        self.take_overs.barrier_applied(partition, epoch)
    }

    /// Returns whether the node may answer for a partition. The caller asks once it has the answer, right before it sends it.
    pub fn may_answer(&self, partition: PartitionId, now: BootTime) -> bool {
        self.is_member() && self.lease.holds(now) && self.take_overs.answering(partition).is_some()
    }

    /// Returns a stamp for a view of a partition that is published now: above all stamps of former owners and of this one.
    ///
    /// Errors: `Unavailable` when the node may not answer for the partition, and when it has used the time that its heartbeats reserve; the next
    /// one that comes back has more.
    pub fn stamp(&mut self, partition: PartitionId, now: Now) -> Result<HybridTime> {
        if !self.may_answer(partition, now.boot) {
            return Err(Error::unavailable(format!("this node may not answer for partition {partition}")));
        }
        let mut clock = self.clock.clone();
        let stamp = clock.tick(now.clock_ms);
        if stamp > self.lease.reserve() {
            return Err(Error::unavailable(format!(
                "the stamp {stamp} is above {}, up to which this node has reserved time; its next heartbeat reserves more",
                self.lease.reserve()
            )));
        }
        self.clock = clock;
        Ok(stamp)
    }

    /// Merges a stamp that came with a message, see [`HybridClock::observe`].
    ///
    /// Errors: those of [`HybridClock::observe`].
    pub fn observe(&mut self, stamp: HybridTime, clock_ms: u64) -> Result<()> {
        self.clock.observe(stamp, clock_ms)
    }

    /// Returns the role of this node for a partition, `None` if it does not follow it.
    pub fn role(&self, partition: PartitionId) -> Option<Role> {
        self.is_member().then(|| self.state.role(partition, &self.profile.name)).flatten()
    }

    /// Returns the partitions that this node owns, whether it answers for them or not.
    pub fn owned(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.take_overs.owned()
    }

    /// Returns the state as far as the node has read the log.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the standing of the node, as far as it has read the log.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Returns the profile.
    pub fn profile(&self) -> &NodeProfile {
        &self.profile
    }

    /// Returns the present life.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Returns the moment at which the lease ends, or has ended; for metrics.
    pub fn lease_until(&self) -> BootTime {
        self.lease.until()
    }

    fn is_member(&self) -> bool {
        self.standing == Standing::Member
    }

    fn is_self(&self, node: &NodeName, incarnation: Incarnation) -> bool {
        *node == self.profile.name && incarnation == self.incarnation
    }

    fn timing(&self) -> &Timing {
        &self.profile.cluster.timing
    }

    fn is_due(&self, now: BootTime) -> bool {
        self.has_passed(self.sent_at, now)
    }

    /// Returns whether an interval of heartbeats has passed since `sent`.
    fn has_passed(&self, sent: Option<BootTime>, now: BootTime) -> bool {
        sent.is_none_or(|at| now >= at.plus_ms(self.timing().heartbeat_ms))
    }

    fn read_heartbeat(&mut self, heartbeat: &Heartbeat, now: BootTime) {
        let Some(member) = self.state.members().get(&heartbeat.node) else { return };
        if member.incarnation != heartbeat.incarnation || member.sequence != heartbeat.sequence {
            return;
        }
        if self.is_self(&heartbeat.node, heartbeat.incarnation) {
            self.suspicion.own_record_read();
            self.lease.read(heartbeat.sequence, now, &self.profile.cluster.timing);
        }
        self.suspicion.heard(&heartbeat.node, heartbeat.incarnation, now);
    }

    fn read_joined(&mut self, node: &NodeName, incarnation: Incarnation, now: BootTime) {
        self.suspicion.heard(node, incarnation, now);
        if self.is_self(node, incarnation) && self.standing == Standing::Joining {
            self.standing = Standing::Member;
            self.sent_at = None;
        }
    }

    fn read_refused(&mut self, refusal: &Refusal, now: BootTime) {
        if self.standing != Standing::Joining {
            return;
        }
        let first = *self.first_refused.get_or_insert(now);
        // by then, a member that is lost has been removed
        let has_waited = now >= first.plus_ms(2 * self.timing().suspicion_ms);
        if !refusal.may_pass() || has_waited {
            self.standing = Standing::Refused(refusal.clone());
        }
    }

    fn begin_take_over(&mut self, partition: PartitionId, epoch: Offset) {
        self.take_overs.begin(partition, epoch);
        if !is_planted(PlantedBug::StampBelowReserve) {
            self.clock.at_least(self.state.stamp_floor(partition));
        }
    }

    fn join(&self, clock_ms: u64) -> Join {
        Join {
            node: self.profile.name.clone(),
            incarnation: self.incarnation,
            address: self.profile.address.clone(),
            calls: self.profile.calls.clone(),
            zone: self.profile.zone.clone(),
            weight: self.profile.weight,
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            cluster: self.profile.cluster.clone(),
            clock_ms,
        }
    }

    fn heartbeat(&mut self, now: Now, applied: &[(PartitionId, Offset)]) -> Record {
        self.sent_at = Some(now.boot);
        self.sequence += 1;
        // enough for as long as this heartbeat can give a lease; less than a take-over takes, so that a series of them does not move
        // the clock further and further ahead
        let ahead_ms = self.timing().lease_ms + self.timing().heartbeat_ms;
        let reserve = HybridTime::new(self.clock.now(now.clock_ms).ms() + ahead_ms, 0);
        self.lease.send(self.sequence, now.boot, reserve, &self.profile.cluster.timing);
        Record::Heartbeat(Heartbeat {
            node: self.profile.name.clone(),
            incarnation: self.incarnation,
            sequence: self.sequence,
            clock_ms: now.clock_ms,
            reserve,
            applied: applied.to_vec(),
        })
    }

    fn remove_silent(&mut self, now: BootTime, actions: &mut Vec<Action>) {
        let heartbeat_ms = self.timing().heartbeat_ms;
        for (name, incarnation) in self.suspicion.silent(now, &self.profile.cluster.timing) {
            let Some(member) = self.state.members().get(name) else { continue };
            let is_sent = self.removals.get(name).is_some_and(|at| now < at.plus_ms(heartbeat_ms));
            if is_sent || (*name == self.profile.name && incarnation == self.incarnation) {
                continue;
            }
            self.removals.insert(name.clone(), now);
            actions.push(Action::Append(Box::new(Record::Remove(Remove {
                node: name.clone(),
                incarnation,
                last_sequence: member.sequence,
                by: self.profile.name.clone(),
            }))));
        }
    }

    /// Resigns from partitions whose next owner has caught up.
    fn resign_moved(&mut self, now: Now, applied: &[(PartitionId, Offset)], actions: &mut Vec<Action>) {
        let mut resigning: Vec<PartitionId> = self.take_overs.resigned().collect();
        for (partition, own) in applied {
            let Some(target) = self.state.move_target(*partition) else { continue };
            let reported = self.state.members().get(target).and_then(|member| member.applied(*partition));
            if reported.is_some_and(|reported| reported.0.saturating_add(LAG_RECORDS_MAX) >= own.0) {
                resigning.push(*partition);
            }
        }
        for partition in resigning {
            if let Some(epoch) = self.take_overs.resign(partition, now.boot, &self.profile.cluster.timing) {
                let stamp = self.clock.now(now.clock_ms);
                let resigned = Resigned { partition, epoch, stamp };
                actions.push(Action::Append(Box::new(Record::Resigned(resigned))));
            }
        }
    }

    /// Decides for a node that leaves. Returns whether it still has duties.
    fn decide_leave(&mut self, now: BootTime, actions: &mut Vec<Action>) -> bool {
        let name = &self.profile.name;
        let Some(own) = self.state.members().get(name) else { return true };
        let is_last = !self.state.members().iter().any(|(other, member)| other != name && !member.draining);
        let has_partitions = self.state.followed(name).next().is_some();
        if is_last || (own.draining && !has_partitions) {
            // for good: a node that joins now takes over as after a removal
            self.leaving = Leaving::Silent;
            self.take_overs.end_all();
        }
        let has_duties = self.leaving != Leaving::Silent;
        if has_duties && own.draining || !self.has_passed(self.leave_sent_at, now) {
            return has_duties;
        }
        let record = if has_duties {
            Record::Drain { node: name.clone() }
        } else {
            // heartbeats have ended, so the last one that the node has read back is the last one in the log, unless one was lost
            let (incarnation, last_sequence) = (self.incarnation, own.sequence);
            Record::Remove(Remove { node: name.clone(), incarnation, last_sequence, by: name.clone() })
        };
        self.leave_sent_at = Some(now);
        actions.push(Action::Append(Box::new(record)));
        has_duties
    }
}
