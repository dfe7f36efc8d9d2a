//! Steps of a simulation, and its audits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_encryption::{OpenKeyRing, Purpose};
use tidemill_log::Durability;
use tidemill_log::sim_disk::Crash;

use super::SimulationReport;
use super::engine::{Machine, SimEngine, is_timed};
use super::model::{self, Order};
use super::outcome;
use crate::api::{BodyFormat, SendOptions};
use crate::ingest::sending;
use crate::jobs;
use crate::jobs::timers;
use crate::planted_bugs::plant_failure;

/// Attempts to start while the object store fails; after these the store is repaired.
const STARTS_WITH_FAULTS_MAX: usize = 5;

/// One kind of step.
#[derive(Debug, Clone, Copy)]
enum Step {
    Send,
    Apply,
    Forward,
    Flush,
    Consolidate,
    RemoveOldFiles,
    Checkpoint,
    Timers,
    Advance,
    FailRecord,
    Reopen,
    FailSyncs,
    StoreFaults,
    FullDisk,
    PowerFailureAhead,
    Kill,
    PowerFailure,
    Restart,
    Audit,
    Backup,
}

const STEPS: [(Step, u32); 20] = [
    (Step::Send, 30),
    (Step::Apply, 25),
    (Step::Forward, 20),
    (Step::Flush, 6),
    (Step::Consolidate, 6),
    (Step::RemoveOldFiles, 1),
    (Step::Checkpoint, 3),
    (Step::Timers, 2),
    (Step::Advance, 4),
    (Step::FailRecord, 4),
    (Step::Reopen, 6),
    (Step::FailSyncs, 2),
    (Step::StoreFaults, 2),
    (Step::FullDisk, 1),
    (Step::PowerFailureAhead, 3),
    (Step::Kill, 2),
    (Step::PowerFailure, 2),
    (Step::Restart, 1),
    (Step::Backup, 2),
    (Step::Audit, 2),
];

/// A machine, the engine on it, and what its users know.
pub struct World {
    rng: StdRng,
    pub(super) machine: Machine,
    engine: Option<SimEngine>,
    /// Weights of the steps; each run has its own, so that some runs crash often and others hardly.
    weights: Vec<(Step, u32)>,
    sent: BTreeMap<String, Order>,
    /// Ids acknowledged as on the disk.
    durable: BTreeSet<String>,
    /// Ids acknowledged as handed to the operating system since the last power failure.
    handed_over: BTreeSet<String>,
    report: SimulationReport,
}

impl World {
    pub fn new(seed: u64, encrypted: bool) -> Result<Self, String> {
        let mut rng = StdRng::seed_from_u64(seed);
        let weights = STEPS.map(|(step, weight)| (step, weight * rng.random_range(0..5)));
        let mut weights = weights.to_vec();
        // without these nothing happens
        weights.extend([(Step::Send, 10), (Step::Apply, 10), (Step::Forward, 10)]);
        let mut machine = Machine::new(is_timed(seed));
        if encrypted {
            let mut keys = OpenKeyRing::default();
            keys.complete(&Purpose::ALL).map_err(|e| e.to_string())?;
            machine.keys = Some(keys);
        }
        Ok(Self {
            rng,
            machine,
            engine: None,
            weights,
            sent: BTreeMap::new(),
            durable: BTreeSet::new(),
            handed_over: BTreeSet::new(),
            report: SimulationReport::default(),
        })
    }

    /// Runs `steps` steps, then a last audit before and after a restart.
    pub fn run(mut self, steps: usize) -> Result<SimulationReport, String> {
        self.begin()?;
        (0..steps).try_for_each(|number| self.random_step(number))?;
        self.finish()
    }

    pub(super) fn begin(&mut self) -> Result<(), String> {
        self.start().map_err(|e| format!("first start: {e}"))
    }

    /// Takes a step that the seed decides. `number` is for the message of a violation.
    pub(super) fn random_step(&mut self, number: usize) -> Result<(), String> {
        let step = super::choose(&mut self.rng, &self.weights).unwrap_or(Step::Apply);
        self.step(step).map_err(|e| format!("step {number} ({step:?}): {e}"))
    }

