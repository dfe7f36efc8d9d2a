//! Owners: lost, resigned, missing.

use tidemill_types::{Offset, PartitionId};

use super::{Goal, NAMES_MAX, State};
use crate::event::{ClusterEvent, OwnerChange, OwnerReason};
use crate::member::FormerMember;
use crate::placement::score;
use crate::planted_bugs::{PlantedBug, is_planted};
use crate::record::{NodeName, Remove, Resigned};

impl State {
    pub(super) fn remove(&mut self, offset: Offset, remove: &Remove, events: &mut Vec<ClusterEvent>) {
        let Some(member) = self.members.get(&remove.node) else { return };
        // a heartbeat that the author had not read: the member is alive, and may have a lease by it
        let is_alive =
            member.sequence != remove.last_sequence && !is_planted(PlantedBug::RemoveWithoutSequence);
        if member.incarnation != remove.incarnation || is_alive {
            return;
        }
        let (incarnation, reserve) = (member.incarnation, member.reserve);
        self.members.remove(&remove.node);
        self.remember_former(
            &remove.node,
            FormerMember { incarnation, removed: offset, by: remove.by.clone() },
        );
        self.members_changed();
        events.push(ClusterEvent::Removed { node: remove.node.clone(), incarnation, by: remove.by.clone() });

        let mut lost = Vec::new();
        for (index, partition) in self.partitions.iter_mut().enumerate() {
            let id = PartitionId(index as u32);
            partition.warming.take_if(|warming| warming.node == remove.node);
            if partition.standby.take_if(|standby| *standby == remove.node).is_some() {
                events.push(ClusterEvent::Standby { partition: id, node: None });
            }
            if partition.owner.take_if(|owner| *owner == remove.node).is_some() {
                partition.floor = partition.floor.max(reserve);
                partition.pinned = false;
                lost.push(id);
            }
        }
        for id in lost {
            let to = self.successor(id);
            self.set_owner(id, Some(remove.node.clone()), to, offset, OwnerReason::Removed, events);
        }
        self.warming_becomes_standby(events);
    }

    pub(super) fn resigned(&mut self, offset: Offset, resigned: &Resigned, events: &mut Vec<ClusterEvent>) {
        let id = resigned.partition;
        let Some(partition) = self.partitions.get_mut(id.0 as usize) else { return };
        if partition.epoch != resigned.epoch {
            return;
        }
        let Some(from) = partition.owner.take() else { return };
        self.unbalanced = true;
        partition.floor = partition.floor.max(resigned.stamp);
        partition.pinned = false;
        let target = partition.warming.take_if(|warming| warming.goal != Goal::Standby);
        let requested = target.as_ref().is_some_and(|target| target.goal == Goal::OwnerByRequest);
        // the target may be lost since; the former owner itself is the last resort
        let to = target.map(|target| target.node).or_else(|| self.best_follower(id)).unwrap_or(from.clone());
        self.set_owner(id, Some(from.clone()), Some(to.clone()), offset, OwnerReason::Resigned, events);
        let partition = &mut self.partitions[id.0 as usize];
        partition.pinned = requested;
        if from != to && partition.standby.is_none() {
            // it has the state
            partition.warming.take_if(|warming| warming.node == from);
            partition.standby = Some(from.clone());
            events.push(ClusterEvent::Standby { partition: id, node: Some(from) });
        }
    }

    /// Gives the partitions that have no owner to members; needed when the first member joins, or the first one after all were lost.
    pub(super) fn give_missing_owners(&mut self, offset: Offset, events: &mut Vec<ClusterEvent>) {
        for index in 0..self.partitions.len() {
            if self.partitions[index].owner.is_none() {
                let id = PartitionId(index as u32);
                let to = self.successor(id);
                self.set_owner(id, None, to, offset, OwnerReason::Missing, events);
            }
        }
    }

    /// Returns the member that owns a partition from now on: the follower that has applied most, else the one with the highest score
    /// that has not got its share. `None` without members.
    fn successor(&self, id: PartitionId) -> Option<NodeName> {
        if let Some(follower) = self.best_follower(id) {
            return Some(follower);
        }
        let loads = self.owner_loads();
        let staying = self.members.values().any(|member| !member.draining);
        let candidates = self.members.iter().filter(|(_, member)| !staying || !member.draining);
        let best = candidates.max_by(|(a, member_a), (b, member_b)| {
            let has_room = |name: &NodeName| loads.of(name) < loads.share(name).ceil();
            has_room(a)
                .cmp(&has_room(b))
                .then_with(|| score(id, a, member_a.weight).total_cmp(&score(id, b, member_b.weight)))
        });
        best.map(|(name, _)| name.clone())
    }

    /// Returns the follower that has applied most: the standby or the warming member.
    fn best_follower(&self, id: PartitionId) -> Option<NodeName> {
        let partition = self.partition(id)?;
        let warming = partition.warming.as_ref().map(|warming| &warming.node);
        let standby = partition.standby.as_ref();
        let best = if warming.is_some_and(|warming| {
            standby.is_none_or(|standby| self.applied(id, warming) > self.applied(id, standby))
        }) {
            warming
        } else {
            standby
        };
        best.cloned()
    }

    fn set_owner(
        &mut self,
        id: PartitionId,
        from: Option<NodeName>,
        to: Option<NodeName>,
        offset: Offset,
        reason: OwnerReason,
        events: &mut Vec<ClusterEvent>,
    ) {
        let partition = &mut self.partitions[id.0 as usize];
        partition.owner.clone_from(&to);
        if let Some(to) = &to {
            partition.epoch = offset;
            partition.warming.take_if(|warming| warming.node == *to);
            if partition.standby.take_if(|standby| standby == to).is_some() {
                events.push(ClusterEvent::Standby { partition: id, node: None });
            }
        }
        let epoch = partition.epoch;
        events.push(ClusterEvent::Owner(OwnerChange { partition: id, from, to, epoch, reason }));
    }

    fn remember_former(&mut self, node: &NodeName, former: FormerMember) {
        self.former.insert(node.clone(), former);
        if self.former.len() > NAMES_MAX
            && let Some((oldest, _)) = self.former.iter().min_by_key(|(_, former)| former.removed)
        {
            let oldest = oldest.clone();
            self.former.remove(&oldest);
        }
    }
}
