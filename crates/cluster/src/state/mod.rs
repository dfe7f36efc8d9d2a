//! State of the cluster: a function of the control partition.
//!
//! Every node applies the same records in the same order, and so knows the same members, owners, standbys and epochs. Nothing in here
//! reads a clock. Times enter as numbers in records, and decide only about the admission of nodes with a wrong clock.

mod admission;
mod balance;
mod ownership;
mod standbys;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::event::{ClusterEvent, MoveReason};
use crate::hybrid_time::HybridTime;
use crate::member::{FormerMember, Member, RefusedJoin};
use crate::record::{ClusterFacts, Heartbeat, Incarnation, NodeName, Record};

/// Largest number of names of former members, and of refused joins, that the state has; the oldest ones are dropped.
const NAMES_MAX: usize = 256;

/// Records that a follower may lack when it becomes the owner or the standby of a partition.
pub const LAG_RECORDS_MAX: u64 = 1_000;

/// State of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Offset of the record that is applied next.
    next: Offset,
    cluster: Option<ClusterFacts>,
    protocol: u16,
    members: BTreeMap<NodeName, Member>,
    former: BTreeMap<NodeName, FormerMember>,
    refused: BTreeMap<NodeName, RefusedJoin>,
    partitions: Vec<PartitionState>,
    /// True if moves may have to be planned: something has changed since no more could begin.
    unbalanced: bool,
    deploy: Option<Deploy>,
}

/// A partition, as the control partition knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartitionState {
    /// Name of a member.
    owner: Option<NodeName>,
    /// Offset of the record that gave it its owner. Only rises, also while it has none.
    epoch: Offset,
    /// Name of a member other than the owner.
    standby: Option<NodeName>,
    warming: Option<Warming>,
    /// True if a user has moved it to its owner, so that it stays there.
    pinned: bool,
    /// The next owner stamps above this.
    floor: HybridTime,
}

/// A member, neither owner nor standby unless it is to own, that begins to follow a partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Warming {
    node: NodeName,
    goal: Goal,
}

/// Role that a member gets once it has caught up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Goal {
    Owner,
    /// As [`Goal::Owner`], and the partition stays there.
    OwnerByRequest,
    Standby,
}

/// A deploy that the control partition carries.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deploy {
    /// Offset of the record.
    pub offset: Offset,
    /// Hash of the app.
    pub app: String,
}

/// Owner of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner<'a> {
    /// Its name.
    pub node: &'a NodeName,
    /// Its life.
    pub incarnation: Incarnation,
    /// Address at which it is reached.
    pub address: &'a str,
    /// Address at which other nodes call it; empty where nodes do not call each other.
    pub calls: &'a str,
    /// Offset of the control record that made it the owner.
    pub epoch: Offset,
}

/// Role of a member for a partition that it follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Answers, once it has taken over and while its lease lasts.
    Owner,
    /// Applies the log and lacks at most [`LAG_RECORDS_MAX`] records.
    Standby,
    /// Loads the state or catches up, in order to become the owner or the standby.
    Warming,
}

impl State {
    /// Applies the record at `offset` and returns its effects.
    ///
    /// Errors: `Invalid` if `offset` is not [`Self::next`]; the state stays as it is. A record that cannot have an effect, whatever it says, is
    /// not an error.
    pub fn apply(&mut self, offset: Offset, record: &Record) -> Result<Vec<ClusterEvent>> {
        if offset != self.next {
            return Err(Error::invalid(format!(
                "control record at offset {offset}: expected offset {}, each record is applied once and in order",
                self.next
            )));
        }
        self.next = offset.next();
        let mut events = Vec::new();
        match record {
            Record::Join(join) => self.join(offset, join, &mut events),
            Record::Heartbeat(heartbeat) => self.heartbeat(heartbeat, &mut events),
            Record::Remove(remove) => self.remove(offset, remove, &mut events),
            Record::Resigned(resigned) => self.resigned(offset, resigned, &mut events),
            Record::Drain { node } => self.drain(node, &mut events),
            Record::Move { partition, to } => self.start_move(*partition, to, &mut events),
            Record::Deploy { app } => {
                self.deploy = Some(Deploy { offset, app: app.clone() });
                events.push(ClusterEvent::Deployed { app: app.clone() });
            }
            Record::Finalize { protocol } => self.finalize(*protocol, &mut events),
        }
        self.plan_moves(&mut events);
        Ok(events)
    }

    fn heartbeat(&mut self, heartbeat: &Heartbeat, events: &mut Vec<ClusterEvent>) {
        let Some(member) = self.members.get_mut(&heartbeat.node) else { return };
        if member.incarnation != heartbeat.incarnation || member.sequence >= heartbeat.sequence {
            return;
        }
        member.sequence = heartbeat.sequence;
        member.clock_ms = heartbeat.clock_ms;
        member.reserve = member.reserve.max(heartbeat.reserve);
        member.applied.clone_from(&heartbeat.applied);
        self.promote_caught_up(&heartbeat.node, events);
    }

