//! SiddhiQL in an app: killed at random moments, queried on demand, changed, and backtested.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::{run, serve, sql, tidemill};

/// Windows, a sequence, a pattern, a table, partitions by key, an output rate, aggregations by event time and
/// by the clock of the events, a join with one, and a rule in between.
const QUERIES: &str = "
@app:playback
define stream Trades (symbol string, price double, size int);
define stream Echoes (symbol string);
define table Last (symbol string, price double);
define aggregation Volumes from Trades select symbol, sum(size) as total, avg(price) as mean, price as last
group by symbol aggregate every sec ... day;
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
@info(name='volumes') from Trades[size == 7] as t join Volumes as v on t.symbol == v.symbol
within '2026-01-01 **:**:**' per 'hours'
select t.symbol as symbol, v.AGG_TIMESTAMP as hour, v.total as total, v.last as last insert into Hours;
@info(name='echo') from Echoes#window.lengthBatch(7) select symbol, count() as n insert into Sevens;
";

const RULES: &str = "
event Trades { symbol: string, price: double, size: int, at: time } time at;
event Rises { symbol: string, low: double, high: double };
event Echoes { symbol: string };
rule Echo { when { r: Rises(high > low * 1.2); } then { emit Echoes { symbol: r.symbol }; } }
";

const STREAMS: [&str; 10] =
    ["Trades", "Means", "Minutes", "Rises", "Peaks", "Known", "Tops", "Recent", "Hours", "Sevens"];

/// On-demand queries run at the end: over a table, and over an aggregation by granularities from seconds to
/// days.
const ASKED: [&str; 5] = [
    "from Last select symbol, price order by symbol",
    "from Volumes within '2026-01-01 **:**:**' per 'sec' select *",
    "from Volumes within '2026-01-01 **:**:**' per 'min' select AGG_TIMESTAMP, symbol, total, mean, last",
    "from Volumes within '2026-01-01 **:**:**' per 'hours' select AGG_TIMESTAMP, symbol, total, mean, last",
    "from Volumes within '2026-**-** **:**:**' per 'days' select AGG_TIMESTAMP, symbol, total, mean, last",
];

/// Returns the rows found, one per line.
fn asked(data: &str, query: &str) -> String {
    run(&["query", "--data", data, query], 0).0
}

/// Creates an app directory with a file of events.
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

/// Returns the stored events of a stream, in order of arrival.
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

/// Queries whose output has no readers, so that the events of a record are batched.
const APART: &str = "
@app:playback
define stream Trades (symbol string, price double, size int);
define aggregation Volumes from Trades select symbol, sum(size) as total, avg(price) as mean, price as last
group by symbol aggregate every sec ... day;
@info(name='means') from Trades#window.length(20) select symbol, avg(price) as mean group by symbol insert into Means;
@info(name='minutes') from Trades#window.timeBatch(1 min) select count() as n, sum(size) as total insert into Minutes;
@info(name='rises')
from every a=Trades[size < 20] -> b=Trades[symbol == a.symbol and price > a.price] within 1 min
select a.symbol as symbol, a.price as low, b.price as high insert into Rises;
@info(name='rate') from Trades select symbol, max(price) as top group by symbol output last every 25 events insert into Tops;
";

#[test]
fn killed_at_random_moments_queries_put_out_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let app = app(dir.path(), QUERIES, 6_000);
    killed_and_undisturbed(dir.path(), &app, &STREAMS, &ASKED);
}

#[test]
fn killed_at_random_moments_events_together_put_out_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let app = app(dir.path(), APART, 30_000);
    let rules = RULES.split("event Rises").next().unwrap();
    std::fs::write(dir.path().join("app/trades.rules"), rules).unwrap();
    killed_and_undisturbed(dir.path(), &app, &["Trades", "Means", "Minutes", "Rises", "Tops"], &ASKED[1..]);
}

