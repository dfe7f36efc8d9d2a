//! `tidemill load`.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill::types::decode::BatchBuilder;
use tidemill::{Field, FieldType, StreamSchema, Timestamp};
use tidemill_files::{Codec, EventFileWriter, Format, WriteOptions};

use crate::{run, serve_data, sql, tidemill};

const RULES: &str = "event Trades { symbol: string, at: time, n: long } key symbol time at;
event Quotes { at: time, price: double } time at;\n";

/// A directory with an app, in which loads run.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        place.write("app/app.rules", RULES.as_bytes());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        self.text(name)
    }

    /// Returns the arguments of a load into the data directory, which gets the app if it is new.
    fn command(&self, arguments: &[&str]) -> Vec<String> {
        let all = ["load"].iter().chain(arguments).map(|text| (*text).to_owned());
        let data = ["--data".to_owned(), self.text("data"), "--app".to_owned(), self.text("app")];
        all.chain(data).collect()
    }

    fn load(&self, arguments: &[&str], code: i32) -> (String, String) {
        let command = self.command(arguments);
        run(&command.iter().map(String::as_str).collect::<Vec<_>>(), code)
    }

    /// Returns the number of rows of `Trades` and the sum of `n`.
    fn trades(&self) -> (i64, i64) {
        let rows = sql(&self.text("data"), "SELECT count(*) AS rows, sum(n) AS n FROM Trades");
        (rows[0]["rows"].as_i64().unwrap(), rows[0]["n"].as_i64().unwrap_or_default())
    }
}

/// Rows `from` to below `to` as CSV with a header.
fn csv(from: u64, to: u64) -> String {
    let mut text = String::from("symbol,at,n\n");
    for n in from..to {
        writeln!(text, "S{},2016-01-01T00:00:{:02}Z,{n}", n % 97, n % 60).unwrap();
    }
    text
}

fn sum(from: i64, to: i64) -> (i64, i64) {
    (to - from, (from..to).sum())
}

/// Writes rows 10 to below 20 in a binary format.
fn write_binary(path: &Path, format: &Format) {
    let fields = vec![
        Field::new("symbol", FieldType::String),
        Field::new("at", FieldType::Time),
        Field::new("n", FieldType::Long),
    ];
    let schema =
        Arc::new(StreamSchema { name: "Trades".into(), fields, key: None, id: vec![], time: Some(1) });
    let mut rows = BatchBuilder::new(schema.clone());
    for n in 10..20 {
        let row = serde_json::json!({"symbol": "A", "at": "2016-01-01T00:00:00Z", "n": n}).to_string();
        rows.push_json(row.as_bytes(), Timestamp(0)).unwrap();
    }
    let mut writer = EventFileWriter::create(path, format, &schema, &WriteOptions::default()).unwrap();
    writer.write(&rows.finish()).unwrap();
    writer.finish().unwrap();
}

/// A disk that is slower than the input slows the input down. That is no error.
#[test]
fn waiting_for_the_disk_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let (app, rows, data) = (dir.path().join("app"), dir.path().join("rows.csv"), dir.path().join("data"));
    std::fs::create_dir(&app).unwrap();
    std::fs::write(app.join("a.rules"), "event E { n: int, note: string };\n").unwrap();
    let settings = "[settings]\npartitions = 1\nflush_interval = \"1h\"\nflush_bytes = \"64KiB\"\ntail_bytes = \"64KiB\"\n";
    std::fs::write(app.join("app.toml"), settings).unwrap();
    let text: String = (0..30_000).map(|n| format!("{n},{}\n", "x".repeat(50))).collect();
    std::fs::write(&rows, format!("n,note\n{text}")).unwrap();
    let load = [
        "-v",
        "load",
        "E",
        rows.to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
        "--app",
        app.to_str().unwrap(),
    ];
    let (_, err) = run(&load, 0);
    assert!(err.contains("INFO applying waits until rows are flushed"), "{err}");
    assert!(!err.contains("ERROR") && !err.contains("WARN"), "{err}");
}

