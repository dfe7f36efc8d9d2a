//! A partition that does not get on with a record, or has stopped applying: the others go on, and so do their checkpoints.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_engine::{App, BodyFormat, Clock, Engine, ManualClock, SendOptions};
use tidemill_flow::registry::{Function, FunctionContext};
use tidemill_flow::{EvalError, FieldType, Registry, Value};
use tidemill_types::{Result, Timestamp};

use crate::transactions::{ACCOUNTS, BALANCE, open_accounts, total, transfer};
use crate::{quiet, rows, send};

const RULES: &str = "
    entity Account key id;
    entity Transfer key id;
    event In { k: string, n: double } key k;
    event Moved { k: string, to: string } key to;
    rule Move { when { i: In(); } then { emit Moved { k: i.k, to: \"all\" }; } }
";
const QUERIES: &str = "@key('k') define stream In (k string, n double);
    @key('k') partition with (k of In) begin from In select k, own:pass(n) as n insert into Out; end;";

/// Lets numbers pass. Zero waits until the gate is open, and a negative one is a defect.
#[derive(Debug, Default)]
pub struct Gate {
    pub is_reached: AtomicBool,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub fn set_open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }
}

impl Function for Gate {
    fn call(&self, args: &[Value], _: &FunctionContext<'_>) -> std::result::Result<Value, EvalError> {
        let n = args[0].as_f64().unwrap_or_default();
        assert!(n >= 0.0, "a negative number");
        if n == 0.0 {
            self.is_reached.store(true, Ordering::Release);
            self.opened.wait_while(&mut self.open.lock(), |open| !*open);
        }
        Ok(Value::Double(n))
    }
}

/// Returns the functions with `own:pass`, which is the gate.
pub fn registry(gate: &Arc<Gate>) -> Registry {
    let mut registry = Registry::standard();
    let gate = gate.clone();
    registry.function("own:pass", move |_| {
        let function: Arc<dyn Function> = gate.clone();
        Ok((function, FieldType::Double))
    });
    registry
}

fn app(gate: &Arc<Gate>) -> App {
    let mut app = quiet(App::from_texts("own", Some(RULES), &[("own.siddhi", QUERIES)]));
    app.settings.partitions = 4;
    app.with_registry(registry(gate))
}

fn events(n: f64) -> String {
    (0..40).map(|key| format!("{{\"k\":\"k{key}\",\"n\":{n}}}\n")).collect()
}

/// Sends an event without waiting until it is applied.
fn append(engine: &Engine, event: &str) {
    let options = SendOptions { origin: "test".into(), ..SendOptions::default() };
    engine.send_json("In", event.as_bytes(), BodyFormat::Ndjson, &options).unwrap();
}

/// Returns the name of the latest checkpoint of each partition.
fn checkpoints(dir: &Path) -> BTreeMap<String, String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let partitions = std::fs::read_dir(dir.join("checkpoints")).unwrap().map(name);
    partitions
        .map(|partition| {
            let files = std::fs::read_dir(dir.join("checkpoints").join(&partition)).unwrap().map(name);
            let last = files.filter(|file| file.ends_with(".ckpt")).max().unwrap();
            (partition, last)
        })
        .collect()
}

/// Opens an engine, one of whose partitions waits at a record since its checkpoint.
fn with_waiting_partition(dir: &Path, gate: &Arc<Gate>) -> Engine {
    let engine = Engine::open(dir, Some(app(gate))).unwrap();
    send(&engine, "In", &events(1.0));
    engine.checkpoint().unwrap();
    append(&engine, "{\"k\":\"k0\",\"n\":0}");
    while !gate.is_reached.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(1));
    }
    engine
}

