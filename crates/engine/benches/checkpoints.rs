//! Pauses by checkpoints of partitions with much query state.
//!
//! `cargo bench -p tidemill-engine --bench checkpoints [-- KIND [ROWS [CHECKPOINTS]]]`. KIND is one of `length`, `time`, `table`,
//! `groups`, `aggregation`, `partitions`, `pattern`, or `all`. The state is built of ROWS events (default: about 1 GB in the
//! checkpoint). Then single events are sent, each after the former was applied, while checkpoints are taken one after another.
//!
//! "pause" is the time that a checkpoint keeps the owner of the partition from its next record, as the metric
//! `tidemill_checkpoint_pause_microseconds` has it. "event" is the time from sending an event until it is applied, without
//! checkpoints and during them; it contains everything else that happens on the machine.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures by the machine's clock")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use tidemill_engine::{App, Engine, SendOptions};
use tidemill_types::Result;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Events of a batch while the state is built.
const BATCH: i64 = 32_768;

const STREAM: &str =
    "define stream S (id long, symbol string, price double, volume long, note string, a long, b long);\n";

/// A kind of state.
struct Kind {
    name: &'static str,
    /// Events that make about 1 GB of a checkpoint.
    rows: i64,
    queries: &'static str,
}

const KINDS: [Kind; 7] = [
    Kind {
        name: "length",
        rows: 12_000_000,
        queries: "from S#window.length(12000000) select symbol, sum(volume) as total group by symbol insert into O;",
    },
    Kind {
        name: "time",
        rows: 12_000_000,
        queries: "from S#window.time(1 day) select symbol, sum(volume) as total group by symbol insert into O;",
    },
    Kind {
        name: "table",
        rows: 12_000_000,
        queries: "@PrimaryKey('id')
            define table T (id long, symbol string, price double, volume long, note string, a long, b long);
            from S select id, symbol, price, volume, note, a, b update or insert into T on T.id == id;",
    },
    Kind {
        name: "groups",
        rows: 16_000_000,
        queries: "from S select id, sum(price) as total, count() as n, max(a) as most group by id insert into O;",
    },
    Kind {
        name: "aggregation",
        rows: 12_000_000,
        queries: "define aggregation A from S select id, sum(price) as total, count() as n group by id
            aggregate every hours;",
    },
    Kind {
        name: "partitions",
        rows: 2_000_000,
        queries: "partition with (id of S) begin
            from S#window.length(4) select id, sum(price) as total insert into O;
            end;",
    },
    Kind {
        name: "pattern",
        rows: 8_000_000,
        queries: "define stream Done (id long);
            from every s=S -> d=Done[d.id == s.id] select s.symbol as symbol, s.note as note insert into O;",
    },
];

fn batch(from: i64, rows: i64) -> RecordBatch {
    let all = || from..from + rows;
    let longs = |of: fn(i64) -> i64| Arc::new(Int64Array::from_iter_values(all().map(of))) as ArrayRef;
    let texts = |of: fn(i64) -> String| Arc::new(StringArray::from_iter_values(all().map(of))) as ArrayRef;
    let columns = [
        ("id", longs(|i| i)),
        ("symbol", texts(|i| format!("SYM{}", i * 7919 % 1000))),
        ("price", Arc::new(Float64Array::from_iter_values(all().map(|i| i as f64 / 100.0))) as ArrayRef),
        ("volume", longs(|i| i % 1000)),
        ("note", texts(|i| format!("an order of the customer {:08}", i * 31 % 100_000_000))),
        ("a", longs(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed()))),
        ("b", longs(|i| i ^ 0x5555)),
    ];
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let wanted = arguments.first().map_or("all", String::as_str);
    let rows = arguments.get(1).and_then(|n| n.parse().ok());
    let checkpoints = arguments.get(2).and_then(|n| n.parse().ok()).unwrap_or(10);
    println!(
        "{:<12} {:>9} {:>7} {:>7} | {:>9} {:>9} | {:>9} {:>9} | {:>9} {:>9} | {:>7}",
        "state",
        "rows",
        "built s",
        "MB",
        "pause p50",
        "pause max",
        "event p50",
        "event max",
        "during p50",
        "max ms",
        "taken s"
    );
    for kind in KINDS.iter().filter(|kind| wanted == "all" || kind.name == wanted) {
        run(kind, rows.unwrap_or(kind.rows), checkpoints)?;
    }
    Ok(())
}

