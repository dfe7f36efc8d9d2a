//! Homes of files: the partitions of those queries that run in one.

use std::path::Path;

use tidemill_engine::queries::explain::explain;
use tidemill_engine::{App, BodyFormat, Engine, Partitioning, SendOptions};
use tidemill_types::ErrorKind;

use crate::queries::{events, send};
use crate::{quiet, rows};

/// Partitions of most directories here. The names of the files are chosen so that they have different homes.
const PARTITIONS: u32 = 4;

/// Means of trades, a table and an aggregation; in partition 1.
const MEANS: &str = "
    define stream Trades (symbol string, price double);
    @primaryKey('symbol') define table Last (symbol string, price double);
    define aggregation Volumes from Trades select symbol, count() as n group by symbol aggregate every sec...min;
    @info(name='mean') from Trades#window.length(3) select symbol, avg(price) as mean insert into Means;
    @info(name='last') from Trades select symbol, price update or insert into Last on Last.symbol == symbol;
";

/// Another look at trades; in partition 2.
const RISES: &str = "
    define stream Trades (symbol string, price double);
    define table Highest (price double);
    @info(name='rise') from every e1=Trades -> e2=Trades[price > e1.price]
    select e1.symbol as symbol, e2.price - e1.price as by insert into Rises;
    @info(name='highest') from Trades[price > 40] select price insert into Highest;
";

/// Reads what the first file writes; in partition 3.
const ALARMS: &str = "
    define stream Means (symbol string, mean double);
    @info(name='alarm') from Means#window.lengthBatch(5) select count() as n, max(mean) as most insert into Alarms;
";

const FILES: [(&str, &str); 3] = [("a.siddhi", MEANS), ("b.siddhi", RISES), ("s.siddhi", ALARMS)];
const STREAMS: [&str; 4] = ["Trades", "Means", "Rises", "Alarms"];

fn app(files: &[(&str, &str)], partitions: u32) -> App {
    let mut app = quiet(App::from_texts("homes", None, files));
    app.settings.partitions = partitions;
    app
}

/// Makes a directory as versions did that knew no homes.
fn make_old(dir: &Path) {
    std::fs::write(
        dir.join("meta.json"),
        format!("{{\"format\":1,\"partitions\":{PARTITIONS},\"epoch\":0}}"),
    )
    .unwrap();
}

fn trades(from: u64, n: u64) -> String {
    let trade = |i: u64| {
        let random = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        format!("{{\"symbol\":\"s{}\",\"price\":{}.0}}\n", random % 5, 10 + random % 37)
    };
    (from..from + n).map(trade).collect()
}

/// Returns for each query of an engine where it runs.
fn places(engine: &Engine) -> Vec<(String, String)> {
    engine.queries().unwrap().into_iter().map(|query| (query.name, query.runs)).collect()
}

fn place(query: &str, runs: &str) -> (String, String) {
    (query.to_owned(), runs.to_owned())
}

fn spread() -> Vec<(String, String)> {
    let homes = [("mean", 1), ("last", 1), ("rise", 2), ("highest", 2), ("alarm", 3)];
    homes.iter().map(|(query, home)| place(query, &format!("partition {home}"))).collect()
}

fn gathered() -> Vec<(String, String)> {
    ["mean", "last", "rise", "highest", "alarm"].iter().map(|query| place(query, "partition 0")).collect()
}

/// Returns what on-demand queries find, and the buckets of the aggregation.
fn stores(engine: &Engine) -> (Vec<String>, usize, usize) {
    engine.wait_idle();
    let found = |text: &str| engine.query_on_demand(None, text).unwrap();
    let mut last: Vec<String> =
        found("from Last select symbol, price").into_iter().map(|row| format!("{row:?}")).collect();
    last.sort();
    let buckets = engine.aggregation_rows("Volumes", "min", &(0..i64::MAX)).unwrap();
    (last, found("from Highest select price").len(), buckets.num_rows())
}

