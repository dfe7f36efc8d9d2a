//! Files as sources of the engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemill_connect::{Source, SourceBatch};
use tidemill_engine::{App, Engine};
use tidemill_files::{Codec, EventFileWriter, Format, WriteOptions};
use tidemill_types::decode::BatchBuilder;
use tidemill_types::{Field, FieldType, InterleavedBatches, Result, StreamSchema, Timestamp, row_value};

use crate::{ledger, open_app, rows};

/// Writes the files of an app into a directory of their own.
fn app_dir(dir: &Path, files: &[(&str, &str)]) -> PathBuf {
    let app = dir.join("app");
    std::fs::create_dir_all(&app).unwrap();
    for (name, text) in files {
        std::fs::write(app.join(name), text).unwrap();
    }
    app
}

fn read_all(engine: &Engine) {
    engine.start_sources().unwrap();
    engine.wait_idle();
}

/// Returns the values of a column of a stream's rows that are in memory.
fn column(engine: &Engine, stream: &str, name: &str) -> Vec<String> {
    let snapshot = engine.table_snapshot(stream).unwrap().unwrap();
    let mut values = Vec::new();
    for batch in &snapshot.tail {
        let column = batch.schema().index_of(name).unwrap();
        values.extend((0..batch.num_rows()).map(|row| row_value(batch, column, row).to_string()));
    }
    values
}

fn trades() -> Arc<StreamSchema> {
    let fields = vec![Field::new("symbol", FieldType::String), Field::new("volume", FieldType::Long)];
    Arc::new(StreamSchema { name: "Trades".into(), fields, key: None, id: vec![], time: None })
}

const RULES: &str = "event Trades { symbol: string, volume: long } key symbol;";

fn source(format: &str, path: &str) -> String {
    format!(
        "[[source]]\nname = \"trades\"\ntype = \"file\"\nformat = \"{format}\"\nstream = \"Trades\"\npath = \"{path}\"\n"
    )
}

/// Writes `rows` trades to a file, with `bad` damaged rows or blocks among them.
fn write_trades(path: &Path, format: &str, rows: usize) {
    let text = |n: usize| match format {
        "ndjson" => format!("{{\"symbol\":\"s{}\",\"volume\":{n}}}\n", n % 50),
        _ => format!("s{},{n}\n", n % 50),
    };
    let of = match format {
        "avro" => Format::Avro(Codec::Snappy),
        "parquet" => Format::Parquet,
        _ => {
            let header = if format == "csv" { "symbol,volume\n" } else { "" };
            let all: String = (0..rows).map(text).collect();
            std::fs::write(path, format!("{header}{all}")).unwrap();
            return;
        }
    };
    let mut builder = BatchBuilder::new(trades());
    for n in 0..rows {
        let row = format!("{{\"symbol\":\"s{}\",\"volume\":{n}}}", n % 50);
        builder.push_json(row.as_bytes(), Timestamp(0)).unwrap();
    }
    let mut writer = EventFileWriter::create(path, &of, &trades(), &WriteOptions::default()).unwrap();
    writer.write(&builder.finish()).unwrap();
    writer.finish().unwrap();
}

