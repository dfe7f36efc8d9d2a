//! Cost of `@late(policy='correct')`: an app without it, an app that could correct, and one that does.
//!
//! `cargo bench -p tidemill-flow --bench corrections [-- RUNS]`. Events are a millisecond apart and sent
//! 1,000 per call; in some calls, an event from 500 ms before the end is moved to the start of the next call,
//! where it is late. The bench checks that emitted rows minus retracted rows equal the number of events.
//! Times are CPU times of the single thread.

use std::sync::Arc;
use std::time::Duration;

use tidemill_flow::EvalError;
use tidemill_flow::late::{CorrectingRuntime, RetractionHandler};
use tidemill_flow::replay::compile;
use tidemill_flow::runtime::{AppRuntime, OutputHandler, StreamBatch};
use tidemill_flow::{Batch, Column, Registry, Value};
use tidemill_types::FieldType;

/// The allocator of the `tidemill` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const APP: &str = "
    @app:playback
    define stream S (symbol string, price double);
    from S#window.time(10 sec) select symbol, sum(price) as total, count() as n group by symbol insert into Out;";

const EVENTS: usize = 500_000;
const TOGETHER: usize = 1_000;
const LATE_MS: usize = 500;

/// Counts emitted and retracted rows.
#[derive(Default)]
struct Counted {
    out: usize,
    back: usize,
}

impl OutputHandler for Counted {
    fn events(&mut self, stream: &str, events: &Batch) {
        if stream == "Out" {
            self.out += events.len();
        }
    }

    fn emission(&mut self, _: &str, _: &Batch) {}

    fn failure(&mut self, query: &str, failure: &EvalError) {
        panic!("{query}: {}", failure);
    }
}

impl RetractionHandler for Counted {
    fn retracted(&mut self, _: &str, events: &Batch) {
        self.back += events.len();
    }
}

fn main() {
    let runs = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(7);
    let plan = compile("corrections", APP, &Registry::standard(), &|_| None).expect("an app");
    let plan = Arc::new(plan);
    println!("{EVENTS} events, {runs} runs; million events a second of processor time, median (min to max)");
    println!("| | rows taken back | million events/s |");
    println!("| --- | ---: | ---: |");
    let in_order = calls(usize::MAX);
    let plain = (0..runs).map(|_| {
        let mut app = AppRuntime::new(plan.clone());
        let mut counted = Counted::default();
        app.start(0, &mut counted);
        let parts = in_order.clone();
        let start = clock();
        parts.into_iter().for_each(|part| app.send_batch(vec![part], None, &mut counted).expect("fed"));
        let took = clock() - start;
        assert_eq!(counted.out, EVENTS);
        took
    });
    println!("| without a policy | 0 | {} |", spread(plain));
    for (allowed, late_every) in [(1_000, usize::MAX), (1_000, 100), (1_000, 10), (1_000, 1), (10_000, 1)] {
        let calls = calls(late_every);
        let mut back = 0;
        let rates = (0..runs).map(|_| {
            let mut app = CorrectingRuntime::new(plan.clone(), allowed);
            let mut counted = Counted::default();
            app.start(0, &mut counted);
            let parts = calls.clone();
            let start = clock();
            for part in parts {
                let too_late = app.send_batch(vec![part], None, &mut counted).expect("fed");
                assert!(too_late.is_empty());
                app.apply_corrections(&mut counted).expect("settled");
            }
            let took = clock() - start;
            assert_eq!(counted.out - counted.back, EVENTS);
            back = counted.back;
            took
        });
        let rates = spread(rates);
        let late = match late_every {
            usize::MAX => "nothing late".to_owned(),
            calls => format!("one late event in {}", calls * TOGETHER),
        };
        println!("| `allowed` {} s, {late} | {back} | {rates} |", allowed / 1000);
    }
}

/// Returns the events; in every `late_every`th call, one event is moved to the next call.
fn calls(late_every: usize) -> Vec<StreamBatch> {
    let mut times: Vec<usize> = (0..EVENTS).collect();
    for call in (1..EVENTS / TOGETHER).filter(|call| call % late_every == 0) {
        let end = call * TOGETHER;
        times[end - LATE_MS..=end].rotate_left(1);
    }
    let part = |times: &[usize]| {
        let mut columns = vec![Column::new(FieldType::String), Column::new(FieldType::Double)];
        for i in times {
            columns[0].push(Value::text(&format!("S{:04}", i * 7 % 100)));
            columns[1].push(Value::Double((i % 800) as f64 * 0.25));
        }
        columns.iter_mut().for_each(Column::share);
        let times = times.iter().map(|i| 1_700_000_000_000 + *i as i64).collect();
        StreamBatch { stream: 0, columns, times }
    };
    times.chunks(TOGETHER).map(part).collect()
}

/// Returns the CPU time of this thread.
fn clock() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

fn spread(times: impl Iterator<Item = Duration>) -> String {
    let mut rates: Vec<f64> = times.map(|took| EVENTS as f64 / took.as_secs_f64() / 1e6).collect();
    rates.sort_by(f64::total_cmp);
    format!("{:.2} ({:.2} to {:.2})", rates[rates.len() / 2], rates[0], rates[rates.len() - 1])
}
