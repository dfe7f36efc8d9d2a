//! SiddhiQL combined with rules.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tidemill_engine::{App, BodyFormat, Engine, ManualClock, SendOptions};
use tidemill_flow::EvalError;
use tidemill_flow::registry::{Function, FunctionContext};
use tidemill_flow::{FieldType, Registry, Value};
use tidemill_types::{ErrorKind, Timestamp, event_json};

use crate::{ledger, open_app, quiet, rows};

/// Windows, a pattern, a table and a partition, with rules over their output and queries over what rules
/// emit.
pub const QUERIES: &str = "
    @app:playback
    @key('symbol')
    define stream Trades (symbol string, price double, size int, at long);
    define stream Alarms (symbol string, level int);
    define stream Lookups (symbol string);
    define table Last (symbol string, price double);

    @info(name='large') from Trades[size >= 50] select symbol, price, size insert into Large;
    @info(name='mean') from Large#window.length(3) select symbol, avg(price) as mean, count() as n insert into Means;
    @info(name='spell') from Trades#window.time(5 sec) select count() as n, sum(size) as total insert into Spells;
    @info(name='rise')
    from every a=Trades[size < 20] -> b=Trades[symbol == a.symbol and price > a.price] within 1 min
    select a.symbol as symbol, a.price as low, b.price as high insert into Rises;
    @info(name='last') from Trades select symbol, price update or insert into Last on Last.symbol == symbol;
    @info(name='known') from Lookups join Last on Lookups.symbol == Last.symbol
    select Lookups.symbol as symbol, Last.price as price insert into Known;
    @info(name='alarms') from Alarms#window.lengthBatch(2) select max(level) as level, count() as n insert into AlarmPairs;
";

const RULES: &str = "
    event Trades { symbol: string, price: double, size: int, at: time } key symbol time at;
    event Rises { symbol: string, low: double, high: double } key symbol;
    event Alarms { symbol: string, level: int } key symbol;
    entity Seen key symbol;
    relation Rises.seen(): Seen by symbol;

    rule First { when { r: Rises(); not r.seen(); } then { insert Seen { symbol: r.symbol, n: 1 }; } }
    rule Next priority 1 { when { r: Rises(); s: r.seen(); } then { update s.n += 1; } }
    rule Alarm { when { r: Rises(high > low * 1.5); } then { emit Alarms { symbol: r.symbol, level: 1 }; } }
";

pub fn shop(partitions: u32) -> App {
    let mut app = App::from_texts("shop", Some(RULES), &[("trades.siddhi", QUERIES)]);
    app.settings.partitions = partitions;
    quiet(app)
}

pub fn trades(from: u64, n: u64) -> String {
    (from..from + n)
        .map(|i| {
            // pseudo-random, with a long period
            let h = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
            format!(
                "{{\"symbol\":\"s{}\",\"price\":{},\"size\":{},\"at\":\"2026-01-01T00:{:02}:{:02}Z\"}}\n",
                h % 5,
                10 + h % 37,
                h % 97,
                i / 60 % 60,
                i % 60
            )
        })
        .collect()
}

fn open(dir: &Path, partitions: u32) -> Engine {
    Engine::open(dir, Some(shop(partitions))).unwrap()
}

pub fn send(engine: &Engine, stream: &str, rows: &str) {
    let options = SendOptions { wait: true, origin: "test".into(), ..SendOptions::default() };
    let reply = engine.send_json(stream, rows.as_bytes(), BodyFormat::Ndjson, &options).unwrap();
    assert_eq!(reply.rejected, []);
}

/// Returns all events of a stream as JSON, sorted, because their order depends on the number of partitions.
pub fn events(engine: &Engine, stream: &str) -> Vec<String> {
    engine.wait_idle();
    let schema = engine.stream_schema(stream).unwrap().clone();
    engine.flush().unwrap();
    let snapshot = engine.table_snapshot(stream).unwrap().unwrap();
    let mut all: Vec<String> = Vec::new();
    let mut add = |batch: &RecordBatch| {
        all.extend((0..batch.num_rows()).map(|row| {
            let event = serde_json::Value::from(event_json(&schema, batch, row));
            event.to_string()
        }));
    };
    for tablet in snapshot.tablets.iter() {
        let file = std::fs::File::open(Path::new("/").join(tablet.path.as_ref())).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
        reader.for_each(|batch| add(&batch.unwrap()));
    }
    snapshot.tail.iter().for_each(add);
    all.sort();
    all
}

