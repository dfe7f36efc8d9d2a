//! Connectors to other systems: what is acknowledged, kept and delivered over crashes. The other system is a value of
//! the test, which remembers what it was given and can be down.

pub mod outside;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tidemill_engine::{App, Engine, UndeliveredSelection};
use tidemill_log::disk::OsDisk;
use tidemill_log::{GroupLog, LocalLog, Log, LogOptions};
use tidemill_types::{EventId, PartitionId, Timestamp};

use outside::Outside;

use crate::{ledger, quiet, rows, send};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(120);

fn app(annotations: &str, outside: &Arc<Outside>) -> App {
    app_with(annotations, "", outside)
}

fn app_with(annotations: &str, queries: &str, outside: &Arc<Outside>) -> App {
    let text = format!(
        "define stream In (k string, n long);
        {annotations} define stream Out (k string, n long);
        from In select k, n insert into Out;
        {queries}"
    );
    quiet(App::from_texts("c", None, &[("c.siddhi", &text)])).with_connectors(outside.catalog())
}

/// Returns an app whose events are in several partitions.
fn keyed_app(annotations: &str, outside: &Arc<Outside>) -> App {
    let text = format!(
        "@key('k') define stream In (k string, n long);
        {annotations} @key('k') define stream Out (k string, n long);
        from In select k, n insert into Out;"
    );
    quiet(App::from_texts("c", None, &[("c.siddhi", &text)])).with_connectors(outside.catalog())
}

fn open(dir: &Path, app: &App) -> Engine {
    Engine::open(&dir.join("data"), Some(app.clone())).unwrap()
}

fn send_numbers(engine: &Engine, numbers: std::ops::Range<i64>) {
    let rows: String = numbers.map(|n| format!("{{\"k\":\"k{}\",\"n\":{n}}}\n", n % 7)).collect();
    send(engine, "In", &rows);
}

/// Waits until `is_so`, and fails with what `state` says otherwise.
fn wait_until(mut is_so: impl FnMut() -> bool, state: impl Fn() -> String) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{}", state());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn all(end: i64) -> Vec<i64> {
    (0..end).collect()
}

#[test]
fn positions_of_splits_travel_with_their_events() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), Outside::new());
    let app = app("@source(type='outside')", &outside);
    for round in 0..5_usize {
        let engine = open(dir.path(), &app);
        let sent = outside.inbox.lock().len();
        let messages = (sent..sent + 300).map(|n| match n % 100 {
            7 => "{\"k\": 1".to_owned(),
            _ => format!("{{\"k\":\"k{}\",\"n\":{n}}}", n % 5),
        });
        outside.inbox.lock().extend(messages);
        engine.start_sources().unwrap();
        // some rounds end before all was read
        let enough = if round % 2 == 0 { sent + 300 } else { sent + 120 };
        let arrived = || rows(&engine, "Out") as usize;
        wait_until(|| arrived() >= enough * 99 / 100, || format!("{} of {enough}", arrived()));
        if round == 2 {
            engine.checkpoint().unwrap();
        }
        engine.abandon();
    }
    let engine = open(dir.path(), &app);
    engine.start_sources().unwrap();
    wait_until(|| rows(&engine, "Out") >= 1485, || ledger(&engine));
    assert_eq!(ledger(&engine), "Out 1500=1485+0+15\n");
    engine.stop().unwrap();
}

#[test]
fn messages_without_positions_are_acknowledged_when_they_are_durable() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), Outside::new());
    let app = app("@source(type='outside', splits='false')", &outside);
    let engine = open(dir.path(), &app);
    let texts = ["{\"k\":\"a\",\"n\":1}", "{\"k\":\"a\"", "{\"k\":\"b\",\"n\":2}"];
    outside.inbox.lock().extend(texts.map(str::to_owned));
    engine.start_sources().unwrap();
    wait_until(|| outside.receipts.lock().len() == 3, || format!("{:?}", outside.receipts.lock()));
    // a crash right after the acknowledgement
    engine.abandon();
    drop(engine);
    let receipts = outside.receipts.lock().clone();
    assert_eq!(receipts.iter().map(|r| r.0).collect::<Vec<_>>(), [1, 0, 1]);
    assert_eq!(receipts[1].1.len(), 1, "{receipts:?}");
    let engine = open(dir.path(), &app);
    assert_eq!(ledger(&engine), "Out 3=2+0+1\n");
    engine.stop().unwrap();
}

