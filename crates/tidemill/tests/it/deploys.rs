//! Deploys of changed apps over existing data, as a user sees them.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tidemill::{App, Tidemill, output};

use crate::{interrupt, run, sql, tidemill};

const RULES: &str =
    "event E { a: string, b: double } key a id a;\nentity M key id;\nevent Gone { a: string } key a;";

fn rows(tidemill: &Tidemill, query: &str) -> Vec<Value> {
    let rows = tidemill.sql(query).unwrap();
    let mut writer = output::Writer::new(output::Format::Ndjson, &rows.schema, Vec::new()).unwrap();
    rows.batches.iter().for_each(|batch| writer.write(batch).unwrap());
    String::from_utf8(writer.finish().unwrap())
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect()
}

#[test]
fn a_removed_field_can_be_asked_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let open = |rules: &str| Tidemill::open_with(dir.path(), App::from_rules("app", rules)).unwrap();
    let first = open(RULES);
    first.send("E", &json!({"a": "x", "b": 1.5})).unwrap();
    first.close().unwrap();
    let narrow = open("event E { a: string, c: int } key a id a;");
    narrow.send("E", &json!({"a": "y", "c": 7})).unwrap();
    let expected = [json!({"a": "x", "b": 1.5, "c": null}), json!({"a": "y", "b": null, "c": 7})];
    let query = "select a, b, c from events.\"E\" order by a";
    assert_eq!(rows(&narrow, query), expected, "a row in a file and one in the tail");
    assert_eq!(rows(&narrow, "select a from events.\"E\" where b is null"), [json!({"a": "y"})]);
    assert_eq!(rows(&narrow, "select a from events.\"E\" where b > 1"), [json!({"a": "x"})]);
    narrow.engine().flush().unwrap();
    assert_eq!(rows(&narrow, query), expected, "both in files");
    let refused = narrow.send("E", &json!({"a": "z", "b": 2.5})).unwrap();
    assert_eq!(refused.accepted, 1, "what is not declared goes to _extra");
    narrow.close().unwrap();
    let back = open("event E { a: string, b: double, c: int } key a id a;");
    back.send("E", &json!({"a": "w", "b": 3.5, "c": 8})).unwrap();
    let found = rows(&back, "select a, b, c from events.\"E\" order by a");
    assert_eq!(found[0], json!({"a": "w", "b": 3.5, "c": 8}));
    assert_eq!(found[1..3], expected);
    assert_eq!(back.send("E", &json!({"a": "x"})).unwrap().duplicates, Some(1), "ids are remembered");
}

#[test]
fn a_stream_that_the_app_no_longer_names_can_be_asked_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let open = |rules: &str| Tidemill::open_with(dir.path(), App::from_rules("app", rules)).unwrap();
    let first = open(RULES);
    first.send("Gone", &json!({"a": "x"})).unwrap();
    // records that are in the log only belong to the app deployed at that time
    first.engine().flush().unwrap();
    first.send("Gone", &json!({"a": "y"})).unwrap();
    first.engine().abandon();
    drop(first);
    let without = "event E { a: string, b: double } key a id a;\nentity M key id;";
    for _ in 0..2 {
        let second = open(without);
        assert_eq!(
            rows(&second, "select a from events.\"Gone\" order by a"),
            [json!({"a": "x"}), json!({"a": "y"})]
        );
        let streams = rows(&second, "select stream, declared, rows from system.streams order by stream");
        let expected = [
            json!({"stream": "E", "declared": true, "rows": 0}),
            json!({"stream": "Gone", "declared": false, "rows": 2}),
        ];
        assert_eq!(streams, expected);
        let ledger = rows(&second, "select stored, balanced from system.ledger where stream = 'Gone'");
        assert_eq!(ledger, [json!({"stored": 2, "balanced": true})]);
        assert!(second.send("Gone", &json!({"a": "z"})).is_err(), "it takes no more events");
        second.engine().checkpoint().unwrap();
        second.close().unwrap();
    }
    let refused = App::from_rules("app", &format!("{without}\nevent Gone {{ a: string, k: int }} key k;"));
    let refused = Tidemill::open_with(dir.path(), refused).err().unwrap().to_string();
    assert!(refused.contains("event Gone: its key is `k` and was `a`"), "{refused}");
    let third = open(RULES);
    third.send("Gone", &json!({"a": "z"})).unwrap();
    assert_eq!(rows(&third, "select count(*) as n from events.\"Gone\""), [json!({"n": 3})]);
}

/// Writes an app with 200 events in a file.
fn app(dir: &Path, rules: &str, toml: &str) -> String {
    fs::create_dir_all(dir).unwrap();
    let events: String = (0..200).map(|i| format!("{{\"a\":\"k{i}\",\"b\":{i}}}\n")).collect();
    fs::write(dir.join("events.ndjson"), events).unwrap();
    fs::write(dir.join("app.rules"), rules).unwrap();
    let source = "[[source]]\nname = \"e\"\ntype = \"file\"\npath = \"events.ndjson\"\nformat = \"ndjson\"\nstream = \"E\"\n";
    fs::write(dir.join("app.toml"), format!("{source}{toml}")).unwrap();
    dir.to_str().unwrap().to_owned()
}