#[test]
fn rules_and_queries_share_streams() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), 1);
    send(&engine, "Trades", &trades(0, 300));
    let count = |stream: &str| rows(&engine, stream);
    assert_eq!(count("Trades"), 300);
    let large = events(&engine, "Trades").iter().filter(|e| size(e) >= 50).count() as u64;
    assert!(large > 100);
    assert_eq!((count("Large"), count("Means")), (large, large));
    assert!(count("Spells") >= 300, "with aggregates one event comes out for each that comes in");
    let rises = count("Rises");
    assert!(rises > 20, "{rises}");
    let fired: u64 = engine.rules().unwrap().iter().filter(|r| r.name != "Alarm").map(|r| r.fired).sum();
    assert_eq!(fired, rises, "rules see what queries put out");
    let alarms = count("Alarms");
    assert!(alarms > 4, "{alarms}");
    assert_eq!(count("AlarmPairs"), alarms / 2, "queries see what rules emit");
    send(&engine, "Lookups", "{\"symbol\":\"s1\"}\n{\"symbol\":\"none\"}\n");
    assert_eq!(count("Known"), 1);
    for line in ledger(&engine).lines() {
        assert!(line.ends_with("+0+0"), "{line}");
    }
}

/// Function that doubles a number.
#[derive(Debug)]
struct Twice;

impl Function for Twice {
    fn call(&self, args: &[Value], _: &FunctionContext<'_>) -> Result<Value, EvalError> {
        Ok(args[0].as_f64().map_or(Value::Null, |n| Value::Double(2.0 * n)))
    }
}

#[test]
fn what_is_added_to_the_registry_comes_with_the_app() {
    let dir = tempfile::tempdir().unwrap();
    let queries = "define stream In (n double);
        from In#window.length(2) select sum(own:twice(n)) as s insert into Out;";
    let app = || quiet(App::from_texts("own", None, &[("own.siddhi", queries)]));
    let mut registry = Registry::standard();
    registry.function("own:twice", |_| Ok((Arc::new(Twice), FieldType::Double)));
    let open = || Engine::open(dir.path(), Some(app().with_registry(registry.clone()))).unwrap();
    let engine = open();
    send(&engine, "In", "{\"n\":1}\n{\"n\":2}\n");
    engine.stop().unwrap();
    drop(engine);
    let engine = open();
    send(&engine, "In", "{\"n\":4}\n");
    assert_eq!(events(&engine, "Out"), ["{\"s\":12.0}", "{\"s\":2.0}", "{\"s\":6.0}"]);
    engine.stop().unwrap();
    drop(engine);
    let without = Engine::open(dir.path(), Some(app())).err().unwrap().to_string();
    assert!(without.contains("no function `own:twice`"), "{without}");
}

fn size(event: &str) -> i64 {
    let event: serde_json::Value = serde_json::from_str(event).unwrap();
    event["size"].as_i64().unwrap()
}

#[test]
fn how_senders_cut_their_events_makes_no_difference() {
    let all = |step: u64| {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path(), 1);
        (0..120).step_by(step as usize).for_each(|from| send(&engine, "Trades", &trades(from, step)));
        ["Means", "Spells", "Rises", "Alarms", "AlarmPairs"].map(|s| events(&engine, s))
    };
    let (one, many) = (all(1), all(120));
    assert_eq!(one, many);
    assert!(!one[4].is_empty());
}

/// Every type, nulls, missing attributes, a time field, outputs that stay, that go to other partitions, and that
/// queries of one partition read.
const TYPES: &str = "
    @key('symbol')
    define stream Trades (symbol string, price double, size int, at long);
    @info(name='types')
    from Trades select symbol, size > 50 as b, size as i, at as due, convert(price, 'float') as f,
        price / (size % 2) as d, json:toObject('[1, 2]') as o
    insert into Typed;
    @info(name='moved')
    from Trades select str:concat('b', size % 7) as bucket, symbol, price insert into Moved;
    partition with (symbol of Trades) begin
        @info(name='means') from Trades[size % 3 != 0]#window.length(5)
        select symbol, avg(price) as mean insert into Means;
    end;";
