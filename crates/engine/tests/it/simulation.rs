//! Simulations with fixed seeds. The same for a time: `cargo run --release -p tidemill-engine --features sim --example
//! simulate`.

use tidemill_engine::simulation::{
    MovesReport, PlantedBug, SimulationOptions, SimulationReport, run, run_two_apps, run_two_engines,
};

/// Seeds within which a planted bug must be found.
const SEEDS_MAX: u64 = 40;

#[test]
fn simulations_lose_and_double_nothing() {
    let options = SimulationOptions::default();
    let mut total = SimulationReport::default();
    for seed in 1..=16 {
        total.add(&run(seed, &options).unwrap_or_else(|violation| panic!("{violation}")));
    }
    println!("{total:?}");
    assert!(total.reopened > 3, "partitions are opened again");
    assert!(total.merges > 20, "tablets are merged");
    assert!(total.backups > 3, "backups are restored");
}

#[test]
fn simulations_with_encryption_lose_and_double_nothing() {
    let options = SimulationOptions { encrypted: true, ..SimulationOptions::default() };
    let mut total = SimulationReport::default();
    for seed in 1..=6 {
        total.add(&run(seed, &options).unwrap_or_else(|violation| panic!("{violation}")));
    }
    assert!(total.merges > 0 && total.backups > 0, "{total:?}");
}

#[test]
fn simulation_of_a_seed_repeats_exactly() {
    let options = SimulationOptions::default();
    assert_eq!(run(7, &options), run(7, &options));
}

#[test]
fn planted_bugs_are_found() {
    let bugs = [
        PlantedBug::ForwardBeforeDurable,
        PlantedBug::CheckpointWithoutOutbox,
        PlantedBug::FlushBeforeDurable,
        PlantedBug::CheckpointWithoutIds,
        PlantedBug::AcknowledgeBeforeSync,
        PlantedBug::RepeatEffects,
        PlantedBug::KeepUnappliedRows,
        PlantedBug::EmitInHashOrder,
    ];
    for bug in bugs {
        let options = SimulationOptions { bug: Some(bug), ..SimulationOptions::default() };
        let found = (1..=SEEDS_MAX).find_map(|seed| run(seed, &options).err());
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} is not found with seeds up to {SEEDS_MAX}");
    }
}

/// Steps of a simulation of two apps.
const STEPS_OF_APPS: usize = 240;

#[test]
fn two_apps_in_one_process_lose_and_double_nothing() {
    let mut total = SimulationReport::default();
    for seed in 1..=8 {
        total.add(&run_two_apps(seed, STEPS_OF_APPS, None).unwrap_or_else(|violation| panic!("{violation}")));
    }
    println!("{total:?}");
    assert!(total.kills + total.power_failures > 20, "apps end without a stop while the other one works");
    assert!(total.checkpoints > 20 && total.store_faults > 20, "{total:?}");
    let found = |bug| (1..=SEEDS_MAX).find_map(|seed| run_two_apps(seed, STEPS_OF_APPS, Some(bug)).err());
    let violation = found(PlantedBug::FlushBeforeDurable);
    assert!(violation.is_some(), "a planted bug is not found with seeds up to {SEEDS_MAX}");
}

#[test]
fn simulation_of_two_apps_repeats_exactly() {
    assert_eq!(run_two_apps(7, STEPS_OF_APPS, None), run_two_apps(7, STEPS_OF_APPS, None));
}

/// Steps of a simulation of two engines.
const STEPS: usize = 300;

#[test]
fn partitions_move_between_two_engines_and_nothing_is_lost_or_doubled() {
    let mut total = MovesReport::default();
    // 32: a log is cut while a partition is opened; 446: the answer to a commit is lost, then its partition; 1074: a command waits behind
    // a transaction when its partition moves; 2223, 5192: a transaction is shown by, or waits for, an owner that is ahead
    for seed in (1..=12).chain([32, 446, 1074, 2223, 5192]) {
        total.add(
            &run_two_engines(seed, STEPS, false, None).unwrap_or_else(|violation| panic!("{violation}")),
        );
    }
    println!("{total:?}");
    assert!(total.graceful > 40 && total.forced > 15, "partitions move");
    assert!(total.transactions > 20, "transactions of several partitions are decided");
    assert!(total.fenced > 0, "owners learn that they are none any more");
    assert!(total.answered > 25, "owners answer commands");
    assert!(total.reads > 25, "an engine reads the partitions of the other one");
    assert!(total.delivered > 200, "events come to a system outside");
    assert!(total.refused_deliveries > 0, "former owners are refused there");
}

#[test]
fn bugs_of_moves_are_found() {
    let bugs = [
        PlantedBug::KeepFormerTail,
        PlantedBug::SkipLog,
        PlantedBug::CheckpointWithoutOutbox,
        PlantedBug::CheckpointWithoutIds,
        PlantedBug::PublishWithoutQueues,
        PlantedBug::PublishOncePerOffset,
        PlantedBug::EmitInHashOrder,
        PlantedBug::DependOnCaller,
    ];
    for bug in bugs {
        let found = (1..=SEEDS_MAX).find_map(|seed| run_two_engines(seed, STEPS, false, Some(bug)).err());
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} is not found with seeds up to {SEEDS_MAX}");
    }
}

#[test]
fn standbys_take_over_and_nothing_is_lost_or_doubled() {
    let mut total = MovesReport::default();
    for seed in 1..=12 {
        total
            .add(&run_two_engines(seed, STEPS, true, None).unwrap_or_else(|violation| panic!("{violation}")));
    }
    println!("{total:?}");
    assert!(total.promoted > 100, "standbys become owners");
    assert!(total.transactions > 20, "transactions of several partitions are decided");
    assert!(total.fenced > 0, "owners learn that they are none any more");
    assert!(total.answered > 25, "commands are answered");
    assert!(total.reads > 100, "each engine has all partitions");
}

#[test]
fn bugs_of_standbys_are_found() {
    let bugs = [PlantedBug::DropHeldEmissions, PlantedBug::DropKeptEvents, PlantedBug::CheckpointWithoutIds];
    for bug in bugs {
        let found = (1..=SEEDS_MAX).find_map(|seed| run_two_engines(seed, STEPS, true, Some(bug)).err());
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "{bug:?} is not found with seeds up to {SEEDS_MAX}");
    }
}