/// Sends events beside a partition that does not apply them, and takes checkpoints. Returns how many of the four partitions have
/// got a new one, with the error.
fn checkpoint_others(
    engine: &Engine,
    dir: &Path,
    take: impl FnOnce(&Engine) -> Result<()>,
) -> (usize, String) {
    let (before, rows_before) = (checkpoints(dir), rows(engine, "Out"));
    append(engine, &events(2.0));
    while rows(engine, "Out") == rows_before {
        thread::sleep(Duration::from_millis(1));
    }
    let error = take(engine).unwrap_err().to_string();
    let after = checkpoints(dir);
    (before.iter().filter(|(partition, last)| after[*partition] != **last).count(), error)
}

#[test]
fn a_record_that_waits_holds_up_the_checkpoints_of_its_partition_only() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let engine = with_waiting_partition(dir.path(), &gate);

    let (moved, error) = checkpoint_others(&engine, dir.path(), Engine::checkpoint);
    assert!((1..4).contains(&moved), "{moved} checkpoints");
    assert!(error.contains("it has no checkpoint until the record is applied"), "{error}");

    gate.set_open();
    engine.wait_idle();
    let before = checkpoints(dir.path());
    send(&engine, "In", &events(3.0));
    engine.checkpoint().unwrap();
    let after = checkpoints(dir.path());
    assert!(before.iter().all(|(partition, last)| after[partition] != *last), "{before:?} {after:?}");
    assert_eq!([rows(&engine, "In"), rows(&engine, "Out")], [121, 121]);
}

#[test]
fn a_stop_beside_a_record_that_waits_takes_the_other_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let engine = with_waiting_partition(dir.path(), &gate);

    let (moved, error) = checkpoint_others(&engine, dir.path(), Engine::stop);
    assert!((1..4).contains(&moved), "{moved} checkpoints");
    assert!(error.contains("it has no checkpoint until the record is applied"), "{error}");
    gate.set_open();
    drop(engine);

    let engine = Engine::open(dir.path(), Some(app(&gate))).unwrap();
    engine.wait_idle();
    assert_eq!([rows(&engine, "In"), rows(&engine, "Out")], [81, 81]);
}

/// Opens an engine on a clock that only the test advances: partitions that have stopped are not opened again before.
fn open_on_clock(dir: &Path, gate: &Arc<Gate>, clock: &Arc<ManualClock>) -> Engine {
    Engine::builder(dir).app(app(gate)).clock(clock.clone()).open().unwrap()
}