#[test]
fn every_format_is_read_once_across_crashes() {
    const ROWS: usize = 40_000;
    for format in ["ndjson", "csv", "avro", "parquet"] {
        let dir = tempfile::tempdir().unwrap();
        let app = app_dir(dir.path(), &[("trades.rules", RULES), ("app.toml", &source(format, "trades.in"))]);
        write_trades(&app.join("trades.in"), format, ROWS);
        let mut crashes = 0;
        loop {
            let engine = open_app(dir.path(), &app);
            let before = rows(&engine, "Trades");
            engine.start_sources().unwrap();
            // a crash as soon as something new is applied; a checkpoint before every other one
            while engine.sources_running() && rows(&engine, "Trades") == before {
                std::thread::yield_now();
            }
            if crashes % 2 == 1 {
                engine.checkpoint().unwrap();
            }
            if rows(&engine, "Trades") as usize == ROWS || crashes > 20 {
                engine.wait_idle();
                let volumes: std::collections::BTreeSet<String> =
                    column(&engine, "Trades", "volume").into_iter().collect();
                let flushed: u64 =
                    engine.table_snapshot("Trades").unwrap().unwrap().tablets.iter().map(|t| t.rows).sum();
                assert_eq!(rows(&engine, "Trades") as usize, ROWS, "{format}");
                assert_eq!(volumes.len() as u64 + flushed, ROWS as u64, "{format}: a row is there twice");
                assert_eq!(ledger(&engine), format!("Trades {ROWS}={ROWS}+0+0\n"), "{format}");
                assert_eq!(engine.source_problems(), Vec::<String>::new());
                break;
            }
            engine.abandon();
            crashes += 1;
        }
    }
}

#[test]
fn a_file_that_grew_is_continued_where_its_lines_ended() {
    for (format, first, more) in [
        ("ndjson", "{\"symbol\":\"a\",\"volume\":1}\n\nbad\n{\"symbol\":\"b\"}\n", "{\"volume\":7}\n"),
        ("csv", "volume,symbol\n1,a\n2\nx,y\n3,b\n", "4,c\n"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let app = app_dir(dir.path(), &[("trades.rules", RULES), ("app.toml", &source(format, "trades.in"))]);
        let path = app.join("trades.in");
        std::fs::write(&path, first).unwrap();
        let engine = open_app(dir.path(), &app);
        read_all(&engine);
        let (good, bad) = if format == "csv" { (2, 2) } else { (2, 1) };
        assert_eq!(rows(&engine, "Trades"), good);
        // all partitions are at the end: four lines with an empty one, four records
        let sources = engine.system_table("sources").unwrap().unwrap();
        let positions: Vec<String> =
            (0..sources.num_rows()).map(|row| row_value(&sources, 2, row).to_string()).collect();
        assert_eq!(positions, ["4"; 4], "{format}: {sources:?}");
        let rejections = engine.source_rejections();
        assert_eq!(rejections.iter().map(|r| r.rows).sum::<u64>(), bad, "{rejections:?}");
        assert_eq!(rejections[0].origin, if format == "csv" { "trades:2" } else { "trades:3" });
        engine.stop().unwrap();
        drop(engine);
        std::fs::write(&path, format!("{first}{more}")).unwrap();
        let engine = open_app(dir.path(), &app);
        read_all(&engine);
        assert_eq!(rows(&engine, "Trades"), good + 1, "{format}");
        assert_eq!(engine.source_rejections(), [], "{format}");
    }
}

#[test]
fn undeclared_columns_and_missing_fields_of_text_are_kept_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let app = app_dir(dir.path(), &[("trades.rules", RULES), ("app.toml", &source("csv", "trades.in"))]);
    std::fs::write(app.join("trades.in"), " symbol ,note\na,x\n").unwrap();
    let engine = open_app(dir.path(), &app);
    read_all(&engine);
    assert_eq!(column(&engine, "Trades", "symbol"), ["\"a\""]);
    assert!(
        column(&engine, "Trades", "_extra")[0].contains("note"),
        "{:?}",
        column(&engine, "Trades", "_extra")
    );
}