    fn drain(&mut self, node: &NodeName, events: &mut Vec<ClusterEvent>) {
        let reject = |events: &mut Vec<ClusterEvent>, reason| events.push(ClusterEvent::Rejected { reason });
        if !self.members.contains_key(node) {
            return reject(events, format!("drain: {}", self.unknown_member(node)));
        }
        if !self.members.iter().any(|(name, member)| name != node && !member.draining) {
            let reason =
                format!("drain: no other member could take the partitions of {node}; start one first");
            return reject(events, reason);
        }
        let Some(member) = self.members.get_mut(node).filter(|member| !member.draining) else { return };
        member.draining = true;
        self.members_changed();
        for partition in &mut self.partitions {
            partition.warming.take_if(|warming| warming.node == *node);
            partition.pinned &= partition.owner.as_ref() != Some(node);
        }
        events.push(ClusterEvent::Draining { node: node.clone() });
    }

    fn start_move(&mut self, id: PartitionId, to: &NodeName, events: &mut Vec<ClusterEvent>) {
        let refused = match (self.partitions.get(id.0 as usize), self.members.get(to)) {
            (None, _) => {
                Some(format!("move: there is no partition {id}, the cluster has {}", self.partitions.len()))
            }
            (_, None) => Some(format!("move: {}", self.unknown_member(to))),
            (_, Some(member)) if member.draining => {
                Some(format!("move: {to} is draining; name a member that stays"))
            }
            (Some(partition), _) if partition.owner.as_ref() == Some(to) => {
                Some(format!("move: {to} owns partition {id} already"))
            }
            _ => None,
        };
        match refused {
            Some(reason) => events.push(ClusterEvent::Rejected { reason }),
            None => {
                self.warm(id, to.clone(), Goal::OwnerByRequest, MoveReason::Requested, events);
                self.unbalanced = true;
            }
        }
    }

    fn finalize(&mut self, protocol: u16, events: &mut Vec<ClusterEvent>) {
        let speaks = |member: &Member| (member.protocol_min..=member.protocol_max).contains(&protocol);
        let reason = if protocol <= self.protocol {
            Some(format!("finalize: the cluster uses protocol {} already", self.protocol))
        } else {
            self.members.iter().find(|(_, member)| !speaks(member)).map(|(name, member)| {
                format!(
                    "finalize: {name} speaks protocols {} to {}; start it with a build that speaks {protocol} first",
                    member.protocol_min, member.protocol_max
                )
            })
        };
        match reason {
            Some(reason) => events.push(ClusterEvent::Rejected { reason }),
            None => {
                self.protocol = protocol;
                events.push(ClusterEvent::Finalized { protocol });
            }
        }
    }

    fn unknown_member(&self, node: &NodeName) -> String {
        let names: Vec<&str> = self.members.keys().map(NodeName::as_str).collect();
        format!("there is no member {node}{}", tidemill_types::did_you_mean(node.as_str(), names))
    }

    /// Notes a change of the members: load is spread again once it has settled.
    fn members_changed(&mut self) {
        self.unbalanced = true;
        for member in self.members.values_mut() {
            member.sequence_at_change = member.sequence;
        }
    }

    /// Returns whether the time [`crate::Timing::settle_ms`] has passed since the last change of the members, by the heartbeats of any of them.
    fn is_settled(&self) -> bool {
        let Some(cluster) = &self.cluster else { return false };
        let heartbeats = cluster.timing.settle_heartbeats();
        self.members.values().any(|member| member.sequence - member.sequence_at_change >= heartbeats)
    }
}

/// Questions to the state.
impl State {
    /// Returns the offset of the record to apply next.
    pub fn next(&self) -> Offset {
        self.next
    }

    /// Returns the facts that the first join fixed, `None` before it.
    pub fn cluster(&self) -> Option<&ClusterFacts> {
        self.cluster.as_ref()
    }

    /// Returns the protocol that the cluster uses, 0 before the first join.
    pub fn protocol(&self) -> u16 {
        self.protocol
    }

    /// Returns the members by name.
    pub fn members(&self) -> &BTreeMap<NodeName, Member> {
        &self.members
    }

    /// Returns nodes that were members, by name, as far as they are remembered.
    pub fn former_members(&self) -> &BTreeMap<NodeName, FormerMember> {
        &self.former
    }

    /// Returns the last refused join of each name that is not a member since.
    pub fn refused_joins(&self) -> &BTreeMap<NodeName, RefusedJoin> {
        &self.refused
    }

    /// Returns the last deploy that the log carries. Nothing applies it yet.
    pub fn deploy(&self) -> Option<&Deploy> {
        self.deploy.as_ref()
    }

    /// Returns the number of partitions, 0 before the first join.
    pub fn partitions(&self) -> u32 {
        self.partitions.len() as u32
    }

