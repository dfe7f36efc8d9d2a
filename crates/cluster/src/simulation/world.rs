//! Machines, logs, users and faults.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_types::PartitionId;

use super::audit::{Audit, USER};
use super::logs::{Append, DataRecord, Logs};
use super::machine::{Link, Machine, RunningNode};
use super::{SimulationOptions, SimulationReport};
use crate::node::{Action, Node, NodeProfile, Standing};
use crate::record::{ClusterFacts, Incarnation, NodeName, Record, Remove};
use crate::state::State;

/// Steps of one node between two of its heartbeats, on average.
const STEPS_PER_HEARTBEAT: u64 = 12;

/// Largest duration of a fault, in microseconds.
const FAULT_US_MAX: u64 = 5_000_000;

pub struct ClusterWorld {
    rng: StdRng,
    time: u64,
    logs: Logs,
    machines: Vec<Machine>,
    audit: Audit,
    report: SimulationReport,
    options: SimulationOptions,
    /// Steps between two faults on average.
    fault_interval: u32,
    next_value: u64,
}

impl ClusterWorld {
    pub fn new(seed: u64, options: &SimulationOptions) -> Result<Self, String> {
        let mut rng = StdRng::seed_from_u64(seed);
        let nodes = options.nodes.unwrap_or_else(|| rng.random_range(3..=9));
        let cluster = ClusterFacts {
            id: "simulation".into(),
            partitions: options.partitions,
            home_rule: 1,
            origin: String::new(),
            app: "app".into(),
            timing: options.timing,
        };
        let zones = rng.random_range(1..=3);
        let machine = |index: usize, rng: &mut StdRng| {
            let name = NodeName::new(&format!("node-{index}")).map_err(|e| e.to_string())?;
            let (zone, address) = (format!("zone-{}", index % zones), format!("10.0.0.{index}:7171"));
            let profile = NodeProfile {
                name,
                address,
                calls: String::new(),
                zone,
                weight: 100,
                cluster: cluster.clone(),
            };
            let mut machine = Machine::new(profile, rng);
            machine.start_at = rng.random_range(0..2_000_000);
            Ok::<_, String>(machine)
        };
        let machines = (0..nodes).map(|index| machine(index, &mut rng)).collect::<Result<_, _>>()?;
        Ok(Self {
            time: 0,
            logs: Logs::new(options.partitions),
            machines,
            audit: Audit::new(options)?,
            report: SimulationReport::default(),
            options: options.clone(),
            fault_interval: rng.random_range(20..400),
            next_value: 0,
            rng,
        })
    }

    /// Runs all steps, ends the faults, and audits the recovery.
    pub fn run(mut self) -> Result<SimulationReport, String> {
        for step in 0..self.options.steps {
            let fault = self.fault_interval;
            if !self.options.calm && self.rng.random_ratio(1, fault) {
                self.fault().map_err(|e| format!("step {step}: {e}"))?;
            }
            self.step().map_err(|e| format!("step {step}: {e}"))?;
        }
        self.recover()?;
        self.report.time_ms = self.time / 1_000;
        Ok(self.report)
    }

    /// Lets one node act.
    fn step(&mut self) -> Result<(), String> {
        self.report.steps += 1;
        let node_interval_us = self.options.timing.heartbeat_ms * 1_000 / STEPS_PER_HEARTBEAT;
        self.time += self.rng.random_range(1..=2 * node_interval_us / self.machines.len() as u64);
        let landed = self.logs.land(self.time);
        for record in &self.logs.control[self.logs.control.len() - landed..] {
            self.audit.landed(record, &mut self.report)?;
        }
        let index = self.rng.random_range(0..self.machines.len());
        if self.time < self.machines[index].paused_until || self.time < self.machines[index].start_at {
            return Ok(());
        }
        if self.machines[index].process.is_none() {
            self.start(index)?;
        }
        self.act(index)?;
        self.audit.acted(index, &self.machines, self.time)
    }

    fn start(&mut self, index: usize) -> Result<(), String> {
        let machine = &mut self.machines[index];
        let state = if self.rng.random_bool(0.5) {
            State::decode(&self.audit.snapshot).map_err(|e| e.to_string())?
        } else {
            State::default()
        };
        let incarnation = Incarnation(self.rng.random());
        let now = machine.now(self.time).boot;
        let node = Node::new(machine.profile.clone(), incarnation, state, now).map_err(|e| e.to_string())?;
        let mut process = RunningNode { node, replicas: Default::default(), rejoin_at: None };
        process.follow();
        machine.process = Some(process);
        Ok(())
    }