#[test]
fn events_wait_for_a_sink_that_is_down_over_crashes() {
    for remembers in [false, true] {
        let (dir, outside) = (tempfile::tempdir().unwrap(), Outside::new());
        outside.remembers.store(remembers, Ordering::Relaxed);
        let app = app("@sink(type='outside')", &outside);
        let mut sent = 0;
        for step in ["down", "down checkpoint", "", "fails", "down checkpoint", "fails checkpoint", "down"] {
            outside.is_down.store(step.starts_with("down"), Ordering::Relaxed);
            let engine = open(dir.path(), &app);
            assert_eq!(engine.recovery.warnings, Vec::<String>::new(), "{step}");
            if step.starts_with("fails") {
                outside.fails_after.store(outside.outbox.lock().len() + 55, Ordering::Relaxed);
            }
            send_numbers(&engine, sent..sent + 100);
            sent += 100;
            if step.ends_with("checkpoint") {
                engine.checkpoint().unwrap();
            }
            if !step.starts_with("down") {
                let waiting = || engine.sinks()[0].waiting;
                wait_until(|| waiting() == 0, || format!("{step}: {:?}", engine.sinks()));
            }
            let info = &engine.sinks()[0];
            assert_eq!(info.emitted, info.delivered + info.failed + info.waiting, "{step}: {info:?}");
            engine.abandon();
        }
        outside.is_down.store(false, Ordering::Relaxed);
        let engine = open(dir.path(), &app);
        wait_until(|| engine.sinks()[0].waiting == 0, || format!("{:?}", engine.sinks()));
        let info = &engine.sinks()[0];
        assert_eq!((info.emitted, info.delivered, info.failed), (700, 700, 0));
        engine.stop().unwrap();
        let mut numbers = outside.numbers();
        if !remembers {
            // an event that was sent again has the same id
            let mut ids: BTreeMap<EventId, String> = BTreeMap::new();
            for (_, id, event) in outside.outbox.lock().iter() {
                assert_eq!(ids.entry(*id).or_insert_with(|| event.clone()), event);
            }
            numbers.dedup();
        }
        assert_eq!(numbers, all(700), "remembers {remembers}");
    }
}

#[test]
fn events_of_a_partition_are_delivered_in_order() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), Outside::new());
    outside.remembers.store(true, Ordering::Relaxed);
    let app = app("@sink(type='outside')", &outside);
    for round in 0..4 {
        let engine = open(dir.path(), &app);
        outside.fails_after.store(outside.outbox.lock().len() + 130, Ordering::Relaxed);
        for part in 0..4 {
            send_numbers(&engine, 200 * round + 50 * part..200 * round + 50 * (part + 1));
            if part == 2 {
                engine.checkpoint().unwrap();
            }
        }
        match round % 2 {
            0 => engine.abandon(),
            _ => engine.stop().unwrap(),
        }
    }
    let engine = open(dir.path(), &app);
    wait_until(|| engine.sinks()[0].waiting == 0, || format!("{:?}", engine.sinks()));
    engine.stop().unwrap();
    let mut last: BTreeMap<u32, EventId> = BTreeMap::new();
    for (_, id, _) in outside.outbox.lock().iter() {
        assert!(last.insert(id.partition.0, *id).is_none_or(|before| before < *id), "{id}");
    }
    assert_eq!(outside.numbers(), all(800));
}

#[test]
fn refused_events_are_kept_with_their_reasons() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), Outside::new());
    let app = app("@sink(type='outside')", &outside);
    let engine = open(dir.path(), &app);
    send_numbers(&engine, -3..5);
    engine.wait_idle();
    let info = &engine.sinks()[0];
    assert_eq!((info.emitted, info.delivered, info.failed, info.waiting), (8, 5, 3, 0));
    let rejected: usize = engine.rejected_snapshot().unwrap().tail.iter().map(|b| b.num_rows()).sum();
    assert_eq!(rejected, 3);
    // the stream has them: its ledger does not change
    assert_eq!(ledger(&engine), "In 8=8+0+0\nOut 8=8+0+0\n");
    engine.stop().unwrap();
}

