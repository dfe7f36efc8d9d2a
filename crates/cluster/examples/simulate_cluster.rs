//! Simulates clusters, each from a seed of its own, and reports the first seed that fails.
//!
//! `cargo run --release -p tidemill-cluster --features sim --example simulate_cluster -- [--seeds N] [--seed FIRST] [--steps N] [--nodes N]
//! [--partitions N] [--timing small|large] [--calm] [--bug NAME]`

#![expect(clippy::disallowed_methods, reason = "the report has the time that the command took")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tidemill_cluster::Timing;
use tidemill_cluster::simulation::{PlantedBug, SimulationOptions, SimulationReport, run};

const USAGE: &str = "usage: simulate_cluster [--seeds N] [--seed FIRST] [--steps N] [--nodes N] [--partitions N] \
    [--timing small|large] [--calm] [--bug lease|barrier|after-lease|sequence|stamp|wait|resigning]";

fn main() -> ExitCode {
    match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => simulate(&arguments),
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

struct Arguments {
    first: u64,
    seeds: u64,
    options: SimulationOptions,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self { first: 1, seeds: 1_000, options: SimulationOptions::default() };
        while let Some(name) = words.next() {
            if name == "--calm" {
                parsed.options.calm = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{name}: a value is missing"))?;
            let number = |least: u64| match value.parse::<u64>() {
                Ok(number) if number >= least => Ok(number),
                _ => Err(format!("{name} {value}: expected a number from {least}")),
            };
            match name.as_str() {
                "--seeds" => parsed.seeds = number(1)?,
                "--seed" => parsed.first = number(0)?,
                "--steps" => parsed.options.steps = number(1)? as usize,
                "--nodes" => parsed.options.nodes = Some(number(1)?.min(1_000) as usize),
                "--partitions" => parsed.options.partitions = number(1)?.min(65_536) as u32,
                "--timing" => parsed.options.timing = timing(&value)?,
                "--bug" => parsed.options.bug = Some(bug(&value)?),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(parsed)
    }
}

fn timing(name: &str) -> Result<Timing, String> {
    let timing = match name {
        "small" => Timing::SMALL,
        "large" => Timing::LARGE,
        _ => return Err(format!("--timing {name}: expected small or large")),
    };
    Ok(Timing { settle_ms: SimulationOptions::default().timing.settle_ms, ..timing })
}

fn bug(name: &str) -> Result<PlantedBug, String> {
    Ok(match name {
        "lease" => PlantedBug::LeaseFromReading,
        "barrier" => PlantedBug::NoBarrier,
        "after-lease" => PlantedBug::AnswerAfterLease,
        "sequence" => PlantedBug::RemoveWithoutSequence,
        "stamp" => PlantedBug::StampBelowReserve,
        "wait" => PlantedBug::NoWait,
        "resigning" => PlantedBug::AnswerAfterResigning,
        _ => {
            return Err(format!(
                "--bug {name}: expected lease, barrier, after-lease, sequence, stamp, wait or resigning"
            ));
        }
    })
}

fn simulate(arguments: &Arguments) -> ExitCode {
    let start = Instant::now();
    let end = arguments.first.saturating_add(arguments.seeds);
    let next = AtomicU64::new(arguments.first);
    let total = Mutex::new((0_u64, SimulationReport::default()));
    let failed = Mutex::new(None::<(u64, String)>);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end || failed.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                return;
            }
            match run(seed, &arguments.options) {
                Ok(report) => {
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    total.0 += 1;
                    total.1.add(&report);
                }
                Err(violation) => {
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    if failed.as_ref().is_none_or(|(other, _)| seed < *other) {
                        *failed = Some((seed, violation));
                    }
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));

    let (runs, total) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{runs} seeds passed in {seconds:.1} s, {:.0} steps per minute\n{total:#?}",
        total.steps as f64 * 60.0 / seconds
    );
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, violation)) => {
            println!("{violation}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}
