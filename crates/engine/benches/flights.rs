//! The flights example through log, rules, documents and tables, without SQL: events per second from file to applied.
//!
//! `cargo bench -p tidemill-engine --bench flights [-- DATA [RUNS [digests]]]`. With `digests` each second run computes digests of effects, and the
//! medians of both kinds are compared. DATA holds the files that
//! `scripts/build_flights.py` writes (default: January, in the example). Each run starts with an empty directory; the
//! time goes from the start of the sources to the last event applied, then until all of it is in tablets.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures by the machine's clock")]

use std::path::Path;
use std::time::{Duration, Instant};

use tidemill_engine::{App, Engine};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> tidemill_types::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let data = arguments.first().map_or("data", String::as_str);
    let runs = arguments.get(1).and_then(|n| n.parse().ok()).unwrap_or(5);
    let compares = arguments.get(2).is_some_and(|word| word == "digests");
    let mut seconds: [Vec<f64>; 2] = Default::default();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/flights");
    println!(
        "{:>4} {:>9} {:>11} {:>9} {:>10} {:>12}",
        "run", "events", "documents s", "events s", "events/s", "to tablets s"
    );
    for run in 1..=runs {
        let dir = tempfile::tempdir_in(".").map_err(|e| tidemill_types::Error::unavailable(e.to_string()))?;
        let app = App::read(&example, &[("data".to_owned(), data.to_owned())])?;
        let builder = Engine::builder(dir.path()).app(app);
        let digests = compares && run % 2 == 0;
        let engine = if digests { builder.effect_digests() } else { builder }.open()?;
        let start = Instant::now();
        engine.start_sources()?;
        // documents come first; the first event marks their end
        while engine.events_applied() == 0 && engine.sources_running() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let documents = start.elapsed();
        engine.wait_idle();
        let events = start.elapsed() - documents;
        seconds[usize::from(digests)].push((documents + events).as_secs_f64());
        engine.flush()?;
        let n = engine.events_applied();
        println!(
            "{run:>4} {n:>9} {:>11.2} {:>9.2} {:>10.0} {:>12.2}",
            documents.as_secs_f64(),
            events.as_secs_f64(),
            n as f64 / events.as_secs_f64(),
            (start.elapsed() - documents).as_secs_f64()
        );
        if run == 1 {
            for rule in engine.rules().unwrap().iter().filter(|r| r.fired > 0) {
                println!("     {} fired {} times", rule.name, rule.fired);
            }
        }
        engine.stop()?;
    }
    if compares {
        let [without, with] = seconds.map(|mut all| {
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
        });
        println!("with digests: {:.3} of the time without", with / without);
    }
    Ok(())
}
