//! A control partition that a test writes record by record.

use tidemill_cluster::{
    ClusterEvent, ClusterFacts, Heartbeat, HybridTime, Incarnation, Join, NodeName, Record, Remove, Resigned,
    Role, State, Timing,
};
use tidemill_types::{Offset, PartitionId};

/// Clock of all nodes, unless a test says otherwise.
pub const CLOCK_MS: u64 = 1_800_000_000_000;

pub struct Log {
    pub state: State,
    pub events: Vec<ClusterEvent>,
}

pub fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

pub fn facts(partitions: u32) -> ClusterFacts {
    ClusterFacts {
        id: "c1".into(),
        partitions,
        home_rule: 0,
        origin: String::new(),
        app: "app1".into(),
        timing: Timing::SMALL,
    }
}

pub fn join(node: &str, partitions: u32) -> Join {
    Join {
        node: name(node),
        incarnation: Incarnation(1),
        address: format!("{node}:7171"),
        calls: String::new(),
        zone: String::new(),
        weight: 100,
        protocol_min: 1,
        protocol_max: 1,
        cluster: facts(partitions),
        clock_ms: CLOCK_MS,
    }
}

impl Log {
    pub fn new() -> Self {
        Self { state: State::default(), events: Vec::new() }
    }

    /// Returns a cluster of `nodes`, node-0 and so on, that have what their shares give them.
    pub fn settled(nodes: usize, partitions: u32, zones: usize) -> Self {
        let mut log = Self::new();
        for index in 0..nodes {
            log.join_in(index, partitions, zones);
        }
        log.settle();
        log
    }

    pub fn join_in(&mut self, index: usize, partitions: u32, zones: usize) {
        let mut join = join(&format!("node-{index}"), partitions);
        if zones > 0 {
            join.zone = format!("zone-{}", index % zones);
        }
        join.incarnation = Incarnation(self.state.next().0 + 1);
        self.append(Record::Join(join));
    }

    /// Appends a record and returns its events, which are also added to those of the log.
    pub fn append(&mut self, record: Record) -> Vec<ClusterEvent> {
        let record = Record::decode(&record.encode().unwrap()).unwrap();
        let events = self.state.apply(self.state.next(), &record).unwrap();
        if self.state.next().0.is_multiple_of(64)
            || matches!(record, Record::Remove(_) | Record::Drain { .. })
        {
            let snapshot = self.state.encode().unwrap();
            assert_eq!(State::decode(&snapshot).unwrap(), self.state, "a snapshot is the state");
        }
        self.events.extend(events.clone());
        events
    }

    pub fn heartbeat(&mut self, node: &NodeName, applied: Vec<(PartitionId, Offset)>) -> Vec<ClusterEvent> {
        let member = &self.state.members()[node];
        let heartbeat = Heartbeat {
            node: node.clone(),
            incarnation: member.incarnation,
            sequence: member.sequence + 1,
            clock_ms: member.clock_ms,
            reserve: HybridTime::new(member.clock_ms + 1_250, 0),
            applied,
        };
        self.append(Record::Heartbeat(heartbeat))
    }

    /// Appends a heartbeat of a node that has applied all of the partitions that it follows.
    pub fn caught_up(&mut self, node: &NodeName) -> Vec<ClusterEvent> {
        let applied = self.state.followed(node).map(|(id, _)| (id, Offset(5))).collect();
        self.heartbeat(node, applied)
    }

    pub fn remove(&mut self, node: &NodeName) -> Vec<ClusterEvent> {
        let member = &self.state.members()[node];
        let (incarnation, last_sequence) = (member.incarnation, member.sequence);
        self.append(Record::Remove(Remove {
            node: node.clone(),
            incarnation,
            last_sequence,
            by: name("other"),
        }))
    }

    pub fn resign(&mut self, id: PartitionId) -> Vec<ClusterEvent> {
        let epoch = self.state.owner(id).unwrap().epoch;
        self.append(Record::Resigned(Resigned { partition: id, epoch, stamp: HybridTime::new(CLOCK_MS, 7) }))
    }

    pub fn ids(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.state.partitions()).map(PartitionId)
    }

    pub fn owners(&self) -> Vec<Option<NodeName>> {
        self.ids().map(|id| self.state.owner(id).map(|owner| owner.node.clone())).collect()
    }

    /// Returns the number of partitions that each member owns, and of which it is the standby, in the order of names.
    pub fn loads(&self) -> Vec<(usize, usize)> {
        let count = |node: &NodeName| {
            let owned = self.ids().filter(|id| self.state.role(*id, node) == Some(Role::Owner));
            let standby = self.ids().filter(|id| self.state.standby(*id) == Some(node));
            (owned.count(), standby.count())
        };
        self.state.members().keys().map(count).collect()
    }

    /// Lets heartbeats pass until the members have settled and all moves are done. Checks that no member takes part in two at once.
    pub fn settle(&mut self) {
        let mut quiet = 0;
        while quiet <= Timing::SMALL.settle_ms / Timing::SMALL.heartbeat_ms {
            let before = self.events.len();
            for node in self.state.members().keys().cloned().collect::<Vec<_>>() {
                self.caught_up(&node);
                self.check_one_move_per_member();
            }
            for id in self.ids().filter(|id| self.state.move_target(*id).is_some()).collect::<Vec<_>>() {
                // a move may have begun with the last resignation, to a member that has not caught up
                self.resign(id);
                self.check_one_move_per_member();
            }
            quiet = if self.events.len() == before { quiet + 1 } else { 0 };
        }
    }

    fn check_one_move_per_member(&self) {
        let mut busy: Vec<&NodeName> = Vec::new();
        for id in self.ids() {
            if let Some(target) = self.state.move_target(id) {
                busy.push(target);
                busy.extend(self.state.owner(id).map(|owner| owner.node));
            }
        }
        let all = busy.len();
        busy.sort();
        busy.dedup();
        assert_eq!(busy.len(), all, "a member takes part in two moves");
    }
}
