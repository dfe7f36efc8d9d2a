//! Planned moves: away from draining members, and until each member has its share.
//!
//! A move is planned by the state, not by a node: all nodes plan the same one when they apply the same record. A member takes part in one move
//! at a time, so that loading the state of a partition slows down one node little. Moves of a drain begin at once. Moves that spread
//! load begin when the members have not changed for a while: a node that restarts finds its place as it was.
//!
//! A move goes from the member with the largest surplus to the one with the largest deficit, until another move would not make the
//! loads more even, so there are as few moves as possible. The partition that has got its owner last moves first: after the loss of a node, only
//! partitions of that node move.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_types::PartitionId;

use super::{Goal, PartitionState, State, Warming};
use crate::event::{ClusterEvent, MoveReason};
use crate::member::Member;
use crate::placement::{Share, score};
use crate::record::NodeName;

/// Number of partitions, and the share, of each member.
pub(super) struct Loads {
    members: BTreeMap<NodeName, (usize, Share)>,
    /// Sum of the weights.
    weights: u64,
}

impl Loads {
    pub(super) fn of(&self, node: &NodeName) -> usize {
        self.members.get(node).map_or(0, |(load, _)| *load)
    }

    pub(super) fn share(&self, node: &NodeName) -> Share {
        self.members.get(node).map_or(Share::new(0, 0, 1), |(_, share)| *share)
    }

    pub(super) fn add(&mut self, node: &NodeName, change: isize) {
        if let Some((load, _)) = self.members.get_mut(node) {
            *load = load.saturating_add_signed(change);
        }
    }

    fn surplus(&self, node: &NodeName) -> i128 {
        self.share(node).surplus(self.of(node))
    }

    /// Returns pairs of members between which a partition should move, from the first to the second, the most uneven first.
    fn uneven_pairs(
        &self,
        is_busy: impl Fn(&NodeName) -> bool,
    ) -> impl Iterator<Item = (&NodeName, &NodeName)> {
        let mut free: Vec<(i128, bool, &NodeName)> = (self.members.iter())
            .filter(|(name, _)| !is_busy(name))
            .map(|(name, (load, share))| (share.surplus(*load), share.ceil() > 0, name))
            .collect();
        free.sort();
        // a partition more or less changes a surplus by the sum of weights
        let least = i128::from(self.weights);
        let receivers = free.clone();
        free.into_iter().rev().flat_map(move |(surplus, _, donor)| {
            let receivers = receivers.clone().into_iter();
            let uneven = receivers.take_while(move |(receiver, ..)| surplus - receiver > least);
            uneven.filter(|(_, may_receive, _)| *may_receive).map(move |(.., receiver)| (donor, receiver))
        })
    }
}

/// Returns the owner of a partition once a planned move is done.
fn next_owner(partition: &PartitionState) -> Option<&NodeName> {
    match &partition.warming {
        Some(Warming { node, goal: Goal::Owner | Goal::OwnerByRequest }) => Some(node),
        _ => partition.owner.as_ref(),
    }
}

/// Returns the standby of a partition once a planned move is done.
fn next_standby(partition: &PartitionState) -> Option<&NodeName> {
    match &partition.warming {
        Some(Warming { node, goal: Goal::Standby }) => Some(node),
        // it becomes the owner, whose place it takes
        Some(Warming { node, .. }) if partition.standby.as_ref() == Some(node) => partition.owner.as_ref(),
        _ => partition.standby.as_ref(),
    }
}

impl State {
    /// Returns the partitions that each member owns once planned moves are done.
    pub(super) fn owner_loads(&self) -> Loads {
        let mut loads = self.loads_with_shares_of(self.partitions.len());
        self.partitions.iter().filter_map(next_owner).for_each(|node| loads.add(node, 1));
        loads
    }

    /// Returns the partitions that each member owns or follows once planned moves are done: it applies all of them.
    pub(super) fn replica_loads(&self) -> Loads {
        let mut loads = self.loads_with_shares_of(2 * self.partitions.len());
        for partition in &self.partitions {
            let replicas = next_owner(partition).into_iter().chain(next_standby(partition));
            replicas.for_each(|node| loads.add(node, 1));
        }
        loads
    }