    /// Lets a running node read, apply, decide and serve clients, or some of these.
    fn act(&mut self, index: usize) -> Result<(), String> {
        self.read_control(index)?;
        let machine = &mut self.machines[index];
        for write in machine.apply_data(&self.logs, self.time, &mut self.rng) {
            self.audit.acknowledged(write.partition, write.version);
            self.report.writes += 1;
        }
        if self.rng.random_bool(0.8) {
            self.decide(index)?;
        }
        self.serve_client(index)
    }

    fn read_control(&mut self, index: usize) -> Result<(), String> {
        let machine = &mut self.machines[index];
        let end = machine.control_end(&self.logs, self.time);
        let now = machine.now(self.time).boot;
        let Some(process) = &mut machine.process else { return Ok(()) };
        let mut left = if self.rng.random_bool(0.2) { self.rng.random_range(0..5) } else { usize::MAX };
        let mut changed = false;
        while left > 0 && (process.node.state().next().0 as usize) < end {
            let offset = process.node.state().next();
            let record =
                Record::decode(&self.logs.control[offset.0 as usize].record).map_err(|e| e.to_string())?;
            changed |= !process.node.read(offset, &record, now).map_err(|e| e.to_string())?.is_empty();
            left -= 1;
        }
        if changed {
            process.follow();
        }
        Ok(())
    }

    fn decide(&mut self, index: usize) -> Result<(), String> {
        let machine = &mut self.machines[index];
        let now = machine.now(self.time);
        let Some(process) = &mut machine.process else { return Ok(()) };
        match process.node.standing() {
            Standing::Removed { .. } | Standing::Refused(_) => {
                let at = *process.rejoin_at.get_or_insert(self.time + self.rng.random_range(0..500_000));
                if self.time >= at {
                    process.rejoin_at = None;
                    process.node.rejoin(Incarnation(self.rng.random()));
                }
            }
            Standing::Left => {
                machine.process = None;
                machine.start_at = self.time + self.rng.random_range(0..FAULT_US_MAX);
                return Ok(());
            }
            Standing::Joining | Standing::Member => {}
        }
        let applied = process.applied();
        for action in process.node.decide(now, &applied) {
            let append = match action {
                Action::Append(record) => Append::Control(record.encode().map_err(|e| e.to_string())?),
                Action::AppendBarrier { partition, epoch } => {
                    Append::Data(partition, DataRecord::Barrier { epoch })
                }
            };
            machine.append(&mut self.logs, self.time, append, &mut self.rng);
        }
        Ok(())
    }

    /// Reads or writes a partition of the node, if it may answer.
    fn serve_client(&mut self, index: usize) -> Result<(), String> {
        let machine = &mut self.machines[index];
        let now = machine.now(self.time);
        let Some(process) = &mut machine.process else { return Ok(()) };
        let owned: Vec<PartitionId> = process.node.owned().collect();
        if owned.is_empty() {
            return Ok(());
        }
        let id = owned[self.rng.random_range(0..owned.len())];
        if !process.node.may_answer(id, now.boot) {
            return Ok(());
        }
        if self.rng.random_bool(0.5) {
            self.next_value += 1;
            process.wait_for(id, self.next_value);
            let append = Append::Data(id, DataRecord::Write { value: self.next_value });
            machine.append(&mut self.logs, self.time, append, &mut self.rng);
        } else if let Ok(stamp) = process.node.stamp(id, now) {
            // an answer without a stamp waits for the next heartbeat
            let version = process.replicas.get(&id).map_or(0, |replica| replica.version);
            self.audit.read(id, version, stamp)?;
            self.report.reads += 1;
        }
        Ok(())
    }

    /// Begins a fault, or lets a user do something; often two on one machine.
    fn fault(&mut self) -> Result<(), String> {
        let index = self.rng.random_range(0..self.machines.len());
        for _ in 0..self.rng.random_range(1..=2) {
            self.fault_of(index)?;
        }
        Ok(())
    }