#[test]
fn damaged_blocks_and_files_that_do_not_fit_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let app = app_dir(dir.path(), &[("trades.rules", RULES), ("app.toml", &source("avro", "trades.in"))]);
    let path = app.join("trades.in");
    write_trades(&path, "avro", 20_000);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4].fill(0xff);
    std::fs::write(&path, &bytes).unwrap();
    let engine = open_app(dir.path(), &app);
    read_all(&engine);
    let stored = rows(&engine, "Trades");
    assert!((10_000..20_000).contains(&stored), "{stored}");
    let rejections = engine.source_rejections();
    assert_eq!((rejections.len(), rejections[0].rows), (1, 1), "{rejections:?}");
    assert_eq!(ledger(&engine), format!("Trades {}={stored}+0+1\n", stored + 1));
    engine.stop().unwrap();
    drop(engine);
    // a restart reads nothing twice
    let engine = open_app(dir.path(), &app);
    read_all(&engine);
    assert_eq!(rows(&engine, "Trades"), stored);
    drop(engine);
    let other = tempfile::tempdir().unwrap();
    let app =
        app_dir(other.path(), &[("trades.rules", RULES), ("app.toml", &source("parquet", "trades.in"))]);
    std::fs::write(app.join("trades.in"), "no Parquet").unwrap();
    let engine = open_app(other.path(), &app);
    read_all(&engine);
    let problems = engine.source_problems();
    assert!(problems[0].contains("trades.in: not a Parquet file"), "{problems:?}");
}

#[test]
fn a_file_of_several_streams_needs_json() {
    let dir = tempfile::tempdir().unwrap();
    let toml = source("avro", "x").replace("stream = \"Trades\"", "stream_field = \"stream\"");
    let app = app_dir(dir.path(), &[("trades.rules", RULES), ("app.toml", &toml)]);
    let error = App::read(&app, &[]).err().unwrap();
    assert!(error.to_string().contains("an Avro file needs stream = \"NAME\""), "{error}");
}

#[test]
fn annotated_files_are_merged_by_time_in_playback() {
    let dir = tempfile::tempdir().unwrap();
    let app = "@app:playback
        @source(type='file', file.uri='a.csv', event.time='at', @map(type='csv', header.present='true'))
        define stream A (name string, at long);
        @source(type='file', file.uri='b.json', event.time='at', @map(type='json'))
        define stream B (name string, at long);
        from A select name, at insert into All;
        from B select name, at insert into All;";
    let app = app_dir(dir.path(), &[("q.siddhi", app)]);
    let text: String = (0..500).map(|n| format!("{},a{n}\n", 10 * n)).collect();
    std::fs::write(app.join("a.csv"), format!("at,name\n{text}")).unwrap();
    let text: String =
        (0..500).map(|n| format!("{{\"event\":{{\"name\":\"b{n}\",\"at\":{}}}}}\n", 10 * n + 5)).collect();
    std::fs::write(app.join("b.json"), format!("{text}{{\"name\":7}}\n")).unwrap();
    let mut expected = Vec::new();
    (0..500).for_each(|n| expected.extend([format!("\"a{n}\""), format!("\"b{n}\"")]));
    let engine = open_app(dir.path(), &app);
    read_all(&engine);
    assert_eq!(column(&engine, "All", "name"), expected);
    let times = column(&engine, "A", "_time");
    assert_eq!(times[1], "1970-01-01T00:00:00.01Z");
    let rejections = engine.source_rejections();
    assert_eq!(rejections.len(), 1);
    assert!(rejections[0].reason.contains("line 501, byte"), "{rejections:?}");
    engine.abandon();
    drop(engine);
    let engine = open_app(dir.path(), &app);
    read_all(&engine);
    assert_eq!(column(&engine, "All", "name"), expected, "nothing is read twice");
}

#[test]
fn a_stream_may_have_more_fields_than_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "event S { more: int, at: time(s), name: string } time at;";
    let queries = "@source(type='file', file.uri='s.csv', @map(type='csv', delimiter=';'))
        define stream S (name string, at long);
        from S select name insert into O;";
    let app = app_dir(dir.path(), &[("s.rules", rules), ("q.siddhi", queries)]);
    std::fs::write(app.join("s.csv"), "x;3\ny;4\n").unwrap();
    let engine = open_app(dir.path(), &app);
    read_all(&engine);
    assert_eq!(engine.source_problems(), Vec::<String>::new());
    assert_eq!(column(&engine, "S", "name"), ["\"x\"", "\"y\""]);
    assert_eq!(column(&engine, "S", "_time")[1], "1970-01-01T00:00:04Z");
    let more = row_value(&engine.table_snapshot("S").unwrap().unwrap().tail[0], 0, 0).to_string();
    assert!(matches!(more.as_str(), "missing" | "null"), "a field that is not in the file is {more}");
}