    /// Audits before and after a restart.
    pub(super) fn finish(mut self) -> Result<SimulationReport, String> {
        self.audit().map_err(|e| format!("last audit: {e}"))?;
        self.crash(Crash::Power).map_err(|e| format!("last start: {e}"))?;
        self.audit().map_err(|e| format!("audit after the last start: {e}"))?;
        self.report.acknowledged = self.durable.len() as u64;
        self.report.repeated = self.machine.digests.check()?;
        self.report.store_faults = self.machine.store.random_faults.load(Ordering::SeqCst).into();
        Ok(self.report)
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Kill => return self.crash(Crash::Kill),
            Step::PowerFailure => return self.crash(Crash::Power),
            Step::Restart => return self.restart(),
            Step::Audit => return self.audit(),
            Step::Backup => return self.backup(),
            _ => {}
        }
        let Some(engine) = &self.engine else { return Err("there is no engine".into()) };
        let node = engine.node.clone();
        let partitions = engine.partitions();
        let p = self.rng.random_range(0..partitions.len().max(1));
        let partition = partitions.get(p);
        match step {
            Step::Send => self.send(),
            Step::Apply => _ = partition.map(|partition| partition.apply_queued()),
            Step::Forward => _ = partition.map(|partition| partition.forward_next()),
            Step::FailRecord => plant_failure(Some(self.rng.random_range(0..6))),
            Step::Reopen => self.report.reopened += u64::from(engine.reopen()),
            Step::Flush => jobs::flush::run(&node, self.rng.random_range(0..6)),
            Step::Consolidate => jobs::consolidation::run(&node, self.rng.random_range(0..6)),
            Step::RemoveOldFiles => jobs::consolidation::remove_old_files(&node),
            Step::Checkpoint => jobs::checkpoint::run(&node),
            Step::Timers => partition.into_iter().for_each(|partition| timers::poll(&node, partition)),
            Step::Advance => {
                let ms = [1, 50, 1000, 60_000][self.rng.random_range(0..4)];
                self.machine.clock.advance(Duration::from_millis(ms));
            }
            Step::FailSyncs => {
                let n = self.rng.random_range(1..4);
                self.report.failed_syncs += u64::from(n);
                self.machine.disk.fail_syncs(n);
            }
            Step::StoreFaults => {
                let share = [0.0, 0.02, 0.1, 0.5][self.rng.random_range(0..4)];
                let rng = StdRng::seed_from_u64(self.rng.random());
                self.machine.store.fail_randomly(rng, share);
            }
            Step::FullDisk => {
                self.report.full_disks += 1;
                let room = self.machine.disk.used() + self.rng.random_range(0..8_000);
                self.machine.disk.set_room(Some(room));
            }
            Step::PowerFailureAhead => {
                let after = self.rng.random_range(1..60);
                let rng = StdRng::seed_from_u64(self.rng.random());
                self.machine.disk.stop_at(self.machine.disk.ops() + after, rng);
            }
            Step::Kill | Step::PowerFailure | Step::Restart | Step::Audit | Step::Backup => {}
        }
        if let Some(failure) = self.engine.as_ref().and_then(SimEngine::failure) {
            return Err(failure);
        }
        self.machine.digests.check()?;
        drop((partitions, node));
        if self.machine.disk.is_stopped() { self.crash(Crash::Power) } else { Ok(()) }
    }

    /// Sends a few orders, some of them again.
    fn send(&mut self) {
        let Some(engine) = &self.engine else { return };
        let (ids, body) = model::random_orders(&mut self.rng, &mut self.sent);
        let durability = [Durability::Fsync, Durability::Os, Durability::Memory][self.rng.random_range(0..3)];
        let options = SendOptions {
            durability: Some(durability),
            origin: "simulation".into(),
            ..SendOptions::default()
        };
        self.report.sent += ids.len() as u64;
        let sent = sending::send_json(&engine.node, "Order", body.as_bytes(), BodyFormat::Ndjson, &options);
        match (sent, durability) {
            (Ok(_), Durability::Fsync) => self.durable.extend(ids),
            (Ok(_), Durability::Os) => self.handed_over.extend(ids),
            // a failed send may have reached the log; the sender does not know
            _ => {}
        }
    }

    /// Ends the engine without a word, and starts the next one with what the disk has.
    fn crash(&mut self, crash: Crash) -> Result<(), String> {
        plant_failure(None);
        self.close_books();
        match crash {
            Crash::Kill => self.report.kills += 1,
            Crash::Power => {
                self.report.power_failures += 1;
                self.handed_over.clear();
            }
        }
        let after = self.machine.disk.after_crash(crash, &mut self.rng);
        self.engine = None;
        self.machine.disk = after;
        self.start()
    }

    /// Stops the engine as its user would, and starts it again.
    fn restart(&mut self) -> Result<(), String> {
        plant_failure(None);
        if let Some(engine) = &self.engine {
            engine.drain();
            let node = &engine.node;
            node.set_stopping();
            let stopped = jobs::checkpoint::checkpoint(node)
                .and_then(|()| jobs::checkpoint::truncate_idle_logs(node))
                .and(node.host.log.close());
            node.host.changes.close();
            // a stop that fails loses nothing; the next start replays the log
            if let Err(e) = stopped {
                tracing::debug!(error = %e, "the last checkpoint failed");
            }
        }
        self.close_books();
        self.engine = None;
        if self.machine.disk.is_stopped() { self.crash(Crash::Power) } else { self.start() }
    }

    fn close_books(&mut self) {
        if let Some(engine) = &self.engine {
            self.report.checkpoints += engine.node.app.counts.checkpoints.load(Ordering::Relaxed);
            self.report.merges += engine.node.app.counts.consolidations.load(Ordering::Relaxed);
        }
    }

    fn start(&mut self) -> Result<(), String> {
        let mut attempts = 0;
        if self.rng.random_bool(0.2) {
            let rng = StdRng::seed_from_u64(self.rng.random());
            self.machine.disk.stop_at(self.machine.disk.ops() + self.rng.random_range(1..80), rng);
        }
        loop {
            match self.machine.start() {
                Ok(engine) => {
                    let warnings = &engine.recovery.warnings;
                    if let Some(warning) = warnings.iter().find(|w| !is_expected_warning(w)) {
                        return Err(format!("the start warns: {warning}"));
                    }
                    self.engine = Some(engine);
                    return Ok(());
                }
                Err(_) if self.machine.disk.is_stopped() => {
                    self.report.interrupted_starts += 1;
                    self.handed_over.clear();
                    self.machine.disk = self.machine.disk.after_crash(Crash::Power, &mut self.rng);
                }
                Err(e) => {
                    attempts += 1;
                    if attempts > STARTS_WITH_FAULTS_MAX {
                        return Err(format!("the engine does not start: {e}"));
                    }
                    if attempts == STARTS_WITH_FAULTS_MAX {
                        self.machine.store.fail_randomly(StdRng::seed_from_u64(0), 0.0);
                        self.machine.disk.fail_syncs(0);
                        self.machine.disk.set_room(None);
                    }
                }
            }
        }
    }

    /// Lets the engine finish its work on working devices, and compares the outcome with ledger and model.
    fn audit(&mut self) -> Result<(), String> {
        plant_failure(None);
        self.machine.store.fail_randomly(StdRng::seed_from_u64(0), 0.0);
        self.machine.disk.fail_syncs(0);
        self.machine.disk.set_room(None);
        self.machine.disk.stop_at(u64::MAX, StdRng::seed_from_u64(0));
        let Some(engine) = &self.engine else { return Err("there is no engine".into()) };
        self.report.stored = self.check_engine(engine, &self.machine)?;
        self.report.audits += 1;
        Ok(())
    }

    /// Takes a backup, opens what is restored from it elsewhere, and audits that. The engine continues.
    fn backup(&mut self) -> Result<(), String> {
        plant_failure(None);
        let Some(engine) = &self.engine else { return Err("there is no engine".into()) };
        // devices with faults may fail it, and a power failure takes it with the engine
        if let Ok(machine) = self.machine.restored(&engine.node) {
            let copy = machine.start().map_err(|e| format!("the backup does not open: {e}"))?;
            if let Some(warning) = copy.recovery.warnings.first() {
                return Err(format!("the start of the backup warns: {warning}"));
            }
            self.check_engine(&copy, &machine).map_err(|e| format!("in the backup: {e}"))?;
            self.report.backups += 1;
        }
        if self.machine.disk.is_stopped() { self.crash(Crash::Power) } else { Ok(()) }
    }

    /// Lets an engine finish its work and compares the outcome with ledger and model. Returns the number of stored events.
    fn check_engine(&self, engine: &SimEngine, machine: &Machine) -> Result<u64, String> {
        engine.drain();
        let node = &engine.node;
        if node.host.health.has_problem("apply") {
            return Err(node.host.health.problems().join("; "));
        }
        let outcome = outcome::of(&[node], &machine.store)?;
        let must: BTreeSet<String> = self.durable.union(&self.handed_over).cloned().collect();
        model::check(&outcome, &self.sent, &must)?;
        machine.digests.check()?;
        outcome::check_ledgers(&[node])
    }
}

/// A power failure leaves the last bytes of a log torn, or as zeros; everything else that a start warns of is a bug.
fn is_expected_warning(warning: &str) -> bool {
    warning.contains("was cut at byte")
        && (warning.contains("the last write was not finished")
            || warning.contains("the file ended in zeros"))
}