/// Events, and what is in the stores, after three rounds that end with a crash, a checkpoint and a crash, or a stop.
fn outcome(partitions: u32, prepare: impl Fn(&Path)) -> (Vec<Vec<String>>, (Vec<String>, usize, usize)) {
    let dir = tempfile::tempdir().unwrap();
    prepare(dir.path());
    for (round, step) in ["", "checkpoint", "stop"].into_iter().enumerate() {
        let engine = Engine::open(dir.path(), Some(app(&FILES, partitions))).unwrap();
        assert_eq!(engine.recovery.warnings, Vec::<String>::new(), "{step}");
        send(&engine, "Trades", &trades(round as u64 * 40, 40));
        engine.wait_idle();
        match step {
            "checkpoint" => engine.checkpoint().unwrap(),
            "stop" => {
                engine.stop().unwrap();
                continue;
            }
            _ => {}
        }
        engine.abandon();
    }
    let engine = Engine::open(dir.path(), None).unwrap();
    let outcome = (STREAMS.map(|stream| events(&engine, stream)).to_vec(), stores(&engine));
    engine.stop().unwrap();
    outcome
}

#[test]
fn files_with_different_homes_have_the_results_of_one_partition() {
    let expected = outcome(1, |_| {});
    assert_eq!((expected.0[0].len(), expected.0[1].len(), expected.0[3].len()), (120, 120, 120 / 5));
    assert!(expected.0[2].len() > 10 && expected.1.0.len() == 5 && expected.1.1 > 5 && expected.1.2 >= 5);
    assert_eq!(outcome(PARTITIONS, |_| {}), expected);
    assert_eq!(outcome(PARTITIONS, make_old), expected);
}

#[test]
fn queries_and_on_demand_queries_are_at_the_home_of_their_file() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Some(app(&FILES, PARTITIONS))).unwrap();
    assert_eq!(places(&engine), spread());
    send(&engine, "Trades", &trades(0, 10));
    engine.wait_idle();
    engine.query_on_demand(Some("b.siddhi"), "select 99.5 as price insert into Highest").unwrap();
    let highest = engine.query_on_demand(None, "from Highest on price == 99.5 select price").unwrap();
    assert_eq!(highest.len(), 1);
    let why = engine.why_query(None, "rise", None).unwrap();
    assert_eq!(
        why.iter().map(|why| (why.file.as_str(), why.partition)).collect::<Vec<_>>(),
        [("b.siddhi", 2)]
    );
    let why = engine.why_query(None, "mean", None).unwrap();
    assert_eq!(why.iter().map(|why| why.partition).collect::<Vec<_>>(), [1]);
    // a change is replayed where it was made
    engine.abandon();
    drop(engine);
    let engine = Engine::open(dir.path(), None).unwrap();
    assert_eq!(engine.query_on_demand(None, "from Highest on price == 99.5 select price").unwrap().len(), 1);
    engine.stop().unwrap();

    let explained = explain(&tidemill_engine::compile(&app(&FILES, PARTITIONS)).unwrap().queries, PARTITIONS);
    for line in [
        "home is partition 1: it follows from the name of the file",
        "home is partition 3: it follows from the name of the file",
        "runs in partition 2: ",
    ] {
        assert!(explained.contains(line), "{line}\n{explained}");
    }
}

#[test]
fn a_directory_of_earlier_versions_keeps_its_queries_in_the_first_partition() {
    let dir = tempfile::tempdir().unwrap();
    make_old(dir.path());
    let engine = Engine::open(dir.path(), Some(app(&FILES[..2], PARTITIONS))).unwrap();
    assert_eq!(places(&engine), gathered()[..4]);
    send(&engine, "Trades", &trades(0, 40));
    engine.stop().unwrap();
    drop(engine);
    // a new file has the same home
    let engine = Engine::open(dir.path(), Some(app(&FILES, PARTITIONS))).unwrap();
    assert_eq!(places(&engine), gathered());
    assert!(!engine.recovery.changes.iter().any(|change| change.contains("dropped")));
    send(&engine, "Trades", &trades(40, 40));
    assert_eq!(events(&engine, "Alarms").len(), 40 / 5);
    assert_eq!(stores(&engine).0.len(), 5);
    engine.stop().unwrap();
    drop(engine);
    let compiled = tidemill_engine::compile_for(
        &app(&FILES, PARTITIONS),
        Partitioning { partitions: PARTITIONS, home_rule: tidemill_engine::HomeRule::First },
    );
    let explained = explain(&compiled.unwrap().queries, PARTITIONS);
    assert!(explained.contains("home is partition 0: the directory was made before"), "{explained}");
}