    /// Returns members without a load, and their shares of so many, draining ones with a share of zero.
    fn loads_with_shares_of(&self, count: usize) -> Loads {
        let weight = |draining: bool, weight: u32| if draining { 0 } else { weight };
        let weights = self
            .members
            .values()
            .map(|member| u64::from(weight(member.draining, member.weight)))
            .sum::<u64>();
        let share = |member: &Member| Share::new(count, weight(member.draining, member.weight), weights);
        let empty = self.members.iter().map(|(name, member)| (name.clone(), (0, share(member))));
        Loads { members: empty.collect(), weights }
    }

    /// Returns the members that take part in a planned move.
    fn busy(&self) -> BTreeSet<NodeName> {
        let mut busy = BTreeSet::new();
        for partition in &self.partitions {
            let Some(warming) = &partition.warming else { continue };
            busy.insert(warming.node.clone());
            if warming.goal != Goal::Standby {
                busy.extend(partition.owner.clone());
            }
        }
        busy
    }

    /// Plans all moves that may begin now.
    pub(super) fn plan_moves(&mut self, events: &mut Vec<ClusterEvent>) {
        if !self.unbalanced {
            return;
        }
        while self.plan_drain(events) {}
        if !self.is_settled() {
            return;
        }
        self.give_missing_standbys(events);
        while self.plan_zone(events) || self.plan_owner(events) || self.plan_standby(events) {}
        // nothing else can begin until a move ends or the members change
        self.unbalanced = false;
    }

    /// Begins to follow a partition with a member.
    pub(super) fn warm(
        &mut self,
        id: PartitionId,
        node: NodeName,
        goal: Goal,
        reason: MoveReason,
        events: &mut Vec<ClusterEvent>,
    ) {
        let Some(partition) = self.partitions.get_mut(id.0 as usize) else { return };
        if goal != Goal::Standby {
            events.push(ClusterEvent::MoveStarted { partition: id, to: node.clone(), reason });
        }
        partition.warming = Some(Warming { node, goal });
    }

    /// Plans a move away from a draining member; returns whether there was one.
    fn plan_drain(&mut self, events: &mut Vec<ClusterEvent>) -> bool {
        let draining = |node: &NodeName| self.members.get(node).is_some_and(|member| member.draining);
        let mut held = self.partitions.iter().filter(|partition| partition.warming.is_none());
        let is_held =
            |partition: &PartitionState| partition.owner.iter().chain(&partition.standby).any(draining);
        if !self.members.values().any(|member| member.draining) || !held.any(is_held) {
            return false;
        }
        let busy = self.busy();
        let (owners, replicas) = (self.owner_loads(), self.replica_loads());
        for (index, partition) in self.partitions.iter().enumerate() {
            let id = PartitionId(index as u32);
            if partition.warming.is_some() {
                continue;
            }
            if partition.owner.as_ref().is_some_and(|owner| draining(owner) && !busy.contains(owner)) {
                let is_free = |node: &&NodeName| !draining(node) && !busy.contains(*node);
                let free = || self.members.keys().filter(is_free);
                let standby = partition.standby.as_ref().filter(is_free);
                let next = standby.or_else(|| free().min_by_key(|node| owners.surplus(node)));
                if let Some(next) = next.cloned() {
                    self.warm(id, next, Goal::Owner, MoveReason::Drain, events);
                    return true;
                }
            }
            if partition.standby.as_ref().is_some_and(draining) {
                let owner = partition.owner.as_ref();
                let others = || self.members.keys().filter(|node| !draining(node) && owner != Some(*node));
                let free = others().filter(|node| !busy.contains(*node));
                let next = free.min_by_key(|node| (!self.is_apart(id, node), replicas.surplus(node)));
                if let Some(next) = next.cloned() {
                    self.warm(id, next, Goal::Standby, MoveReason::Drain, events);
                    return true;
                }
                if others().next().is_none() && !owner.is_some_and(draining) {
                    self.partitions[index].standby = None;
                    events.push(ClusterEvent::Standby { partition: id, node: None });
                    return true;
                }
            }
        }
        false
    }

