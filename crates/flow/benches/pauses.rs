//! Time for which a large state keeps its app from the next event while a checkpoint is taken.
//!
//! `cargo bench -p tidemill-flow --bench pauses [-- KIND [ROWS [CHECKPOINTS]]]`. KIND is one of `length`, `time`, `table`, `groups`,
//! `aggregation`, `partitions`, `pattern`, or `all`. The state is built of ROWS events (default: about 1 GB in the
//! checkpoint, and for a pattern almost as many matches as it may have). "save" is the time to write the whole state to memory, which is the pause if nothing is shared. "freeze" is the
//! time to take a state that is written later, or 1 ms of keys of it. "event" is the longest time of a single event while
//! another thread writes the state, with the copies that it makes, and "quiet" that without a checkpoint. All times are those
//! of the thread on a processor, as others may keep it from one for longer than what is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidemill_flow::plan::AppPlan;
use tidemill_flow::replay::compile;
use tidemill_flow::runtime::{AppRuntime, OutputHandler};
use tidemill_flow::snapshot::RestoreMode;
use tidemill_flow::{Batch, Column, EvalError, FieldType, Registry, Value};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Events of a batch while the state is built.
const BATCH: i64 = 4096;
/// Time for which keys are saved before the next event gets its turn, and keys that are saved before the time is looked at.
const KEYS_PAUSE: (Duration, usize) = (Duration::from_millis(1), 32);

const STREAM: &str =
    "define stream S (id long, symbol string, price double, volume long, note string, a long, b long);\n";

/// A kind of state: its name, the events that make about 1 GB of a checkpoint, and the queries.
const KINDS: [(&str, i64, &str); 7] = [
    (
        "length",
        12_000_000,
        "from S#window.length(12000000) select symbol, sum(volume) as total group by symbol insert into O;",
    ),
    (
        "time",
        11_000_000,
        "from S#window.time(1 day) select symbol, sum(volume) as total group by symbol insert into O;",
    ),
    (
        "table",
        12_000_000,
        "@PrimaryKey('id')
        define table T (id long, symbol string, price double, volume long, note string, a long, b long);
        from S select id, symbol, price, volume, note, a, b update or insert into T on T.id == id;",
    ),
    (
        "groups",
        16_000_000,
        "from S select id, sum(price) as total, count() as n, max(a) as most group by id insert into O;",
    ),
    (
        "aggregation",
        12_000_000,
        "define aggregation A from S select id, sum(price) as total, max(a) as most group by id
        aggregate every hours;",
    ),
    (
        "partitions",
        6_000_000,
        "partition with (id of S) begin
        from S#window.length(4) select id, note, sum(price) as total insert into O; end;",
    ),
    (
        "pattern",
        800_000,
        "define stream Done (id long);
        from every s=S -> d=Done[d.id == s.id] select s.symbol as symbol, s.note as note insert into O;",
    ),
];

/// Counts the output rows.
#[derive(Default)]
struct Count(usize);

impl OutputHandler for Count {
    fn events(&mut self, _: &str, events: &Batch) {
        self.0 += events.len();
    }

    fn emission(&mut self, _: &str, _: &Batch) {}

    fn failure(&mut self, query: &str, failure: &EvalError) {
        panic!("{query}: {failure}");
    }
}

fn plan(queries: &str) -> Arc<AppPlan> {
    let text = format!("{STREAM}{queries}");
    let mut plan =
        compile("bench", &text, &Registry::standard(), &|_| None).unwrap_or_else(|e| panic!("{e}"));
    let mut limits = plan.limits();
    limits.table_rows = 1 << 30;
    limits.window_rows = 1 << 30;
    limits.aggregation_rows = 1 << 30;
    limits.rate_rows = 1 << 30;
    plan = plan.with_limits(limits);
    plan.into()
}

/// Returns how long this thread has had a processor.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sends events `ids` at times that ascend with `clock`, in milliseconds.
fn send(app: &mut AppRuntime, ids: std::ops::Range<i64>, clock: i64, out: &mut Count) {
    let types = [
        FieldType::Long,
        FieldType::String,
        FieldType::Double,
        FieldType::Long,
        FieldType::String,
        FieldType::Long,
        FieldType::Long,
    ];
    let mut columns = types.map(Column::new);
    let times = (clock..clock + (ids.end - ids.start)).collect();
    for i in ids {
        let values = [
            Value::Long(i),
            Value::text(&format!("SYM{}", i * 7919 % 1000)),
            Value::Double(i as f64 / 100.0),
            Value::Long(i % 1000),
            Value::text(&format!("an order of the customer {:08}", i * 31 % 100_000_000)),
            Value::Long(i.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed())),
            Value::Long(i ^ 0x5555),
        ];
        columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
    }
    app.send(0, columns.into(), times, out).unwrap_or_else(|e| panic!("{e}"));
}