const COUNTS: &str = "
    define stream Typed (symbol string, b bool, i int, due long, f float, d double, o object);
    from Typed#window.length(10) select count() as n, sum(i) as total insert into Counts;";
const TYPED: &str = "
    event Typed { symbol: string, b: bool, i: int, due: time, f: float, d: double, o: object, unset: string } time due;
    event Moved { bucket: string, symbol: string, price: double } key bucket;
";

#[test]
fn output_in_columns_equals_output_row_by_row() {
    let all = |partitions: u32, step: u64, counts: bool| {
        let dir = tempfile::tempdir().unwrap();
        let files: &[(&str, &str)] = &[("counts.siddhi", COUNTS), ("types.siddhi", TYPES)];
        let files = if counts { files } else { &files[1..] };
        let mut app = quiet(App::from_texts("types", Some(TYPED), files));
        app.settings.partitions = partitions;
        let engine = Engine::open(dir.path(), Some(app)).unwrap();
        (0..600).step_by(step as usize).for_each(|from| {
            let text = trades(from, step);
            // as milliseconds: the attribute is a long
            let text: String = text.lines().enumerate().fold(String::new(), |all, (i, line)| {
                let at = line.find("\"at\"").unwrap();
                all + &line[..at] + &format!("\"at\":{}}}\n", 1_700_000_000_000 + from + i as u64)
            });
            send(&engine, "Trades", &text);
        });
        let streams = ["Typed", "Moved", "Means"].map(|stream| events(&engine, stream));
        let ledger = ledger(&engine);
        let counts = counts.then(|| events(&engine, "Counts"));
        engine.stop().unwrap();
        drop(engine);
        let again = Engine::open(dir.path(), None).unwrap();
        assert_eq!(["Typed", "Moved", "Means"].map(|stream| events(&again, stream)), streams);
        (streams, ledger, counts)
    };
    for (partitions, counts) in [(1, false), (3, false), (1, true)] {
        let (rows, columns) = (all(partitions, 1, counts), all(partitions, 600, counts));
        assert_eq!(rows, columns, "{partitions} partitions");
        assert_eq!(rows.0[0].len(), 600);
        assert!(rows.0[0][0].contains("\"o\""), "{}", rows.0[0][0]);
    }
}

const PLANS: [&str; 6] = ["", "flush", "checkpoint", "stop", "checkpoint stop", "flush checkpoint"];
const STREAMS: [&str; 6] = ["Large", "Means", "Spells", "Rises", "Alarms", "AlarmPairs"];

/// Runs one round of events that ends with a crash, after the action `step`. Returns the events of all
/// streams.
fn round(dir: &Path, partitions: u32, from: u64, step: &str) -> [Vec<String>; 6] {
    let engine = open(dir, partitions);
    assert_eq!(engine.recovery.warnings, Vec::<String>::new(), "{step}");
    send(&engine, "Trades", &trades(from, 150));
    engine.wait_idle();
    match step {
        "flush" => engine.flush().unwrap(),
        "checkpoint" => engine.checkpoint().unwrap(),
        "stop" => engine.stop().unwrap(),
        _ => {}
    }
    let seen = STREAMS.map(|s| events(&engine, s));
    engine.abandon();
    seen
}

#[test]
fn restarts_of_every_kind_change_nothing() {
    let undisturbed = {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(dir.path(), 1);
        [0, 150, 300].iter().for_each(|from| send(&engine, "Trades", &trades(*from, 150)));
        STREAMS.map(|s| events(&engine, s))
    };
    for plan in PLANS {
        let dir = tempfile::tempdir().unwrap();
        for (from, step) in [0, 150, 300].into_iter().zip(plan.split(' ').chain(["", ""])) {
            round(dir.path(), 1, from, step);
        }
        let engine = open(dir.path(), 1);
        for (stream, expected) in STREAMS.iter().zip(&undisturbed) {
            assert!(!expected.is_empty(), "{stream}");
            assert_eq!(&events(&engine, stream), expected, "{stream}, {plan}");
        }
    }
}

