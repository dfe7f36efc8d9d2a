//! Files as sinks of the engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemill_engine::{App, BodyFormat, Engine, SendOptions};
use tidemill_files::{Codec, Format, ReadOptions};
use tidemill_types::{Field, FieldType, StreamSchema, Value, row_value};

use crate::open_app;

/// Writes an app with a sink for the stream `Out`, which has the events of `In` with even numbers.
fn write_app(dir: &Path, sink: &str) -> PathBuf {
    let app = dir.join("app");
    std::fs::create_dir_all(&app).unwrap();
    let text = format!(
        "@key('k') define stream In (k string, n long);
        {sink} @key('k') define stream Out (k string, n long);
        from In[n % 2 == 0] select k, n insert into Out;"
    );
    std::fs::write(app.join("q.siddhi"), text).unwrap();
    app
}

fn send(engine: &Engine, numbers: std::ops::Range<usize>) {
    let rows: String = numbers.map(|n| format!("{{\"k\":\"k{}\",\"n\":{n}}}\n", n % 7)).collect();
    let options = SendOptions { wait: true, origin: "test".into(), ..SendOptions::default() };
    engine.send_json("In", rows.as_bytes(), BodyFormat::Ndjson, &options).unwrap();
}

/// Returns the numbers in the file, sorted: events of several partitions have no order among each other.
fn numbers(path: &Path, format: &Format) -> Vec<i64> {
    let fields = vec![Field::new("k", FieldType::String), Field::new("n", FieldType::Long)];
    let schema = Arc::new(StreamSchema { name: "Out".into(), fields, key: None, id: vec![], time: None });
    let mut reader = tidemill_files::open(path, format, &schema, ReadOptions::default()).unwrap();
    let mut numbers = Vec::new();
    for batch in reader.by_ref() {
        let batch = batch.unwrap();
        numbers.extend((0..batch.num_rows()).map(|row| match row_value(&batch, 1, row) {
            Value::Int(n) => n,
            other => panic!("{other:?}"),
        }));
    }
    assert_eq!(reader.take_rejected(), []);
    numbers.sort_unstable();
    numbers
}

fn even(end: i64) -> Vec<i64> {
    (0..end).filter(|n| n % 2 == 0).collect()
}

#[test]
fn every_event_is_written_exactly_once_across_crashes() {
    for (map, format) in [
        ("@map(type='json')", Format::Json),
        ("@map(type='csv', header='true')", Format::Csv { header: true, delimiter: b',' }),
        ("@map(type='avro', codec='deflate')", Format::Avro(Codec::Deflate)),
        ("@map(type='parquet')", Format::Parquet),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let app = write_app(dir.path(), &format!("@sink(type='file', file.uri='out/o', {map})"));
        std::fs::create_dir(app.join("out")).unwrap();
        let path = app.join("out/o");
        let mut sent = 0;
        // what happens after a round of events, before the crash
        for step in ["", "flush", "checkpoint", "flush", "", "checkpoint", "checkpoint flush"] {
            let engine = open_app(dir.path(), &app);
            assert_eq!(engine.recovery.warnings, Vec::<String>::new(), "{step}");
            if step.starts_with("checkpoint") {
                engine.checkpoint().unwrap();
            }
            send(&engine, sent..sent + 100);
            sent += 100;
            if step.ends_with("flush") {
                // written, but not committed
                engine.wait_idle();
            }
            if step == "checkpoint" {
                engine.checkpoint().unwrap();
                assert_eq!(numbers(&path, &format), even(sent as i64), "{format:?} {step}");
            }
            engine.abandon();
        }
        let engine = open_app(dir.path(), &app);
        send(&engine, sent..sent + 100);
        engine.stop().unwrap();
        assert_eq!(numbers(&path, &format), even(sent as i64 + 100), "{format:?}");
        drop(engine);
        // a stop leaves nothing to write
        let before = std::fs::read(&path).unwrap();
        let engine = open_app(dir.path(), &app);
        assert_eq!(engine.recovery.records, 0);
        engine.wait_idle();
        engine.stop().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), before, "{format:?}");
    }
}