    fn fault_of(&mut self, index: usize) -> Result<(), String> {
        let duration = self.rng.random_range(10_000..FAULT_US_MAX);
        let until = self.time + duration;
        let machine = &mut self.machines[index];
        let slow = |link: &mut Link, by| (link.slow_until, link.slow_by) = (until, by);
        let by = self.rng.random_range(10_000..3_000_000);
        match self.rng.random_range(0..15) {
            0 | 1 => {
                machine.paused_until = until;
                self.report.pauses += 1;
            }
            2 | 3 => {
                machine.process = None;
                machine.start_at = until;
                self.report.kills += 1;
            }
            4 => machine.to_log.cut_until = until,
            5 => machine.control.cut_until = until,
            6 => {
                for link in [&mut machine.to_log, &mut machine.control, &mut machine.data] {
                    link.cut_until = until;
                }
            }
            7 => slow(&mut machine.to_log, by),
            8 => slow(&mut machine.control, by),
            9 => slow(&mut machine.data, by),
            10 => {
                slow(&mut machine.control, by);
                machine.to_log.cut_until = until;
            }
            11 => machine.wall_offset_ms = self.rng.random_range(-4_000..=4_000),
            12 => self.user_moves()?,
            13 => self.user_removes(index)?,
            _ => self.user_drains(index)?,
        }
        let machine = &self.machines[index];
        let links = [&machine.to_log, &machine.control, &machine.data];
        self.report.cuts += u64::from(links.iter().any(|link| link.cut_until == until));
        Ok(())
    }

    /// Removes a member by force, although it may have a lease.
    fn user_removes(&mut self, index: usize) -> Result<(), String> {
        let name = self.machines[index].profile.name.clone();
        let Some(member) = self.audit.state().members().get(&name) else { return Ok(()) };
        let by = NodeName::new(USER).map_err(|e| e.to_string())?;
        let (incarnation, last_sequence) = (member.incarnation, member.sequence);
        self.user_appends(&Record::Remove(Remove { node: name, incarnation, last_sequence, by }))
    }

    fn user_moves(&mut self) -> Result<(), String> {
        let to = self.machines[self.rng.random_range(0..self.machines.len())].profile.name.clone();
        let partition = PartitionId(self.rng.random_range(0..self.options.partitions));
        self.user_appends(&Record::Move { partition, to })
    }

    /// Drains a member, or stops its process in order.
    fn user_drains(&mut self, index: usize) -> Result<(), String> {
        let machine = &mut self.machines[index];
        match &mut machine.process {
            Some(process) if self.rng.random_bool(0.5) => process.node.leave(),
            _ => {
                let node = machine.profile.name.clone();
                self.user_appends(&Record::Drain { node })?;
            }
        }
        Ok(())
    }

    fn user_appends(&mut self, record: &Record) -> Result<(), String> {
        let at = self.time + self.rng.random_range(500..20_000);
        self.logs.send(at, Append::Control(record.encode().map_err(|e| e.to_string())?));
        Ok(())
    }

    /// Ends all faults; every partition must be answered for in time.
    fn recover(&mut self) -> Result<(), String> {
        for machine in &mut self.machines {
            machine.to_log.heal();
            machine.control.heal();
            machine.data.heal();
            machine.paused_until = machine.paused_until.min(self.time);
            machine.start_at = machine.start_at.min(self.time);
        }
        let timing = self.options.timing;
        // what is on the way; a removal; a join and its refusals; a take-over
        let bound_ms = FAULT_US_MAX / 1_000
            + 3 * timing.suspicion_ms
            + timing.take_over_wait_ms
            + 4 * timing.heartbeat_ms;
        let begin = self.time;
        while self.time < begin + bound_ms * 1_000 {
            self.step().map_err(|e| format!("after all faults: {e}"))?;
            if self.audit.unanswered(&self.machines, self.time).is_none() {
                self.report.recovery_ms_max = (self.time - begin) / 1_000;
                return Ok(());
            }
        }
        let id = self.audit.unanswered(&self.machines, self.time).unwrap_or(PartitionId(0));
        let owner = self.audit.state().owner(id).map(|owner| owner.node.to_string()).unwrap_or_default();
        let standing = |machine: &Machine| {
            let standing = machine.process.as_ref().map(|process| process.node.standing());
            format!("{} {standing:?}", machine.profile.name)
        };
        let standings: Vec<String> = self.machines.iter().map(standing).collect();
        Err(format!(
            "recovery: no node answers for partition {id} of `{owner}` {bound_ms} ms after all faults; {}",
            standings.join(", ")
        ))
    }
}
