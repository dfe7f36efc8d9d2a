//! Streams without a key whose queries ask for several instances of themselves: `@dist(parallel='3')`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tidemill_engine::queries::explain::explain;
use tidemill_engine::{App, BodyFormat, Engine, SendOptions};

use crate::connectors::outside::Outside;
use crate::queries::{events, send};
use crate::{ledger, quiet, rows};

const PARTITIONS: u32 = 4;

/// Two steps in any order, and a third that wants all events in one place.
const STEPS: &str = "
    define stream Mails (n int, body string);
    @info(name='short') @dist(parallel='3') from Mails[n % 10 != 9] select n, str:lower(body) as body insert into Short;
    @info(name='double') @dist(parallel='8') from Short select n * 2 as n, body insert into Doubled;
    @info(name='count') from Doubled#window.lengthBatch(10) select count() as n, sum(n) as total insert into Tens;
";

const COUNTS: &str = "define aggregation Counts from Mails select count() as n aggregate every sec...min;";

const RULES_WITH_ID: &str = "event Seen { n: int, body: string } id n;";

fn app(rules: Option<&str>, text: &str, partitions: u32) -> App {
    app_of(rules, &[("steps.siddhi", text)], partitions)
}

fn app_of(rules: Option<&str>, files: &[(&str, &str)], partitions: u32) -> App {
    let mut app = quiet(App::from_texts("steps", rules, files));
    app.settings.partitions = partitions;
    app
}

fn mails(from: u32, n: u32) -> String {
    (from..from + n).map(|n| format!("{{\"n\":{n},\"body\":\"Body {n}\"}}\n")).collect()
}

/// Sends events, and returns the partition of each.
fn partitions_of(engine: &Engine, stream: &str, rows: &str) -> Vec<String> {
    let options = SendOptions { wait: true, origin: "test".into(), ..SendOptions::default() };
    let reply = engine.send_json(stream, rows.as_bytes(), BodyFormat::Ndjson, &options).unwrap();
    let ids = reply.events.unwrap().into_iter();
    ids.map(|id| id.unwrap().split('-').next().unwrap().to_owned()).collect()
}

fn explained(app: &App) -> String {
    explain(&tidemill_engine::compile(app).unwrap().queries, app.settings.partitions)
}

/// Returns the reason for which a stream of the app is in one partition.
#[track_caller]
fn assert_in_order(app: &App, reason: &str) {
    let text = explained(app);
    let expected = format!("asked for 3 at a time, runs 1 at a time: {reason}");
    assert!(text.lines().any(|line| line.trim() == expected), "{expected}\n{text}");
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Some(app.clone())).unwrap();
    let mut seen = BTreeSet::new();
    (0..4).for_each(|n| seen.extend(partitions_of(&engine, "Mails", &mails(n, 1))));
    assert_eq!(seen.len(), 1);
}

#[test]
fn batches_go_to_as_many_partitions_as_are_asked_for() {
    let app = app(None, STEPS, PARTITIONS);
    let text = explained(&app);
    for line in [
        "runs in each of 4 partitions: looks at each event by itself, in any order (@dist)",
        "asked for 3 at a time, runs 3 at a time",
        "runs in partition 0: Doubled has no key",
    ] {
        let is_it = |text: &str| text.trim() == line;
        assert_eq!(text.lines().any(is_it), !line.contains("Doubled"), "{line}\n{text}");
    }
    assert!(text.contains("keeps the rows of lengthBatch(10)"), "{text}");

    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Some(app)).unwrap();
    let mut seen = Vec::new();
    for n in 0..12 {
        let of = partitions_of(&engine, "Mails", &mails(n * 5, 5));
        assert!(of.iter().all(|partition| *partition == of[0]), "a batch stays together: {of:?}");
        seen.push(of[0].clone());
    }
    assert_eq!(seen[..3].iter().collect::<BTreeSet<_>>().len(), 3, "{seen:?}");
    assert_eq!(seen[..9], seen[3..], "one after the other");
    // a large request is cut into several batches
    let of = partitions_of(&engine, "Mails", &mails(60, 40_000));
    assert_eq!(of.iter().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!((of[0].as_str(), of[16_384].as_str(), of[32_768].as_str()), (&*seen[0], &*seen[1], &*seen[2]));
    engine.wait_idle();
    assert_eq!(rows(&engine, "Short"), 40_060 / 10 * 9);
    assert_eq!(rows(&engine, "Tens"), 40_060 / 10 * 9 / 10);
    engine.stop().unwrap();
}

#[test]
fn events_are_those_of_one_partition_after_any_end() {
    let outcome = |partitions| {
        let dir = tempfile::tempdir().unwrap();
        for (round, step) in ["", "checkpoint", "stop"].into_iter().enumerate() {
            let engine = Engine::open(dir.path(), Some(app(None, STEPS, partitions))).unwrap();
            for part in 0..10 {
                send(&engine, "Mails", &mails(round as u32 * 100 + part * 10, 10));
            }
            engine.wait_idle();
            match step {
                "stop" => engine.stop().unwrap(),
                "checkpoint" => {
                    engine.checkpoint().unwrap();
                    engine.abandon();
                }
                _ => engine.abandon(),
            }
        }
        let engine = Engine::open(dir.path(), None).unwrap();
        let tens = events(&engine, "Tens");
        let total = |event: &String| {
            serde_json::from_str::<serde_json::Value>(event).unwrap()["total"].as_i64().unwrap()
        };
        // the tens depend on the order of the events, their sum does not
        (
            events(&engine, "Short"),
            events(&engine, "Doubled"),
            tens.len(),
            tens.iter().map(total).sum::<i64>(),
        )
    };
    let expected = outcome(1);
    assert_eq!((expected.0.len(), expected.1.len(), expected.2), (270, 270, 27));
    assert_eq!(outcome(PARTITIONS), expected);
}

