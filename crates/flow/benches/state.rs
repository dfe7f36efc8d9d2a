//! Saving and restoring an app with a large window.
//!
//! `cargo bench -p tidemill-flow --bench state [-- EVENTS [DIR]]`; the defaults are 10 million events and the
//! system's temporary directory. Memory is live heap memory. The bench checks that the restored app and the
//! original one emit equal output for the next events.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tidemill_flow::EvalError;
use tidemill_flow::plan::AppPlan;
use tidemill_flow::replay::compile;
use tidemill_flow::runtime::{AppRuntime, OutputHandler};
use tidemill_flow::snapshot::RestoreMode;
use tidemill_flow::{Batch, Column, Registry, Value};
use tidemill_types::FieldType;

mod counted;

const RUNS: usize = 3;
const CHUNK: usize = 4096;
const SYMBOLS: i64 = 1000;

/// Stores the latest output.
#[derive(Default)]
struct Last(Vec<String>);

impl OutputHandler for Last {
    fn events(&mut self, _: &str, _: &Batch) {}

    fn emission(&mut self, _: &str, emission: &Batch) {
        let row = |row| format!("{:?}", emission.columns.iter().map(|c| c.get(row)).collect::<Vec<_>>());
        self.0 = (0..emission.len()).map(row).collect();
    }

    fn failure(&mut self, query: &str, failure: &EvalError) {
        panic!("{query}: {}", failure);
    }
}

fn plan(window: &str) -> Arc<AppPlan> {
    let text = format!(
        "define stream S (symbol string, price double, volume long);
         from S#window.{window} select symbol, sum(volume) as volume group by symbol insert into Out;"
    );
    compile("bench", &text, &Registry::standard(), &|_| None).unwrap_or_else(|e| panic!("{e}")).into()
}

fn send(app: &mut AppRuntime, first: i64, events: usize, sink: &mut Last) {
    let mut columns = [FieldType::String, FieldType::Double, FieldType::Long].map(Column::new);
    let numbers = first..first + events as i64;
    for i in numbers.clone() {
        columns[0].push(Value::text(&format!("SYM{}", i * 7919 % SYMBOLS)));
        columns[1].push(Value::Double(i as f64 / 100.0));
        columns[2].push(Value::Long(i % 1000));
    }
    app.send(0, columns.into(), numbers.collect(), sink).unwrap_or_else(|e| panic!("{e}"));
}

/// Runs `what`; returns the seconds, and the peak of memory above `base`.
fn measured<T>(base: usize, what: impl FnOnce() -> T) -> (f64, f64, T) {
    let start = Instant::now();
    let (peak, value) = counted::peak(what);
    (start.elapsed().as_secs_f64(), megabytes(peak.saturating_sub(base)), value)
}

fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

fn run(window: &str, events: usize, file: &Path) {
    let empty = counted::live();
    let mut sink = Last::default();
    let (_, run_peak, mut app) = measured(empty, || {
        let mut app = AppRuntime::new(plan(window));
        app.start(0, &mut sink);
        for first in (0..events).step_by(CHUNK) {
            send(&mut app, first as i64, CHUNK.min(events - first), &mut sink);
        }
        app
    });
    let running = counted::live();
    let (save, save_peak, ()) = measured(running, || {
        let mut out = File::create(file).expect("a file");
        app.save(&mut out).unwrap_or_else(|e| panic!("{e}"));
        out.sync_all().expect("fsync");
    });
    let bytes = std::fs::metadata(file).expect("the file").len() as usize;
    send(&mut app, events as i64, CHUNK, &mut sink);
    let expected = std::mem::take(&mut sink.0);
    drop(app);
    let before = counted::live();
    let (restore, restore_peak, mut app) = measured(before, || {
        let mut app = AppRuntime::new(plan(window));
        let mut input = File::open(file).expect("the file");
        app.restore(&mut input, RestoreMode::Exactly).unwrap_or_else(|e| panic!("{e}"));
        app
    });
    let restored = megabytes(counted::live() - before);
    send(&mut app, events as i64, CHUNK, &mut sink);
    assert!(!expected.is_empty() && expected == sink.0, "the restored app puts out something else");
    println!(
        "| {} | {:.0} | {run_peak:.0} | {:.0} | {save:.2} | {save_peak:.1} | {restore:.2} | {restored:.0} | {restore_peak:.0} |",
        window.split('(').next().unwrap_or_default(),
        megabytes(running - empty),
        megabytes(bytes),
    );
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let events: usize = args.next().map_or(10_000_000, |arg| arg.parse().expect("a number of events"));
    let dir: PathBuf = args.next().map_or_else(std::env::temp_dir, Into::into);
    let file = dir.join(format!("tidemill-state-{}", std::process::id()));
    println!("{events} events, {RUNS} runs of each window; MB");
    println!(
        "| window | running | most while running | file | save, s | more while saving | restore, s | restored | most while restoring |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    // the tree-based `sort` window gets a tenth of the events, because it takes a hundred bytes per event
    let tenth = events / 10;
    let windows =
        [format!("length({events})"), format!("time({events} sec)"), format!("sort({tenth}, volume)")];
    for (window, events) in windows.iter().zip([events, events, tenth]) {
        (0..RUNS).for_each(|_| run(window, events, &file));
    }
    std::fs::remove_file(&file).expect("the file");
}