#[test]
fn a_sink_may_be_ahead_of_the_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let app = write_app(dir.path(), "@sink(type='file', file.uri='o.json', @map(type='json'))");
    let engine = open_app(dir.path(), &app);
    for round in 0..2 {
        send(&engine, 100 * round..100 * (round + 1));
        engine.checkpoint().unwrap();
    }
    engine.abandon();
    drop(engine);
    // as if the crash had come after the sink was committed, before the last checkpoint was written
    let mut removed = 0;
    for partition in std::fs::read_dir(dir.path().join("data/checkpoints")).unwrap() {
        let files = std::fs::read_dir(partition.unwrap().path()).unwrap().map(|f| f.unwrap().path());
        let mut files: Vec<PathBuf> = files.filter(|f| f.extension().is_some_and(|e| e == "ckpt")).collect();
        files.sort();
        if files.len() > 1 {
            std::fs::remove_file(files.pop().unwrap()).unwrap();
            removed += 1;
        }
    }
    assert!(removed > 0, "a partition goes back to the checkpoint before");
    let engine = open_app(dir.path(), &app);
    assert!(engine.recovery.records > 0);
    send(&engine, 200..210);
    engine.stop().unwrap();
    assert_eq!(numbers(&app.join("o.json"), &Format::Json), even(210));
}

#[test]
fn a_sink_that_is_ahead_of_the_log_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let app = write_app(dir.path(), "@sink(type='file', file.uri='o.json', @map(type='json'))");
    let engine = open_app(dir.path(), &app);
    send(&engine, 0..10);
    engine.stop().unwrap();
    drop(engine);
    let progress = std::fs::read_dir(dir.path().join("data/sinks")).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&progress).unwrap();
    // a file without its checksum is accepted; partition 0 has a few records
    let text = text.split(",\n  \"crc32c\"").next().unwrap().replace("\"0\": ", "\"0\": 99");
    std::fs::write(&progress, format!("{text}\n}}")).unwrap();
    let error = Engine::open(&dir.path().join("data"), Some(App::read(&app, &[]).unwrap())).err().unwrap();
    assert!(error.to_string().contains("but the log ends at"), "{error}");
}

#[test]
fn a_sink_that_fails_loses_nothing_and_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let app = write_app(dir.path(), "@sink(type='file', file.uri='missing/o.json', @map(type='json'))");
    let engine = open_app(dir.path(), &app);
    send(&engine, 0..50);
    engine.wait_idle();
    let problems = engine.health().problems;
    assert!(
        problems.iter().any(|p| p.starts_with("sinks: q.siddhi: Out to missing/o.json: ")),
        "{problems:?}"
    );
    assert!(engine.health().ready, "events are accepted all the same");
    // no checkpoint passes what is not written
    let error = engine.checkpoint().unwrap_err();
    assert!(error.to_string().contains("missing/o.json"), "{error}");
    engine.abandon();
    drop(engine);
    // nor does a deploy that would leave the events behind
    let text = std::fs::read_to_string(app.join("q.siddhi")).unwrap();
    std::fs::write(app.join("q.siddhi"), text.replace("missing/o.json", "o.json")).unwrap();
    let data = dir.path().join("data");
    let error = Engine::open(&data, Some(App::read(&app, &[]).unwrap())).err().unwrap();
    assert!(error.to_string().contains("nothing is deployed: "), "{error}");
    assert!(error.to_string().contains("missing/o.json"), "{error}");
    std::fs::write(app.join("q.siddhi"), text).unwrap();
    let engine = open_app(dir.path(), &app);
    send(&engine, 50..60);
    std::fs::create_dir(app.join("missing")).unwrap();
    engine.wait_idle();
    assert_eq!(numbers(&app.join("missing/o.json"), &Format::Json), even(60));
    assert_eq!(engine.health().problems, Vec::<String>::new());
    engine.stop().unwrap();
}

#[test]
fn senders_wait_while_a_sink_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let app = write_app(dir.path(), "@sink(type='file', file.uri='missing/o.json', @map(type='json'))");
    let mut read = App::read(&app, &[]).unwrap();
    read.settings.inbox_bytes = Some(64 << 10);
    read.settings.send_timeout = tidemill_types::Duration::parse("50ms").unwrap();
    let engine = Engine::open(&dir.path().join("data"), Some(read)).unwrap();
    let rows: String = (0..1000).map(|n| format!("{{\"k\":\"k\",\"n\":{}}}\n", 2 * n)).collect();
    let mut accepted = 0;
    let refused = loop {
        match engine.send_json("In", rows.as_bytes(), BodyFormat::Ndjson, &SendOptions::default()) {
            Ok(reply) => accepted += reply.accepted as i64,
            Err(e) => break e,
        }
        assert!(accepted < 1_000_000, "memory is not bounded");
    };
    assert!(refused.kind().is_retryable(), "{refused}");
    std::fs::create_dir(app.join("missing")).unwrap();
    engine.wait_idle();
    engine.stop().unwrap();
    assert_eq!(numbers(&app.join("missing/o.json"), &Format::Json).len() as i64, accepted);
}

