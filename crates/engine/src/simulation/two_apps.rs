//! Two apps in one process.
//!
//! Both are the simulated app, so streams, collections and queries have equal names. Clock, runtime and limits are those of the process; disk
//! and object store are each app's own. A crash ends the threads of one app only: that leaves more behind in the process than one that
//! ends it all.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::SimulationReport;
use super::engine::SimClock;
use super::world::World;
use crate::process::limits::ProcessLimits;
use crate::process::services::Process;

/// Memory of the process, which the simulated app does not come near.
const MEMORY: u64 = 4 << 30;

/// Runs `steps` steps, then the last audits of both apps.
///
/// Errors: a violation, with the app in which it was found.
pub fn run(seed: u64, steps: usize) -> Result<SimulationReport, String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let clock = SimClock::new();
    let limits = ProcessLimits::of_memory(MEMORY);
    let process = Process::simulated(limits, clock.clone()).map_err(|e| e.to_string())?;
    let mut worlds = Vec::new();
    for app in 0..2 {
        let mut world = World::new(rng.random(), false)?;
        world.machine.clock = clock.clone();
        world.machine.process = Some(process.clone());
        world.begin().map_err(|e| format!("app {app}: {e}"))?;
        worlds.push(world);
    }
    for number in 0..steps {
        let app = rng.random_range(0..worlds.len());
        worlds[app].random_step(number).map_err(|e| format!("app {app}: {e}"))?;
    }
    let mut report = SimulationReport::default();
    for (app, world) in worlds.into_iter().enumerate() {
        report.add(&world.finish().map_err(|e| format!("app {app}: {e}"))?);
    }
    // engines that were dropped without a stop have given back all that they took
    match process.transaction_memory.held() {
        0 => Ok(report),
        held => Err(format!("{held} bytes of transactions are held after the end")),
    }
}