#[test]
fn a_sink_that_waits_tries_a_refused_event_alone() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), Outside::new());
    let mut app = app("@sink(type='outside', on.error='WAIT')", &outside);
    app.settings.partitions = 1;
    let engine = open(dir.path(), &app);
    send(&engine, "In", "{\"k\":\"a\",\"n\":1}\n{\"k\":\"a\",\"n\":-1}\n{\"k\":\"a\",\"n\":2}");
    wait_until(|| engine.sinks()[0].problem.is_some(), || format!("{:?}", engine.sinks()));
    let info = &engine.sinks()[0];
    assert_eq!((info.delivered, info.failed, info.waiting), (1, 0, 2));
    assert!(info.problem.as_ref().unwrap().contains("negative"), "{info:?}");
    assert!(engine.health().problems.iter().any(|p| p.contains("negative")), "{:?}", engine.health());
    // time for more attempts, during which the third event is not sent again
    let attempts = || outside.attempts.load(Ordering::Relaxed);
    wait_until(|| attempts() >= 3, || format!("{} attempts", attempts()));
    engine.stop().unwrap();
    assert_eq!(outside.numbers(), [1, 2]);
}

#[test]
fn refused_events_go_to_the_fault_stream() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), Outside::new());
    // an event that a query fails on goes there as before
    let queries = "
        from Out[n > 2] select str:length(k) as length insert into Lengths;
        from !Out select n, _error as why insert into Failed;";
    let annotations = "@OnError(action='STREAM') @sink(type='outside', on.error='STREAM')";
    let app = app_with(annotations, queries, &outside);
    let engine = open(dir.path(), &app);
    send_numbers(&engine, -3..2);
    wait_until(|| rows(&engine, "Failed") == 3, || ledger(&engine));
    engine.wait_idle();
    let info = &engine.sinks()[0];
    assert_eq!((info.emitted, info.delivered, info.failed, info.waiting), (5, 2, 3, 0));
    assert_eq!((rows(&engine, "!Out"), engine.rejected_snapshot().unwrap().tail.len()), (3, 0));
    engine.abandon();
    drop(engine);
    let engine = open(dir.path(), &app);
    engine.wait_idle();
    send(&engine, "In", "{\"n\":5}");
    engine.wait_idle();
    assert_eq!((rows(&engine, "!Out"), rows(&engine, "Failed"), rows(&engine, "Lengths")), (3, 4, 0));
    engine.stop().unwrap();

    let without = app_with("@sink(type='outside', on.error='STREAM')", "", &outside);
    let wrong = Engine::open(&dir.path().join("other"), Some(without)).err().unwrap().to_string();
    assert!(wrong.contains("`on.error='STREAM'` sends to `!Out`, which there is not"), "{wrong}");
    assert!(wrong.contains("write `@OnError(action='STREAM')` before `define stream Out`"), "{wrong}");
}

