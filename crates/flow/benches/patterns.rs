//! Events per second and core through a pattern (`f`) and a sequence (`g`).
//!
//! `cargo bench -p tidemill-flow --bench patterns [-- EVENTS [RUNS]]`. Events are in memory, each as a chunk
//! with its own clock, in batches of 1,000 and of one. Each line shows the median, the slowest and the
//! fastest run. The number of matches and their checksum are compared with figures on which other engines
//! agree.

use std::hint::black_box;
use std::time::Instant;

use tidemill_flow::column::{Data, StringColumn};
use tidemill_flow::expr::NoContext;
use tidemill_flow::query::{Query, QueryPlan};
use tidemill_flow::{Batch, Column, EventKind, Registry, replay};

/// A query with its results: number of events, output rows and checksum.
struct Case {
    name: &'static str,
    query: &'static str,
    results: [(usize, usize, u64); 3],
}

const CASES: [Case; 2] = [
    Case {
        name: "f",
        query: "from every e1=S[price > 20.0] -> e2=S[price > e1.price] within 1 sec \
            select e1.ts as a, e2.ts as b, e1.price as c, e2.price as d insert into Out;",
        results: [
            (200_000, 179_188, 0x1e47_8933_1123_0d0f),
            (2_000_000, 1_793_588, 0xee25_f914_62f2_abf4),
            (10_000_000, 8_969_334, 0x1f8d_018f_72ce_1178),
        ],
    },
    Case {
        name: "g",
        query: "from every e1=S[price > 100.0], e2=S[price > e1.price], e3=S[price > e2.price] \
            select e1.ts as a, e2.ts as b, e3.ts as c insert into Out;",
        results: [
            (200_000, 4_138, 0xa12b_be62_420b_3142),
            (2_000_000, 40_928, 0x051f_4c13_58cf_cbfc),
            (10_000_000, 205_131, 0xbd85_4982_90ad_f280),
        ],
    },
];

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|a| a.parse().ok());
    let events = numbers.next().unwrap_or(2_000_000);
    let runs = numbers.next().unwrap_or(7).max(1);
    for case in &CASES {
        let plan = compile(case.query);
        for size in [1_000, 1] {
            let input = batches(events, size);
            check(case, &plan, &input, events);
            let mut rates: Vec<f64> = (0..runs).map(|_| run(&plan, &input, events)).collect();
            rates.sort_by(f64::total_cmp);
            let [slowest, median, fastest] = [0, runs / 2, runs - 1].map(|i| rates[i] / 1e6);
            println!(
                "{}, batches of {size}: {median:.2} M events/s ({slowest:.2} to {fastest:.2})",
                case.name
            );
        }
    }
}

fn compile(query: &str) -> QueryPlan {
    let text = format!("define stream S (symbol string, price double, volume long, ts long);\n{query}");
    let app = replay::compile("patterns.rs", &text, &Registry::standard(), &|_| None);
    app.expect("a query of this file").queries[0].clone()
}

fn started(plan: &QueryPlan) -> Query {
    let mut query = Query::new(plan.clone());
    query.start(FIRST);
    query
}

fn run(plan: &QueryPlan, input: &[Batch], events: usize) -> f64 {
    let mut query = started(plan);
    let before = Clock::now();
    for batch in input {
        black_box(query.push(0, batch, &NoContext).expect("nothing fails"));
    }
    events as f64 / before.seconds()
}

fn check(case: &Case, plan: &QueryPlan, input: &[Batch], events: usize) {
    let Some((_, rows, checksum)) = case.results.iter().find(|(n, ..)| *n == events) else { return };
    let mut query = started(plan);
    let mut found = (0, 0_u64);
    for batch in input {
        let out = query.push(0, batch, &NoContext).expect("nothing fails");
        for row in 0..out.len() {
            let hash = out.columns.iter().fold(0x243F_6A88_85A3_08D3, |h, column| mix(h ^ bits(column, row)));
            found = (found.0 + 1, found.1.wrapping_add(hash));
        }
    }
    assert_eq!(found, (*rows, *checksum), "rows and checksum of {}", case.name);
}

fn bits(column: &Column, row: usize) -> u64 {
    match column.data() {
        Data::Long(values) => values[row] as u64,
        Data::Double(values) => values[row].to_bits(),
        other => panic!("no query here has a column like {other:?}"),
    }
}

const FIRST: i64 = 1_700_000_000_000;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns draw `n` of SplitMix64 with seed 42.
fn draw(n: u64) -> u64 {
    mix(42_u64.wrapping_add((n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

/// Returns the first `events` events in batches; each event is a chunk.
fn batches(events: usize, size: usize) -> Vec<Batch> {
    (0..events.div_ceil(size)).map(|b| batch(b * size..events.min((b + 1) * size))).collect()
}

fn batch(rows: std::ops::Range<usize>) -> Batch {
    let mut symbols = StringColumn::default();
    let (mut prices, mut volumes) = (Vec::new(), Vec::new());
    for i in rows.clone() {
        let (a, b) = (draw(2 * i as u64), draw(2 * i as u64 + 1));
        symbols.push(&format!("S{:06}", (a >> 33) % 100));
        prices.push(0.25 * ((b >> 32) % 800) as f64);
        volumes.push(((b & 0xFFFF_FFFF) % 1000) as i64);
    }
    let times: Vec<i64> = rows.clone().map(|i| FIRST + i as i64).collect();
    let columns = vec![
        Column::of(Data::Str(symbols)),
        Column::of(Data::Double(prices)),
        Column::of(Data::Long(volumes)),
        Column::of(Data::Long(times.clone())),
    ];
    Batch {
        columns,
        kinds: vec![EventKind::Current; times.len()],
        chunk_ends: (1..=times.len() as u32).collect(),
        chunk_clocks: times.clone(),
        times,
        ..Batch::default()
    }
}

/// Measures the time that the thread spent on a core if the system reports it, else wall time.
struct Clock {
    wall: Instant,
    ran_ns: Option<u64>,
}

impl Clock {
    fn now() -> Self {
        Self { wall: Instant::now(), ran_ns: ran_ns() }
    }

    fn seconds(&self) -> f64 {
        match (self.ran_ns, ran_ns()) {
            (Some(before), Some(after)) => (after - before) as f64 / 1e9,
            _ => self.wall.elapsed().as_secs_f64(),
        }
    }
}

fn ran_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}
