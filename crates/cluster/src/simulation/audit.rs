//! Auditors of a simulation.
//!
//! | auditor | what must hold |
//! | --- | --- |
//! | answers | at no instant two nodes may answer for one partition, whatever their clocks say |
//! | registers | a read has every write that was acknowledged, and is not older than an earlier read |
//! | stamps | the stamps of a partition rise over all of its owners |
//! | epochs | the epoch of a partition rises with each change of its owner |
//! | removals | a member that others remove has had no heartbeat in the log for as long as they must wait; without faults there is no removal |
//! | states | all nodes compute the same state from the same records, also those that begin with a snapshot |
//! | recovery | once faults have ended, every partition is answered for within a bounded time |

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use tidemill_types::{Offset, PartitionId};

use super::logs::Landed;
use super::machine::Machine;
use super::{SimulationOptions, SimulationReport};
use crate::event::{ClusterEvent, OwnerReason};
use crate::hybrid_time::HybridTime;
use crate::record::{NodeName, Record};
use crate::state::State;
use crate::timing::CLOCK_SPEED_PERCENT;

/// Author of removals by a user.
pub const USER: &str = "user";

/// Records between two snapshots.
const SNAPSHOT_RECORDS: u64 = 100;

/// Knowledge of the auditors: they see the log at once, and true time.
pub struct Audit {
    state: State,
    /// Hash of the state below each offset.
    hashes: Vec<u64>,
    last_heartbeat: BTreeMap<NodeName, u64>,
    epochs: Vec<Offset>,
    /// Machine that was last seen to answer, by partition.
    answering: Vec<Option<usize>>,
    /// Least version that a read may return.
    versions: Vec<u64>,
    stamps: Vec<HybridTime>,
    pub snapshot: Vec<u8>,
    silence_us: u64,
    calm: bool,
}

impl Audit {
    pub fn new(options: &SimulationOptions) -> Result<Self, String> {
        let partitions = options.partitions as usize;
        Ok(Self {
            state: State::default(),
            hashes: vec![hash(&State::default())],
            last_heartbeat: BTreeMap::new(),
            epochs: vec![Offset(0); partitions],
            answering: vec![None; partitions],
            versions: vec![0; partitions],
            stamps: vec![HybridTime::default(); partitions],
            snapshot: State::default().encode().map_err(|e| e.to_string())?,
            silence_us: options.timing.suspicion_ms * 1_000 * 100 / (100 + CLOCK_SPEED_PERCENT),
            calm: options.calm,
        })
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Looks at a record that has arrived in the control partition.
    pub fn landed(&mut self, landed: &Landed<Vec<u8>>, report: &mut SimulationReport) -> Result<(), String> {
        let record = Record::decode(&landed.record).map_err(|e| e.to_string())?;
        let offset = self.state.next();
        let events = self.state.apply(offset, &record).map_err(|e| e.to_string())?;
        report.records += 1;
        if let Record::Heartbeat(heartbeat) = &record
            && self
                .state
                .members()
                .get(&heartbeat.node)
                .is_some_and(|m| m.incarnation == heartbeat.incarnation)
        {
            self.last_heartbeat.insert(heartbeat.node.clone(), landed.at);
        }
        for event in &events {
            match event {
                ClusterEvent::Joined { node, .. } => _ = self.last_heartbeat.insert(node.clone(), landed.at),
                ClusterEvent::Removed { node, by, .. } => self.removed(node, by, landed.at, report)?,
                ClusterEvent::Owner(change) if change.to.is_some() => {
                    let former = &mut self.epochs[change.partition.0 as usize];
                    if change.epoch != offset || (*former >= change.epoch && change.epoch > Offset(0)) {
                        let (id, epoch) = (change.partition, change.epoch);
                        return Err(format!("epochs: {epoch} after {former} for partition {id} at {offset}"));
                    }
                    *former = change.epoch;
                    report.take_overs += u64::from(change.reason == OwnerReason::Removed);
                    report.moves += u64::from(change.reason == OwnerReason::Resigned);
                }
                _ => {}
            }
        }
        self.hashes.push(hash(&self.state));
        if offset.0.is_multiple_of(SNAPSHOT_RECORDS) {
            self.snapshot = self.state.encode().map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn removed(
        &mut self,
        node: &NodeName,
        by: &NodeName,
        at: u64,
        report: &mut SimulationReport,
    ) -> Result<(), String> {
        let last = self.last_heartbeat.remove(node).unwrap_or_default();
        if by.as_str() == USER {
            report.forced_removals += 1;
        } else if by != node {
            report.removals += 1;
            if at - last < self.silence_us {
                let silence = (at - last) / 1_000;
                return Err(format!(
                    "removals: {by} has removed {node} {silence} ms after its last heartbeat"
                ));
            }
            if self.calm {
                return Err(format!("removals: {by} has removed {node}, and nothing had failed"));
            }
        }
        Ok(())
    }

    /// Looks at a node after it has acted. Only then may it answer for a partition for which it did not before.
    pub fn acted(&mut self, index: usize, machines: &[Machine], time: u64) -> Result<(), String> {
        let Some(process) = &machines[index].process else { return Ok(()) };
        let now = machines[index].now(time).boot;
        for id in process.node.owned() {
            if !process.node.may_answer(id, now) {
                continue;
            }
            let other = self.answering[id.0 as usize].replace(index).filter(|other| *other != index);
            if let Some(other) = other.filter(|other| may_answer(&machines[*other], id, time)) {
                let (one, two) = (&machines[index].profile.name, &machines[other].profile.name);
                return Err(format!("answers: {one} and {two} may both answer for partition {id}"));
            }
        }
        // comparing is the most expensive part, so the nodes take turns
        let next = process.node.state().next().0 as usize;
        let is_due = (next + index).is_multiple_of(machines.len());
        if is_due && self.hashes.get(next) != Some(&hash(process.node.state())) {
            return Err(format!("states: that of {} differs at offset {next}", machines[index].profile.name));
        }
        Ok(())
    }

    /// Looks at an acknowledged write.
    pub fn acknowledged(&mut self, id: PartitionId, version: u64) {
        let least = &mut self.versions[id.0 as usize];
        *least = version.max(*least);
    }

    /// Looks at an answered read.
    pub fn read(&mut self, id: PartitionId, version: u64, stamp: HybridTime) -> Result<(), String> {
        let least = &mut self.versions[id.0 as usize];
        if version < *least {
            return Err(format!("registers: a read of partition {id} has version {version} after {least}"));
        }
        *least = version;
        let last = &mut self.stamps[id.0 as usize];
        if stamp <= *last {
            return Err(format!("stamps: {stamp} after {last} for partition {id}"));
        }
        *last = stamp;
        Ok(())
    }

    /// Returns the first partition for which no node may answer.
    pub fn unanswered(&self, machines: &[Machine], time: u64) -> Option<PartitionId> {
        let answers = |id| machines.iter().any(|machine| may_answer(machine, id, time));
        (0..self.answering.len() as u32).map(PartitionId).find(|id| !answers(*id))
    }
}

fn may_answer(machine: &Machine, id: PartitionId, time: u64) -> bool {
    machine.process.as_ref().is_some_and(|process| process.node.may_answer(id, machine.now(time).boot))
}

fn hash(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