/// Lets a partition stop at an event that its queries panic at.
fn stop_partition(engine: &Engine, key: &str) {
    append(engine, &format!("{{\"k\":\"{key}\",\"n\":-1}}"));
    while engine.health().ready {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Advances the clock until all partitions apply their logs.
fn wait_until_opened(engine: &Engine, clock: &ManualClock) {
    while !engine.health().ready {
        clock.set(Timestamp(clock.now().0 + 1_000_000));
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_partition_that_has_stopped_keeps_its_checkpoint_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (gate, clock) = (Arc::new(Gate::default()), Arc::new(ManualClock::default()));
    let engine = open_on_clock(dir.path(), &gate, &clock);
    send(&engine, "In", &events(1.0));
    engine.checkpoint().unwrap();
    stop_partition(&engine, "k0");

    let (moved, error) = checkpoint_others(&engine, dir.path(), Engine::checkpoint);
    assert!((1..4).contains(&moved), "{moved} checkpoints");
    assert!(error.contains("stopped applying its log, and has no checkpoint until"), "{error}");
    // the last checkpoints, too
    engine.stop().unwrap_err();
    drop(engine);

    let engine = open_on_clock(dir.path(), &gate, &clock);
    engine.wait_idle();
    assert_eq!([rows(&engine, "In"), rows(&engine, "Out")], [81, 80], "one record is set aside");
    engine.checkpoint().unwrap();
}

#[test]
fn a_partition_that_has_stopped_is_opened_again_beside_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let (gate, clock) = (Arc::new(Gate::default()), Arc::new(ManualClock::default()));
    let engine = open_on_clock(dir.path(), &gate, &clock);
    send(&engine, "In", &events(1.0));
    engine.checkpoint().unwrap();
    // these are applied again from the log, and are neither stored nor sent on twice
    send(&engine, "In", &events(2.0));
    let stored = engine.subscribe("Out").unwrap();
    stop_partition(&engine, "k0");
    append(&engine, &events(3.0));
    wait_until_opened(&engine, &clock);
    engine.wait_idle();
    let [record] = &engine.set_aside_records()[..] else { panic!("{:?}", engine.set_aside_records()) };
    assert_eq!(record.content, "1 event of In");
    assert_eq!([rows(&engine, "In"), rows(&engine, "Out"), rows(&engine, "Moved")], [121, 120, 120]);
    assert_eq!(
        stored.try_iter().map(|batch| batch.num_rows()).sum::<usize>(),
        40,
        "those of the third round"
    );
    engine.forget_record(&record.id()).unwrap();
    assert_eq!(engine.health().problems, Vec::<String>::new(), "the ledger balances as well");

    // a second time, and with a checkpoint of the new one
    engine.checkpoint().unwrap();
    send(&engine, "In", &events(4.0));
    stop_partition(&engine, "k0");
    wait_until_opened(&engine, &clock);
    engine.checkpoint().unwrap();
    engine.wait_idle();
    let counts = [rows(&engine, "In"), rows(&engine, "Out"), rows(&engine, "Moved")];
    assert_eq!(counts, [162, 160, 160]);
    engine.abandon();
    drop(engine);
    let engine = open_on_clock(dir.path(), &gate, &clock);
    engine.wait_idle();
    assert_eq!([rows(&engine, "In"), rows(&engine, "Out"), rows(&engine, "Moved")], counts);
    assert_eq!(engine.recovery.warnings, Vec::<String>::new());
}

/// Accounts of several partitions change together while partitions stop and are opened again.
#[test]
fn transactions_stay_whole_while_partitions_are_opened_again() {
    let seed = std::env::var("SEED").map_or(7, |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let (gate, clock) = (Arc::new(Gate::default()), Arc::new(ManualClock::default()));
    let engine = open_on_clock(dir.path(), &gate, &clock);
    open_accounts(&engine);
    let (done, unknown) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for client in 0..3 {
            let (engine, stop, done, unknown) = (&engine, &stop, &done, &unknown);
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed * 1000 + client);
                for n in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let (from, to) = (rng.random_range(0..ACCOUNTS), rng.random_range(0..ACCOUNTS));
                    match transfer(engine, &format!("{client}-{n}"), from, to, rng.random_range(1..20)) {
                        Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        Err(e) if e.document_code() == Some(112) => {}
                        Err(_) => drop(unknown.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(
                    total(&engine.document_snapshot().unwrap()),
                    ACCOUNTS * BALANCE,
                    "all or nothing is seen"
                );
            }
        });
        for round in 0..6 {
            if round == 3 {
                // those that are opened again have their last checkpoint at different places
                _ = engine.checkpoint();
            }
            let before = done.load(Ordering::Relaxed);
            while done.load(Ordering::Relaxed) < before + 20 {
                thread::sleep(Duration::from_millis(1));
            }
            stop_partition(&engine, &format!("k{round}"));
            wait_until_opened(&engine, &clock);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let check = |engine: &Engine| {
        let documents = engine.document_snapshot().unwrap();
        assert_eq!(total(&documents), ACCOUNTS * BALANCE);
        let transfers = documents.len("Transfer").unwrap().unwrap();
        let (done, unknown) = (done.load(Ordering::Relaxed), unknown.load(Ordering::Relaxed));
        println!("{done} transfers, {unknown} with unknown outcome, {transfers} stored");
        assert!((done..=done + unknown).contains(&transfers));
        transfers
    };
    let transfers = check(&engine);
    engine.abandon();
    drop(engine);
    assert_eq!(check(&open_on_clock(dir.path(), &gate, &clock)), transfers);
}