#[test]
fn events_that_arrive_from_outside_are_written_and_files_are_appended_to() {
    let dir = tempfile::tempdir().unwrap();
    let app = dir.path().join("app");
    std::fs::create_dir(&app).unwrap();
    let text = "@sink(type='file', file.uri='o.csv', @map(type='csv')) define stream In (k string, n long);
        from In select k insert into Other;";
    std::fs::write(app.join("q.siddhi"), text).unwrap();
    std::fs::write(app.join("o.csv"), "before,2\n").unwrap();
    let engine = open_app(dir.path(), &app);
    send(&engine, 3..5);
    engine.stop().unwrap();
    assert_eq!(std::fs::read_to_string(app.join("o.csv")).unwrap(), "before,2\nk3,3\nk4,4\n");
}

#[test]
fn two_sinks_need_two_files() {
    let dir = tempfile::tempdir().unwrap();
    let sink = "@sink(type='file', file.uri='o.csv', @map(type='csv'))";
    let app = write_app(dir.path(), &format!("{sink} {sink}"));
    let error = Engine::open(&dir.path().join("data"), Some(App::read(&app, &[]).unwrap())).err().unwrap();
    assert!(error.to_string().contains("two sinks write to"), "{error}");
}

#[test]
fn a_changed_path_does_not_touch_the_state_of_queries() {
    let dir = tempfile::tempdir().unwrap();
    let app = write_app(dir.path(), "@sink(type='file', file.uri='one.json', @map(type='json'))");
    let engine = open_app(dir.path(), &app);
    send(&engine, 0..10);
    engine.stop().unwrap();
    drop(engine);
    write_app(dir.path(), "@sink(type='file', file.uri='two.json', @map(type='json'))");
    let engine = open_app(dir.path(), &app);
    assert_eq!(engine.recovery.warnings, Vec::<String>::new());
    send(&engine, 10..20);
    engine.stop().unwrap();
    assert_eq!(numbers(&app.join("one.json"), &Format::Json), even(10));
    assert_eq!(numbers(&app.join("two.json"), &Format::Json), [10, 12, 14, 16, 18]);
    // the old sink is forgotten
    assert_eq!(std::fs::read_dir(dir.path().join("data/sinks")).unwrap().count(), 1);
}

#[test]
fn a_path_with_partition_gives_each_partition_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let sink = "@sink(type='file', file.uri='o-{partition}.csv', @map(type='csv'))";
    let app = write_app(dir.path(), sink);
    let mut sent = 0;
    for step in ["", "checkpoint", "", "stop"] {
        let engine = open_app(dir.path(), &app);
        if step == "checkpoint" {
            engine.checkpoint().unwrap();
        }
        send(&engine, sent..sent + 100);
        sent += 100;
        engine.wait_idle();
        match step {
            "stop" => engine.stop().unwrap(),
            _ => engine.abandon(),
        }
    }
    let mut keys: Vec<std::collections::BTreeSet<String>> = Vec::new();
    let mut all = Vec::new();
    for partition in 0..4 {
        let text = std::fs::read_to_string(app.join(format!("o-{partition}.csv"))).unwrap_or_default();
        let lines = || text.lines().filter_map(|line| line.split_once(','));
        keys.push(lines().map(|(key, _)| key.to_owned()).collect());
        let numbers: Vec<i64> = lines().map(|(_, number)| number.parse().unwrap()).collect();
        assert!(numbers.is_sorted(), "partition {partition}: {numbers:?}");
        all.extend(numbers);
    }
    all.sort_unstable();
    assert_eq!(all, even(sent as i64));
    assert!(keys.iter().filter(|keys| !keys.is_empty()).count() > 1, "{keys:?}");
    // a key is in the file of its partition
    assert_eq!(keys.iter().map(std::collections::BTreeSet::len).sum::<usize>(), 7, "{keys:?}");
    assert!(!app.join("o-{partition}.csv").exists());
    // how far they are written goes with the partitions, and is forgotten with the sink
    let progress = || {
        let partitions = std::fs::read_dir(dir.path().join("data/deliveries")).unwrap();
        partitions.map(|p| std::fs::read_dir(p.unwrap().path()).unwrap().count()).sum::<usize>()
    };
    assert!(progress() > 1);
    write_app(dir.path(), "@sink(type='file', file.uri='one.csv', @map(type='csv'))");
    open_app(dir.path(), &app).stop().unwrap();
    assert_eq!(progress(), 0);
}
