//! Checks that connectors neither lose nor double events while the program, the servers and the network between them fail.
//!
//! `cargo run --release -p tidemill-connectors --example check_connectors -- --program target/release/tidemill --runs 50`.
//! Events come from Kafka and MQTT, with duplicates, out of order, and with messages that cannot be read. A
//! query counts them by key, and its results go to Kafka, PostgreSQL, MariaDB and Redis; PostgreSQL refuses
//! some. Faults come at times that a seed decides. In the end each side must have what was sent, once. Every
//! run prints its seed; `--seed` repeats its plan.

mod app;
mod faults;
mod outputs;
mod program;
mod proxy;
mod servers;
mod traffic;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;

use app::Places;
use faults::Plan;
use program::Program;
use servers::Servers;

/// Longest time until all events have arrived after the last fault.
const PATIENCE: Duration = Duration::from_secs(120);

/// Checks connectors under faults.
#[derive(Parser)]
struct Arguments {
    /// The program under test.
    #[arg(long, default_value = "target/release/tidemill")]
    program: PathBuf,
    #[arg(long, default_value_t = 50)]
    runs: u64,
    /// Seed of the first run; each further one has the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Events of a run from each of the two sources.
    #[arg(long, default_value_t = 4000)]
    events: u64,
    /// Seconds over which they are sent.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Faults of a run.
    #[arg(long, default_value_t = 5)]
    faults: usize,
    /// Directory for data of servers and of runs that fail; of those that pass nothing is left.
    #[arg(long, default_value = "/tmp/tidemill-check-connectors")]
    dir: PathBuf,
    /// First of 100 ports for the servers.
    #[arg(long, default_value_t = 28_900)]
    port: u16,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    std::fs::create_dir_all(&arguments.dir)?;
    let servers = Servers::start(&arguments.dir.join("servers"), arguments.port)?;
    let mut faults: BTreeMap<String, u64> = BTreeMap::new();
    let mut wrong = 0;
    for seed in arguments.seed..arguments.seed + arguments.runs {
        let started = Instant::now();
        let plan = Plan::new(seed, arguments.faults, Duration::from_secs_f64(arguments.seconds));
        plan.faults.iter().for_each(|fault| *faults.entry(fault.name()).or_default() += 1);
        let report = run(&arguments, &servers, seed, &plan);
        let seconds = started.elapsed().as_secs_f64();
        match report {
            Ok(report) => println!("seed {seed}: {report}, {seconds:.1} s; {plan}"),
            Err(e) => {
                println!("seed {seed}: WRONG: {e:#}; {plan}");
                wrong += 1;
            }
        }
    }
    println!("\n{} runs, {wrong} wrong. Faults:", arguments.runs);
    faults.iter().for_each(|(name, count)| println!("  {name}: {count}"));
    if wrong > 0 {
        bail!("{wrong} runs are wrong; their data is in {}", arguments.dir.display());
    }
    Ok(())
}

/// Runs one app under the faults of a plan, and compares what arrived with what was sent.
fn run(arguments: &Arguments, servers: &Servers, seed: u64, plan: &Plan) -> Result<String> {
    let dir = arguments.dir.join(format!("run-{seed}"));
    let _ = std::fs::remove_dir_all(&dir);
    let places = Places::new(&dir, servers, format!("{}-{seed}", std::process::id()))?;
    places.create()?;
    places.write_app()?;
    let program = Program::start(&arguments.program, &places.app_dir(), &dir.join("data"))?;
    let sent = std::thread::scope(|scope| {
        let sending = scope.spawn(|| traffic::send(&places, seed, arguments.events, arguments.seconds));
        let broken = faults::inflict(plan, servers, &places, &program);
        let sent = sending.join().map_err(|_| anyhow::anyhow!("the sender failed"))?;
        broken.context("a fault could not be made")?;
        sent
    })?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        // an address that answers nothing while it starts is asked again
        match outputs::missing(&places, &program, &sent) {
            Ok(None) => break,
            Ok(Some(what)) if Instant::now() > deadline => bail!("after {PATIENCE:?} {what}"),
            Err(e) if Instant::now() > deadline => return Err(e),
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    let report = outputs::compare(&places, &program, &sent)?;
    program.stop()?;
    places.remove()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(report)
}
