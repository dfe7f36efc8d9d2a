//! Corrections: late events that change what queries have emitted.

use std::collections::BTreeMap;
use std::path::Path;

use tidemill_engine::{App, Engine};

use crate::queries::{events, send, trades};
use crate::quiet;
use crate::rows;

const STREAMS: [&str; 6] = ["Large", "Means", "Spells", "Rises", "Known", "Beats"];

/// Returns an app with windows, a pattern, a table and a trigger. `late` is the annotation before the stream.
fn app(late: &str, partitions: u32) -> App {
    let queries = format!(
        "@app:playback
        {late} @key('symbol')
        define stream Trades (symbol string, price double, size int, at long);
        define trigger Beats at every 20 sec;
        define table Last (symbol string, price double);

        @info(name='large') from Trades[size >= 50] select symbol, price, size insert into Large;
        @info(name='mean') from Large#window.length(3) select symbol, avg(price) as mean, count() as n insert into Means;
        @info(name='spell') from Trades#window.time(5 sec) select count() as n, sum(size) as total insert into Spells;
        @info(name='rise')
        from every a=Trades[size < 20] -> b=Trades[symbol == a.symbol and price > a.price] within 1 min
        select a.symbol as symbol, a.price as low, b.price as high insert into Rises;
        @info(name='known') from Trades join Last on Trades.symbol == Last.symbol
        select Trades.symbol as symbol, Last.price as price insert into Known;
        @info(name='last') from Trades select symbol, price update or insert into Last on Last.symbol == symbol;"
    );
    let rules = if late.is_empty() { TRADES.to_owned() } else { format!("{TRADES}{TAKEN}") };
    let mut app = App::from_texts("corrections", Some(&rules), &[("trades.siddhi", &queries)]);
    app.settings.partitions = partitions;
    quiet(app)
}

const TRADES: &str =
    "event Trades { symbol: string, price: double, size: int, at: time } key symbol time at;";

/// A rule that reads retractions.
const TAKEN: &str = "
    event Taken { symbol: string, mean: double };
    rule Taken { when { m: MeansRetracted(); } then { emit Taken { symbol: m.symbol, mean: m.mean }; } }
";

/// Returns the trades with some up to seven seconds late.
fn shuffled(from: u64, n: u64) -> String {
    let all = trades(from, n);
    let mut lines: Vec<(u64, &str)> = (from..).zip(all.lines()).collect();
    lines.sort_by_key(|(i, _)| i + (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 8);
    lines.iter().map(|(_, line)| format!("{line}\n")).collect()
}

/// Returns the number of emissions less retractions of each row of a stream.
fn net(engine: &Engine, stream: &str) -> BTreeMap<String, i64> {
    let mut net: BTreeMap<String, i64> = BTreeMap::new();
    events(engine, stream).into_iter().for_each(|row| *net.entry(row).or_default() += 1);
    let retracted = format!("{stream}Retracted");
    if engine.stream_names().contains(&retracted) {
        events(engine, &retracted).into_iter().for_each(|row| *net.entry(row).or_default() -= 1);
    }
    net.retain(|_, count| *count != 0);
    net
}

fn all_net(engine: &Engine) -> Vec<BTreeMap<String, i64>> {
    STREAMS.iter().map(|stream| net(engine, stream)).collect()
}

fn last(engine: &Engine) -> Vec<String> {
    let rows = engine.query_on_demand(None, "from Last select symbol, price").unwrap();
    let mut rows: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
    rows.sort();
    rows
}

fn in_order() -> (Vec<BTreeMap<String, i64>>, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Some(app("", 1))).unwrap();
    send(&engine, "Trades", &trades(0, 300));
    (all_net(&engine), last(&engine))
}

fn open(dir: &Path, partitions: u32, allowed: &str) -> Engine {
    let late = format!("@late(policy='correct', allowed='{allowed}')");
    let engine = Engine::open(dir, Some(app(&late, partitions))).unwrap();
    assert_eq!(engine.recovery.warnings, Vec::<String>::new());
    engine
}

#[test]
fn what_came_out_is_as_if_events_had_come_in_order_after_restarts_of_every_kind() {
    let (wanted, table) = in_order();
    for plan in ["", "checkpoint", "stop", "flush checkpoint"] {
        let dir = tempfile::tempdir().unwrap();
        let lines: Vec<String> = shuffled(0, 300).lines().map(|l| format!("{l}\n")).collect();
        for (part, step) in lines.chunks(100).zip(plan.split(' ').chain(["", ""])) {
            let engine = open(dir.path(), 1, "10 sec");
            part.chunks(10).for_each(|rows| send(&engine, "Trades", &rows.concat()));
            engine.wait_idle();
            match step {
                "flush" => engine.flush().unwrap(),
                "checkpoint" => engine.checkpoint().unwrap(),
                "stop" => engine.stop().unwrap(),
                _ => {}
            }
            engine.abandon();
        }
        let engine = open(dir.path(), 1, "10 sec");
        for ((stream, wanted), found) in STREAMS.iter().zip(&wanted).zip(all_net(&engine)) {
            assert!(wanted.len() > 5, "{stream}");
            assert_eq!(found, *wanted, "{stream}, {plan}");
        }
        assert_eq!(last(&engine), table, "{plan}");
        let taken_back = rows(&engine, "MeansRetracted");
        assert!(taken_back > 5, "{taken_back}");
        assert_eq!(rows(&engine, "Taken"), taken_back, "rules see what is taken back");
    }
}

