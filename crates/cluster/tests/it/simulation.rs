//! Simulated clusters: the auditors find nothing, and find each planted bug.

use tidemill_cluster::Timing;
use tidemill_cluster::simulation::{PlantedBug, SimulationOptions, SimulationReport, run};

/// First seed of the suite; `TIDEMILL_SEED` sets another one.
fn first_seed() -> u64 {
    std::env::var("TIDEMILL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

fn run_all(seeds: u64, options: &SimulationOptions) -> SimulationReport {
    let first = first_seed();
    let mut total = SimulationReport::default();
    for seed in first..first + seeds {
        // the output of a failed test has the last one
        println!("seed {seed}");
        match run(seed, options) {
            Ok(report) => total.add(&report),
            Err(violation) => panic!("{violation}"),
        }
    }
    println!("seeds {first} to {}: {total:?}", first + seeds - 1);
    total
}

#[test]
fn clusters_survive_faults() {
    let total = run_all(200, &SimulationOptions::default());
    // a simulation in which nothing happens would find nothing
    assert!(total.take_overs > 1_000 && total.moves > 300 && total.removals > 300, "{total:?}");
    assert!(
        total.kills > 100 && total.pauses > 100 && total.cuts > 100 && total.forced_removals > 50,
        "{total:?}"
    );
    assert!(total.writes > 10_000 && total.reads > 10_000, "{total:?}");
}

#[test]
fn without_faults_no_node_is_removed() {
    let total = run_all(20, &SimulationOptions { calm: true, ..SimulationOptions::default() });
    assert!(total.removals == 0 && total.moves > 20, "{total:?}");
}

#[test]
fn a_seed_repeats_a_run_exactly() {
    let options = SimulationOptions { steps: 1_000, ..SimulationOptions::default() };
    assert_eq!(run(7, &options), run(7, &options));
    assert_ne!(run(7, &options), run(8, &options));
}

#[test]
fn a_hundred_nodes_survive_faults() {
    let options = SimulationOptions {
        steps: 12_000,
        nodes: Some(100),
        partitions: 128,
        // load is not spread within the time of the run
        timing: Timing::LARGE,
        ..SimulationOptions::default()
    };
    let report = run(1, &options).unwrap_or_else(|violation| panic!("{violation}"));
    println!("{report:?}");
    assert!(report.removals > 0 && report.records > 500 && report.time_ms > 9_000, "{report:?}");
}

#[test]
fn planted_bugs_are_found() {
    for (bug, auditor) in [
        (PlantedBug::LeaseFromReading, "answers:"),
        (PlantedBug::NoBarrier, "registers:"),
        (PlantedBug::AnswerAfterLease, "answers:"),
        (PlantedBug::RemoveWithoutSequence, "removals:"),
        (PlantedBug::StampBelowReserve, "stamps:"),
        (PlantedBug::NoWait, "answers:"),
        (PlantedBug::AnswerAfterResigning, "answers:"),
    ] {
        let options = SimulationOptions { bug: Some(bug), ..SimulationOptions::default() };
        let first = first_seed();
        let found = (first..first + 200).find_map(|seed| run(seed, &options).err());
        let violation = found.unwrap_or_else(|| panic!("{bug:?}: 200 seeds from {first} find nothing"));
        println!("{bug:?}: {violation}");
        assert!(violation.contains(auditor), "{bug:?}: {violation}");
    }
}
