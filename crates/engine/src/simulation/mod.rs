//! Simulation of a whole engine from one seed.
//!
//! A [`run`] drives the real engine on one thread: its log and checkpoints are on a simulated disk that loses unsynced
//! sectors, its tables in an object store that fails at random, its clock advances only when the run says so. The seed
//! decides every step: which events are sent with which durability, when owners apply, forwarders forward, jobs run, when
//! syncs fail, when a partition stops and is opened again, when the process is killed, when the power fails, also in the middle of a start. Nothing in a run depends on
//! the machine, so a seed repeats it exactly.
//!
//! Three auditors look at the result: the ledger, the digests of effects, which must be the same whenever a record is applied, and an independent model of the app in [`model`], which knows what was
//! acknowledged and computes from the stored input events what rules and queries must have made of them.
//!
//! Behind the feature `sim`.

mod deliveries;
mod digests;
mod engine;
mod model;
mod outcome;
mod outside;
mod placement;
mod shared_log;
mod two_apps;
mod two_engines;
mod world;

use rand::Rng;
use rand::rngs::StdRng;

pub use crate::planted_bugs::PlantedBug;
pub use shared_log::SharedLog;
pub use two_engines::MovesReport;

/// Options of a simulation run.
#[derive(Debug, Clone)]
pub struct SimulationOptions {
    /// Number of steps between the start and the final audit.
    pub steps: usize,
    /// A bug that the auditors should find.
    pub bug: Option<PlantedBug>,
    /// Encrypt what is stored, with keys that differ from run to run.
    pub encrypted: bool,
}

impl Default for SimulationOptions {
    fn default() -> Self {
        Self { steps: 120, bug: None, encrypted: false }
    }
}

/// Report of a simulation run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimulationReport {
    /// Events sent, repeated ones included.
    pub sent: u64,
    /// Different events acknowledged as on the disk.
    pub acknowledged: u64,
    /// Events stored at the end, over all streams.
    pub stored: u64,
    /// Kills of the process.
    pub kills: u64,
    /// Power failures.
    pub power_failures: u64,
    /// Starts that a power failure interrupted.
    pub interrupted_starts: u64,
    /// Steps in which partitions that had stopped were opened again.
    pub reopened: u64,
    /// Syncs that failed.
    pub failed_syncs: u64,
    /// Times at which the disk became full.
    pub full_disks: u64,
    /// Operations of the object store that failed.
    pub store_faults: u64,
    /// Checkpoints published.
    pub checkpoints: u64,
    /// Merges of tablets into one.
    pub merges: u64,
    /// Backups that were restored and audited.
    pub backups: u64,
    /// Records that were applied again, with the same effects.
    pub repeated: u64,
    /// Audits passed.
    pub audits: u64,
}

impl SimulationReport {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.acknowledged += other.acknowledged;
        self.stored += other.stored;
        self.kills += other.kills;
        self.power_failures += other.power_failures;
        self.interrupted_starts += other.interrupted_starts;
        self.reopened += other.reopened;
        self.failed_syncs += other.failed_syncs;
        self.full_disks += other.full_disks;
        self.store_faults += other.store_faults;
        self.checkpoints += other.checkpoints;
        self.merges += other.merges;
        self.backups += other.backups;
        self.repeated += other.repeated;
        self.audits += other.audits;
    }
}

/// Chooses one of `all` at random, by weight.
fn choose<T: Copy>(rng: &mut StdRng, all: &[(T, u32)]) -> Option<T> {
    let mut left = rng.random_range(0..all.iter().map(|(_, weight)| weight).sum());
    for (one, weight) in all {
        if left < *weight {
            return Some(*one);
        }
        left -= weight;
    }
    None
}

/// Simulates one engine.
///
/// Errors: what the auditors found, with the step at which they looked.
pub fn run(seed: u64, options: &SimulationOptions) -> Result<SimulationReport, String> {
    crate::planted_bugs::plant(options.bug);
    let result = world::World::new(seed, options.encrypted).and_then(|world| world.run(options.steps));
    crate::planted_bugs::plant(None);
    result.map_err(|violation| format!("seed {seed}: {violation}"))
}

/// Simulates two apps in one process: each has an engine on devices of its own, which fail at other times than those of the other one. The
/// seed also decides which of them takes the next of `steps` steps.
///
/// Errors: what the auditors of one of them found, with the step at which they looked.
pub fn run_two_apps(seed: u64, steps: usize, bug: Option<PlantedBug>) -> Result<SimulationReport, String> {
    crate::planted_bugs::plant(bug);
    let result = two_apps::run(seed, steps);
    crate::planted_bugs::plant(None);
    result.map_err(|violation| format!("seed {seed}: {violation}"))
}

/// Simulates two engines that own the partitions of one log in turn. With `standbys`, each of them applies all partitions.
///
/// Errors: what the auditors found, with the step at which they looked.
pub fn run_two_engines(
    seed: u64,
    steps: usize,
    standbys: bool,
    bug: Option<PlantedBug>,
) -> Result<MovesReport, String> {
    crate::planted_bugs::plant(bug);
    let result = two_engines::TwoEngines::new(seed, standbys).run(steps);
    crate::planted_bugs::plant(None);
    result.map_err(|violation| format!("seed {seed}: {violation}"))
}