#[test]
fn key_and_id_of_a_stream_count_for_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "event S { k: string, n: long } key k id k, n;";
    let queries = "@source(type='file', file.uri='s.csv', @map(type='csv'))
        define stream S (k string, n long);
        from S select k, count() as c group by k insert into Counts;";
    let app = app_dir(
        dir.path(),
        &[("s.rules", rules), ("q.siddhi", queries), ("app.toml", "[settings]\npartitions = 2\n")],
    );
    // each row twice
    let text: String = (0..100).map(|n| format!("k{},{}\n", n / 2 % 5, n / 2)).collect();
    std::fs::write(app.join("s.csv"), text).unwrap();
    let mut engine = open_app(dir.path(), &app);
    for _ in 0..2 {
        read_all(&engine);
        assert_eq!(ledger(&engine), "S 100=50+50+0\nCounts 50=50+0+0\n");
        assert_eq!(rows(&engine, "S"), 50);
        assert_eq!(column(&engine, "Counts", "c").iter().filter(|c| *c == "10").count(), 5);
        let mut partitions = column(&engine, "S", "_partition");
        partitions.sort();
        partitions.dedup();
        assert_eq!(partitions, ["0", "1"]);
        // what was stored is the same when the log is applied again
        engine.abandon();
        drop(engine);
        engine = open_app(dir.path(), &app);
    }
}

/// A source of the caller with ten rows a batch, whose positions count rows.
struct Counted {
    next: u64,
    end: u64,
}

impl Source for Counted {
    fn name(&self) -> &str {
        "counted"
    }

    fn next(&mut self, now: Timestamp) -> Result<Option<SourceBatch>> {
        if self.next >= self.end {
            return Ok(None);
        }
        let mut rows = BatchBuilder::new(trades());
        let numbers: Vec<u64> = (self.next..self.end.min(self.next + 10)).collect();
        for n in &numbers {
            let row = format!("{{\"symbol\": \"S{}\", \"volume\": {n}}}", n % 13);
            rows.push_json(row.as_bytes(), now)?;
        }
        self.next += numbers.len() as u64;
        let rows = InterleavedBatches { parts: vec![(trades(), rows.finish())], order: None };
        Ok(Some(SourceBatch { rows, row_numbers: numbers, position: self.next, ..SourceBatch::default() }))
    }
}

#[test]
fn a_source_of_the_caller_goes_on_at_its_position_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let app = app_dir(dir.path(), &[("app.rules", RULES)]);
    let engine = open_app(dir.path(), &app);
    assert_eq!(engine.source_position("counted").unwrap(), None);
    engine.read_source(&mut Counted { next: 0, end: 55 }, "Trades").unwrap();
    engine.catch_up().unwrap();
    assert_eq!(
        (engine.source_position("counted").unwrap(), engine.source_names().unwrap()),
        (Some(55), vec!["counted".to_owned()])
    );
    engine.abandon();
    drop(engine);

    let engine = open_app(dir.path(), &app);
    engine.catch_up().unwrap();
    let start = engine.source_position("counted").unwrap().unwrap();
    engine.read_source(&mut Counted { next: start, end: 80 }, "Trades").unwrap();
    // a caller that begins too early doubles nothing
    engine.read_source(&mut Counted { next: 0, end: 80 }, "Trades").unwrap();
    engine.catch_up().unwrap();
    assert_eq!((rows(&engine, "Trades"), ledger(&engine).as_str()), (80, "Trades 80=80+0+0\n"));
}
