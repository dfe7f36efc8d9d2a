//! A join of two windows, and a table that is updated by its key.
//!
//! `cargo bench -p tidemill-flow --bench joins [-- RUNS]`. Events are in memory as batches of 4,096 chunks of
//! one event; the streams of the join alternate event by event. The timed passes count the output rows; a
//! separate pass compares their checksum with that of other engines on the same events. Times are CPU times
//! of the single thread, which other processes disturb less.

use std::time::Duration;

use tidemill_flow::app_stores::AppStores;
use tidemill_flow::query::{Query, Target};
use tidemill_flow::replay::compile;
use tidemill_flow::table::MemoryTable;
use tidemill_flow::{Batch, EventKind, Registry, Value};
use tidemill_types::FieldType;

/// The allocator of the `tidemill` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CHUNKS: usize = 4096;

const JOIN: &str = "
    define stream S (symbol string, price double, volume long, ts long);
    define stream T (symbol string, price double, volume long, ts long);
    from S#window.length(100) as a join T#window.length(100) as b on a.symbol == b.symbol
    select a.ts as ats, b.ts as bts, a.symbol as symbol, a.price + b.price as total insert into Out;";

const TABLE: &str = "
    define stream S (symbol string, price double, volume long, ts long);
    @PrimaryKey('symbol') define table Tab (symbol string, price double, volume long);
    from S select symbol, price, volume
    update or insert into Tab set Tab.price = price, Tab.volume = volume on Tab.symbol == symbol;";

fn main() {
    let runs = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(7);
    println!("{runs} runs; million events a second of processor time, median (min to max)");
    println!("| | events | out | million events/s |");
    println!("| --- | ---: | ---: | ---: |");
    join(runs, 500_000, (499_274, 0x23c8_f7a1_9e6d_499b));
    table(runs, 2_000_000, (100_000, 0x941a_1e92_5821_36ce));
}

fn join(runs: usize, events: u64, expected: (u64, u64)) {
    let sides = [events_of(events, 100, 0, 2), events_of(events, 100, 1, 2)];
    let plan = compile("join", JOIN, &Registry::standard(), &|_| None).expect("an app");
    let host = AppStores::default();
    let pass = |see: &mut dyn FnMut(&Batch)| {
        let mut query = Query::new(plan.queries[0].clone());
        let start = clock();
        for (left, right) in sides[0].iter().zip(&sides[1]) {
            let turns = (0..left.chunk_ends.len() + right.chunk_ends.len()).map(|i| (i % 2, 1));
            see(&query.interleave(&[(0, left), (1, right)], turns, &host).expect("matches"));
        }
        clock() - start
    };
    let mut found = (0, 0);
    pass(&mut |out| found = add(found, out));
    assert_eq!(found, expected, "count and checksum of the join");
    let mut rates = Vec::new();
    for _ in 0..runs {
        let mut count = 0;
        let elapsed = pass(&mut |out| count += out.len() as u64);
        assert_eq!(count, expected.0);
        rates.push(events as f64 / elapsed.as_secs_f64() / 1e6);
    }
    println!("| h | {events} | {} | {} |", expected.0, spread(rates));
}

fn table(runs: usize, events: u64, expected: (u64, u64)) {
    let input = events_of(events, 100_000, 0, 1);
    let plan = compile("table", TABLE, &Registry::standard(), &|_| None).expect("an app");
    let Target::Table(number, action) = &plan.queries[0].target else { panic!("it writes a table") };
    let host = AppStores::default();
    let (mut rates, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let mut query = Query::new(plan.queries[0].clone());
        let mut table = MemoryTable::new(plan.catalog.tables()[*number].clone());
        let (start, mut writing) = (clock(), Duration::ZERO);
        for batch in &input {
            let out = query.push(0, batch, &host).expect("rows");
            let selected = clock();
            table.apply_rows(action, &out, 0).expect("a write");
            writing += clock() - selected;
        }
        rates.push(events as f64 / (clock() - start).as_secs_f64() / 1e6);
        alone.push(events as f64 / writing.as_secs_f64() / 1e6);
        assert_eq!(add((0, 0), &table.rows(0)), expected, "count and checksum of the table");
    }
    println!("| j | {events} | {} | {} |", expected.0, spread(rates));
    println!("| j, writing the table alone | {events} | {} | {} |", expected.0, spread(alone));
}

/// Returns the CPU time of this thread.
fn clock() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}

/// Returns every `step`th event from `first` on, as batches of chunks of one event.
fn events_of(events: u64, symbols: u64, first: u64, step: usize) -> Vec<Batch> {
    let types = [FieldType::String, FieldType::Double, FieldType::Long, FieldType::Long];
    let mut all = vec![];
    for i in (first..events).step_by(step) {
        if all.last().is_none_or(|b: &Batch| b.len() == CHUNKS) {
            all.push(Batch::new(types));
        }
        let batch = all.last_mut().expect("pushed above");
        let (r1, r2) = (random(2 * i), random(2 * i + 1));
        let time = 1_700_000_000_000 + i as i64;
        let values = [
            Value::text(&format!("S{:06}", (r1 >> 33) % symbols)),
            Value::Double(0.25 * ((r2 >> 32) % 800) as f64),
            Value::Long((r2 & 0xFFFF_FFFF) as i64 % 1000),
            Value::Long(time),
        ];
        batch.columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
        batch.times.push(time);
        batch.kinds.push(EventKind::Current);
        batch.end_chunk(time);
    }
    all
}

/// SplitMix64 with seed 42.
fn random(n: u64) -> u64 {
    mix(42_u64.wrapping_add((n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Adds rows to a count and a checksum; the checksum does not depend on the order of the rows.
fn add((count, sum): (u64, u64), rows: &Batch) -> (u64, u64) {
    let hash = |row| {
        rows.columns.iter().fold(0x243F_6A88_85A3_08D3, |hash, column| {
            mix(hash
                ^ match column.get(row) {
                    Value::Long(n) => n as u64,
                    Value::Double(n) => (n + 0.0).to_bits(),
                    Value::Str(text) => fnv(&text),
                    other => panic!("{other:?} has no checksum"),
                })
        })
    };
    let sum = (0..rows.len()).fold(sum, |sum, row| sum.wrapping_add(hash(row)));
    (count + rows.len() as u64, sum)
}

/// FNV-1a.
fn fnv(text: &str) -> u64 {
    text.bytes()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

fn spread(mut rates: Vec<f64>) -> String {
    rates.sort_by(f64::total_cmp);
    format!("{:.2} ({:.2} to {:.2})", rates[rates.len() / 2], rates[0], rates[rates.len() - 1])
}