#[test]
fn files_of_all_formats_are_loaded() {
    let place = Place::new();
    let whole = csv(0, 10);
    place.write("files/a.csv", whole.as_bytes());
    write_binary(&place.path("files/b.parquet"), &Format::Parquet);
    write_binary(&place.path("files/c.avro"), &Format::Avro(Codec::Deflate));
    let lines: String = (10..20).map(|n| format!("{{\"symbol\": \"B\", \"n\": {n}}}\n")).collect();
    place.write("files/d.ndjson", lines.as_bytes());
    let lines: String = (10..20).map(|n| format!("Trades,symbol=C n={n}i 1451606400000000000\n")).collect();
    place.write("files/e.lp", lines.as_bytes());
    place.write("files/readme.txt", b"no rows");
    let (out, err) = place.load(&["Trades", &place.text("files")], 0);
    assert!(out.contains("50 rows of 5 files loaded"), "{out}");
    assert!(err.contains("e.lp"), "{err}");
    assert_eq!(place.trades(), (50, 45 + 4 * 145));
    let (_, err) = place.load(&["Trades", &place.text("files/*.csv")], 1);
    assert!(err.contains("a.csv: was loaded before up to row 10: `--resume`"), "{err}");
    place.load(&["Trades", &place.text("files"), "--resume"], 0);
    assert_eq!(place.trades().0, 50);
    place.load(&["Trades", &place.text("files/[a-b].*"), "--again"], 0);
    assert_eq!(place.trades().0, 70);
    place.load(&["Trades", &format!("file://{}/*.csv", place.text("files"))], 0);
    assert_eq!(place.trades().0, 80);
}

