//! SiddhiQL in an app: killed at random moments, asked on demand, changed and tried on history.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::{run, serve, sql, tidemill};

/// Windows, a sequence, a pattern with an absence, a table, partitions by key, a rate, and a rule in between.
const QUERIES: &str = "
@app:playback
define stream Trades (symbol string, price double, size int);
define stream Echoes (symbol string);
define table Last (symbol string, price double);
@info(name='means') from Trades#window.length(20) select symbol, avg(price) as mean group by symbol insert into Means;
@info(name='minutes') from Trades#window.timeBatch(1 min) select count() as n, sum(size) as total insert into Minutes;
@info(name='rises')
from every a=Trades[size < 20] -> b=Trades[symbol == a.symbol and price > a.price] within 1 min
select a.symbol as symbol, a.price as low, b.price as high insert into Rises;
@info(name='peaks')
from every a=Trades, b=Trades[price > a.price], c=Trades[price < b.price] select b.symbol as symbol, b.price as peak insert into Peaks;
@info(name='last') from Trades select symbol, price update or insert into Last on Last.symbol == symbol;
@info(name='known') from Trades[size == 5] join Last on Trades.symbol == Last.symbol
select Trades.symbol as symbol, Last.price as price insert into Known;
@info(name='rate') from Trades select symbol, max(price) as top group by symbol output last every 25 events insert into Tops;
partition with (symbol of Trades) begin
  @info(name='idle') from Trades#window.time(30 sec) select symbol, count() as n insert into Recent;
end;
@info(name='echo') from Echoes#window.lengthBatch(7) select symbol, count() as n insert into Sevens;
";

const RULES: &str = "
event Trades { symbol: string, price: double, size: int, at: time } time at;
event Rises { symbol: string, low: double, high: double };
event Echoes { symbol: string };
rule Echo { when { r: Rises(high > low * 1.2); } then { emit Echoes { symbol: r.symbol }; } }
";

const STREAMS: [&str; 9] =
    ["Trades", "Means", "Minutes", "Rises", "Peaks", "Known", "Tops", "Recent", "Sevens"];

/// An app directory with a file of events.
fn app(dir: &Path, queries: &str, events: u64) -> String {
    let app = dir.join("app");
    std::fs::create_dir_all(&app).unwrap();
    std::fs::write(app.join("trades.siddhi"), queries).unwrap();
    std::fs::write(app.join("trades.rules"), RULES).unwrap();
    let toml = "[[source]]\nname = \"trades\"\ntype = \"file\"\npath = \"trades.ndjson\"\nformat = \"ndjson\"\n\
        stream = \"Trades\"\n[settings]\npartitions = 2\ncheckpoint_interval = \"50ms\"\nflush_interval = \"80ms\"\n";
    std::fs::write(app.join("app.toml"), toml).unwrap();
    let mut random = StdRng::seed_from_u64(7);
    let mut lines = String::new();
    for i in 0..events {
        let time = format!("2026-01-01T{:02}:{:02}:{:02}Z", i / 3600 % 24, i / 60 % 60, i % 60);
        let (symbol, price, size) =
            (random.random_range(0..6), random.random_range(10..60), random.random_range(0..100));
        lines +=
            &json!({"symbol": format!("s{symbol}"), "price": price, "size": size, "at": time}).to_string();
        lines.push('\n');
    }
    std::fs::write(app.join("trades.ndjson"), lines).unwrap();
    app.to_str().unwrap().to_owned()
}

/// What is stored of a stream, in order of arrival.
fn stored(data: &str, stream: &str) -> Vec<Value> {
    let rows = sql(data, &format!("SELECT * FROM events.\"{stream}\" ORDER BY _partition, _offset, _row"));
    let strip = |mut row: Value| {
        let own = row.as_object_mut().unwrap();
        for column in ["_received", "_partition", "_offset", "_row", "_extra"] {
            own.remove(column);
        }
        row
    };
    rows.into_iter().map(strip).collect()
}

