//! Latency and allocations per event.
//!
//! `cargo bench -p tidemill-flow --bench latency [-- EVENTS [RUNS]]`; the defaults are 1,000,000 events and 7
//! runs. Latency is the time between two readings of the clock around `App::send`, which returns after the
//! sink has received the output; building the event is excluded, and so is the first tenth of the events. The
//! time between two readings with nothing between them is reported separately and not subtracted. Latencies
//! come from passes without counters, allocations from a separate pass; those of building the event are
//! reported separately. Every pass checks the number of output rows.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use tidemill_flow::EvalError;
use tidemill_flow::column::{Data, StringColumn};
use tidemill_flow::plan::AppPlan;
use tidemill_flow::replay::compile;
use tidemill_flow::runtime::{AppRuntime, OutputHandler};
use tidemill_flow::{Batch, Column, Registry};

mod counted;

const FIRST: i64 = 1_700_000_000_000;

/// A query and its number of output rows after the given number of events, if known.
struct Case {
    name: &'static str,
    query: &'static str,
    rows: fn(u64) -> Option<u64>,
}

const CASES: [Case; 4] = [
    Case {
        name: "filter",
        query: "from S[price > 100.0] select symbol, price insert into Out;",
        rows: |events| Some((0..events).filter(|i| price(*i) > 100.0).count() as u64),
    },
    Case {
        name: "`length(100)` for each of 100 symbols",
        query: "partition with (symbol of S) begin from S#window.length(100)
            select symbol, sum(price) as total, avg(price) as mean insert into Out; end;",
        rows: Some,
    },
    Case {
        name: "`time(1 sec)`, grouped by 100 symbols",
        query: "from S#window.time(1 sec)
            select symbol, sum(price) as total, avg(price) as mean group by symbol insert into Out;",
        rows: Some,
    },
    Case {
        name: "pattern",
        query: "from every e1=S[price > 20.0] -> e2=S[price > e1.price] within 1 sec
            select e1.ts as a, e2.ts as b, e1.price as c, e2.price as d insert into Out;",
        // other engines agree on these
        rows: |events| match events {
            200_000 => Some(179_188),
            2_000_000 => Some(1_793_588),
            10_000_000 => Some(8_969_334),
            _ => None,
        },
    },
];

/// Counts the output rows of queries.
#[derive(Default)]
struct Rows(u64);

impl OutputHandler for Rows {
    fn events(&mut self, _: &str, _: &Batch) {}

    fn emission(&mut self, _: &str, emission: &Batch) {
        self.0 += black_box(emission).len() as u64;
    }

    fn failure(&mut self, query: &str, failure: &EvalError) {
        panic!("{query}: {}", failure);
    }
}

/// Latencies of a run, in nanoseconds.
struct Times {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|a| a.parse().ok());
    let events: u64 = numbers.next().unwrap_or(1_000_000).max(1_000);
    let runs = numbers.next().unwrap_or(7).max(1) as usize;
    println!("{events} events, {runs} runs; nanoseconds an event, median of the runs (min to max)\n");
    println!("| | p50 | p99 | p99.9 | worst | allocations an event | bytes an event |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    let ticks: Vec<Times> = (0..runs).map(|_| times((0..events).map(|_| nanos(|| ())).collect())).collect();
    line("reading the clock", &ticks, None);
    let (calls, bytes) = counted::asked();
    (0..events).for_each(|i| drop(black_box(event(i))));
    let (calls_after, bytes_after) = counted::asked();
    println!("| making the event | | | | | {} |", each(events, (calls_after - calls, bytes_after - bytes)));
    for case in &CASES {
        let text =
            format!("define stream S (symbol string, price double, volume long, ts long);\n{}", case.query);
        let plan = compile("latency", &text, &Registry::standard(), &|_| None);
        let plan = Arc::new(plan.unwrap_or_else(|e| panic!("{e}")));
        let taken: Vec<Times> =
            (0..runs).map(|_| counted::uncounted(|| times(timed(case, &plan, events)))).collect();
        line(case.name, &taken, Some(each(events - events / 10, allocated(case, &plan, events))));
    }
}