#[test]
fn refused_events_are_stored_retried_once_and_discarded() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), Outside::new());
    outside.remembers.store(true, Ordering::Relaxed);
    let app = app("@sink(type='outside', on.error='STORE')", &outside);
    let all_of = UndeliveredSelection::default();
    let undelivered = |engine: &Engine| engine.undelivered(&all_of, 100).unwrap();
    let engine = open(dir.path(), &app);
    assert_eq!((undelivered(&engine).len(), engine.discard_undelivered(&all_of).unwrap()), (0, 0));
    send_numbers(&engine, -4..3);
    engine.wait_idle();
    let events = undelivered(&engine);
    assert_eq!(events.len(), 4);
    assert_eq!((events[0].reason.as_str(), events[0].stream.as_str()), ("negative", "Out"));
    assert_eq!(events[0].sink, "c.siddhi: Out to outside");
    engine.checkpoint().unwrap();
    engine.abandon();
    drop(engine);

    // what is refused again comes back, with another id
    let engine = open(dir.path(), &app);
    engine.wait_idle();
    let retried = engine.retry_undelivered(&all_of).unwrap();
    assert_eq!((retried.retried, retried.errors.len()), (4, 0));
    // they are counted after they are stored
    let came_back = || undelivered(&engine).len() == 4 && engine.sinks()[0].failed == 8;
    wait_until(came_back, || format!("{:?}", engine.sinks()));
    let again = undelivered(&engine);
    assert!(again.iter().all(|event| events.iter().all(|before| before.id != event.id)));
    let sums = |engine: &Engine| {
        let info = engine.sinks().remove(0);
        assert_eq!(info.emitted, info.delivered + info.failed + info.waiting);
        (info.delivered, info.failed)
    };
    assert_eq!(sums(&engine), (3, 8));

    let minus_one = again.iter().find(|event| event.event.contains("-1")).unwrap().id.clone();
    let one = UndeliveredSelection { ids: vec![minus_one, "unknown".into()], ..all_of.clone() };
    assert_eq!(engine.discard_undelivered(&one).unwrap(), 1);
    outside.takes_negative.store(true, Ordering::Relaxed);
    let other = UndeliveredSelection { sink: Some("other".into()), ids: vec![] };
    assert_eq!(engine.retry_undelivered(&other).unwrap().retried, 0);
    assert_eq!(engine.retry_undelivered(&all_of).unwrap().retried, 3);
    // a crash, before or after the delivery: each arrives once
    engine.abandon();
    drop(engine);
    let engine = open(dir.path(), &app);
    engine.wait_idle();
    assert_eq!(outside.numbers(), [-4, -3, -2, 0, 1, 2]);
    assert_eq!(undelivered(&engine), []);
    engine.stop().unwrap();
}

#[test]
fn events_are_distributed_among_destinations() {
    for (strategy, expected) in [
        ("broadcast", vec![("p", 70), ("q", 70)]),
        ("roundRobin", vec![("p", 35), ("q", 35)]),
        ("partitioned", vec![]),
    ] {
        let (dir, outside) = (tempfile::tempdir().unwrap(), Outside::new());
        let sink = format!(
            "@sink(type='outside', @distribution(strategy='{strategy}', partitionKey='k', @destination(to='p'), @destination(to='q')))"
        );
        let engine = open(dir.path(), &app(&sink, &outside));
        send_numbers(&engine, 0..70);
        engine.wait_idle();
        engine.stop().unwrap();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let outbox = outside.outbox.lock().clone();
        outbox.iter().for_each(|(to, ..)| *counts.entry(to).or_default() += 1);
        if strategy == "partitioned" {
            let mut homes: BTreeMap<String, &str> = BTreeMap::new();
            for (to, _, event) in &outbox {
                let event: serde_json::Value = serde_json::from_str(event).unwrap();
                assert_eq!(*homes.entry(event["k"].to_string()).or_insert(to), to, "{event}");
            }
            assert_eq!((counts.len(), outbox.len()), (2, 70));
        } else {
            assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected, "{strategy}");
        }
    }
}

#[test]
fn waiting_events_of_a_removed_sink_are_told() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), Outside::new());
    outside.is_down.store(true, Ordering::Relaxed);
    let with_sink = app("@sink(type='outside')", &outside);
    let engine = open(dir.path(), &with_sink);
    send_numbers(&engine, 0..10);
    engine.checkpoint().unwrap();
    engine.stop().unwrap();
    drop(engine);
    let engine = open(dir.path(), &app("", &outside));
    let warnings = engine.recovery.warnings.join("\n");
    assert!(warnings.contains("10 events wait for the sink c.siddhi: Out to outside"), "{warnings}");
    engine.stop().unwrap();
    drop(engine);
    outside.is_down.store(false, Ordering::Relaxed);
    let engine = open(dir.path(), &with_sink);
    engine.wait_idle();
    engine.stop().unwrap();
    assert_eq!(outside.numbers(), all(10));
}