fn run((name, _, queries): (&str, i64, &str), rows: i64, checkpoints: usize) {
    let (plan, mut out) = (plan(queries), Count::default());
    let mut app = AppRuntime::new(plan.clone());
    app.start(0, &mut out);
    for first in (0..rows).step_by(BATCH as usize) {
        send(&mut app, first..rows.min(first + BATCH), first, &mut out);
    }
    let mut state = Vec::with_capacity(2 << 30);
    let begin = cpu_time();
    app.save(&mut state).unwrap_or_else(|e| panic!("{e}"));
    let save = cpu_time() - begin;
    let bytes = state.len();
    drop(state);
    // every other event is one of the first, so that a row and a group change in place
    let mut next = 0;
    let mut event = |app: &mut AppRuntime, out: &mut Count| {
        let id = if next % 2 == 0 { next * 7919 % rows } else { rows + next };
        let begin = cpu_time();
        send(app, id..id + 1, rows + next, out);
        next += 1;
        cpu_time() - begin
    };
    let quiet = (0..20_000).map(|_| event(&mut app, &mut out)).max().unwrap_or_default();
    let (mut freezes, mut events) = (Vec::new(), Vec::new());
    for checkpoint in 0..checkpoints {
        let last = checkpoint + 1 == checkpoints;
        let mut expected = Vec::new();
        if last {
            app.save(&mut expected).unwrap_or_else(|e| panic!("{e}"));
        }
        let begin = cpu_time();
        let frozen = app.freeze().unwrap_or_else(|e| panic!("{e}"));
        freezes.push(cpu_time() - begin);
        loop {
            let begin = cpu_time();
            let mut is_complete = app.save_keys(KEYS_PAUSE.1);
            while !is_complete && cpu_time() - begin < KEYS_PAUSE.0 {
                is_complete = app.save_keys(KEYS_PAUSE.1);
            }
            freezes.push(cpu_time() - begin);
            if is_complete {
                break;
            }
            events.push(event(&mut app, &mut out));
        }
        let written = AtomicBool::new(false);
        let state = std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut state = Vec::with_capacity(bytes + (64 << 20));
                frozen.write_to(&mut state).unwrap_or_else(|e| panic!("{e}"));
                written.store(true, Ordering::Release);
                state
            });
            while !written.load(Ordering::Acquire) {
                events.push(event(&mut app, &mut out));
            }
            writing.join().expect("the writer does not panic")
        });
        if last {
            assert!(state == expected, "the state is that of another moment");
            drop(expected);
            let mut restored = AppRuntime::new(plan.clone());
            restored.restore(&mut state.as_slice(), RestoreMode::Exactly).unwrap_or_else(|e| panic!("{e}"));
        }
    }
    freezes.sort_unstable();
    events.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let at = |times: &[Duration], share: f64| ms(times[((times.len() - 1) as f64 * share) as usize]);
    println!(
        "{name:<12} {rows:>9} {:>6} | {:>8.0} | {:>7.2} {:>7.2} {:>7.2} | {:>7.2} {:>7.3} {:>7.2} {:>7.2}",
        bytes / 1_000_000,
        ms(save),
        at(&freezes, 0.5),
        at(&freezes, 0.99),
        at(&freezes, 1.0),
        ms(quiet),
        at(&events, 0.5),
        at(&events, 0.99),
        at(&events, 1.0),
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let wanted = arguments.first().map_or("all", String::as_str);
    let rows = arguments.get(1).and_then(|n| n.parse().ok());
    let checkpoints = arguments.get(2).and_then(|n| n.parse().ok()).unwrap_or(10);
    println!("times in ms");
    println!(
        "{:<12} {:>9} {:>6} | {:>8} | {:>7} {:>7} {:>7} | {:>7} {:>7} {:>7} {:>7}",
        "state", "rows", "MB", "save", "freeze", "p99", "max", "quiet", "event", "p99", "max"
    );
    for kind in KINDS.iter().filter(|(name, ..)| wanted == "all" || *name == wanted) {
        run(*kind, rows.unwrap_or(kind.1), checkpoints);
    }
}
