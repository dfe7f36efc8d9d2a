//! Throughput of the rules of a stream, in events per second and core.
//!
//! `cargo bench -p tidemill-rules --bench rules [-- NAME]`. Each line shows the median of the runs, then the
//! slowest and the fastest. On Linux, time is the CPU time of the thread, so that other work on the machine
//! counts less; elsewhere it is wall-clock time.

use std::collections::HashSet;
use std::hint::black_box;
use std::time::Instant;

use arrow_array::RecordBatch;
use tidemill_docs::{DocBytes, Store, StoreLimits};
use tidemill_rules::{ExecutionContext, Executor, Program, Route, StreamPart, Trace, TraceLimits};
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{Duration, Offset, PartitionId, Timestamp};

const RUNS: usize = 9;
const PLANES: usize = 4_000;

const DECLARATIONS: &str = r#"
event TakeOffEvent {
  flight_id: string, carrier: string, flight: int, tailnum: string, origin: string, dest: string,
  sched: time, actual: time,
} key tailnum id flight_id time actual;
event FlightDelayEvent { flight_no: string, flight_id: string, delay_min: double } key flight_no;
entity Flight key id shard tailnum;
relation flight(): Flight by flight_id;
"#;

const LATE: &str = r#"
rule LateTakeOff {
  when {
    toe: TakeOffEvent(sched + 20 min < now);
    flight: toe.flight();
  } then {
    update flight.departed = true;
    update flight.on_time = false;
    emit new FlightDelayEvent(flight.fl_no(), toe.flight_id, (toe.actual - toe.sched) / 1 min);
  }
}
"#;

struct Partition {
    store: Store,
    seen: HashSet<String>,
}

impl ExecutionContext for Partition {
    fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    fn store_ref(&self) -> &Store {
        &self.store
    }

    fn route(&self, _stream: usize, _key: Option<&str>) -> Route {
        Route::Local
    }

    fn admit(&mut self, _stream: usize, id: &[FieldValue]) -> bool {
        self.seen.insert(format!("{id:?}"))
    }
}

/// A case: rules, number and size of batches, and the percentage of late events.
struct Case {
    name: &'static str,
    rules: String,
    batches: usize,
    rows: usize,
    late_percent: usize,
    trace: bool,
    /// Number of firings expected for a number of events, as a check that the work was done.
    fired: fn(usize) -> u64,
}

/// The allocator that the `tidemill` binary uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let only = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    println!("{:<58} {:>12} {:>12} {:>12} {:>8}", "case", "events/s", "slowest", "fastest", "ns/event");
    for case in cases() {
        if only.as_ref().is_none_or(|o| case.name.contains(o.as_str())) {
            run(&case);
        }
    }
}

fn cases() -> Vec<Case> {
    let none: fn(usize) -> u64 = |_| 0;
    let each: fn(usize) -> u64 = |events| events as u64;
    let equal = |n: usize, first: usize, then: &str| -> String {
        (0..n)
            .map(|i| {
                format!(
                    "rule R{i} {{ when {{ t: TakeOffEvent(flight == {}); }} then {{ {then} }} }}\n",
                    first + i
                )
            })
            .collect()
    };
    let range = |n: usize| -> String {
        let bounds = |i: usize| format!("flight >= {} and flight < {}", i * 5, i * 5 + 5);
        (0..n).map(|i| format!("rule R{i} {{ when {{ t: TakeOffEvent({}, dest == \"NONE\"); }} then {{ emit FlightDelayEvent {{ }}; }} }}\n", bounds(i))).collect()
    };
    let computed = |n: usize| -> String {
        (0..n).map(|i| format!("rule R{i} {{ when {{ t: TakeOffEvent(sched + {} min < now); }} then {{ emit FlightDelayEvent {{ }}; }} }}\n", 100 + i)).collect()
    };
    let emit = "emit FlightDelayEvent { flight_id: t.flight_id, delay_min: 1 };";
    let case = |name, rules, fired| Case {
        name,
        rules,
        batches: 64,
        rows: 4096,
        late_percent: 0,
        trace: false,
        fired,
    };
    vec![
        case("no rule", String::new(), none),
        case("1 rule, computed, none fires", computed(1), none),
        case("10 rules, computed, none fires", computed(10), none),
        case("100 rules, computed, none fires", computed(100), none),
        case("1 rule with its constant, none fires", equal(1, 100_000, emit), none),
        case("10 rules with a constant each, none fires", equal(10, 100_000, emit), none),
        case("1,000 rules with a constant each, none fires", equal(1000, 100_000, emit), none),
        case("1,000 rules with a constant each, each event fires one", equal(1000, 0, emit), each),
        case("1,000 rules with a range each, one reached, none fires", range(1000), none),
        case("LateTakeOff, no event late", LATE.to_owned(), none),
        Case { late_percent: 20, ..case("LateTakeOff, 20 % late", LATE.to_owned(), a_fifth) },
        Case {
            late_percent: 20,
            trace: true,
            ..case("LateTakeOff, 20 % late, with trace", LATE.to_owned(), a_fifth)
        },
        Case { late_percent: 100, ..case("LateTakeOff, all late", LATE.to_owned(), each) },
        Case {
            late_percent: 100,
            trace: true,
            ..case("LateTakeOff, all late, with trace", LATE.to_owned(), each)
        },
        Case {
            rows: 1,
            batches: 50_000,
            late_percent: 20,
            ..case("LateTakeOff, 20 % late, batches of 1", LATE.to_owned(), a_fifth)
        },
        Case {
            rows: 64,
            batches: 2_000,
            late_percent: 20,
            ..case("LateTakeOff, 20 % late, batches of 64", LATE.to_owned(), a_fifth)
        },
    ]
}