/// The interleaving of several partitions' events is recorded in the log, so outputs are comparable only for
/// one log.
#[test]
fn restarts_change_nothing_over_several_partitions() {
    for plan in PLANS {
        let dir = tempfile::tempdir().unwrap();
        for (from, step) in [0, 150, 300].into_iter().zip(plan.split(' ').chain(["", ""])) {
            let seen = round(dir.path(), 4, from, step);
            let engine = open(dir.path(), 4);
            assert_eq!(rows(&engine, "Trades"), from + 150);
            for (stream, seen) in STREAMS.iter().zip(&seen) {
                assert_eq!(&events(&engine, stream), seen, "{stream}, {plan}");
            }
            let large = events(&engine, "Trades").iter().filter(|e| size(e) >= 50).count() as u64;
            assert_eq!(rows(&engine, "Large"), large, "spread over partitions");
            assert_eq!(rows(&engine, "Means"), large, "once each in one partition");
            let spells: i64 = events(&engine, "Spells").len() as i64;
            assert!(spells >= from as i64 + 150);
            engine.abandon();
        }
    }
}

#[test]
fn what_is_due_without_events_is_worked_off_and_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let app = || {
        let queries = "
            define stream S (a int);
            define trigger Beats at every 10 sec;
            from S#window.time(3 sec) select a insert expired events into Gone;
            from S#window.timeBatch(2 sec) select count() as n insert into Batches;
            from not S for 4 sec select 'quiet' as what insert into Quiet;
        ";
        quiet(App::from_texts("clock", None, &[("s.siddhi", queries)]))
    };
    let at = |ms: i64| clock.set(Timestamp(ms * 1000));
    let wait = |engine: &Engine, stream: &str, n: u64| {
        let start = std::time::Instant::now();
        while rows(engine, stream) != n {
            assert!(start.elapsed().as_secs() < 120, "{stream}: {} of {n}", rows(engine, stream));
            std::thread::yield_now();
        }
    };
    at(1_000_000);
    let engine = Engine::builder(dir.path()).app(app()).clock(clock.clone()).open().unwrap();
    wait_started(&engine);
    at(1_001_000);
    send(&engine, "S", "{\"a\":1}\n{\"a\":2}\n");
    at(1_003_999);
    wait(&engine, "Batches", 1);
    assert_eq!(rows(&engine, "Gone"), 0);
    at(1_004_000);
    wait(&engine, "Gone", 2);
    at(1_006_000);
    wait(&engine, "Quiet", 1);
    at(1_020_500);
    wait(&engine, "Beats", 2);
    engine.wait_idle();
    let before = ["Gone", "Batches", "Quiet", "Beats"].map(|s| events(&engine, s));
    assert_eq!(before[3], ["{\"triggered_time\":1010000}", "{\"triggered_time\":1020000}"]);
    engine.abandon();
    drop(engine);
    let engine = Engine::builder(dir.path()).app(app()).clock(clock.clone()).open().unwrap();
    assert_eq!(["Gone", "Batches", "Quiet", "Beats"].map(|s| events(&engine, s)), before);
    at(1_030_000);
    wait(&engine, "Beats", 3);
    engine.stop().unwrap();
    drop(engine);
    // after a week of downtime there is one trigger event, not sixty thousand
    let week = 7 * 24 * 3_600_000;
    at(1_030_000 + week);
    let engine = Engine::builder(dir.path()).app(app()).clock(clock.clone()).open().unwrap();
    wait(&engine, "Beats", 4);
    at(1_040_000 + week);
    wait(&engine, "Beats", 5);
    let beats = events(&engine, "Beats");
    let last = [1_030_000, 1_040_000].map(|ms| format!("{{\"triggered_time\":{}}}", ms + week));
    assert_eq!(beats[3..], last);
    engine.abandon();
    drop(engine);
    let engine = Engine::builder(dir.path()).app(app()).clock(clock.clone()).open().unwrap();
    assert_eq!(events(&engine, "Beats"), beats, "a replay does the same");
}