/// Sends all events; returns the latency of each, without the first tenth.
fn timed(case: &Case, plan: &Arc<AppPlan>, events: u64) -> Vec<u32> {
    let mut taken = Vec::with_capacity(events as usize);
    through(case, plan, events, &mut |i, app, rows| {
        let columns = event(i);
        let times = vec![FIRST + i as i64];
        let nanos = nanos(|| app.send(0, columns, times, rows).expect("an event of S"));
        if i >= events / 10 {
            taken.push(nanos);
        }
    });
    taken
}

/// Sends all events; returns the allocation calls and bytes, without the first tenth.
fn allocated(case: &Case, plan: &Arc<AppPlan>, events: u64) -> (usize, usize) {
    let mut sum = (0, 0);
    through(case, plan, events, &mut |i, app, rows| {
        let columns = event(i);
        let times = vec![FIRST + i as i64];
        let before = counted::asked();
        app.send(0, columns, times, rows).expect("an event of S");
        if i >= events / 10 {
            let after = counted::asked();
            sum = (sum.0 + after.0 - before.0, sum.1 + after.1 - before.1);
        }
    });
    sum
}

fn through(
    case: &Case,
    plan: &Arc<AppPlan>,
    events: u64,
    send: &mut dyn FnMut(u64, &mut AppRuntime, &mut Rows),
) {
    let mut app = AppRuntime::new(plan.clone());
    let mut rows = Rows::default();
    app.start(FIRST, &mut rows);
    (0..events).for_each(|i| send(i, &mut app, &mut rows));
    let expected = (case.rows)(events);
    assert!(
        rows.0 > 0 && expected.is_none_or(|n| n == rows.0),
        "{}: {} rows, not {expected:?}",
        case.name,
        rows.0
    );
}

/// Returns event `i` as the columns of a call.
fn event(i: u64) -> Vec<Column> {
    let mut symbol = StringColumn::default();
    symbol.push(symbol_of(i));
    vec![
        Column::of(Data::Str(symbol)),
        Column::of(Data::Double(vec![price(i)])),
        Column::of(Data::Long(vec![(draw(2 * i + 1) & 0xFFFF_FFFF) as i64 % 1000])),
        Column::of(Data::Long(vec![FIRST + i as i64])),
    ]
}

/// Returns one of 100 symbols.
fn symbol_of(i: u64) -> &'static str {
    static SYMBOLS: std::sync::LazyLock<Vec<String>> =
        std::sync::LazyLock::new(|| (0..100).map(|n| format!("S{n:06}")).collect());
    &SYMBOLS[((draw(2 * i) >> 33) % 100) as usize]
}

fn price(i: u64) -> f64 {
    0.25 * ((draw(2 * i + 1) >> 32) % 800) as f64
}

/// Returns draw `n` of SplitMix64 with seed 42.
fn draw(n: u64) -> u64 {
    let z = 42_u64.wrapping_add((n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn nanos(what: impl FnOnce()) -> u32 {
    let start = Instant::now();
    what();
    u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX)
}

fn times(mut nanos: Vec<u32>) -> Times {
    nanos.sort_unstable();
    let at = |part: f64| f64::from(nanos[((nanos.len() as f64 * part) as usize).min(nanos.len() - 1)]);
    Times { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) }
}

fn each(events: u64, (calls, bytes): (usize, usize)) -> String {
    format!("{:.2} | {:.0}", calls as f64 / events as f64, bytes as f64 / events as f64)
}

fn line(name: &str, runs: &[Times], allocated: Option<String>) {
    let spread = |of: fn(&Times) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        let [median, min, max] = [all.len() / 2, 0, all.len() - 1].map(|i| thousands(all[i]));
        format!("{median} ({min} to {max})")
    };
    let columns = [spread(|t| t.p50), spread(|t| t.p99), spread(|t| t.p999), spread(|t| t.max)];
    println!("| {name} | {} | {} |", columns.join(" | "), allocated.unwrap_or_else(|| " | ".into()));
}

fn thousands(n: f64) -> String {
    let digits = format!("{n:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).expect("digits")).collect();
    groups.join(",")
}