fn run(kind: &Kind, rows: i64, checkpoints: usize) -> Result<()> {
    let dir = tempfile::tempdir_in(".").map_err(|e| tidemill_types::Error::unavailable(e.to_string()))?;
    let queries = format!("{STREAM}{}", kind.queries);
    let mut app = App::from_texts("pauses", None, &[("queries.siddhi", &queries)]);
    app.settings.partitions = 1;
    app.settings.checkpoint_interval = tidemill_types::Duration::seconds(86_400);
    let engine = Engine::open(dir.path(), Some(app))?;
    let build = Instant::now();
    let mut next = 0;
    while next < rows {
        let count = BATCH.min(rows - next);
        engine.send_batch("S", batch(next, count), &SendOptions::default())?;
        next += count;
    }
    engine.catch_up()?;
    let failed: u64 = engine.queries()?.iter().map(|query| query.errors).sum();
    assert_eq!(failed, 0, "{:?}", engine.queries());
    engine.flush()?;
    let built = build.elapsed();
    let quiet = AtomicBool::new(true);
    let running = AtomicBool::new(true);
    let (mut pauses, mut before, mut during) = (vec![], vec![], vec![]);
    let mut taken = Duration::ZERO;
    std::thread::scope(|scope| -> Result<()> {
        let sender = scope.spawn(|| -> Result<(Vec<Duration>, Vec<Duration>)> {
            let (mut before, mut during) = (vec![], vec![]);
            let options = SendOptions { wait: true, ..SendOptions::default() };
            // every other event is one of the first, so that a table and a group change in place
            for number in 0_i64.. {
                if !running.load(Ordering::Acquire) {
                    break;
                }
                let id = if number % 2 == 0 { number * 7919 % rows } else { rows + number };
                let event = batch(id, 1);
                let sent = Instant::now();
                engine.send_batch("S", event, &options)?;
                let times = if quiet.load(Ordering::Acquire) { &mut before } else { &mut during };
                times.push(sent.elapsed());
            }
            Ok((before, during))
        });
        std::thread::sleep(Duration::from_secs(3));
        quiet.store(false, Ordering::Release);
        let mut taking = || -> Result<()> {
            for _ in 0..checkpoints {
                let start = Instant::now();
                engine.checkpoint()?;
                taken += start.elapsed();
                pauses.push(Duration::from_micros(
                    metric(&engine, "tidemill_checkpoint_pause_microseconds") as u64
                ));
            }
            Ok(())
        };
        let outcome = taking();
        running.store(false, Ordering::Release);
        (before, during) = sender.join().expect("the sender does not panic")?;
        outcome
    })?;
    let megabytes = largest_checkpoint(&dir.path().join("checkpoints/p00000")) / 1e6;
    [&mut pauses, &mut before, &mut during].into_iter().for_each(|times| times.sort());
    let ms = |time: Option<&Duration>| time.map_or(0.0, Duration::as_secs_f64) * 1e3;
    let middle = |times: &[Duration]| ms(times.get(times.len() / 2));
    println!(
        "{:<12} {rows:>9} {:>7.1} {megabytes:>7.0} | {:>9.2} {:>9.2} | {:>9.2} {:>9.2} | {:>9.2} {:>9.2} | {:>7.2}",
        kind.name,
        built.as_secs_f64(),
        middle(&pauses),
        ms(pauses.last()),
        middle(&before),
        ms(before.last()),
        middle(&during),
        ms(during.last()),
        taken.as_secs_f64() / checkpoints as f64,
    );
    engine.abandon();
    Ok(())
}

fn metric(engine: &Engine, name: &str) -> f64 {
    let metrics = engine.metrics();
    let found = metrics.iter().find(|metric| metric.name == name).expect("a known metric");
    found.samples.iter().map(|(_, value)| *value).sum()
}

fn largest_checkpoint(dir: &Path) -> f64 {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let checkpoints = files.filter(|file| file.path().extension().is_some_and(|end| end == "ckpt"));
    checkpoints.filter_map(|file| Some(file.metadata().ok()?.len() as f64)).fold(0.0, f64::max)
}