/// Waits until the queries have started.
fn wait_started(engine: &Engine) {
    let start = std::time::Instant::now();
    while engine
        .metrics()
        .iter()
        .all(|m| m.name != "tidemill_log_records_applied_total" || m.samples[0].1 == 0.0)
    {
        assert!(start.elapsed().as_secs() < 120);
        std::thread::yield_now();
    }
    engine.wait_idle();
}

#[test]
fn definitions_that_disagree_are_refused() {
    let refused = |rules: Option<&str>, queries: &[(&str, &str)]| {
        let dir = tempfile::tempdir().unwrap();
        let error = Engine::open(dir.path(), Some(App::from_texts("x", rules, queries))).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    };
    let rules = "event S { a: int, b: string, t: time } key b;";
    let queries = "define stream S (b string, c int); from S select b insert into O;";
    let text = refused(Some(rules), &[("q.siddhi", queries)]);
    assert!(text.contains("without a field `c`") && text.contains("q.siddhi"), "{text}");
    let queries = "define stream S (a long); from S select a insert into O;";
    let text = refused(Some(rules), &[("q.siddhi", queries)]);
    assert!(text.contains("declared as int, not as long"), "{text}");
    let queries = "@key('a') define stream S (a int); from S select a insert into O;";
    let text = refused(Some(rules), &[("q.siddhi", queries)]);
    assert!(text.contains("with the key `b`"), "{text}");
    let queries = "define stream S (b string); from S select b insert into O;";
    let other = "define stream O (b int); from O select b insert into P;";
    let text = refused(None, &[("a.siddhi", queries), ("b.siddhi", other)]);
    assert!(text.contains("declared as int, not as string"), "{text}");
    let text = refused(Some("entity O key id;"), &[("a.siddhi", queries)]);
    assert!(text.contains("the name `O` is already taken by a stream"), "{text}");
}

#[test]
fn changed_queries_keep_or_lose_their_state_as_the_settings_say() {
    let dir = tempfile::tempdir().unwrap();
    let app = |first: &str, second: &str| {
        let first = format!(
            "@app:playback define stream A (n int); from A#window.length({first}) select sum(n) as s insert into SA;"
        );
        let second = format!(
            "@app:playback define stream B (n int); from B#window.length({second}) select sum(n) as s insert into SB;"
        );
        quiet(App::from_texts("x", None, &[("a.siddhi", &first), ("b.siddhi", &second)]))
    };
    let engine = Engine::open(dir.path(), Some(app("9", "9"))).unwrap();
    send(&engine, "A", "{\"n\":1}");
    send(&engine, "B", "{\"n\":1}");
    drop(engine);
    let error = Engine::open(dir.path(), Some(app("9", "8"))).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(
        error.to_string().contains("b.siddhi") && error.to_string().contains("changed_queries"),
        "{error}"
    );
    let mut changed = app("9", "8");
    changed.settings.changed_queries = tidemill_engine::ChangedQueries::Restart;
    let engine = Engine::open(dir.path(), Some(changed)).unwrap();
    send(&engine, "A", "{\"n\":1}");
    send(&engine, "B", "{\"n\":1}");
    assert_eq!(events(&engine, "SA"), ["{\"s\":1}", "{\"s\":2}"], "not changed: it goes on");
    assert_eq!(events(&engine, "SB"), ["{\"s\":1}", "{\"s\":1}"], "changed: it begins anew");
}

/// Partitioned by key: a stateless chain, totals by key, a block; in one partition: a window over all events.
const SPREAD: &str = "
    @app:playback
    @key('k')
    define stream S (k string, n int);
    @info(name='positive') from S[n > 0] select k, n insert into P;
    @info(name='totals') from P select k, sum(n) as total group by k insert into Totals;
    @info(name='all') from P#window.lengthBatch(100) select sum(n) as total insert into Hundreds;
    @dist(parallel='8', execGroup='pairs')
    partition with (k of P) begin
      @info(name='pairs') from P#window.lengthBatch(2) select k, sum(n) as pair insert into Pairs;
    end;
