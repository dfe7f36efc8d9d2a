//! Stored events: how long they are kept, how their files are merged, how they are deleted.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, BooleanArray};
use tidemill_engine::{App, BodyFormat, Engine, ManualClock, SendOptions};
use tidemill_types::{ErrorKind, Timestamp};
use tidemill_zones::RowRewrite;

use crate::{quiet, rows, send};

const RULES: &str = "event Reading { sensor: string, at: time, value: double } key sensor time at;\n";
const HOUR_MS: i64 = 3_600_000;

/// Writes an app with the given `app.toml` and reads it.
fn app(dir: &Path, toml: &str) -> tidemill_types::Result<App> {
    let dir = dir.join("app");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("app.rules"), RULES).unwrap();
    std::fs::write(dir.join("app.toml"), toml).unwrap();
    App::read(&dir, &[]).map(quiet)
}

fn open(dir: &Path, toml: &str, clock: &Arc<ManualClock>) -> Engine {
    let app = app(dir, toml).unwrap();
    Engine::builder(dir.join("data")).app(app).clock(clock.clone()).open().unwrap()
}

fn send_reading(engine: &Engine, at_ms: i64, value: f64) {
    send(engine, "Reading", &format!("{{\"sensor\":\"s{}\",\"at\":{at_ms},\"value\":{value}}}\n", at_ms % 3));
}

/// Waits until the table of readings has `count` rows. Its jobs run on threads of the engine.
fn wait_rows(engine: &Engine, count: u64) {
    let start = std::time::Instant::now();
    while rows(engine, "Reading") != count {
        assert!(start.elapsed().as_secs() < 120, "{} rows instead of {count}", rows(engine, "Reading"));
        std::thread::yield_now();
    }
}

#[test]
fn events_leave_the_table_when_their_time_to_live_has_passed() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let at_hour = |hour: i64| clock.set(Timestamp(hour * HOUR_MS * 1_000));
    let toml = "[tables.Reading]\nttl = \"2 hours\"\n";
    at_hour(100);
    let engine = open(dir.path(), toml, &clock);
    for hour in 95..100 {
        send_reading(&engine, hour * HOUR_MS, 1.0);
        engine.flush().unwrap();
    }
    send_reading(&engine, 90 * HOUR_MS, 1.0);
    assert_eq!(rows(&engine, "Reading"), 6);
    clock.set(Timestamp(100 * HOUR_MS * 1_000 + 11_000_000));
    // All but that of hour 99 are older than two hours. The one of hour 90 stays: it is in no tablet yet.
    wait_rows(&engine, 2);
    let info = engine.stream("Reading").unwrap();
    assert_eq!((info.ledger.stored, info.rows_in_table, info.removed), (6, 2, 4));
    assert!(info.balances());
    engine.stop().unwrap();
    drop(engine);

    at_hour(101);
    let engine = open(dir.path(), toml, &clock);
    assert!(engine.recovery.warnings.is_empty(), "{:?}", engine.recovery.warnings);
    clock.set(Timestamp(101 * HOUR_MS * 1_000 + 11_000_000));
    wait_rows(&engine, 0);
    assert!(engine.stream("Reading").unwrap().balances());
    engine.stop().unwrap();
}

#[test]
fn small_tablets_are_merged_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let engine = open(dir.path(), "[settings]\nzones.merge_tablets = 3\n", &clock);
    for n in 0..9 {
        send_reading(&engine, n * 1_000, n as f64);
        engine.flush().unwrap();
    }
    assert_eq!(engine.stream("Reading").unwrap().tablets, 9);
    engine.consolidate().unwrap();
    let info = engine.stream("Reading").unwrap();
    assert_eq!((info.tablets, info.rows_in_table, info.removed), (1, 9, 0));
    engine.stop().unwrap();
}

