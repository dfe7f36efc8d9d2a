//! The program is killed again and again while it takes events in, flushes, merges, expires and checkpoints: no acknowledged
//! event is lost, none is stored twice, and no file is left that no table knows.
//!
//! `TIDEMILL_KILLS=200` kills it more often, `TIDEMILL_SEED` at other times.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::{Serving, interrupt, serve, serve_data, sql, tidemill};

/// New events of a batch.
const NEW: u64 = 40;
/// Events of a batch that were sent before, or that the batch itself sends again further on.
const REPEATED: u64 = 8;
/// How long files may take to go.
const WAIT: Duration = Duration::from_secs(60);

const RULES: &str = "
event Trades { symbol: string, at: time, n: long } key symbol id symbol, n time at;
event Totals { symbol: string, n: long } key symbol id symbol, n;
event Passing { symbol: string, at: time, n: long } key symbol id symbol, n, at time at;
entity Symbols key symbol;
rule Total { when { t: Trades(n > 0); } then { emit Totals { symbol: t.symbol, n: t.n }; upsert Symbols { symbol: t.symbol, last: t.n }; } }
";

/// Everything happens often: what takes seconds and megabytes otherwise takes milliseconds and a few events.
const APP: &str = "
name = \"trades\"
[tables.Passing]
ttl = \"1 day\"
[settings]
partitions = 2
flush_interval = \"20ms\"
checkpoint_interval = \"60ms\"
dedupe_ids = 400
segment_bytes = \"64KiB\"
zones.merge_tablets = 2
zones.delta_checkpoint_commits = 5
zones.orphan_age_s = 1
zones.removed_retention_s = 1
";

/// What was sent, and what of it may not have arrived.
struct Sender {
    random: StdRng,
    /// Batches that were acknowledged.
    batches: u64,
}

impl Sender {
    /// Sends batches until `until`, or until the program does not answer.
    fn send(&mut self, serving: &Serving, until: Instant) {
        while Instant::now() < until {
            // the same batch is sent again if its answer does not come
            let first = self.batches * NEW;
            let repeated = (1..REPEATED).map(|_| self.random.random_range(0..first + NEW));
            // the greatest number comes before the lower ones, so the last event of a symbol is not its greatest
            let repeated = repeated.chain([first + NEW - 1]);
            let numbers: Vec<u64> = repeated.chain(first..first + NEW).collect();
            let passing =
                numbers.iter().map(|n| event(*n, if n % 3 == 0 { "2020-01-01" } else { "2200-01-01" }));
            let passing: Vec<String> = passing.collect();
            let trades: Vec<String> = numbers.iter().map(|n| event(*n, "2026-01-05")).collect();
            if !post(serving, "Passing", &passing) || !post(serving, "Trades", &trades) {
                return;
            }
            self.batches += 1;
        }
    }
}

fn event(n: u64, day: &str) -> String {
    let at = format!("{day}T{:02}:{:02}:{:02}Z", n / 3_600 % 24, n / 60 % 60, n % 60);
    json!({"symbol": format!("s{}", n % 7), "at": at, "n": n}).to_string()
}

/// Returns whether the events were acknowledged.
fn post(serving: &Serving, stream: &str, events: &[String]) -> bool {
    let reply = ureq::post(format!("{}/api/v1/streams/{stream}", serving.base))
        .header("authorization", format!("Bearer {}", serving.token))
        .header("content-type", "application/x-ndjson")
        .send(events.join("\n"));
    reply.is_ok_and(|mut reply| {
        let text = reply.body_mut().read_to_string().unwrap_or_default();
        let reply: Value = serde_json::from_str(&text).unwrap_or_default();
        assert!(reply["accepted"].is_null() || reply["rejected"] == json!([]), "{reply}");
        !reply["accepted"].is_null()
    })
}