#[test]
fn state_that_is_elsewhere_is_not_lost_in_silence() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Some(app(&FILES, PARTITIONS))).unwrap();
    send(&engine, "Trades", &trades(0, 40));
    engine.stop().unwrap();
    drop(engine);
    let meta = std::fs::read(dir.path().join("meta.json")).unwrap();
    make_old(dir.path());
    let refused = Engine::open(dir.path(), None).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    let text = refused.to_string();
    assert!(
        text.contains("partition 1 has the state of a.siddhi, whose queries run in partition 0 now")
            && text.contains("meta.json"),
        "{text}"
    );
    // a rule that this version does not know
    std::fs::write(dir.path().join("meta.json"), "{\"format\":4,\"partitions\":4,\"epoch\":1}").unwrap();
    let refused = Engine::open(dir.path(), None).err().unwrap().to_string();
    assert!(refused.contains("format 4; this version reads the formats 1 to 3"), "{refused}");
    std::fs::write(dir.path().join("meta.json"), meta).unwrap();
    let engine = Engine::open(dir.path(), None).unwrap();
    assert_eq!(stores(&engine).0.len(), 5);
}

#[test]
fn a_file_keeps_its_home_while_others_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Some(app(&FILES, PARTITIONS))).unwrap();
    send(&engine, "Trades", &trades(0, 41));
    let before = stores(&engine);
    engine.stop().unwrap();
    drop(engine);

    // another file comes, one goes, one gets another name
    let files = [("a.siddhi", MEANS), ("t.siddhi", RISES), ("d.siddhi", ALARMS)];
    let mut changed = app(&files, PARTITIONS);
    let refused = Engine::open(dir.path(), Some(changed.clone())).err().unwrap();
    assert!(refused.to_string().contains("b.siddhi, s.siddhi: no longer part of the app"), "{refused}");
    changed.settings.changed_queries = tidemill_engine::ChangedQueries::Restart;
    let engine = Engine::open(dir.path(), Some(changed)).unwrap();
    let homes: Vec<(String, String)> = places(&engine);
    assert_eq!(homes[0], place("mean", "partition 1"));
    assert!(homes.contains(&place("rise", "partition 2")) && homes.contains(&place("alarm", "partition 0")));
    for file in ["b.siddhi", "s.siddhi"] {
        let mut changes = engine.recovery.changes.iter();
        let is_dropped =
            |change: &String| change.starts_with(file) && change.ends_with("its state is dropped");
        assert!(changes.any(is_dropped), "{:?}", engine.recovery.changes);
    }
    let now = stores(&engine);
    assert_eq!(
        (now.0, now.1, now.2),
        (before.0, 0, before.2),
        "the table of the file with another name is empty"
    );
    // the window of the file that stayed has its rows, that of the file with another name is empty
    send(&engine, "Trades", &trades(41, 9));
    engine.wait_idle();
    assert_eq!(rows(&engine, "Means"), 50);
    assert_eq!(events(&engine, "Alarms").len(), 41 / 5 + 9 / 5);
    let one = {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), Some(app(&FILES, 1))).unwrap();
        send(&engine, "Trades", &trades(0, 50));
        events(&engine, "Means")
    };
    assert_eq!(events(&engine, "Means"), one);
}

#[test]
fn files_that_read_each_other_come_to_the_end_that_they_have_in_one_partition() {
    let there = "define stream There (n int); from There select n + 1 as n insert into Back;";
    let back = "define stream Back (n int); from Back select n + 1 as n insert into There;";
    let outcome = |partitions| {
        let dir = tempfile::tempdir().unwrap();
        let files = [("a.siddhi", there), ("b.siddhi", back)];
        let engine = Engine::open(dir.path(), Some(app(&files, partitions))).unwrap();
        send(&engine, "There", "{\"n\":1}\n");
        engine.wait_idle();
        // the last one is refused, and counted
        let failures: Vec<String> =
            engine.queries().unwrap().into_iter().filter_map(|query| query.last_error).collect();
        (events(&engine, "There"), events(&engine, "Back"), failures)
    };
    let (one, several) = (outcome(1), outcome(PARTITIONS));
    assert!(one.0.len() > 4, "{one:?}");
    assert_eq!(several, one);
}