";

#[test]
fn each_query_of_a_partition_says_where_it_runs() {
    let queries = "
        define stream S (k string, n int);
        partition with (k of S) begin
          @info(name='first') from S[n > 0] select k, n insert into #Inner;
          @info(name='second') from #Inner#window.lengthBatch(2) select k, sum(n) as n insert into Out;
        end;";
    let app = quiet(App::from_texts("spread", None, &[("s.siddhi", queries)]));
    let text =
        tidemill_engine::queries::explain::explain(&tidemill_engine::compile(&app).unwrap().queries, 4);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for name in ["first", "second"] {
        let at = lines.iter().position(|line| *line == name).unwrap();
        assert!(lines[at + 3].starts_with("runs in partition 3: "), "{text}");
    }
}

#[test]
fn queries_run_where_their_events_are() {
    let app = quiet(App::from_texts("spread", None, &[("s.siddhi", SPREAD)]));
    let text =
        tidemill_engine::queries::explain::explain(&tidemill_engine::compile(&app).unwrap().queries, 4);
    for line in [
        "runs in each of 4 partitions: looks at each event by itself",
        "runs in each of 4 partitions: keeps totals of each k, by which its stream is spread",
        "runs in partition 3: keeps the rows of lengthBatch(100), totals of all keys",
        "runs in each of 4 partitions: keeps what it keeps for each key",
        "group pairs",
        "asked for 8 at a time, runs 4 at a time",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Some(app.clone())).unwrap();
    let rows_of = |from: i64| -> String {
        (from..from + 500).map(|i| format!("{{\"k\":\"k{}\",\"n\":{}}}\n", i % 20, i % 7 - 1)).collect()
    };
    send(&engine, "S", &rows_of(0));
    engine.wait_idle();
    engine.abandon();
    drop(engine);
    let engine = Engine::open(dir.path(), Some(app)).unwrap();
    send(&engine, "S", &rows_of(500));
    let positive: Vec<i64> = (0..1000).map(|i: i64| i % 7 - 1).filter(|n| *n > 0).collect();
    assert_eq!(events(&engine, "P").len(), positive.len());
    assert_eq!(rows(&engine, "Totals"), positive.len() as u64);
    assert_eq!(
        rows(&engine, "Hundreds"),
        positive.len() as u64 / 100,
        "each event came to the home of the file once"
    );
    // the largest total of a key is the sum over its events
    let sum_of_key =
        |key: i64| (0..1000).filter(|i| i % 20 == key).map(|i| i % 7 - 1).filter(|n| *n > 0).sum::<i64>();
    let totals = events(&engine, "Totals");
    for key in 0..20 {
        let own = totals.iter().map(|t| serde_json::from_str::<serde_json::Value>(t).unwrap());
        let own = own.filter(|t| t["k"] == format!("k{key}"));
        assert_eq!(own.map(|t| t["total"].as_i64().unwrap()).max(), Some(sum_of_key(key)));
    }
    let pairs: i64 =
        (0..20).map(|key| (0..1000).filter(|i| i % 20 == key && i % 7 - 1 > 0).count() as i64 / 2).sum();
    assert_eq!(rows(&engine, "Pairs"), pairs as u64);
    let info = engine.queries().unwrap();
    let of = |name: &str| info.iter().find(|q| q.name == name).unwrap();
    assert_eq!((of("pairs").runs.as_str(), of("all").runs.as_str()), ("every partition", "partition 3"));
    assert_eq!(of("positive").emitted, positive.len() as u64, "counted over restarts");
    assert_eq!(of("pairs").group.as_deref(), Some("pairs"));
}