/// Checks the stopped directory: every acknowledged event is there once, and so is what followed from it. Of the batch after
/// these any part may have arrived.
fn check(data: &str, batches: u64) {
    let sent = batches * NEW;
    let count = |stream: &str, filter: &str| {
        let counts = "count(*) AS n, count(DISTINCT n) AS ids";
        let rows = sql(data, &format!("SELECT {counts} FROM events.{stream} WHERE {filter}"));
        assert_eq!(rows[0]["n"], rows[0]["ids"], "{stream}: an event is stored twice");
        rows[0]["n"].as_u64().unwrap()
    };
    assert_eq!(count("Trades", &format!("n < {sent}")), sent, "an acknowledged event is missing");
    let trades = count("Trades", "n > 0");
    assert!(trades < sent + NEW, "{trades} events of {batches} batches");
    assert_eq!(count("Totals", "true"), trades, "what the rule emitted");
    // all events of a symbol are in one partition, and the document is what the rule wrote for the last of them in its log
    let query = "SELECT count(*) AS symbols, count(s.symbol) AS written FROM
        (SELECT symbol, n, row_number() OVER (PARTITION BY symbol ORDER BY _offset DESC, _row DESC) AS age
         FROM events.Trades WHERE n > 0) t
        LEFT JOIN docs.Symbols s ON s.symbol = t.symbol AND s.\"last\" = t.n WHERE t.age = 1";
    let rows = sql(data, query);
    assert_eq!(rows[0]["symbols"], rows[0]["written"], "what the rule wrote");
    let documents = sql(data, "SELECT count(*) AS n FROM docs.Symbols");
    assert_eq!(documents[0]["n"], rows[0]["symbols"], "a document that no event has written");
    let lasting = sent - sent.div_ceil(3);
    assert_eq!(
        count("Passing", &format!("n % 3 > 0 AND n < {sent}")),
        lasting,
        "an event that has not expired"
    );
    for row in sql(data, "SELECT stream, balanced, stored FROM system.ledger") {
        assert_eq!(row["balanced"], json!(true), "{row}");
        if row["stream"] == "Passing" {
            assert!((sent..=sent + NEW).contains(&row["stored"].as_u64().unwrap()), "{row}");
        }
    }
}

/// Returns the tablets on the disk that neither a table nor a commit names.
fn orphans(data: &Path) -> BTreeSet<String> {
    let (mut tablets, mut commits, mut dirs) = (BTreeSet::new(), String::new(), vec![data.join("tables")]);
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let (in_log, extension) = (path.iter().any(|part| part == "_delta_log"), path.extension());
            if path.is_dir() {
                dirs.push(path);
            } else if in_log && extension.is_some_and(|e| e == "json") {
                commits += &std::fs::read_to_string(path).unwrap();
            } else if !in_log {
                tablets.insert(path.file_name().unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    tablets.retain(|name| !commits.contains(name));
    tablets
}

#[test]
fn a_program_that_is_killed_again_and_again_keeps_every_event_once() {
    let number =
        |name: &str, usual: u64| std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(usual);
    let (kills, seed) = (number("TIDEMILL_KILLS", 6), number("TIDEMILL_SEED", 15));
    println!("TIDEMILL_KILLS={kills} TIDEMILL_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let (app, data) = (dir.path().join("app"), dir.path().join("data"));
    std::fs::create_dir(&app).unwrap();
    std::fs::write(app.join("app.rules"), RULES).unwrap();
    std::fs::write(app.join("app.toml"), APP).unwrap();
    let (app, data_text) = (app.to_str().unwrap(), data.to_str().unwrap());

    let mut moments = StdRng::seed_from_u64(seed);
    let mut sender = Sender { random: StdRng::seed_from_u64(seed + 1), batches: 0 };
    let mut serving = serve(app, &data);
    for kill in 0..kills {
        let moment = Duration::from_millis(moments.random_range(5..500));
        let pid = serving.pid();
        let killer = std::thread::spawn(move || {
            std::thread::sleep(moment);
            let killed =
                std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
            assert!(killed.success());
        });
        sender.send(&serving, Instant::now() + moment + WAIT);
        killer.join().unwrap();
        serving.kill();
        if kill % 5 == 4 {
            check(data_text, sender.batches);
        }
        if kill % 2 == 1 {
            let mut start = tidemill(&["serve", "--data", data_text, "--listen", "127.0.0.1:0"]);
            let mut child = start.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(moments.random_range(0..300)));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        serving = serve_data(&data);
    }
    sender.send(&serving, Instant::now() + Duration::from_millis(300));
    let deadline = Instant::now() + WAIT;
    // a start removes what crashes have left, once it is older than a second
    loop {
        interrupt(serving.pid());
        serving.child.wait().unwrap();
        check(data_text, sender.batches);
        let left = orphans(&data);
        if left.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "files that no table knows: {left:?}");
        serving = serve_data(&data);
        std::thread::sleep(Duration::from_secs(1));
    }
}