#[test]
fn standard_input_has_a_position_if_it_has_a_name() {
    let place = Place::new();
    let piped = |arguments: &[&str], text: &str| {
        let command = place.command(arguments);
        let mut child = tidemill(&command.iter().map(String::as_str).collect::<Vec<_>>())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let from = ["Trades", "-", "--format", "csv"];
    let named = [&from[..], &["--name", "pipe", "--resume"]].concat();
    assert_eq!(piped(&from, &csv(0, 10)).0, Some(0));
    assert_eq!(piped(&from, &csv(0, 10)).0, Some(0));
    assert_eq!(place.trades().0, 20);
    assert_eq!(piped(&named, &csv(0, 10)).0, Some(0));
    let (code, err) = piped(&named, &csv(0, 15));
    assert!(code == Some(0) && err.contains("pipe: goes on behind row 10"), "{err}");
    assert_eq!(place.trades().0, 35);
    let (code, err) = piped(&[&from[..], &["--resume"]].concat(), "");
    assert!(code == Some(1) && err.contains("expected `--name NAME`"), "{err}");
}

#[test]
fn bad_rows_are_counted_shown_and_kept() {
    let place = Place::new();
    let file = place.write("a.csv", b"symbol,at,n\nA,,1\nB,,x\nC,,2\nD,,3,4\n");
    let (out, err) = place.load(&["Trades", &file], 1);
    assert!(out.contains("2 rows of 1 file loaded"), "{out}");
    let shown = format!(
        "{file}, line 3: refused: field `n`: expected long (a whole number of 64 bits), found text \"x\"\n  B,,x\n"
    );
    assert!(err.contains(&shown) && err.matches("refused:").count() == 1, "{err}");
    assert!(
        out.contains("2 rows were refused; all of them with their reasons: SELECT * FROM system.rejected"),
        "{out}"
    );
    let reasons = sql(&place.text("data"), "SELECT reason FROM system.rejected ORDER BY _offset, _row");
    assert_eq!(reasons.len(), 2);
    assert!(reasons[1]["reason"].as_str().unwrap().contains("expected 3 cells as in the header, found 4"));
    let lines = place.write("b.lp", b"Trades n=1i 1\nQuotes price=1.5 1\nOther n=1i 1\n");
    let (_, err) = place.load(&["Trades,Quotes", &lines], 1);
    assert!(err.contains("measurement `Other`: this load has no stream of that name"), "{err}");
    assert_eq!(place.trades().0, 3);
}

#[test]
fn a_damaged_file_says_how_to_go_on() {
    let place = Place::new();
    let whole = zstd_of(&csv(0, 100_000));
    let file = place.write("a.csv.zst", &whole[..whole.len() / 2]);
    let (_, err) = place.load(&["Trades", &file], 1);
    assert!(err.contains("a.csv.zst: the rows before are stored; `--resume` goes on behind them"), "{err}");
    let (rows, _) = place.trades();
    assert!(0 < rows && rows < 100_000, "{rows}");
    std::fs::write(&file, &whole).unwrap();
    place.load(&["Trades", &file, "--resume"], 0);
    assert_eq!(place.trades(), sum(0, 100_000));
}

fn zstd_of(text: &str) -> Vec<u8> {
    let mut child =
        Command::new("zstd").args(["-q", "-c"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = text.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output.stdout
}

#[test]
fn a_path_with_other_content_is_told() {
    let place = Place::new();
    let file = place.write("a.csv", csv(0, 10).as_bytes());
    place.load(&["Trades", &file], 0);
    std::fs::write(&file, csv(0, 12)).unwrap();
    place.load(&["Trades", &file, "--resume"], 0);
    assert_eq!(place.trades(), sum(0, 12));
    std::fs::write(&file, csv(20, 40)).unwrap();
    let (_, err) = place.load(&["Trades", &file, "--resume"], 1);
    assert!(err.contains("begins with other bytes now") && err.contains("--again"), "{err}");
    place.load(&["Trades", &file, "--again"], 0);
    assert_eq!(place.trades().0, 32);
    std::fs::write(&file, csv(20, 45)).unwrap();
    place.load(&["Trades", &file, "--resume"], 0);
    assert_eq!(place.trades().0, 37);
}

/// The file is a named pipe, so that the test knows how far the load has read when it is killed.
#[test]
fn a_killed_load_goes_on_without_losing_or_doubling_a_row() {
    const ROWS: u64 = 120_000;
    let seed = std::env::var("TIDEMILL_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(7);
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let place = Place::new();
    let whole = csv(0, ROWS);
    let path = place.path("rows.csv");
    let command = place.command(&["Trades", path.to_str().unwrap(), "--resume"]);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    for round in 1..=4 {
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let mut child = tidemill(&command).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let most = whole.len() * round / 5;
        let until = random.random_range(most * 3 / 4..most);
        println!("round {round}: killed behind byte {until} of {}", whole.len());
        let mut pipe = OpenOptions::new().write(true).open(&path).unwrap();
        pipe.write_all(&whole.as_bytes()[..until]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        drop(pipe);
        std::fs::remove_file(&path).unwrap();
    }
    std::fs::write(&path, &whole).unwrap();
    let (_, err) = run(&command, 0);
    assert!(err.contains("goes on behind row"), "{err}");
    assert_eq!(place.trades(), sum(0, ROWS as i64));
    let ledger = sql(&place.text("data"), "SELECT * FROM system.ledger WHERE stream = 'Trades'");
    assert_eq!((&ledger[0]["stored"], &ledger[0]["balanced"]), (&ROWS.into(), &true.into()));
}

#[test]
fn a_running_server_is_told() {
    let place = Place::new();
    let file = place.write("a.csv", csv(0, 10).as_bytes());
    place.load(&["Trades", &file], 0);
    let server = serve_data(&place.path("data"));
    let (_, err) = place.load(&["Trades", &file, "--again"], 1);
    assert!(err.contains("a server runs on") && err.contains("curl"), "{err}");
    drop(server);
}

#[test]
fn a_stream_is_declared_from_a_file() {
    let place = Place::new();
    let csv = place.write("day 1.csv", b"id,when,price,ok\n1,2016-01-01T00:00:00Z,1.5,true\n2,,2,false\n");
    let (out, _) = run(&["load", "Prices", &csv, "--infer"], 0);
    assert_eq!(
        out,
        "event Prices {\n  id: long,\n  when: time,\n  price: double,\n  ok: bool,\n} time when;\n"
    );
    let app = place.text("made");
    run(&["load", "Prices", &csv, "--infer", "--create", &app], 0);
    let (_, err) = run(&["load", "Prices", &csv, "--infer", "--create", &app], 1);
    assert!(err.contains("exists already"), "{err}");
    let data = place.text("prices");
    run(&["load", "Prices", &csv, "--data", &data, "--app", &app], 0);
    let rows = sql(&data, "SELECT id, \"when\", price, ok FROM Prices ORDER BY id");
    assert_eq!(
        rows[0],
        serde_json::json!({"id": 1, "when": "2016-01-01T00:00:00Z", "price": 1.5, "ok": true})
    );
    write_binary(&place.path("b.parquet"), &Format::Parquet);
    write_binary(&place.path("c.avro"), &Format::Avro(Codec::Null));
    for name in ["b.parquet", "c.avro"] {
        let (out, _) = run(&["load", "T", &place.text(name), "--infer"], 0);
        assert_eq!(out, "event T {\n  symbol: string,\n  at: time,\n  n: long,\n} time at;\n", "{name}");
    }
}

#[test]
fn what_infer_writes_can_be_loaded() {
    let place = Place::new();
    let file = place.write(
        "stations.csv",
        "Station ID;Zip;at (UTC);v\n1;00123;2016-01-01T00:00:00Z;NA\n2;45678;2016-01-02T00:00:00Z;1.5\n"
            .as_bytes(),
    );
    let (_, err) = run(&["load", "Stations", &file, "--infer"], 1);
    assert!(err.contains("if that separates columns, add `--delimiter ';'`"), "{err}");
    let options = ["--delimiter", ";", "--null", "NA"];
    let app = place.text("stations");
    let (out, _) =
        run(&[&["load", "Stations", &file, "--infer", "--create", &app], &options[..]].concat(), 0);
    let renames = "--delimiter ';' --null 'NA' --rename 'Station ID=station_id' --rename 'at (UTC)=at_utc'";
    assert!(out.contains(&format!("load with `--app {app} {renames}`")), "{out}");
    let declared = std::fs::read_to_string(place.path("stations/streams.rules")).unwrap();
    assert_eq!(
        declared,
        format!(
            "// load with {renames}\nevent Stations {{\n  station_id: long,\n  Zip: string,\n  at_utc: time,\n  v: double,\n}} time at_utc;\n"
        )
    );
    run(&["check", &app], 0);
    let data = place.text("loaded");
    let renames = ["--rename", "Station ID=station_id", "--rename", "at (UTC)=at_utc"];
    run(
        &[&["load", "Stations", &file, "--data", &data, "--app", &app], &options[..], &renames[..]].concat(),
        0,
    );
    let rows = sql(&data, "SELECT station_id, Zip, v, _time FROM Stations ORDER BY station_id");
    assert_eq!(
        rows[0],
        serde_json::json!({"station_id": 1, "Zip": "00123", "v": null, "_time": "2016-01-01T00:00:00Z"})
    );
    assert_eq!(rows[1]["v"], 1.5);
}

#[test]
fn a_refused_load_leaves_nothing_behind() {
    let place = Place::new();
    let data = place.path("data");
    let other = place.write("other.csv", b"a,b\n1,2\n");
    let twice = place.write("twice.csv", b"symbol,n,n\nA,1,2\n");
    let unclosed = place.write("unclosed.csv", b"symbol,n\n\"A,1\nB,2\n");
    place.write("bad/app.rules", b"event Trades { symbol: strin };\n");
    place.write("spaced/app.rules", b"event Trades { `a b`: string };\n");
    for (arguments, reason) in [
        (vec!["Trades", other.as_str()], "it has `a`, `b`, expected some of symbol, at, n"),
        (vec!["Trades", &twice], "the column `n` occurs twice, as columns 2 and 3"),
        (vec!["Trades", &unclosed], "line 2: the quote that begins a text here has no end"),
        (vec!["Trade", &other], "no stream `Trade`"),
    ] {
        let (_, err) = place.load(&arguments, 1);
        assert!(err.contains(reason), "{err}");
        assert!(!data.exists(), "{arguments:?}");
    }
    for app in ["bad", "spaced"] {
        let (_, err) =
            run(&["load", "Trades", &other, "--data", &place.text("data"), "--app", &place.text(app)], 1);
        assert!(!data.exists(), "{err}");
        run(&["check", &place.text(app)], 1);
        run(&["run", &place.text(app), "--data", &place.text("data"), "--until-idle"], 1);
        assert!(!data.exists());
    }
    // what is there stays
    let good = place.write("good.csv", csv(0, 10).as_bytes());
    place.load(&["Trades", &good], 0);
    place.load(&["Trades", &twice], 1);
    assert_eq!(place.trades().0, 10);
}

#[test]
fn a_quote_without_an_end_ends_the_load() {
    let place = Place::new();
    let file = place.write("a.csv", b"symbol,n\nA,1\nB,2\n\"C,3\nD,4\n");
    let (_, err) = place.load(&["Trades", &file], 1);
    assert!(err.contains("line 4: the quote that begins a text here has no end"), "{err}");
    assert!(err.contains("the rows before are stored"), "{err}");
    assert_eq!(place.trades(), sum(1, 3));
    std::fs::write(&file, "symbol,n\nA,1\nB,2\n\"C\",3\nD,4\n").unwrap();
    place.load(&["Trades", &file, "--again"], 0);
    assert_eq!(place.trades().0, 6);
}

#[test]
fn arrays_of_json_and_columns_in_another_case_are_read() {
    let place = Place::new();
    let array = place.write("a.json", b"[\n  {\"symbol\": \"A\", \"n\": 1},\n  {\"symbol\": \"B\", \"n\": \"2\"},\n  {\"symbol\": \"C\", \"n\": 3}\n]\n");
    let (out, err) = place.load(&["Trades", &array], 1);
    assert!(out.contains("2 rows of 1 file loaded"), "{out}");
    assert!(
        err.contains("a.json, line 3: refused: field `n`:")
            && err.contains("a number in quotes: write it without them"),
        "{err}"
    );
    let upper = place.write("b.csv", b"SYMBOL,N,Venue\nD,4,X\n");
    place.load(&["Trades", &upper], 0);
    let renamed = place.write("c.ndjson", b"{\"symbol\":\"E\",\"the n\":5}\n");
    place.load(&["Trades", &renamed, "--rename", "the n=n"], 0);
    assert_eq!(place.trades(), (4, 13));
    let (_, err) = place.load(&["Trades", &array, "--null", "NA", "--again"], 1);
    assert!(err.contains("--null is for CSV"), "{err}");
}

#[test]
fn what_cannot_be_loaded_says_what_to_type() {
    let place = Place::new();
    let file = place.write("a.csv", csv(0, 1).as_bytes());
    let (_, err) = run(&["load", "Trades", &file, "--data", &place.text("none")], 1);
    assert!(err.contains("`--app APP` deploys an app"), "{err}");
    assert!(!place.path("none").exists());
    let (_, err) = place.load(&["Trade", &file], 1);
    assert!(err.contains("no stream `Trade`. Did you mean `Trades`?"), "{err}");
    let (_, err) = place.load(&["Trades", &place.text("b.csv")], 1);
    assert!(err.contains("b.csv: no such file or directory"), "{err}");
    let (_, err) = place.load(&["Trades,Quotes", &file], 1);
    assert!(err.contains("expected a single stream"), "{err}");
    let (_, err) = place.load(&["Trades", "ftp://host/a.csv"], 1);
    assert!(err.contains("expected s3://, gs://, az://, http:// or https://"), "{err}");
    let other = place.write("c.csv", b"a,b\n1,2\n");
    let (_, err) = place.load(&["Trades", &other], 1);
    assert!(err.contains("names none of the fields of Trades"), "{err}");
    run(&["load", "Trades", &file], 2);
}

#[test]
fn a_web_server_is_read() {
    let place = Place::new();
    let body = zstd_of(&csv(0, 5000));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.unwrap(), &body);
        }
    });
    let (out, _) = place.load(&["Trades", &format!("{base}/day.csv.zst")], 0);
    assert!(out.contains("5000 rows of 1 file loaded"), "{out}");
    assert_eq!(place.trades(), sum(0, 5000));
    let (_, err) = place.load(&["Trades", &format!("{base}/*.csv")], 1);
    assert!(err.contains("a web server does not list what it has"), "{err}");
    let (_, err) = place.load(&["Trades", &format!("{base}/none.csv")], 1);
    assert!(err.contains("none.csv"), "{err}");
}

/// Answers one request: HEAD or GET of `/day.csv.zst`, else 404.
fn answer(mut stream: std::net::TcpStream, body: &[u8]) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
    let request = lines.next().unwrap_or_default();
    let _: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let head = |status: &str, bytes: usize| {
        format!(
            "HTTP/1.1 {status}\r\nContent-Length: {bytes}\r\nLast-Modified: Fri, 01 Jan 2016 00:00:00 GMT\r\n\
             Connection: close\r\n\r\n"
        )
    };
    if !request.contains("/day.csv.zst") {
        stream.write_all(head("404 Not Found", 0).as_bytes()).unwrap();
        return;
    }
    stream.write_all(head("200 OK", body.len()).as_bytes()).unwrap();
    if request.starts_with("GET") {
        // a reader of the first bytes closes the connection
        let _ = stream.write_all(body);
    }
}

#[test]
fn undeclared_columns_are_kept() {
    let place = Place::new();
    let file = place.write("a.csv", b"symbol,n,venue\nA,1,X\n");
    place.load(&["Trades", &file], 0);
    let rows = sql(&place.text("data"), "SELECT symbol, n, _extra FROM Trades");
    assert_eq!(rows[0]["_extra"], r#"{"venue":"X"}"#);
}