#[test]
fn app_toml_has_connectors_for_streams_of_rules_and_queries() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), Outside::new());
    let app_dir = dir.path().join("app");
    std::fs::create_dir(&app_dir).unwrap();
    let write = |name: &str, text: &str| std::fs::write(app_dir.join(name), text).unwrap();
    write("a.rules", "event In { k: string, n: long, at: time } time at key k;");
    write(
        "b.siddhi",
        "define stream In (k string, n long); from In[n >= 0] select k, n * 2 as n insert into Out;",
    );
    let toml = "[[source]]\ntype = 'outside'\nstream = 'In'\nname = 'arrivals'\n\n\
                [[sink]]\ntype = 'outside'\nstream = 'Out'\noptions = { to = 'y' }\n";
    write("app.toml", toml);
    let read = || quiet(App::read(&app_dir, &[]).unwrap()).with_connectors(outside.catalog());
    for round in 0..3 {
        let engine = open(dir.path(), &read());
        let messages = (round * 10..round * 10 + 10).map(|n| format!("{{\"k\":\"a\",\"n\":{n},\"at\":{n}}}"));
        outside.inbox.lock().extend(messages);
        engine.start_sources().unwrap();
        wait_until(|| outside.outbox.lock().len() as i64 >= 10 * (round + 1), || ledger(&engine));
        assert_eq!(engine.sinks()[0].name, "app.toml/outside from Out: Out to outside");
        engine.stop().unwrap();
    }
    assert_eq!(outside.numbers(), (0..30).map(|n| 2 * n).collect::<Vec<_>>());
    assert!(outside.outbox.lock().iter().all(|(to, ..)| to == "y"));

    for (toml, message) in [
        (
            "[[sink]]\ntype = 'outside'\nstream = 'Otu'\n",
            "app.toml: line 3: no stream `Otu`. Did you mean `Out`?",
        ),
        (
            "\n\n[[sink]]\nstream = 'Out'\ntype = 'outsid'\n",
            " --> app.toml:5:1\n  |\n5 | type = 'outsid'\n  | ^^^^^^^^^^^^^^^\n",
        ),
        (
            "[[sink]]\ntype = 'outside'\nstream = 'Out'\n[sink.options]\nto = 'y'\ntoo = 'y'\n",
            " --> app.toml:6:1\n  |\n6 | too = 'y'\n",
        ),
        (
            "[[sink]]\ntype = 'outside'\nstreem = 'Out'\n",
            "line 3: [[sink]]: unknown key `streem`. Did you mean `stream`?",
        ),
        (
            "[[source]]\nname = 'f'\ntype = 'file'\npath = 'x'\nformat = 'cvs'\nstream = 'In'\n",
            "line 5: [[source]]: unknown value `cvs`. Did you mean `csv`?",
        ),
        ("[setings]\npartitions = 2\n", "unknown key `setings`. Did you mean `settings`?"),
        (
            "[[sink]]\ntype = 'outside'\nstream = 'Out'\noptions = { too = 'y' }\n",
            "`too`: the sink `outside` has no such option. Did you mean `to`?",
        ),
        (
            "[[sink]]\ntype = 'outside'\nstream = 'Out'\n[[sink]]\ntype = 'outside'\nstream = 'Out'\n",
            "two sources or sinks are called `outside from Out`: give each its own `name`",
        ),
    ] {
        write("app.toml", toml);
        let wrong = App::read(&app_dir, &[]).and_then(|app| {
            Engine::open(&dir.path().join("wrong"), Some(quiet(app).with_connectors(outside.catalog())))
        });
        let wrong = wrong.err().unwrap().to_string();
        assert!(wrong.contains(message), "{message}\n{wrong}");
    }
}