/// A file that cannot run in every partition as a whole runs in one partition.
#[test]
fn partitions_make_no_difference() {
    let (wanted, table) = in_order();
    let dir = tempfile::tempdir().unwrap();
    // events of several partitions may interleave in any order
    let engine = open(dir.path(), 4, "1 hour");
    let compiled = tidemill_engine::compile(&app("@late(policy='correct', allowed='1 hour')", 4)).unwrap();
    let text = tidemill_engine::queries::explain::explain(&compiled.queries, 4);
    for told in [
        "late events, up to 3600000 ms behind the clock, correct what was put out; at most 10000000 rows",
        "retractions go to BeatsRetracted, KnownRetracted, LargeRetracted, MeansRetracted",
        "runs in partition 3: late events correct the whole file",
    ] {
        assert!(text.contains(told), "{text}");
    }
    assert!(
        engine.queries().unwrap().iter().all(|query| query.runs == "partition 3"),
        "{:?}",
        engine.queries().unwrap()
    );
    for rows in shuffled(0, 300).lines().collect::<Vec<_>>().chunks(25) {
        send(&engine, "Trades", &rows.join("\n"));
    }
    engine.wait_idle();
    for ((stream, wanted), found) in STREAMS.iter().zip(&wanted).zip(all_net(&engine)) {
        assert_eq!(found, *wanted, "{stream}");
    }
    assert_eq!(last(&engine), table);
}

/// Totals per key run in the partition of the key.
#[test]
fn what_can_run_in_every_partition_does() {
    let outcome = |late: &str, partitions: u32, sent: &str| {
        let queries = format!(
            "@app:playback {late} @key('symbol')
            define stream Trades (symbol string, price double, size int, at long);
            @info(name='large') from Trades[size >= 50] select symbol, price, size insert into Large;
            @info(name='totals') from Large select symbol, sum(size) as total group by symbol insert into Totals;"
        );
        let rules = "event Trades { symbol: string, price: double, size: int, at: time } key symbol time at;";
        let mut app = quiet(App::from_texts("totals", Some(rules), &[("t.siddhi", &queries)]));
        app.settings.partitions = partitions;
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), Some(app)).unwrap();
        send(&engine, "Trades", sent);
        engine.wait_idle();
        assert!(
            partitions == 1 || engine.queries().unwrap().iter().all(|query| query.runs == "every partition")
        );
        ["Large", "Totals"].map(|stream| net(&engine, stream))
    };
    let wanted = outcome("", 1, &trades(0, 200));
    assert!(wanted[1].len() > 50);
    assert_eq!(outcome("@late(policy='correct', allowed='1 min')", 4, &shuffled(0, 200)), wanted);
}

#[test]
fn what_comes_later_than_allowed_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), 1, "3 sec");
    send(&engine, "Trades", &trades(0, 10));
    // nine seconds late, and three
    send(&engine, "Trades", &(trades(0, 1) + &trades(6, 1)));
    engine.wait_idle();
    let rejected: usize = engine.rejected_snapshot().unwrap().tail.iter().map(|b| b.num_rows()).sum();
    assert_eq!((rejected, rows(&engine, "Trades")), (1, 12));
}

#[test]
fn the_streams_of_what_is_taken_back_are_reserved() {
    let open = |queries: &str, rules: Option<&str>| {
        let dir = tempfile::tempdir().unwrap();
        let app = quiet(App::from_texts("names", rules, &[("s.siddhi", queries)]));
        Engine::open(dir.path(), Some(app)).err().map(|e| e.to_string()).unwrap_or_default()
    };
    let correct = "@app:playback @late(policy='correct', allowed='1 sec') define stream S (n int);";
    let own = format!("{correct} define stream ORetracted (n int); from S select n insert into O;");
    let why = open(&own, None);
    assert!(why.contains("E0108") && why.contains("is reserved for retractions of `O`"), "{why}");
    let other = format!("{correct} from S select n insert into O;");
    let why = open(&other, Some("event ORetracted { n: string };"));
    assert!(why.contains("with other fields"), "{why}");
    assert_eq!(open(&other, Some("event ORetracted { n: int };")), "");
}
