//! Simulation of a whole cluster from one seed, on one thread.
//!
//! A [`run`] drives [`crate::Node`]s over a simulated control log and simulated logs of partitions. The seed decides everything: which node acts next,
//! when an append arrives, how far a reader lags, which links are cut in which direction, who is paused, killed and started again, how fast the clocks are
//! and how wrong, when a user drains, moves or removes. Nothing depends on the machine, so a seed repeats a run exactly.
//!
//! The partitions hold a register each: clients write through the owner and read from it. Auditors look at every step: [`audit`].
//!
//! Behind the feature `sim`.

mod audit;
mod logs;
mod machine;
mod world;

pub use crate::planted_bugs::{PlantedBug, plant};
use crate::timing::Timing;

/// Options of a simulation.
#[derive(Debug, Clone)]
pub struct SimulationOptions {
    /// Number of steps before the last audit; in each, one node acts.
    pub steps: usize,
    /// Number of nodes, `None` for 3 to 9 by the seed.
    pub nodes: Option<usize>,
    /// Number of partitions.
    pub partitions: u32,
    /// Intervals of the protocol.
    pub timing: Timing,
    /// True if nothing fails: no node may be removed then.
    pub calm: bool,
    /// A bug that the auditors should find.
    pub bug: Option<PlantedBug>,
}

impl Default for SimulationOptions {
    fn default() -> Self {
        // moves begin after 3 s instead of 30, so that a run has some
        let timing = Timing { settle_ms: 3_000, ..Timing::SMALL };
        Self { steps: 4_000, nodes: None, partitions: 8, timing, calm: false, bug: None }
    }
}

/// Counts of what happened in a simulation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimulationReport {
    /// Steps.
    pub steps: u64,
    /// Simulated time, in milliseconds.
    pub time_ms: u64,
    /// Records in the control partition.
    pub records: u64,
    /// Nodes killed.
    pub kills: u64,
    /// Nodes paused.
    pub pauses: u64,
    /// Links cut, in one direction or both.
    pub cuts: u64,
    /// Members removed because they were silent.
    pub removals: u64,
    /// Members removed by a user, while they may have a lease.
    pub forced_removals: u64,
    /// Changes of owners after a removal.
    pub take_overs: u64,
    /// Changes of owners after a resignation.
    pub moves: u64,
    /// Writes acknowledged.
    pub writes: u64,
    /// Reads answered.
    pub reads: u64,
    /// Longest time from the end of all faults until every partition was answered for, in milliseconds.
    pub recovery_ms_max: u64,
}

impl SimulationReport {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.time_ms += other.time_ms;
        self.records += other.records;
        self.kills += other.kills;
        self.pauses += other.pauses;
        self.cuts += other.cuts;
        self.removals += other.removals;
        self.forced_removals += other.forced_removals;
        self.take_overs += other.take_overs;
        self.moves += other.moves;
        self.writes += other.writes;
        self.reads += other.reads;
        self.recovery_ms_max = self.recovery_ms_max.max(other.recovery_ms_max);
    }
}

/// Simulates a cluster.
///
/// Errors: what the auditors found, with the seed and the step.
pub fn run(seed: u64, options: &SimulationOptions) -> Result<SimulationReport, String> {
    plant(options.bug);
    let result = world::ClusterWorld::new(seed, options).and_then(world::ClusterWorld::run);
    plant(None);
    result.map_err(|violation| format!("seed {seed}: {violation}"))
}
