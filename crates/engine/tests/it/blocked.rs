//! A partition that does not get on with a record, or has stopped applying: the others go on, and so do their checkpoints.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidemill_engine::{App, BodyFormat, Engine, SendOptions};
use tidemill_flow::registry::{Function, FunctionContext};
use tidemill_flow::{EvalError, FieldType, Registry, Value};
use tidemill_types::Result;

use crate::{quiet, rows, send};

const QUERIES: &str = "@key('k') define stream In (k string, n double);
    @key('k') partition with (k of In) begin from In select k, own:pass(n) as n insert into Out; end;";

/// Lets numbers pass. Zero waits until the gate is open, and a negative one is a defect.
#[derive(Debug, Default)]
struct Gate {
    is_reached: AtomicBool,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set_open(&self) {
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

fn app(gate: &Arc<Gate>) -> App {
    let mut registry = Registry::standard();
    let gate = gate.clone();
    registry.function("own:pass", move |_| {
        let function: Arc<dyn Function> = gate.clone();
        Ok((function, FieldType::Double))
    });
    let mut app = quiet(App::from_texts("own", None, &[("own.siddhi", QUERIES)]));
    app.settings.partitions = 4;
    app.with_registry(registry)
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

#[test]
fn a_partition_that_has_stopped_keeps_its_checkpoint_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let engine = Engine::open(dir.path(), Some(app(&gate))).unwrap();
    send(&engine, "In", &events(1.0));
    engine.checkpoint().unwrap();
    append(&engine, "{\"k\":\"k0\",\"n\":-1}");
    while engine.health().ready {
        thread::sleep(Duration::from_millis(1));
    }

    let (moved, error) = checkpoint_others(&engine, dir.path(), Engine::checkpoint);
    assert!((1..4).contains(&moved), "{moved} checkpoints");
    assert!(error.contains("stopped applying its log, and has no checkpoint until"), "{error}");
    // the last checkpoints, too
    engine.stop().unwrap_err();
    drop(engine);

    let engine = Engine::open(dir.path(), Some(app(&gate))).unwrap();
    engine.wait_idle();
    assert_eq!([rows(&engine, "In"), rows(&engine, "Out")], [81, 80], "one record is set aside");
    engine.checkpoint().unwrap();
}