#[test]
fn late_events_go_where_their_stream_says() {
    let app = |policy: &str| {
        let queries = format!(
            "@app:playback
            {policy} define stream S (n int, at long);
            define stream Behind (n int, at long);
            from S select n, count() as seen insert into O;
            from Behind select n insert into B;"
        );
        quiet(App::from_texts(
            "late",
            Some("event S { n: int, at: time } time at;"),
            &[("s.siddhi", &queries)],
        ))
    };
    let row = |n: i64, second: i64| format!("{{\"n\":{n},\"at\":\"2026-01-01T00:00:{second:02}Z\"}}\n");
    let sent = row(1, 10) + &row(2, 7) + &row(3, 2) + &row(4, 11);
    let outcome = |policy: &str| {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), Some(app(policy))).unwrap();
        send(&engine, "S", &sent);
        engine.wait_idle();
        let rejected: usize = engine.rejected_snapshot().unwrap().tail.iter().map(|b| b.num_rows()).sum();
        assert_eq!(rows(&engine, "S"), 4, "all of them are stored");
        assert!(ledger(&engine).contains("S 4=4+0+0"));
        (rows(&engine, "O"), rows(&engine, "B"), rejected)
    };
    assert_eq!(outcome(""), (4, 0, 0), "as in the reference");
    assert_eq!(outcome("@late(policy='drop', allowed='5 sec')"), (3, 0, 1));
    assert_eq!(outcome("@late(policy='drop')"), (2, 0, 2));
    assert_eq!(outcome("@late(policy='stream', stream='Behind', allowed='5 sec')"), (3, 1, 0));
    let dir = tempfile::tempdir().unwrap();
    let wrong = Engine::open(dir.path(), Some(app("@late(policy='dropp')"))).err().unwrap();
    assert!(wrong.to_string().contains("Did you mean `drop`"), "{wrong}");
    let wrong = Engine::open(dir.path(), Some(app("@late(policy='correct')"))).err().unwrap();
    assert!(
        wrong.to_string().contains("how far behind the clock")
            && wrong.to_string().contains("allowed='1 min'"),
        "{wrong}"
    );
}

#[test]
fn failures_of_queries_are_counted() {
    let queries = "
        @OnError(action='STREAM') define stream S (text string);
        @info(name='length') from S select str:length(text) as n insert into Lengths;
        @info(name='failed') from !S select text insert into Failed;
    ";
    let dir = tempfile::tempdir().unwrap();
    let app = quiet(App::from_texts("x", None, &[("s.siddhi", queries)]));
    let engine = Engine::open(dir.path(), Some(app)).unwrap();
    send(&engine, "S", "{\"text\":\"four\"}\n{}\n");
    assert_eq!((rows(&engine, "Lengths"), rows(&engine, "Failed")), (1, 1));
    let info = engine.queries().unwrap();
    let length = info.iter().find(|q| q.name == "length").unwrap();
    assert_eq!((length.emitted, length.errors), (1, 1));
    assert!(length.last_error.is_some());
    assert_eq!(length.lost, 0, "the fault stream has the event");
}

#[test]
fn events_that_a_failing_query_loses_are_a_problem() {
    let queries = "
        define stream S (text string);
        @info(name='length') from S select str:length(text) as n insert into Lengths;
        @info(name='count') from Lengths select count() as n insert into Counted;
    ";
    let dir = tempfile::tempdir().unwrap();
    let app = quiet(App::from_texts("x", None, &[("s.siddhi", queries)]));
    let engine = Engine::open(dir.path(), Some(app)).unwrap();
    send(&engine, "S", "{\"text\":\"four\"}\n");
    engine.flush().unwrap();
    assert_eq!(engine.health().problems, Vec::<String>::new());
    send(&engine, "S", "{}\n{}\n{\"text\":\"seven\"}\n");
    let lost: Vec<_> =
        engine.queries().unwrap().into_iter().map(|q| (q.name, q.emitted, q.errors, q.lost)).collect();
    assert_eq!(lost, [("length".into(), 2, 2, 2), ("count".into(), 2, 0, 0)]);
    engine.flush().unwrap();
    let expected = "queries: events are lost in `length` of s.siddhi; system.queries shows how many and why";
    assert_eq!(engine.health().problems, [expected]);
    assert!(engine.health().ready, "the engine goes on");
}