/// Measures the CPU time of this thread, or wall-clock time where that is not available.
struct Clock {
    passed: Instant,
    ran_ns: Option<u64>,
}

impl Clock {
    fn start() -> Self {
        Self { passed: Instant::now(), ran_ns: ran_ns() }
    }

    fn seconds(&self) -> f64 {
        match (self.ran_ns, ran_ns()) {
            (Some(before), Some(now)) if now > before => (now - before) as f64 / 1e9,
            _ => self.passed.elapsed().as_secs_f64(),
        }
    }
}

/// Returns the CPU time of this thread in nanoseconds, if the system reports it.
fn ran_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Returns the number of late events if the first 20 of each 100 are late.
fn a_fifth(events: usize) -> u64 {
    (events / 100 * 20 + (events % 100).min(20)) as u64
}

fn run(case: &Case) {
    let program = Program::from_texts([("bench.rules", format!("{DECLARATIONS}{}", case.rules))]);
    let program = program.unwrap_or_else(|e| panic!("{e}"));
    let batches = batches(&program, case);
    // work that changes nothing is repeated until it takes long enough to measure
    let repeats = if case.late_percent == 0 && (case.fired)(1) == 0 { 64 } else { 1 };
    let events = case.batches * case.rows * repeats;
    let mut rates: Vec<f64> = (0..RUNS)
        .map(|_| {
            let mut partition = partition(&program);
            let mut executor = Executor::new(&program);
            let mut trace = if case.trace { Trace::new(TraceLimits::default()) } else { Trace::off() };
            let started = Clock::start();
            let mut fired = 0;
            let all = std::iter::repeat_n(&batches, repeats).flatten();
            for (offset, batch) in all.enumerate() {
                let part = StreamPart { stream: 0, batch, keep: None };
                let at = (PartitionId(0), Offset(offset as u64));
                let effects = executor.apply(&program, &mut partition, &[part], None, at, &mut trace);
                fired += black_box(effects.expect("the batch is of the stream")).fired;
            }
            let rate = events as f64 / started.seconds();
            assert_eq!(fired, (case.fired)(events), "{}", case.name);
            rate
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[RUNS / 2];
    println!(
        "{:<58} {:>12.0} {:>12.0} {:>12.0} {:>8.1}",
        case.name,
        median,
        rates[0],
        rates[RUNS - 1],
        1e9 / median
    );
}

fn partition(program: &Program) -> Partition {
    let mut store = Store::new(StoreLimits::default());
    for spec in program.collections() {
        store.create_collection(spec).expect("a fresh store");
    }
    let flights = store.require("Flight").expect("declared");
    for i in 0..PLANES {
        let doc = bson::rawdoc! {
            "_id": format!("2013-01-01-UA-{i}"), "id": format!("2013-01-01-UA-{i}"), "tailnum": format!("N{i}"),
            "fl_no": format!("UA{i}"), "carrier": "UA", "origin": "EWR", "dest": "SFO", "seats": 180, "departed": false, "on_time": true,
        };
        flights.insert(DocBytes::from(doc.into_bytes())).expect("a new id");
    }
    Partition { store, seen: HashSet::new() }
}

fn batches(program: &Program, case: &Case) -> Vec<RecordBatch> {
    let mut builder = BatchBuilder::new(program.streams()[0].clone());
    let start = Timestamp::parse("2013-01-01T05:00:00Z").expect("a time").0;
    (0..case.batches)
        .map(|batch| {
            for row in 0..case.rows {
                let i = batch * case.rows + row;
                let sched = start + i as i64 * 1_000_000;
                let late = i % 100 < case.late_percent;
                let delay = Duration::seconds(if late { 1800 } else { 300 }).0;
                let text = |t: String| FieldValue::Text(t);
                let cells = [
                    text(format!("2013-01-01-UA-{}", i % PLANES)),
                    text("UA".into()),
                    FieldValue::Int((i * 7 % 1000) as i64),
                    text(format!("N{}", i % PLANES)),
                    text(["EWR", "JFK", "LGA"][i % 3].into()),
                    text("SFO".into()),
                    FieldValue::Time(Timestamp(sched)),
                    FieldValue::Time(Timestamp(sched + delay)),
                ];
                builder.push_values(&cells, Timestamp(sched)).expect("cells fit");
            }
            builder.finish()
        })
        .collect()
}
