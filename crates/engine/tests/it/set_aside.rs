//! Records that stop their partition, by a panic or as they do not end: they are set aside when it is opened again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidemill_engine::{App, BodyFormat, Engine, ManualClock, SendOptions};
use tidemill_flow::registry::{Function, FunctionContext};
use tidemill_flow::{EvalError, FieldType, Registry, Value};
use tidemill_types::{ErrorKind, Timestamp, budget};

use crate::{quiet, rows, send};

const RULES: &str = "
    event In { k: string, n: double } key k id k, n;
    event Seen { k: string, n: double } key k;
    rule See { when { i: In(); } then { emit Seen { k: i.k, n: i.n }; } }
";
const QUERIES: &str = "@key('k') define stream In (k string, n double);
    from In#window.length(2) select sum(own:twice(n)) as s insert into Out;";

/// Doubles a number. Of a negative one it does what the mode says.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Twice {
    Mended,
    Panics,
    /// Goes on until the record's budget ends it.
    Loops,
    /// Goes on for ever, whoever asks it to end.
    Hangs,
}

impl Function for Twice {
    fn call(&self, args: &[Value], _: &FunctionContext<'_>) -> Result<Value, EvalError> {
        let n = args[0].as_f64().unwrap_or_default();
        match self {
            _ if n >= 0.0 => {}
            Self::Mended => {}
            Self::Panics => panic!("a negative number"),
            Self::Loops => while budget::current().check().is_ok() {},
            Self::Hangs => loop {
                thread::sleep(Duration::from_millis(10));
            },
        }
        Ok(Value::Double(2.0 * n))
    }
}

fn app(twice: Twice) -> App {
    let mut registry = Registry::standard();
    registry.function("own:twice", move |_| {
        let function: Arc<dyn Function> = Arc::new(twice);
        Ok((function, FieldType::Double))
    });
    let mut app = quiet(App::from_texts("own", Some(RULES), &[("own.siddhi", QUERIES)]));
    app.settings.partitions = 1;
    app.settings.record_timeout = tidemill_types::Duration::seconds(60);
    app.with_registry(registry)
}

fn open(dir: &Path, twice: Twice) -> Engine {
    Engine::open(dir, Some(app(twice))).unwrap()
}

/// Sends an event without waiting until it is applied.
fn append(engine: &Engine, event: &str) {
    let options = SendOptions { origin: "test".into(), ..SendOptions::default() };
    engine.send_json("In", event.as_bytes(), BodyFormat::Ndjson, &options).unwrap();
}

/// Waits until a problem contains `text`.
fn wait_for_problem(engine: &Engine, text: &str) {
    while !engine.health().problems.iter().any(|problem| problem.contains(text)) {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Checks an engine in which the record with the number -4 is set aside, and returns the record's id.
fn check_set_aside(engine: &Engine) -> String {
    engine.wait_idle();
    let health = engine.health();
    assert!(health.ready, "{health:?}");
    let [record] = &engine.set_aside_records()[..] else { panic!("{:?}", engine.set_aside_records()) };
    assert_eq!(record.content, "1 event of In");
    let told =
        health.problems.iter().any(|p| p.contains(&format!("tidemill errors rerun --id {}", record.id())));
    assert!(told, "{health:?}");
    assert_eq!(
        [rows(engine, "In"), rows(engine, "Seen"), rows(engine, "Out")],
        [2, 1, 1],
        "stored, and not seen"
    );
    record.id()
}

#[test]
fn a_record_that_panics_is_set_aside_at_the_next_start_and_runs_again_on_demand() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), Twice::Panics);
    send(&engine, "In", "{\"k\":\"a\",\"n\":1}\n");
    engine.checkpoint().unwrap();
    append(&engine, "{\"k\":\"a\",\"n\":-4}");
    wait_for_problem(&engine, "stopped applying its log at record");
    assert!(!engine.health().ready);
    assert!(engine.health().problems.iter().any(|problem| problem.contains("a negative number")));
    assert!(engine.checkpoint().is_err(), "the state is half changed");
    let id = engine.set_aside_records()[0].id();
    assert_eq!(engine.rerun_record(&id).unwrap_err().kind(), ErrorKind::Conflict, "not before a restart");
    engine.stop().unwrap_err();
    drop(engine);
    // each replay decides alike: also one with a mended app, and one behind a checkpoint
    for twice in [Twice::Panics, Twice::Mended, Twice::Panics] {
        let engine = open(dir.path(), twice);
        assert_eq!(check_set_aside(&engine), id);
        engine.abandon();
    }
    let engine = open(dir.path(), Twice::Mended);
    engine.checkpoint().unwrap();
    engine.stop().unwrap();
    drop(engine);
    let engine = open(dir.path(), Twice::Mended);
    assert_eq!(check_set_aside(&engine), id);
    assert_eq!(engine.rerun_record(&id).unwrap(), Vec::<String>::new());
    engine.wait_idle();
    assert_eq!(engine.health().problems, Vec::<String>::new());
    assert_eq!([rows(&engine, "In"), rows(&engine, "Seen"), rows(&engine, "Out")], [2, 2, 2]);
    assert_eq!(engine.rerun_record(&id).unwrap_err().kind(), ErrorKind::NotFound);
    engine.abandon();
    drop(engine);
    let engine = open(dir.path(), Twice::Mended);
    assert_eq!(
        [rows(&engine, "In"), rows(&engine, "Seen"), rows(&engine, "Out")],
        [2, 2, 2],
        "replayed alike"
    );
    let again = send(&engine, "In", "{\"k\":\"a\",\"n\":-4}\n");
    assert_eq!(again.duplicates, Some(1), "the id was kept");
}