/// Runs an app with and without kills, and checks that its streams and the answers to these on-demand queries
/// are equal.
fn killed_and_undisturbed(dir: &Path, app: &str, streams: &[&str], on_demand: &[&str]) {
    let seed: u64 = std::env::var("TIDEMILL_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(5130);
    let kills: u32 = std::env::var("TIDEMILL_KILLS").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
    println!("TIDEMILL_SEED={seed} TIDEMILL_KILLS={kills}");
    let mut random = StdRng::seed_from_u64(seed);
    let undisturbed = dir.join("undisturbed");
    let undisturbed = undisturbed.to_str().unwrap();
    let start = Instant::now();
    run(&["run", app, "--data", undisturbed, "--until-idle"], 0);
    let whole = start.elapsed();
    let expected: Vec<_> = streams.iter().map(|s| stored(undisturbed, s)).collect();
    let answers: Vec<_> = on_demand.iter().map(|query| asked(undisturbed, query)).collect();
    let data = dir.join("data");
    let data = data.to_str().unwrap();
    let mut killed = 0;
    for _ in 0..kills {
        let mut child = tidemill(&["run", app, "--data", data, "--until-idle"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // in total about 1.5 times the uninterrupted run, because replayed work counts, too
        let longest = (whole * 3 / kills.max(1)).max(Duration::from_millis(100));
        let moment = random.random_range(Duration::from_millis(20)..longest);
        let start = Instant::now();
        while start.elapsed() < moment && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        killed += u32::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    println!("{killed} of {kills} were killed at work, the others were done");
    assert!(killed > kills / 4, "{killed} of {kills}");
    run(&["run", app, "--data", data, "--until-idle"], 0);
    for (stream, expected) in streams.iter().zip(expected) {
        assert!(!expected.is_empty(), "{stream}");
        let found = stored(data, stream);
        assert_eq!(found.len(), expected.len(), "{stream}");
        let differs = found.iter().zip(&expected).position(|(f, e)| f != e);
        assert_eq!(differs.map(|i| (i, &found[i], &expected[i])), None, "{stream}");
    }
    for (query, expected) in on_demand.iter().zip(&answers) {
        assert!(expected.lines().count() >= 6, "{query}: {expected}");
        assert_eq!(&asked(data, query), expected, "{query}");
    }
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
    // a change of a table is in the log, so it survives a crash
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

#[test]
fn a_backtest_of_changed_rules_is_refused_with_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, rules: &str| {
        let path = dir.path().join(name);
        std::fs::write(
            &path,
            format!("event R {{ t: long }};\nevent Hot {{ t: long }};\nentity Seen key id;\n{rules}\n"),
        )
        .unwrap();
        path.to_str().unwrap().to_owned()
    };
    let rule =
        |name: &str, t: u32| format!("rule {name} {{ when {{ r: R(t > {t}); }} then {{ emit Hot(r.t); }} }}");
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    run(&["run", &write("a.rules", &rule("Hot", 10)), "--data", data, "--until-idle"], 0);
    let backtest =
        |rules: &str, code: i32| run(&["backtest", &write("b.rules", rules), "--data", data], code);
    let (out, err) = backtest(&rule("Hot", 1), 2);
    assert!(err.contains("runs queries and no rules, and rule Hot has changed"), "{err}");
    assert_eq!(out, "");
    let (_, err) = backtest(&format!("{}\n{}", rule("Hot", 10), rule("More", 1)), 2);
    assert!(err.contains("rule More has changed"), "{err}");
    let (_, err) = backtest(&format!("{}\nentity Known key id;\n{}", rule("Hot", 9), rule("More", 1)), 2);
    assert!(err.contains("entity Known, rule Hot, rule More have changed"), "{err}");
    backtest(&format!("// a comment\n{}", rule("Hot", 10).replace("{ when", "{\n  when")), 0);
}

#[test]
fn a_backtest_goes_on_behind_the_last_event() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, wait: &str| {
        let app = dir.path().join(name);
        std::fs::create_dir_all(&app).unwrap();
        let text = format!(
            "define stream Sent (id int);\ndefine stream Done (id int);\n\
             from every s=Sent -> not Done[id == s.id] for {wait} select s.id as id insert into Late;\n"
        );
        std::fs::write(app.join("late.siddhi"), text).unwrap();
        std::fs::write(app.join("sent.ndjson"), "{\"id\":1}\n{\"id\":2}\n").unwrap();
        let source = "[[source]]\nname = \"sent\"\ntype = \"file\"\npath = \"sent.ndjson\"\nformat = \"ndjson\"\nstream = \"Sent\"\n";
        std::fs::write(app.join("app.toml"), source).unwrap();
        app.to_str().unwrap().to_owned()
    };
    let (deployed, changed) = (write("app", "1 millisec"), write("changed", "1 hour"));
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    run(&["run", &deployed, "--data", data, "--until-idle"], 0);
    let backtest =
        |options: &[&str], code: i32| run(&[&["backtest", &changed, "--data", data], options].concat(), code);
    for from in [&[][..], &["--from", "-1h"], &["--from=-2 days", "--to", "2200-01-01"]] {
        let (out, _) = backtest(from, 1);
        assert!(out.contains("Late: 0 in both, 2 only in old, 0 only in new"), "{out}");
        let shown = out.lines().find_map(|line| line.strip_prefix("  - ")).unwrap();
        tidemill_types::Timestamp::parse(shown.split(' ').next().unwrap()).unwrap();
    }
    let (out, _) = backtest(&["--from", "-1d", "--to", "-1h"], 0);
    assert!(out.starts_with("0 events of Done, Sent"), "{out}");
    let (_, err) = backtest(&["--from", "-1h", "--to", "-1d"], 1);
    assert!(err.contains("is not before --to"), "{err}");
    let (_, err) = backtest(&["--from", "-1x"], 2);
    assert!(err.contains("`-1x` is not a time: expected RFC 3339"), "{err}");
}

/// Reports why a query emits nothing in three ways: without a server, by a server, and at the end of a
/// replay.
#[test]
fn queries_tell_what_they_wait_for() {
    let dir = tempfile::tempdir().unwrap();
    let app = app(dir.path(), QUERIES, 50);
    let data = dir.path().join("data");
    run(&["run", &app, "--data", data.to_str().unwrap(), "--until-idle"], 0);
    let why = |asked: &[&str], code: i32| {
        let (out, err) = run(&[&["why", "--data", data.to_str().unwrap()], asked].concat(), code);
        if code == 0 { out } else { err }
    };
    let told = why(&["minutes"], 0);
    assert!(
        told.starts_with("trades.siddhi, partition 1: query `minutes` at 2026-01-01T00:00:49Z"),
        "{told}"
    );
    assert!(told.contains("window timeBatch(1 min): 50 events, from 2026-01-01T00:00:00Z"), "{told}");
    assert!(told.contains("waits for the clock: the batch ends at 2026-01-01T00:01:00Z"), "{told}");
    let since = "since 2026-01-01T00:00:49Z, when its state was restored from a checkpoint: 0 events arrived";
    assert!(told.contains(since), "{told}");
    let mut server = serve(&app, &data);
    assert_eq!(why(&["minutes"], 0), told, "the state outlives the process, whoever is asked");
    let told = why(&["rises"], 0);
    assert!(told.contains("pattern, a match may take 60000 ms"), "{told}");
    assert!(
        told.contains("wait for an event of `Trades` with symbol == a.symbol and price > a.price"),
        "{told}"
    );
    let told = why(&["idle", "--key", "s1", "--json"], 0);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told[0]["keys"]["key"], json!("s1"), "{told}");
    assert!(told[0]["window"]["held"].as_u64().unwrap() > 0, "{told}");
    assert!(why(&["idle"], 0).contains("all of its 6 keys: `s"));
    assert!(why(&["idle", "--key", "s9"], 1).contains("there is no key `s9` among the 6 keys"));
    assert!(why(&["idel"], 1).contains("Did you mean `idle`"));
    assert!(why(&["rises", "--key", "s1"], 1).contains("is not in a partition"));
    assert!(why(&["Echo"], 1).contains("is a rule: say for which event, with --event"));
    assert!(why(&["rises", "--app", "x"], 1).contains("no file `x`"));
    server.kill();
    let siddhi = dir.path().join("one.siddhi");
    let events = dir.path().join("events.jsonl");
    std::fs::write(
        &siddhi,
        "define stream S (a int); from S[a > 0]#window.lengthBatch(3) select count() as n insert into O;",
    )
    .unwrap();
    std::fs::write(
        &events,
        "{\"stream\":\"S\",\"timestamp\":1,\"data\":[1]}\n{\"stream\":\"S\",\"timestamp\":2,\"data\":[0]}\n",
    )
    .unwrap();
    let replay = ["replay", siddhi.to_str().unwrap(), "--events", events.to_str().unwrap(), "--why", "1"];
    let (told, _) = run(&replay, 0);
    let expected = "query `query 1` at 2
  2 events arrived, 1 passed the handlers before it; 0 events emitted
  the last event that did not pass, at 2: a > 0 is not true (a = 0)
  window lengthBatch(3): 1 of 3, of 1
    waits for 2 more events before the batch is emitted
";
    assert_eq!(told, expected);
}

#[test]
fn replay_says_what_it_loses() {
    let dir = tempfile::tempdir().unwrap();
    let (siddhi, events) = (dir.path().join("a.siddhi"), dir.path().join("events.jsonl"));
    let text = "define stream S (t string);
@info(name='double') from S select cast(t, 'double') as d insert into Out;
";
    std::fs::write(&siddhi, text).unwrap();
    let line = |t: &str| format!("{{\"stream\":\"S\",\"timestamp\":1,\"data\":[\"{t}\"]}}\n");
    std::fs::write(&events, line("1.5") + &line("x") + &line("y")).unwrap();
    let replay = ["replay", siddhi.to_str().unwrap(), "--events", events.to_str().unwrap()];
    let (out, err) = run(&replay, 1);
    assert_eq!(out, "{\"input\":0,\"stream\":\"Out\",\"timestamp\":1,\"data\":[1.5]}\n");
    let at = events.display();
    let expected = format!(
        "{at}:2: `double` failed at S at 1: [\"x\"]: cast: cannot cast `x` of type string to double
`double` failed 2 times and lost 2 events; the first time: cast: cannot cast `x` of type string to double
to keep such events write @OnError(action='STREAM') before their stream and read `!STREAM`
"
    );
    assert_eq!(err, expected);
    // events sent to a fault stream are not lost
    std::fs::write(
        &siddhi,
        format!("@OnError(action='STREAM') {text}from !S select t insert into Failed;\n"),
    )
    .unwrap();
    let (out, err) = run(&replay, 0);
    assert!(out.contains("{\"input\":1,\"stream\":\"Failed\",\"timestamp\":1,\"data\":[\"x\"]}"), "{out}");
    assert_eq!(err, "");
    // an input that cannot be sent is not ignored either
    std::fs::write(&events, "{\"stream\":\"T\",\"timestamp\":1,\"data\":[]}\n").unwrap();
    let (_, err) = run(&replay, 1);
    assert!(err.contains("events.jsonl:1: there is no stream `T`"), "{err}");
}

#[test]
fn run_says_what_queries_lose() {
    let dir = tempfile::tempdir().unwrap();
    let (apps, data) = (dir.path().join("app"), dir.path().join("data"));
    std::fs::create_dir(&apps).unwrap();
    std::fs::write(
        apps.join("a.siddhi"),
        "define stream S (t string);
@info(name='double') from S select cast(t, 'double') as d insert into Out;
",
    )
    .unwrap();
    std::fs::write(apps.join("s.jsonl"), "{\"t\":\"1.5\"}\n{\"t\":\"x\"}\n").unwrap();
    std::fs::write(
        apps.join("app.toml"),
        "name = \"losing\"\n[[source]]\nname = \"s\"\ntype = \"file\"\nstream = \"S\"\npath = \"s.jsonl\"\nformat = \"ndjson\"\n",
    )
    .unwrap();
    let (out, err) =
        run(&["run", apps.to_str().unwrap(), "--data", data.to_str().unwrap(), "--until-idle"], 0);
    assert!(out.contains("Queries that failed"), "{out}");
    let said = "query `double` of a.siddhi failed 1 times and lost its events; the last time: cast: cannot cast `x` of type string to double";
    assert!(err.contains(said), "{err}");
}