    /// Plans a standby in another zone than the owner, where the present one is in the same; returns whether there was one.
    fn plan_zone(&mut self, events: &mut Vec<ClusterEvent>) -> bool {
        let (busy, loads) = (self.busy(), self.replica_loads());
        let is_free = |(node, member): &(&NodeName, &Member)| !member.draining && !busy.contains(*node);
        let mut free_by_zone: BTreeMap<&str, Vec<&NodeName>> = BTreeMap::new();
        for (node, member) in self.members.iter().filter(is_free) {
            free_by_zone.entry(&member.zone).or_default().push(node);
        }
        let next = self.partitions.iter().enumerate().find_map(|(index, partition)| {
            let id = PartitionId(index as u32);
            let (owner, standby) = (partition.owner.as_ref()?, partition.standby.as_ref()?);
            if partition.warming.is_some() || self.is_apart(id, standby) {
                return None;
            }
            let zone = &self.members.get(owner)?.zone;
            let apart = free_by_zone.iter().filter(|(other, _)| **other != zone).flat_map(|(_, nodes)| nodes);
            Some((id, (*apart.min_by_key(|node| loads.surplus(node))?).clone()))
        });
        let Some((id, node)) = next else { return false };
        self.warm(id, node, Goal::Standby, MoveReason::Balance, events);
        true
    }

    /// Plans a move from an owner above its share to a member below it; returns whether there was one.
    fn plan_owner(&mut self, events: &mut Vec<ClusterEvent>) -> bool {
        let (busy, loads) = (self.busy(), self.owner_loads());
        let movable = self.movable(|partition| partition.owner.as_ref().filter(|_| !partition.pinned));
        let next = loads.uneven_pairs(|name| busy.contains(name)).find_map(|(donor, receiver)| {
            let weight = self.members.get(receiver)?.weight;
            let rank = |id: PartitionId| {
                let partition = self.partition(id);
                let is_standby =
                    partition.is_some_and(|partition| partition.standby.as_ref() == Some(receiver));
                (partition.map(|partition| partition.epoch), is_standby)
            };
            let best = movable.get(donor)?.iter().copied().max_by(|a, b| {
                let scores = || score(*a, receiver, weight).total_cmp(&score(*b, receiver, weight));
                rank(*a).cmp(&rank(*b)).then_with(scores)
            });
            Some((best?, receiver.clone()))
        });
        let Some((id, receiver)) = next else { return false };
        self.warm(id, receiver, Goal::Owner, MoveReason::Balance, events);
        true
    }

    /// Plans another standby, where one member owns and follows more partitions than its share; returns whether there was one.
    fn plan_standby(&mut self, events: &mut Vec<ClusterEvent>) -> bool {
        let (busy, loads) = (self.busy(), self.replica_loads());
        let movable = self.movable(|partition| partition.standby.as_ref());
        let next = loads.uneven_pairs(|name| busy.contains(name)).find_map(|(donor, receiver)| {
            let weight = self.members.get(receiver)?.weight;
            let may_receive = |id: &PartitionId| {
                let owner = self.partition(*id).and_then(|partition| partition.owner.as_ref());
                owner != Some(receiver) && (self.is_apart(*id, receiver) || !self.is_apart(*id, donor))
            };
            let candidates = movable.get(donor)?.iter().copied().filter(may_receive);
            let best =
                candidates.max_by(|a, b| score(*a, receiver, weight).total_cmp(&score(*b, receiver, weight)));
            Some((best?, receiver.clone()))
        });
        let Some((id, receiver)) = next else { return false };
        self.warm(id, receiver, Goal::Standby, MoveReason::Balance, events);
        true
    }

    /// Returns the partitions that take part in no move, by their holder.
    fn movable<'a>(
        &'a self,
        holder: impl Fn(&'a PartitionState) -> Option<&'a NodeName>,
    ) -> BTreeMap<&'a NodeName, Vec<PartitionId>> {
        let mut movable: BTreeMap<&NodeName, Vec<PartitionId>> = BTreeMap::new();
        for (index, partition) in self.partitions.iter().enumerate() {
            if let Some(holder) = holder(partition).filter(|_| partition.warming.is_none()) {
                movable.entry(holder).or_default().push(PartitionId(index as u32));
            }
        }
        movable
    }
}