#[test]
fn a_record_that_stops_the_replay_is_set_aside_within_one_start() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), Twice::Mended);
    send(&engine, "In", "{\"k\":\"a\",\"n\":1}\n{\"k\":\"b\",\"n\":-1}\n");
    send(&engine, "In", "{\"k\":\"a\",\"n\":-4}\n");
    engine.abandon();
    drop(engine);
    // the app fails now where it did not before
    let engine = open(dir.path(), Twice::Panics);
    engine.wait_idle();
    assert_eq!(engine.set_aside_records().len(), 2);
    assert_eq!([rows(&engine, "In"), rows(&engine, "Seen")], [3, 0]);
    for record in engine.set_aside_records() {
        engine.forget_record(&record.id()).unwrap();
    }
    assert_eq!(engine.health().problems, Vec::<String>::new());
}

#[test]
fn a_record_that_fails_again_is_set_aside_again() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), Twice::Panics);
    append(&engine, "{\"k\":\"a\",\"n\":-4}");
    wait_for_problem(&engine, "a negative number");
    engine.stop().unwrap_err();
    drop(engine);
    let engine = open(dir.path(), Twice::Panics);
    let first = engine.set_aside_records()[0].id();
    assert_eq!(engine.rerun_record(&first).unwrap_err().kind(), ErrorKind::Unavailable);
    engine.stop().unwrap_err();
    drop(engine);
    let engine = open(dir.path(), Twice::Mended);
    let [record] = &engine.set_aside_records()[..] else { panic!("{:?}", engine.set_aside_records()) };
    assert_ne!(record.id(), first);
    engine.rerun_record(&record.id()).unwrap();
    engine.wait_idle();
    assert_eq!([rows(&engine, "In"), rows(&engine, "Seen"), rows(&engine, "Out")], [1, 1, 1]);
}

#[test]
fn a_record_that_does_not_end_is_set_aside() {
    for twice in [Twice::Loops, Twice::Hangs] {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::default());
        clock.set(Timestamp(1_000_000_000));
        let open =
            |twice: Twice| Engine::builder(dir.path()).app(app(twice)).clock(clock.clone()).open().unwrap();
        let engine = open(twice);
        append(&engine, "{\"k\":\"a\",\"n\":1}");
        engine.wait_idle();
        append(&engine, "{\"k\":\"a\",\"n\":-4}");
        let advance = AtomicBool::new(true);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut now = 1_000_000_000;
                while advance.load(Ordering::SeqCst) {
                    now += 1_000_000;
                    clock.set(Timestamp(now));
                    thread::sleep(Duration::from_millis(1));
                }
            });
            wait_for_problem(&engine, "stopped applying its log at record");
            assert!(!engine.health().ready);
            engine.stop().unwrap_err();
            drop(engine);
            advance.store(false, Ordering::SeqCst);
        });
        let engine = open(twice);
        check_set_aside(&engine);
        engine.stop().unwrap();
    }
}

#[test]
fn a_replay_that_does_not_end_is_begun_again_without_the_record() {
    for twice in [Twice::Loops, Twice::Hangs] {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::default());
        clock.set(Timestamp(1_000_000_000));
        let open =
            |twice: Twice| Engine::builder(dir.path()).app(app(twice)).clock(clock.clone()).open().unwrap();
        let engine = open(Twice::Mended);
        append(&engine, "{\"k\":\"a\",\"n\":1}");
        append(&engine, "{\"k\":\"a\",\"n\":-4}");
        engine.wait_idle();
        engine.abandon();
        drop(engine);
        let opened = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut now = 1_000_000_000;
                while !opened.load(Ordering::SeqCst) {
                    now += 1_000_000;
                    clock.set(Timestamp(now));
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let engine = open(twice);
            opened.store(true, Ordering::SeqCst);
            check_set_aside(&engine);
            engine.stop().unwrap();
        });
    }
}