/// Makes the queues by partition of a data directory one for all partitions, as earlier releases had it: `docs/formats/sinks.md`.
fn join_queues(data: &Path) {
    const FILES: PartitionId = PartitionId(0);
    let deliveries = data.join("deliveries");
    let open = |dir: &Path| {
        let options = LogOptions { background_sync_ms: 0, ..LogOptions::new(1) };
        LocalLog::open_on(Arc::new(OsDisk), dir.join("events"), options).unwrap().0
    };
    let (mut former, mut dir) = (None, None);
    let (mut delivered, mut stored) = (serde_json::Map::new(), serde_json::Map::new());
    let mut counts = [0; 3];
    let mut partitions: Vec<_> =
        std::fs::read_dir(&deliveries).unwrap().map(|found| found.unwrap().path()).collect();
    partitions.sort();
    for path in partitions {
        let queue = std::fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
        let partition: u32 = path.file_name().unwrap().to_str().unwrap()[1..].parse().unwrap();
        let to = dir.get_or_insert_with(|| deliveries.join(queue.file_name().unwrap()));
        let text = std::fs::read_to_string(queue.join("progress.json")).unwrap();
        let progress: serde_json::Value = serde_json::from_str(&text).unwrap();
        if !progress["delivered"].is_null() {
            delivered.insert(partition.to_string(), progress["delivered"].clone());
        }
        stored.insert(partition.to_string(), progress["stored"].clone());
        for (count, name) in counts.iter_mut().zip(["emitted", "delivered", "failed"]) {
            *count += progress["counts"][name].as_u64().unwrap();
        }
        if queue.join("events").exists() {
            std::fs::create_dir_all(&*to).unwrap();
            let former = former.get_or_insert_with(|| open(to));
            let events = open(&queue);
            let mut next = events.start(FILES);
            while next < events.end(FILES) {
                for record in events.read(FILES, next, 1 << 20).unwrap() {
                    next = record.offset.next();
                    former.write(FILES, Timestamp(0), &[&record.payload]).unwrap();
                }
            }
            events.close().unwrap();
        }
        std::fs::remove_dir_all(&path).unwrap();
    }
    former.expect("events wait").close().unwrap();
    let [emitted, done, failed] = counts;
    let progress = serde_json::json!({
        "sink": "c.siddhi: Out to outside", "delivered": delivered, "stored": stored,
        "counts": { "emitted": emitted, "delivered": done, "failed": failed },
    });
    std::fs::write(dir.unwrap().join("progress.json"), progress.to_string()).unwrap();
}

#[test]
fn events_in_one_queue_for_all_partitions_are_delivered_once() {
    for remembers in [false, true] {
        let (dir, outside) = (tempfile::tempdir().unwrap(), Outside::new());
        outside.remembers.store(remembers, Ordering::Relaxed);
        let app = keyed_app("@sink(type='outside')", &outside);
        let engine = open(dir.path(), &app);
        send_numbers(&engine, 0..100);
        engine.wait_idle();
        outside.is_down.store(true, Ordering::Relaxed);
        send_numbers(&engine, 100..300);
        engine.checkpoint().unwrap();
        engine.abandon();
        drop(engine);
        join_queues(&dir.path().join("data"));
        outside.is_down.store(false, Ordering::Relaxed);
        for end in [400, 500] {
            let engine = open(dir.path(), &app);
            assert_eq!(engine.recovery.warnings, Vec::<String>::new());
            send_numbers(&engine, end - 100..end);
            engine.wait_idle();
            let info = &engine.sinks()[0];
            let end = end as u64;
            assert_eq!((info.emitted, info.delivered, info.waiting), (end, end, 0), "{info:?}");
            engine.stop().unwrap();
        }
        assert_eq!(outside.numbers(), all(500), "remembers {remembers}");
        let partitions = outside.outbox.lock().iter().map(|(_, id, _)| id.partition.0).collect::<Vec<_>>();
        assert!(partitions.iter().any(|id| *id != partitions[0]), "several partitions");
    }
}

#[test]
fn the_backlog_of_a_partition_does_not_hold_up_the_others() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), Outside::new());
    outside.is_down.store(true, Ordering::Relaxed);
    let app = keyed_app("@sink(type='outside')", &outside);
    let engine = open(dir.path(), &app);
    // many events of one key, then some of the others
    let rows: String = (0..30_000).map(|n| format!("{{\"k\":\"k0\",\"n\":{n}}}\n")).collect();
    send(&engine, "In", &rows);
    send_numbers(&engine, 30_000..30_100);
    engine.checkpoint().unwrap();
    outside.is_down.store(false, Ordering::Relaxed);
    wait_until(|| engine.sinks()[0].waiting == 0, || format!("{:?}", engine.sinks()));
    engine.stop().unwrap();
    assert!(outside.numbers() == all(30_100), "{} events came", outside.numbers().len());
    let outbox = outside.outbox.lock();
    let long = outbox.iter().find(|(_, _, event)| event.contains("\"n\":0}")).unwrap().1.partition;
    let last_other = outbox.iter().rposition(|(_, id, _)| id.partition != long).unwrap();
    assert!(last_other < 10_000, "an event of another partition came as number {last_other}");
    let mut last: BTreeMap<u32, EventId> = BTreeMap::new();
    for (_, id, _) in outbox.iter() {
        assert!(last.insert(id.partition.0, *id).is_none_or(|before| before < *id), "{id}");
    }
}