#[test]
fn files_with_different_homes_emit_an_event_with_an_id_once() {
    let rules = "event Seen { id: string, by: string } id id;";
    let file = |by: &str| {
        format!(
            "define stream Trades (symbol string, price double);
             from Trades#window.length(2) select symbol as id, '{by}' as by insert into Seen;"
        )
    };
    for partitions in [1, PARTITIONS] {
        let dir = tempfile::tempdir().unwrap();
        let texts = ["a.siddhi", "b.siddhi", "s.siddhi", "d.siddhi"].map(|name| (name, file(name)));
        let files = texts.each_ref().map(|(name, text)| (*name, text.as_str()));
        let mut app = quiet(App::from_texts("ids", Some(rules), &files));
        app.settings.partitions = partitions;
        let engine = Engine::open(dir.path(), Some(app.clone())).unwrap();
        send(&engine, "Trades", &trades(0, 50));
        engine.wait_idle();
        assert_eq!(rows(&engine, "Seen"), 5, "one for each symbol, in {partitions} partitions");
        engine.abandon();
        drop(engine);
        let engine = Engine::open(dir.path(), None).unwrap();
        send(&engine, "Seen", "{\"id\":\"s1\",\"by\":\"a client\"}\n{\"id\":\"s9\",\"by\":\"a client\"}\n");
        send(&engine, "Trades", &trades(50, 50));
        engine.wait_idle();
        assert_eq!(rows(&engine, "Seen"), 6, "in {partitions} partitions");
    }
}

/// A stream that two files read lives in one of their homes, and so do the other streams of these files: their events reach
/// each file in the order in which they arrived.
#[test]
fn streams_that_a_file_reads_together_keep_their_order() {
    let both = "
        define stream Ups (n int);
        define stream Downs (n int);
        from every u=Ups -> d=Downs select u.n as up, d.n as down insert into Pairs;";
    let one =
        "define stream Downs (n int); from Downs#window.lengthBatch(10) select sum(n) as n insert into Tens;";
    let outcome = |partitions| {
        let dir = tempfile::tempdir().unwrap();
        let files = [("a.siddhi", both), ("b.siddhi", one), ("s.siddhi", one)];
        let engine = Engine::open(dir.path(), Some(app(&files, partitions))).unwrap();
        // a sender that waited for what follows from an event would bring them in order by itself
        let options = SendOptions { origin: "test".into(), ..SendOptions::default() };
        for n in 0..600 {
            let stream = if n % 3 == 2 { "Downs" } else { "Ups" };
            let event = format!("{{\"n\":{n}}}\n");
            engine.send_json(stream, event.as_bytes(), BodyFormat::Ndjson, &options).unwrap();
        }
        (events(&engine, "Pairs"), events(&engine, "Tens"))
    };
    let expected = outcome(1);
    assert_eq!((expected.0.len(), expected.1.len()), (400, 40));
    assert_eq!(outcome(PARTITIONS), expected);
}

#[test]
fn files_with_tables_in_stores_have_one_home() {
    let file = "
        define stream Customers (id string);
        @store(type='documents') @primaryKey('id') define table Known (id string);
        @info(name='known') from Customers select id insert into Known;";
    let other = file.replace("name='known'", "name='also'");
    let dir = tempfile::tempdir().unwrap();
    let files = [("a.siddhi", file), ("b.siddhi", other.as_str()), ("s.siddhi", ALARMS)];
    let engine = Engine::open(dir.path(), Some(app(&files, PARTITIONS))).unwrap();
    let expected =
        [place("known", "partition 0"), place("also", "partition 0"), place("alarm", "partition 3")];
    assert_eq!(places(&engine), expected);
    send(&engine, "Customers", "{\"id\":\"c1\"}\n{\"id\":\"c2\"}\n");
    engine.wait_idle();
    assert_eq!(engine.query_on_demand(Some("b.siddhi"), "from Known select id").unwrap().len(), 2);
    let explained = explain(&tidemill_engine::compile(&app(&files, PARTITIONS)).unwrap().queries, PARTITIONS);
    assert!(explained.contains("home is partition 0: it uses a store"), "{explained}");
}
