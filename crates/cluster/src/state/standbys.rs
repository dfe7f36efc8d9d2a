//! Standbys: missing ones, and members that have caught up.

use std::cmp::Ordering;

use tidemill_types::PartitionId;

use super::{Goal, PartitionState, State};
use crate::event::ClusterEvent;
use crate::placement::score;
use crate::record::NodeName;

impl State {
    /// Gives partitions without a standby one, where a member is left for it.
    pub(super) fn give_missing_standbys(&mut self, events: &mut Vec<ClusterEvent>) {
        let is_missing =
            |partition: &PartitionState| partition.standby.is_none() && partition.owner.is_some();
        if self.members.len() < 2 || !self.partitions.iter().any(is_missing) {
            return;
        }
        let mut loads = self.replica_loads();
        for index in 0..self.partitions.len() {
            let id = PartitionId(index as u32);
            let partition = &self.partitions[index];
            if partition.standby.is_some() || partition.owner.is_none() {
                continue;
            }
            if let Some(warming) =
                self.partitions[index].warming.take_if(|warming| warming.goal == Goal::Standby)
            {
                loads.add(&warming.node, -1);
            }
            let candidates = self.members.iter().filter(|(_, member)| !member.draining);
            let best = candidates.filter(|(name, _)| self.may_be_standby(id, name)).max_by(
                |(a, member_a), (b, member_b)| {
                    let rank = |name: &NodeName| {
                        (self.is_apart(id, name), loads.of(name) < loads.share(name).ceil())
                    };
                    let scores = || score(id, a, member_a.weight).total_cmp(&score(id, b, member_b.weight));
                    match rank(a).cmp(&rank(b)) {
                        Ordering::Equal => scores(),
                        order => order,
                    }
                },
            );
            let Some((name, _)) = best else { continue };
            let name = name.clone();
            loads.add(&name, 1);
            self.set_standby(id, name, events);
        }
    }

    /// Returns whether a member may be the standby: it neither owns the partition nor is to own it.
    fn may_be_standby(&self, id: PartitionId, node: &NodeName) -> bool {
        self.partition(id).is_some_and(|partition| {
            let is_target = partition.warming.as_ref().is_some_and(|warming| warming.node == *node);
            partition.owner.as_ref() != Some(node) && !is_target
        })
    }

    /// Returns whether a member is in another zone than the owner of a partition.
    pub(super) fn is_apart(&self, id: PartitionId, node: &NodeName) -> bool {
        let zone = |node: &NodeName| self.members.get(node).map(|member| member.zone.as_str());
        let owner = self.partition(id).and_then(|partition| partition.owner.as_ref());
        owner.is_none_or(|owner| zone(owner) != zone(node))
    }

    /// Makes members that were to become standbys the standbys of partitions that have lost theirs.
    pub(super) fn warming_becomes_standby(&mut self, events: &mut Vec<ClusterEvent>) {
        for index in 0..self.partitions.len() {
            let partition = &mut self.partitions[index];
            if partition.standby.is_some() || partition.owner.is_none() {
                continue;
            }
            if let Some(warming) = partition.warming.take_if(|warming| warming.goal == Goal::Standby) {
                self.set_standby(PartitionId(index as u32), warming.node, events);
            }
        }
    }

    /// Makes `node` the standby where it was to become that and has caught up.
    pub(super) fn promote_caught_up(&mut self, node: &NodeName, events: &mut Vec<ClusterEvent>) {
        for index in 0..self.partitions.len() {
            let id = PartitionId(index as u32);
            let warming = self.partitions[index].warming.as_ref();
            let is_next =
                warming.is_some_and(|warming| warming.goal == Goal::Standby && warming.node == *node);
            if is_next && self.has_caught_up(id, node) {
                self.partitions[index].warming = None;
                self.unbalanced = true;
                self.set_standby(id, node.clone(), events);
            }
        }
    }

    fn set_standby(&mut self, id: PartitionId, node: NodeName, events: &mut Vec<ClusterEvent>) {
        self.partitions[id.0 as usize].standby = Some(node.clone());
        events.push(ClusterEvent::Standby { partition: id, node: Some(node) });
    }
}