const COUNTED: &str = "select count(*) as n, count(distinct a) as ids, sum(b) as total from events.\"E\"";

#[test]
fn a_refused_deploy_changes_nothing_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let good = app(&dir.path().join("good"), RULES, "");
    run(&["run", &good, "--data", data, "--until-idle"], 0);
    let retyped = app(&dir.path().join("retyped"), &RULES.replace("b: double", "b: string"), "");
    let rekeyed = app(&dir.path().join("rekeyed"), &RULES.replace("key a id a", "key b id a"), "");
    let bad = [
        (retyped, ["app.rules:1: event E", "200 stored events it is double", "declare `b: double` again"]),
        (rekeyed, ["app.rules:1: event E", "the 200 stored events", "keep the key `a`"]),
    ];
    for (app, parts) in &bad {
        let (_, err) = run(&["run", app, "--data", data, "--until-idle"], 1);
        for part in parts.iter().chain(&["nothing was changed"]) {
            assert!(err.contains(part), "{part}\n{err}");
        }
        assert_eq!(sql(data, COUNTED), [json!({"n": 200, "ids": 200, "total": 19900.0})]);
    }
    let (_, err) = run(&["run", &good, "--data", data, "--until-idle"], 0);
    assert_eq!(err.lines().filter(|l| l.contains("warning") || l.contains("deployed")).count(), 0, "{err}");
    let wider =
        app(&dir.path().join("wider"), &RULES.replace("entity M key id", "entity M key id index site"), "");
    let (_, err) = run(&["run", &wider, "--data", data, "--until-idle"], 0);
    assert!(err.contains("deployed: entity M: its index (site) is built"), "{err}");
}

#[test]
fn a_failing_summary_is_told_and_ends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let summary = |sql: &str| format!("[[summary]]\ntitle = \"Total\"\nsql = \"{sql}\"\n");
    let fields =
        summary("select site from docs.M where line > 3") + &summary("select sum(b) as total from events.E");
    let good = app(&dir.path().join("good"), RULES, &fields);
    run(&["check", &good], 0);
    let wrong = app(&dir.path().join("wrong"), RULES, &(summary("select sum(c) from events.E") + &fields));
    let (_, err) = run(&["check", &wrong], 1);
    assert!(err.contains("app.toml:9: summary \"Total\": ") && err.contains("`c`"), "{err}");
    let (out, err) = run(&["run", &wrong, "--data", data, "--until-idle"], 1);
    assert!(err.contains("error: summary \"Total\": ") && err.contains("`c`"), "{err}");
    assert!(out.contains("19900.0") && out.contains("Ledger"), "the others are shown\n{out}");

    let mut serving = tidemill(&["serve", "--data", data, "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(serving.stdout.take().unwrap()));
    let listening = lines.next().unwrap().unwrap();
    assert!(listening.starts_with("Listening on http://127.0.0.1:"), "{listening}");
    assert!(lines.next().unwrap().unwrap().starts_with("Ready: wrong"));
    assert_eq!(sql(data, COUNTED)[0]["n"], 200, "it serves");
    interrupt(serving.id());
    let output = serving.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(lines.next().map(Result::unwrap), None, "two lines");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// `TIDEMILL_DEPLOY_KILLS` sets the number of kills (default 6), `TIDEMILL_DEPLOY_SEED` their seed.
#[test]
fn killed_in_the_middle_of_a_deploy_the_data_is_all_there() {
    let number = |name: &str, or: u64| std::env::var(name).map_or(or, |v| v.parse().unwrap());
    let (kills, seed) = (number("TIDEMILL_DEPLOY_KILLS", 6), number("TIDEMILL_DEPLOY_SEED", 20));
    println!("TIDEMILL_DEPLOY_KILLS={kills} TIDEMILL_DEPLOY_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let former = app(&dir.path().join("former"), RULES, "");
    run(&["run", &former, "--data", data, "--until-idle"], 0);
    let edits = [
        RULES.replace("b: double }", "b: double, c: int }").replace("key id;", "key id index site;"),
        RULES.replace("event Gone { a: string } key a;", ""),
        RULES.replace("b: double }", "b: string }"),
        RULES.replace(", b: double }", " }"),
    ];
    for (i, rules) in edits.iter().cycle().take(kills as usize).enumerate() {
        let edited = app(&dir.path().join(format!("edit-{i}")), rules, "");
        let mut deploying = tidemill(&["run", &edited, "--data", data, "--until-idle"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let after = random.random_range(0..400);
        std::thread::sleep(Duration::from_millis(after));
        deploying.kill().unwrap();
        deploying.wait().unwrap();
        let at = format!("edit {i}, killed after {after} ms");
        let counted = [json!({"n": 200, "ids": 200, "total": 19900.0})];
        assert_eq!(sql(data, COUNTED), counted, "{at}");
        run(&["run", &former, "--data", data, "--until-idle"], 0);
        assert_eq!(sql(data, COUNTED), counted, "{at}: former app");
        let ledger = sql(data, "select balanced from system.ledger where stream = 'E'");
        assert_eq!(ledger, [json!({"balanced": true})], "{at}");
    }
}
