//! Simulates engines for a time, each from a seed of its own, and reports the first seed that fails.
//!
//! `cargo run --release -p tidemill-engine --features sim --example simulate -- [--seconds N] [--seed FIRST] [--runs N]
//! [--steps N] [--engines 1|2] [--standbys yes|no] [--bug NAME]`

#![expect(clippy::disallowed_methods, reason = "the time of the machine bounds the command")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidemill_engine::simulation::{
    MovesReport, PlantedBug, SimulationOptions, SimulationReport, run, run_two_engines,
};

const USAGE: &str = "usage: simulate [--seconds N] [--seed FIRST] [--runs N] [--steps N] [--engines 1|2] \
    [--standbys yes|no] \
    [--bug forward|outbox|flush|ids|ack|repeat|unapplied|tail|log|held|kept|hash|caller|queues|progress]";

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
    time: Duration,
    first: u64,
    runs: u64,
    /// True for two engines between which partitions move.
    two_engines: bool,
    /// True if both of them apply all partitions.
    standbys: bool,
    options: SimulationOptions,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self {
            time: Duration::from_secs(60),
            first: 1,
            runs: u64::MAX,
            two_engines: false,
            standbys: false,
            options: SimulationOptions::default(),
        };
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name}: a value is missing"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{name} {value}: expected a number"));
            match name.as_str() {
                "--seconds" => parsed.time = Duration::from_secs(number()?),
                "--seed" => parsed.first = number()?,
                "--runs" => parsed.runs = number()?,
                "--steps" => parsed.options.steps = number()? as usize,
                "--engines" => parsed.two_engines = number()? == 2,
                "--standbys" => parsed.standbys = value == "yes",
                "--bug" => parsed.options.bug = Some(bug(&value)?),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(parsed)
    }
}

fn bug(name: &str) -> Result<PlantedBug, String> {
    Ok(match name {
        "forward" => PlantedBug::ForwardBeforeDurable,
        "outbox" => PlantedBug::CheckpointWithoutOutbox,
        "flush" => PlantedBug::FlushBeforeDurable,
        "ids" => PlantedBug::CheckpointWithoutIds,
        "ack" => PlantedBug::AcknowledgeBeforeSync,
        "repeat" => PlantedBug::RepeatEffects,
        "unapplied" => PlantedBug::KeepUnappliedRows,
        "tail" => PlantedBug::KeepFormerTail,
        "log" => PlantedBug::SkipLog,
        "held" => PlantedBug::DropHeldEmissions,
        "kept" => PlantedBug::DropKeptEvents,
        "hash" => PlantedBug::EmitInHashOrder,
        "caller" => PlantedBug::DependOnCaller,
        "queues" => PlantedBug::PublishWithoutQueues,
        "progress" => PlantedBug::PublishOncePerOffset,
        _ => {
            let expected = "forward, outbox, flush, ids, ack, repeat, unapplied, tail, log, held, hash, caller, queues or progress";
            return Err(format!("--bug {name}: expected {expected}"));
        }
    })
}

fn simulate(arguments: &Arguments) -> ExitCode {
    let start = Instant::now();
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let total = Mutex::new((0_u64, SimulationReport::default(), MovesReport::default()));
    let work = || {
        while !failed.load(Ordering::Relaxed) && start.elapsed() < arguments.time {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= arguments.runs {
                return;
            }
            let (seed, options) = (arguments.first + number, &arguments.options);
            let done = match arguments.two_engines {
                false => run(seed, options).map(|report| (report, MovesReport::default())),
                true => run_two_engines(seed, options.steps, arguments.standbys, options.bug)
                    .map(|report| (SimulationReport::default(), report)),
            };
            match done {
                Ok((report, moves)) => {
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    total.0 += 1;
                    total.1.add(&report);
                    total.2.add(&moves);
                }
                Err(violation) => {
                    failed.store(true, Ordering::Relaxed);
                    println!("{violation}");
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let (runs, report, moves) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = start.elapsed().as_secs_f64();
    match arguments.two_engines {
        false => println!("{runs} runs in {seconds:.1} s: {report:#?}"),
        true => println!("{runs} runs in {seconds:.1} s: {moves:#?}"),
    }
    if failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
