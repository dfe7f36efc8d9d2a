//! Simulates engines for a time, each from a seed of its own, and reports the first seed that fails.
//!
//! `cargo run --release -p tidemill-engine --features sim --example simulate -- [--seconds N] [--seed FIRST] [--runs N]
//! [--steps N] [--bug NAME]`

#![expect(clippy::disallowed_methods, reason = "the time of the machine bounds the command")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidemill_engine::simulation::{PlantedBug, SimulationOptions, SimulationReport, run};

const USAGE: &str = "usage: simulate [--seconds N] [--seed FIRST] [--runs N] [--steps N] [--bug forward|outbox|flush|ids|ack]";

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
    options: SimulationOptions,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self {
            time: Duration::from_secs(60),
            first: 1,
            runs: u64::MAX,
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
        _ => return Err(format!("--bug {name}: expected forward, outbox, flush, ids or ack")),
    })
}

fn simulate(arguments: &Arguments) -> ExitCode {
    let start = Instant::now();
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let total = Mutex::new((0_u64, SimulationReport::default()));
    let work = || {
        while !failed.load(Ordering::Relaxed) && start.elapsed() < arguments.time {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= arguments.runs {
                return;
            }
            match run(arguments.first + number, &arguments.options) {
                Ok(report) => {
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    total.0 += 1;
                    total.1.add(&report);
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
    let (runs, report) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{runs} runs in {:.1} s: {report:#?}", start.elapsed().as_secs_f64());
    if failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