#[test]
fn streams_stay_in_one_partition_while_somebody_needs_their_order() {
    let with = |query: &str| app(None, &format!("{STEPS}\n{query}"), PARTITIONS);
    assert_in_order(
        &with("@info(name='plain') from Mails select n insert into Plain;"),
        "`plain` of steps.siddhi reads Mails as well, in one partition: Mails has no key",
    );
    assert_in_order(
        &with("@info(name='one') @dist(parallel='1') from Mails select n insert into Plain;"),
        "`one` of steps.siddhi reads Mails as well, in one partition: Mails has no key",
    );
    assert_in_order(
        &with(
            "@info(name='last') @dist(parallel='4') from Mails#window.length(5) select max(n) as n insert into Last;",
        ),
        "`last` of steps.siddhi reads Mails as well, in one partition: Mails has no key",
    );
    assert_in_order(
        &app(None, &STEPS.replacen("@info", &format!("{COUNTS} @info"), 1), PARTITIONS),
        "an aggregation or a topic reads Mails as well",
    );
    let other = "
        define stream Mails (n int, body string);
        @info(name='pairs') from every a=Mails -> b=Mails select a.n as n insert into Pairs;";
    assert_in_order(
        &app_of(None, &[("other.siddhi", other), ("steps.siddhi", STEPS)], PARTITIONS),
        "`pairs` of other.siddhi reads Mails as well, in one partition: Mails has no key",
    );
    let ruled = "
        event Mails { n: int, body: string };
        event Found { n: int };
        rule Find { when { m: Mails(n > 5); } then { emit Found { n: m.n }; } }";
    assert_in_order(&app(Some(ruled), STEPS, PARTITIONS), "rules look at Mails, in the order of its events");
    assert_in_order(
        &app(Some("event Mails { n: int, body: string } id n;"), STEPS, PARTITIONS),
        "duplicates of Mails are found in one partition",
    );
}

#[test]
fn instances_find_duplicates_of_what_they_emit() {
    let text = STEPS.replace(
        "insert into Short;",
        "insert into Short; @dist(parallel='3') from Mails select n, body insert into Seen;",
    );
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path(), Some(app(Some(RULES_WITH_ID), &text, PARTITIONS))).unwrap();
    for _ in 0..5 {
        send(&engine, "Mails", &mails(0, 10));
    }
    engine.wait_idle();
    assert_eq!((rows(&engine, "Mails"), rows(&engine, "Seen")), (50, 10));
    engine.abandon();
    drop(engine);
    let engine = Engine::open(dir.path(), None).unwrap();
    send(&engine, "Mails", &mails(5, 10));
    engine.wait_idle();
    assert_eq!((rows(&engine, "Mails"), rows(&engine, "Seen")), (60, 15));
    engine.stop().unwrap();
}

#[test]
fn a_directory_of_earlier_versions_keeps_streams_in_one_partition() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("meta.json"), "{\"format\":2,\"partitions\":4,\"epoch\":0}").unwrap();
    let engine = Engine::open(dir.path(), Some(app(None, STEPS, PARTITIONS))).unwrap();
    let mut seen = BTreeSet::new();
    (0..4).for_each(|n| seen.extend(partitions_of(&engine, "Mails", &mails(n, 1))));
    assert_eq!(seen.len(), 1);
    let places: BTreeSet<String> = engine.queries().unwrap().into_iter().map(|query| query.runs).collect();
    assert_eq!(places.len(), 1, "{places:?}");
    engine.stop().unwrap();
}

#[test]
fn a_number_of_instances_is_checked() {
    for wrong in ["0", "-1", "many", ""] {
        let text = STEPS.replace("parallel='8'", &format!("parallel='{wrong}'"));
        let refused = tidemill_engine::compile(&app(None, &text, PARTITIONS)).err().unwrap().to_string();
        let expected = format!("`{wrong}` is not a number of instances, from 1");
        assert!(refused.contains(&expected) && refused.contains("steps.siddhi:4"), "{refused}");
    }
}

/// Waits until a stream has so many events.
fn wait_for(engine: &Engine, stream: &str, events: u64) {
    let end = Instant::now() + Duration::from_secs(120);
    while rows(engine, stream) < events {
        assert!(Instant::now() < end, "{}", ledger(engine));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A source reads events again after a crash: they come to the partition that knows that it has them.
#[test]
fn a_source_fills_spread_streams_once() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), Outside::new());
    let text = STEPS.replace("define stream Mails", "@source(type='outside') define stream Mails");
    let app = app(None, &text, PARTITIONS).with_connectors(outside.catalog());
    for round in 0..4 {
        let engine = Engine::open(dir.path(), Some(app.clone())).unwrap();
        let texts = mails(round * 200, 200);
        outside.inbox.lock().extend(texts.lines().map(str::to_owned));
        engine.start_sources().unwrap();
        // some rounds end before all was read
        let enough = u64::from(round * 200 + if round % 2 == 0 { 200 } else { 50 });
        wait_for(&engine, "Mails", enough);
        engine.abandon();
    }
    let engine = Engine::open(dir.path(), Some(app)).unwrap();
    engine.start_sources().unwrap();
    wait_for(&engine, "Tens", 72);
    assert_eq!((rows(&engine, "Mails"), rows(&engine, "Short"), rows(&engine, "Tens")), (800, 720, 72));
    engine.stop().unwrap();
}
