//! Admission of nodes: identity, clock, protocol.

use tidemill_types::Offset;

use super::{NAMES_MAX, PartitionState, State};
use crate::event::ClusterEvent;
use crate::hybrid_time::HybridTime;
use crate::member::{Member, Refusal, RefusedJoin};
use crate::record::{ClusterFacts, Join};
use crate::timing::CLOCK_OFFSET_MS_MAX;

impl State {
    pub(super) fn join(&mut self, offset: Offset, join: &Join, events: &mut Vec<ClusterEvent>) {
        if self.members.get(&join.node).is_some_and(|member| member.incarnation == join.incarnation) {
            // the node has repeated its join, because it had not read it back
            return;
        }
        if let Some(refusal) = self.refusal(join) {
            self.remember_refused(offset, join, refusal.clone());
            let (node, incarnation) = (join.node.clone(), join.incarnation);
            return events.push(ClusterEvent::Refused { node, incarnation, refusal });
        }
        if self.members.is_empty() {
            self.begin(join);
        }
        self.refused.remove(&join.node);
        let member = Member {
            incarnation: join.incarnation,
            joined: offset,
            address: join.address.clone(),
            calls: join.calls.clone(),
            zone: join.zone.clone(),
            weight: join.weight,
            protocol_min: join.protocol_min,
            protocol_max: join.protocol_max,
            draining: false,
            sequence: 0,
            clock_ms: join.clock_ms,
            reserve: HybridTime::default(),
            applied: Vec::new(),
            sequence_at_change: 0,
        };
        self.members.insert(join.node.clone(), member);
        self.members_changed();
        events.push(ClusterEvent::Joined { node: join.node.clone(), incarnation: join.incarnation });
        self.give_missing_owners(offset, events);
        self.give_missing_standbys(events);
    }

    /// Takes over what the first member of a cluster, or the first one after all had left, decides.
    fn begin(&mut self, join: &Join) {
        if self.cluster.is_none() {
            self.protocol = join.protocol_max;
            self.partitions = vec![PartitionState::default(); join.cluster.partitions as usize];
        }
        // id, number of partitions and rule of homes are those that it had: `refusal` has compared them
        self.cluster = Some(join.cluster.clone());
    }

    /// Returns why a node is refused.
    fn refusal(&self, join: &Join) -> Option<Refusal> {
        let cluster = self.cluster.as_ref()?;
        self.other_facts(cluster, &join.cluster)
            .or_else(|| {
                let (expected, min, max) = (self.protocol, join.protocol_min, join.protocol_max);
                let speaks = (min..=max).contains(&expected);
                (!speaks).then_some(Refusal::OtherProtocol { expected, min, max })
            })
            .or_else(|| {
                let former = self.former.get(&join.node)?;
                (former.incarnation == join.incarnation).then_some(Refusal::LifeEnded)
            })
            .or_else(|| {
                let member = self.members.get(&join.node)?;
                Some(Refusal::NameTaken { address: member.address.clone() })
            })
            .or_else(|| {
                let ahead_ms = i128::from(join.clock_ms) - i128::from(self.clock_ms()?);
                let is_off = ahead_ms.unsigned_abs() > u128::from(CLOCK_OFFSET_MS_MAX);
                let ahead_ms = ahead_ms.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
                is_off.then_some(Refusal::ClockOff { ahead_ms })
            })
    }

    fn other_facts(&self, own: &ClusterFacts, other: &ClusterFacts) -> Option<Refusal> {
        if own.id != other.id {
            return Some(Refusal::OtherCluster { expected: own.id.clone(), found: other.id.clone() });
        }
        if own.partitions != other.partitions {
            return Some(Refusal::OtherPartitions { expected: own.partitions, found: other.partitions });
        }
        if own.home_rule != other.home_rule {
            return Some(Refusal::OtherHomeRule { expected: own.home_rule, found: other.home_rule });
        }
        if own.origin != other.origin {
            return Some(Refusal::OtherOrigin { expected: own.origin.clone(), found: other.origin.clone() });
        }
        // without members, no node runs the former app with the former intervals
        if self.members.is_empty() {
            return None;
        }
        if own.app != other.app {
            return Some(Refusal::OtherApp { expected: own.app.clone(), found: other.app.clone() });
        }
        (own.timing != other.timing).then_some(Refusal::OtherTiming)
    }

    /// Returns the clock of the members: the lower median of their last records, so that one wrong clock among three does not decide.
    fn clock_ms(&self) -> Option<u64> {
        let mut clocks: Vec<u64> = self.members.values().map(|member| member.clock_ms).collect();
        clocks.sort_unstable();
        clocks.get(clocks.len().checked_sub(1)? / 2).copied()
    }

    fn remember_refused(&mut self, offset: Offset, join: &Join, refusal: Refusal) {
        let refused =
            RefusedJoin { offset, incarnation: join.incarnation, address: join.address.clone(), refusal };
        self.refused.insert(join.node.clone(), refused);
        if self.refused.len() > NAMES_MAX
            && let Some(oldest) = self.refused.iter().min_by_key(|(_, refused)| refused.offset)
        {
            let oldest = oldest.0.clone();
            self.refused.remove(&oldest);
        }
    }
}
