//! A machine: its clocks, its links, and the process of a node on it.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::StdRng;
use tidemill_types::{Offset, PartitionId};

use super::logs::{Append, DataRecord, Logs};
use crate::node::{Node, NodeProfile};
use crate::timing::{BootTime, Now};

/// Wall clock at the start of a simulation, milliseconds since 1970.
const START_MS: u64 = 1_800_000_000_000;

/// A direction between a machine and the logs.
#[derive(Debug, Default)]
pub struct Link {
    /// Time until which it is cut, in microseconds.
    pub cut_until: u64,
    /// Extra delay until that time.
    pub slow_until: u64,
    pub slow_by: u64,
    /// Arrival of the last append: appends of a node arrive in order.
    last_arrival: u64,
}

impl Link {
    /// Returns the time at which what is sent now arrives; `None` if it is lost.
    fn arrival(&mut self, now: u64, rng: &mut StdRng) -> Option<u64> {
        let begin = if now < self.cut_until {
            // the client gives up, or tries until it comes through
            if rng.random_bool(0.5) {
                return None;
            }
            self.cut_until
        } else {
            now
        };
        let slow = if now < self.slow_until { rng.random_range(0..=self.slow_by) } else { 0 };
        self.last_arrival = self.last_arrival.max(begin + rng.random_range(500..5_000) + slow);
        Some(self.last_arrival)
    }

    /// Returns the time of arrival in the log up to which a reader sees records now.
    fn visible(&self, now: u64) -> Option<u64> {
        if now < self.cut_until {
            return None;
        }
        let slow = if now < self.slow_until { self.slow_by } else { 0 };
        now.checked_sub(1_000 + slow)
    }

    /// Ends its faults. What is on the way arrives when it was to arrive.
    pub fn heal(&mut self) {
        (self.cut_until, self.slow_until) = (0, 0);
    }
}

/// A replica of a partition: how far it has applied, and its register.
#[derive(Debug, Default)]
pub struct Replica {
    pub applied: usize,
    /// Number of records up to the last write, 0 for none.
    pub version: u64,
    /// Values that clients of this node wait for.
    waiting: Vec<u64>,
}

/// The process of a node.
#[derive(Debug)]
pub struct RunningNode {
    pub node: Node,
    pub replicas: BTreeMap<PartitionId, Replica>,
    /// Time at which it asks to become a member again, after a removal.
    pub rejoin_at: Option<u64>,
}

/// A machine.
#[derive(Debug)]
pub struct Machine {
    pub profile: NodeProfile,
    /// Millionths by which its clocks are faster than true time.
    speed: u64,
    boot_offset: u64,
    pub wall_offset_ms: i64,
    pub paused_until: u64,
    /// Time at which a killed process is started again.
    pub start_at: u64,
    pub to_log: Link,
    pub control: Link,
    pub data: Link,
    pub process: Option<RunningNode>,
}

/// A write that a client gets an acknowledgement for.
#[derive(Debug)]
pub struct Acknowledged {
    pub partition: PartitionId,
    /// Number of records up to and including the write.
    pub version: u64,
}

impl Machine {
    pub fn new(profile: NodeProfile, rng: &mut StdRng) -> Self {
        Self {
            profile,
            speed: rng.random_range(0..=50_000),
            boot_offset: rng.random_range(0..1_000_000_000),
            wall_offset_ms: rng.random_range(-4_000..=4_000),
            paused_until: 0,
            start_at: 0,
            to_log: Link::default(),
            control: Link::default(),
            data: Link::default(),
            process: None,
        }
    }

    pub fn now(&self, time: u64) -> Now {
        let boot = self.boot_offset + time + time * self.speed / 1_000_000;
        let clock_ms = (START_MS + time / 1_000).saturating_add_signed(self.wall_offset_ms);
        Now { boot: BootTime(boot), clock_ms }
    }

    /// Returns the offset below which the node sees control records now.
    pub fn control_end(&self, logs: &Logs, time: u64) -> usize {
        let Some(visible) = self.control.visible(time) else { return 0 };
        logs.control.partition_point(|landed| landed.at <= visible)
    }

    pub fn append(&mut self, logs: &mut Logs, time: u64, append: Append, rng: &mut StdRng) {
        if let Some(arrival) = self.to_log.arrival(time, rng) {
            logs.send(arrival, append);
        }
    }

    /// Applies what the node sees of the logs of the partitions that it follows. Returns acknowledged writes.
    pub fn apply_data(&mut self, logs: &Logs, time: u64, rng: &mut StdRng) -> Vec<Acknowledged> {
        let now = self.now(time);
        let (mut acknowledged, visible) = (Vec::new(), self.data.visible(time));
        let (Some(process), Some(visible)) = (&mut self.process, visible) else { return acknowledged };
        for (id, replica) in &mut process.replicas {
            let log = &logs.data[id.0 as usize];
            let mut left = rng.random_range(1..50);
            while left > 0 && log.get(replica.applied).is_some_and(|landed| landed.at <= visible) {
                let record = &log[replica.applied].record;
                replica.applied += 1;
                left -= 1;
                match record {
                    DataRecord::Barrier { epoch } => _ = process.node.barrier_applied(*id, *epoch),
                    DataRecord::Write { value } => {
                        replica.version = replica.applied as u64;
                        let waits = replica.waiting.iter().position(|waiting| waiting == value);
                        if waits.map(|index| replica.waiting.swap_remove(index)).is_some()
                            && process.node.may_answer(*id, now.boot)
                        {
                            acknowledged.push(Acknowledged { partition: *id, version: replica.version });
                        }
                    }
                }
            }
        }
        acknowledged
    }
}

impl RunningNode {
    /// Follows the partitions for which the node has a role, and no others.
    pub fn follow(&mut self) {
        let roles: Vec<PartitionId> = (0..self.node.state().partitions())
            .map(PartitionId)
            .filter(|id| self.node.role(*id).is_some())
            .collect();
        self.replicas.retain(|id, _| roles.binary_search(id).is_ok());
        for id in roles {
            self.replicas.entry(id).or_default();
        }
    }

    pub fn applied(&self) -> Vec<(PartitionId, Offset)> {
        self.replicas.iter().map(|(id, replica)| (*id, Offset(replica.applied as u64))).collect()
    }

    pub fn wait_for(&mut self, id: PartitionId, value: u64) {
        if let Some(replica) = self.replicas.get_mut(&id) {
            replica.waiting.push(value);
        }
    }
}