#[test]
fn deleted_events_are_accounted_for() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let engine = open(dir.path(), "", &clock);
    for n in 0..10 {
        send_reading(&engine, n, n as f64);
    }
    let large: tidemill_zones::RowRewriter = Arc::new(|batch| {
        let values = batch.column_by_name("value").unwrap().as_primitive::<Float64Type>();
        Ok(RowRewrite::Retain(
            values.iter().map(|value| value.map(|value| value < 7.0)).collect::<BooleanArray>(),
        ))
    });
    assert_eq!(engine.rewrite_events("Reading", large.clone()).unwrap().deleted, 3);
    let info = engine.stream("Reading").unwrap();
    assert_eq!((info.rows_in_table, info.removed, info.balances()), (7, 3, true));
    engine.abandon();
    drop(engine);
    let engine = open(dir.path(), "", &clock);
    assert_eq!(rows(&engine, "Reading"), 7, "the log does not bring them back");
    let error = engine.rewrite_events("Readings", large).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("Did you mean `Reading`"), "{error}");
    engine.stop().unwrap();
}

#[test]
fn events_with_values_of_another_type_are_kept_where_the_app_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let bodies = [
        r#"{"sensor":"a","at":1,"value":"high","unit":"C"}"#,
        r#"{"sensor":"a","at":2,"value":1.5,"unit":"C"}"#,
        r#"{"sensor":7,"at":3,"value":1.5}"#,
        r#"{"sensor":"a","at":"noon","value":1.5}"#,
    ];
    let engine = open(dir.path(), "", &clock);
    let refused = |engine: &Engine| {
        let options = SendOptions { wait: true, ..SendOptions::default() };
        let send = |body: &&str| engine.send_json("Reading", body.as_bytes(), BodyFormat::Ndjson, &options);
        bodies.iter().map(|body| send(body).unwrap().rejected.len()).collect::<Vec<_>>()
    };
    assert_eq!(refused(&engine), [1, 0, 1, 1]);
    engine.stop().unwrap();
    drop(engine);

    let toml = "[tables.Reading]\nmismatch = \"keep\"\n";
    let engine = open(dir.path(), toml, &clock);
    assert_eq!(refused(&engine), [0, 0, 1, 1], "an event needs its key and its time");
    engine.abandon();
    drop(engine);
    let engine = open(dir.path(), toml, &clock);
    let info = engine.stream("Reading").unwrap();
    assert_eq!((info.ledger.received, info.ledger.stored, info.ledger.mismatched), (8, 3, 1));
    assert!(info.balances());
    let table = engine.table_snapshot("Reading").unwrap().unwrap();
    let extra = |batch: &arrow_array::RecordBatch| {
        let (value, extra) =
            (batch.column_by_name("value").unwrap(), batch.column_by_name("_extra").unwrap());
        let extra = extra.as_string::<i32>();
        let null = |row: usize| value.is_null(row);
        (0..batch.num_rows())
            .filter(|row| null(*row))
            .map(|row| extra.value(row).to_owned())
            .collect::<Vec<_>>()
    };
    let kept: Vec<String> = table.tail.iter().flat_map(extra).collect();
    assert_eq!(kept, [r#"{"value":"high","unit":"C"}"#]);
    engine.stop().unwrap();
}

#[test]
fn settings_of_tables_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let refuse = |toml: &str| match app(dir.path(), toml) {
        Ok(app) => Engine::open(&dir.path().join("data"), Some(app)).err().unwrap().to_string(),
        Err(error) => error.to_string(),
    };
    let error = refuse("[tables.Readings]\nttl = \"2 hours\"\n");
    assert!(error.contains("[tables.Readings]") && error.contains("Did you mean `Reading`"), "{error}");
    let error = refuse("[tables.Reading]\nttl = \"0 s\"\n");
    assert!(error.contains("expected more than 0"), "{error}");
    let error = refuse("[tables.Reading]\ntll = \"2 hours\"\n");
    assert!(error.contains("unknown key `tll`. Did you mean `ttl`?"), "{error}");
    let error = refuse("[tables.Reading]\nmismatch = \"drop\"\n");
    assert!(error.contains("`refuse` or `keep`"), "{error}");
}