#[test]
fn killed_at_random_moments_queries_put_out_the_same() {
    let seed: u64 = std::env::var("TIDEMILL_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(5130);
    let kills: u32 = std::env::var("TIDEMILL_KILLS").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
    println!("TIDEMILL_SEED={seed} TIDEMILL_KILLS={kills}");
    let mut random = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let app = app(dir.path(), QUERIES, 6_000);
    let undisturbed = dir.path().join("undisturbed");
    let undisturbed = undisturbed.to_str().unwrap();
    let start = Instant::now();
    run(&["run", &app, "--data", undisturbed, "--until-idle"], 0);
    let whole = start.elapsed();
    let expected = STREAMS.map(|s| stored(undisturbed, s));
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let mut killed = 0;
    for _ in 0..kills {
        let mut child = tidemill(&["run", &app, "--data", data, "--until-idle"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let moment =
            random.random_range(Duration::from_millis(20)..whole.max(Duration::from_millis(100)) / 3);
        let start = Instant::now();
        while start.elapsed() < moment && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        killed += u32::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(killed > 0);
    run(&["run", &app, "--data", data, "--until-idle"], 0);
    for (stream, expected) in STREAMS.iter().zip(expected) {
        assert!(!expected.is_empty(), "{stream}");
        let found = stored(data, stream);
        assert_eq!(found.len(), expected.len(), "{stream}");
        let differs = found.iter().zip(&expected).position(|(f, e)| f != e);
        assert_eq!(differs.map(|i| (i, &found[i], &expected[i])), None, "{stream}");
    }
    let last = ["query", "--data", data, "from Last select symbol, price order by symbol"];
    let (last, _) = run(&last, 0);
    assert_eq!(last.lines().count(), 6, "{last}");
    for line in sql(data, "SELECT * FROM system.ledger") {
        assert_eq!(line["balanced"], json!(true), "{line}");
    }
}

#[test]
fn tables_are_asked_and_changed_while_the_app_runs() {
    let dir = tempfile::tempdir().unwrap();
    let app = app(dir.path(), QUERIES, 50);
    let data = dir.path().join("data");
    let mut server = serve(&app, &data);
    let ask = |query: &str| -> (u16, Value) {
        let agent =
            ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build());
        let mut response = agent
            .post(format!("{}/api/v1/siddhi/query", server.base))
            .header("authorization", format!("Bearer {}", server.token))
            .send_json(json!({ "query": query }))
            .unwrap();
        (response.status().as_u16(), response.body_mut().read_json().unwrap())
    };
    let (status, found) = ask("from Last select count() as n");
    assert_eq!((status, &found["records"]), (200, &json!([[6]])), "{found}");
    let (status, changed) = ask("delete Last on Last.symbol == 's1'");
    assert_eq!((status, &changed["records"]), (200, &json!([])), "{changed}");
    let (status, wrong) = ask("from Lost select symbol");
    assert_eq!(status, 404, "{wrong}");
    assert!(wrong["error"]["message"].as_str().unwrap().contains("Last"), "{wrong}");
    let (status, wrong) = ask("from Last select symbl");
    assert_eq!(status, 400, "{wrong}");
    let data = data.to_str().unwrap();
    let (rows, _) = run(&["query", "--data", data, "from Last select count() as n"], 0);
    assert_eq!(rows.trim(), "[5]");
    // a change is in the log: it outlives a crash
    server.kill();
    let (rows, _) = run(&["query", "--data", data, "from Last select count() as n"], 0);
    assert_eq!(rows.trim(), "[5]");
}

#[test]
fn changed_queries_are_tried_on_history() {
    let dir = tempfile::tempdir().unwrap();
    let deployed = app(dir.path(), QUERIES, 500);
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    run(&["run", &deployed, "--data", data, "--until-idle"], 0);
    let (out, _) = run(&["backtest", &deployed, "--data", data], 0);
    assert!(
        out.starts_with("5") && out.contains("Means: 500 in both, 0 only in old, 0 only in new"),
        "{out}"
    );
    let rises = stored(data, "Rises").len();
    assert!(out.contains(&format!("Rises: {rises} in both, 0 only in old")), "as it came out then: {out}");
    let changed = dir.path().join("changed");
    std::fs::create_dir_all(&changed).unwrap();
    let changed =
        app(&changed, &QUERIES.replace("length(20)", "length(10)").replace("size < 20", "size < 10"), 0);
    let (out, _) = run(&["backtest", &changed, "--data", data, "--show", "2"], 1);
    let lines: Vec<&str> = out.lines().collect();
    let at = |name: &str| lines.iter().position(|l| l.starts_with(name)).unwrap();
    assert!(lines[at("Peaks:")].contains("0 only in old, 0 only in new"), "{out}");
    assert!(!lines[at("Means:")].contains("0 only in new"), "{out}");
    assert!(lines[at("Rises:")].contains("0 only in new"), "fewer begin: {out}");
    assert!(lines[at("Rises:") + 1].starts_with("  - "), "{out}");
    let (out, _) = run(&["backtest", &changed, "--data", data, "--to", "2020-01-01T00:00:00Z"], 0);
    assert!(out.starts_with("0 events"), "{out}");
}