    /// Returns the owner of a partition. It may not answer yet, or no longer: it knows, see [`crate::Node::may_answer`].
    pub fn owner(&self, id: PartitionId) -> Option<Owner<'_>> {
        let partition = self.partition(id)?;
        let node = partition.owner.as_ref()?;
        let member = self.members.get(node)?;
        Some(Owner {
            node,
            incarnation: member.incarnation,
            address: &member.address,
            calls: &member.calls,
            epoch: partition.epoch,
        })
    }

    /// Returns the standby of a partition; [`Self::role`] says if it has caught up.
    pub fn standby(&self, id: PartitionId) -> Option<&NodeName> {
        self.partition(id)?.standby.as_ref()
    }

    /// Returns the member to which a partition is moving.
    pub fn move_target(&self, id: PartitionId) -> Option<&NodeName> {
        let warming = self.partition(id)?.warming.as_ref()?;
        (warming.goal != Goal::Standby).then_some(&warming.node)
    }

    /// Returns the role of a member for a partition, `None` if it does not follow it.
    pub fn role(&self, id: PartitionId, node: &NodeName) -> Option<Role> {
        let partition = self.partition(id)?;
        if partition.owner.as_ref() == Some(node) {
            return Some(Role::Owner);
        }
        let is_standby = partition.standby.as_ref() == Some(node);
        if is_standby && self.has_caught_up(id, node) {
            return Some(Role::Standby);
        }
        let is_warming = partition.warming.as_ref().is_some_and(|warming| warming.node == *node);
        (is_standby || is_warming).then_some(Role::Warming)
    }

    /// Returns the partitions that a member follows, with its roles.
    pub fn followed<'a>(&'a self, node: &'a NodeName) -> impl Iterator<Item = (PartitionId, Role)> + 'a {
        (0..self.partitions()).map(PartitionId).filter_map(|id| Some((id, self.role(id, node)?)))
    }

    /// Returns, for each partition, the first offset of its log that some follower still has to apply, as far as their heartbeats say; `None`
    /// while a follower has not reported: the log must not be cut then. Partitions without a follower do not bound the cut.
    ///
    /// The cut is bounded by the checkpoints as well, which the control partition does not know.
    pub fn followed_needs(&self) -> impl Iterator<Item = (PartitionId, Option<Offset>)> + '_ {
        self.partitions.iter().enumerate().filter_map(|(index, partition)| {
            let id = PartitionId(index as u32);
            let warming = partition.warming.as_ref().map(|warming| &warming.node);
            let followers = partition.owner.iter().chain(&partition.standby).chain(warming);
            let mut needs = followers.map(|node| self.applied(id, node)).peekable();
            needs.peek()?;
            Some((id, needs.try_fold(Offset(u64::MAX), |least, need| Some(least.min(need?)))))
        })
    }

    /// Returns a bound of the stamps of former owners of a partition: the next owner stamps above it.
    pub fn stamp_floor(&self, id: PartitionId) -> HybridTime {
        self.partition(id).map_or(HybridTime::default(), |partition| partition.floor)
    }

    fn partition(&self, id: PartitionId) -> Option<&PartitionState> {
        self.partitions.get(id.0 as usize)
    }

    fn applied(&self, id: PartitionId, node: &NodeName) -> Option<Offset> {
        self.members.get(node)?.applied(id)
    }

    /// Returns whether a follower lacks few records, by the last heartbeats of both.
    fn has_caught_up(&self, id: PartitionId, node: &NodeName) -> bool {
        let owner = self.partition(id).and_then(|partition| partition.owner.as_ref());
        match (owner.and_then(|owner| self.applied(id, owner)), self.applied(id, node)) {
            (Some(owner), Some(follower)) => follower.0.saturating_add(LAG_RECORDS_MAX) >= owner.0,
            _ => false,
        }
    }

    /// Checks what a snapshot must have for the other functions to hold.
    ///
    /// Errors: `Invalid` with what is wrong.
    pub(crate) fn check(&self) -> Result<()> {
        let expected = self.cluster.as_ref().map_or(0, |cluster| cluster.partitions as usize);
        if self.partitions.len() != expected {
            return Err(Error::invalid(format!(
                "{} partitions instead of {expected}",
                self.partitions.len()
            )));
        }
        if let Some(cluster) = &self.cluster {
            cluster.timing.check()?;
        }
        for (name, member) in &self.members {
            if member.sequence < member.sequence_at_change || member.weight == 0 {
                return Err(Error::invalid(format!(
                    "member {name} has sequences or a weight that cannot be"
                )));
            }
            if member.applied.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
                return Err(Error::invalid(format!("member {name} has partitions that do not ascend")));
            }
        }
        for (id, partition) in self.partitions.iter().enumerate() {
            let warming = partition.warming.as_ref().map(|warming| &warming.node);
            let mut followers = partition.owner.iter().chain(&partition.standby).chain(warming);
            if let Some(unknown) = followers.find(|node| !self.members.contains_key(*node)) {
                return Err(Error::invalid(format!(
                    "partition {id} is followed by {unknown}, which is not a member"
                )));
            }
            if partition.owner.is_some() && partition.owner == partition.standby {
                return Err(Error::invalid(format!("partition {id} has its owner as its standby")));
            }
        }
        Ok(())
    }
}