#[test]
fn insert_into_a_full_table_is_refused_as_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let queries = "define stream In (k string); define table T (k string); from In insert into T;";
    let app_dir = dir.path().join("app");
    std::fs::create_dir(&app_dir).unwrap();
    std::fs::write(app_dir.join("t.siddhi"), queries).unwrap();
    let open = |query_rows: usize| {
        std::fs::write(app_dir.join("app.toml"), format!("[settings]\nquery_rows = {query_rows}\n")).unwrap();
        open_app(dir.path(), &app_dir)
    };
    let engine = open(2);
    let insert =
        |engine: &Engine, k: &str| engine.query_on_demand(None, &format!("select '{k}' as k insert into T"));
    insert(&engine, "a").unwrap();
    insert(&engine, "b").unwrap();
    let full = insert(&engine, "c").map(|_| ()).unwrap_err();
    assert_eq!(
        (full.kind(), full.to_string().as_str()),
        (ErrorKind::LimitReached, "table `T` full: limit of 2 rows")
    );
    engine.stop().unwrap();
    drop(engine);
    let engine = open(3);
    insert(&engine, "c").unwrap();
    engine.abandon();
    drop(engine);
    // what a former limit allowed stays, even without a checkpoint
    let engine = open(2);
    assert_eq!(engine.query_on_demand(None, "from T select k").unwrap().len(), 3);
    insert(&engine, "d").map(|_| ()).unwrap_err();
}

const MODEL: &str = r#"<PMML version="4.2">
<DataDictionary>
  <DataField name="x" optype="continuous" dataType="double"/>
  <DataField name="y" optype="categorical" dataType="string"><Value value="low"/><Value value="high"/></DataField>
</DataDictionary>
<TreeModel functionName="classification">
  <MiningSchema><MiningField name="x"/><MiningField name="y" usageType="target"/></MiningSchema>
  <Node score="low"><True/>
    <Node score="high"><SimplePredicate field="x" operator="greaterThan" value="5"/></Node>
    <Node score="low"><True/></Node>
  </Node>
</TreeModel>
</PMML>"#;

#[test]
fn a_model_in_a_file_is_part_of_the_app() {
    let dir = tempfile::tempdir().unwrap();
    let (app, data) = (dir.path().join("app"), dir.path().join("data"));
    let file = app.join("models/size.pmml");
    std::fs::create_dir_all(app.join("models")).unwrap();
    std::fs::write(&file, MODEL).unwrap();
    let query = "
        define stream S (x double);
        from S#pmml:predict('models/${model}.pmml')[y == 'high']#window.length(3) select x, y, count() as n insert into Out;";
    std::fs::write(app.join("q.siddhi"), query).unwrap();
    std::fs::write(app.join("app.toml"), "name = \"sizes\"\n[vars]\nmodel = \"size\"\n").unwrap();
    let engine = crate::open_app(dir.path(), &app);
    send(&engine, "S", "{\"x\":5.0}\n{\"x\":6.0}\n");
    engine.wait_idle();
    assert_eq!(rows(&engine, "Out"), 1);
    engine.stop().unwrap();
    drop(engine);

    // the deployed app has its model, also after a crash and without the file
    std::fs::remove_file(&file).unwrap();
    for count in [2, 3] {
        let engine = Engine::open(&data, None).unwrap();
        send(&engine, "S", "{\"x\":7.0}\n{\"x\":1.0}\n");
        engine.wait_idle();
        assert_eq!(rows(&engine, "Out"), count);
        engine.abandon();
    }
    let error = tidemill_engine::compile(&App::read(&app, &[]).unwrap()).err().unwrap().to_string();
    assert!(
        error.contains("there is no file `models/size.pmml`") && error.contains("q.siddhi:3:16"),
        "{error}"
    );

    // another model is a change of the queries, which have a state
    std::fs::write(&file, MODEL.replace("value=\"5\"", "value=\"0.5\"")).unwrap();
    let error = Engine::open(&data, Some(App::read(&app, &[]).unwrap())).err().unwrap().to_string();
    assert!(error.contains("q.siddhi"), "{error}");
    std::fs::write(&file, MODEL).unwrap();
    let engine = crate::open_app(dir.path(), &app);
    assert_eq!(rows(&engine, "Out"), 3);
    engine.stop().unwrap();
}
