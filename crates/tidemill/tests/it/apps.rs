//! Command-line input of users: apps of one file, variables, paths, rejected rows, closed output.

use std::path::Path;

use serde_json::{Value, json};

use crate::{run, sql, tidemill};

fn write(dir: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        std::fs::write(dir.join(name), text).unwrap();
    }
}

/// Runs a command with a closed standard output. Returns the exit code and standard error.
fn run_unread(args: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = tidemill(args).stdout(writer).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn rows_that_are_refused_are_told_and_fail_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let (app, data) = (dir.path().to_str().unwrap(), dir.path().join("data"));
    let data = data.to_str().unwrap();
    let source = "[[source]]\nname = \"ticks\"\ntype = \"file\"\npath = \"ticks.csv\"\nformat = \"csv\"\nstream = \"Tick\"\n";
    let mut rows = "n,at\n1,2013-01-01\n".to_owned();
    (0..5000).for_each(|n| rows += &format!("{n},1357035420{n:06}\n"));
    rows += "x,2013-01-01\n";
    write(
        dir.path(),
        &[
            ("a.rules", "event Tick { n: int, at: time } time at;\n"),
            ("app.toml", source),
            ("ticks.csv", &rows),
        ],
    );
    let (out, err) = run(&["run", app, "--data", data, "--until-idle"], 1);
    let example = "ticks:2: field `at`: expected time (RFC 3339 such as \"2013-01-01T10:17:00Z\", or milliseconds \
                   since 1970), found text \"1357035420000000\"; if it counts microseconds, declare `at: time(us)`";
    let told =
        format!("warning: source ticks, stream Tick: a row was refused: {example}\n  0,1357035420000000");
    assert!(err.contains(&told), "{err}");
    assert_eq!(err.matches("refused").count(), 1, "{err}");
    let summary =
        format!("source ticks, stream Tick: 5001 rows were refused, 5000 of them as this one: {example}");
    assert!(out.contains(&summary), "{out}");
    // valid rows are accepted, and earlier rejections are not reported again
    write(
        dir.path(),
        &[("a.rules", "event Tick { n: int, at: time(us) } time at;\n"), ("ticks.csv", "n,at\n")],
    );
    let (out, _) = run(&["run", app, "--data", data, "--until-idle"], 0);
    assert!(!out.contains("refused"), "{out}");
}

#[test]
fn output_that_nobody_reads_ends_commands_quietly_and_servers_not_at_all() {
    for args in [
        vec!["check", "examples/flights"],
        vec!["test", "examples/flights"],
        vec!["explain", "examples/flights"],
    ] {
        assert_eq!(run_unread(&args), (Some(141), String::new()), "{args:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        &[(
            "a.siddhi",
            "define stream In (n int);\n@sink(type='log') define stream Out (n int);\nfrom In select n insert into Out;\n",
        )],
    );
    let data = dir.path().join("data");
    let (code, err) = run_unread(&[
        "run",
        dir.path().to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
        "--until-idle",
        "--listen",
        "127.0.0.1:0",
    ]);
    assert_eq!((code, err.as_str()), (Some(0), "standard output was closed; going on without it\n"));
}

#[test]
fn sinks_that_log_print_to_standard_output() {
    let dir = tempfile::tempdir().unwrap();
    let source = "[[source]]\nname = \"f\"\ntype = \"file\"\npath = \"in.ndjson\"\nformat = \"ndjson\"\nstream = \"In\"\n";
    let app = "
        @app:name('Plant') @app:playback
        define stream In (site string, heat double, at long);
        @sink(type='log', prefix='OUT') @sink(type='log', prefix='J', @map(type='json'))
        @sink(type='log', priority='debug', prefix='hidden')
        define stream Out (site string, heat double);
        from In[heat > 50.0] select site, heat insert into Out;";
    let rules = "event In { site: string, heat: double, at: time } time at;\n";
    let rows: String =
        (0..3000).map(|n| json!({"site": "a", "heat": n, "at": n}).to_string() + "\n").collect();
    write(dir.path(), &[("a.siddhi", app), ("a.rules", rules), ("app.toml", source), ("in.ndjson", &rows)]);
    let (app, data) = (dir.path().to_str().unwrap(), dir.path().join("data"));
    let (out, err) = run(&["run", app, "--data", data.to_str().unwrap(), "--until-idle"], 0);
    let of = |prefix: &str| {
        out.lines().filter_map(|l| l.strip_prefix(prefix)).map(str::to_owned).collect::<Vec<_>>()
    };
    let (events, json) = (of("OUT : "), of("J : "));
    assert_eq!((events.len(), json.len(), of("hidden").len()), (2949, 2949, 0), "{out}{err}");
    assert_eq!(events[0], "Event{timestamp=51, data=[a, 51.0], isExpired=false}");
    assert_eq!(json[2948], r#"{"event":{"site":"a","heat":2999.0}}"#);
}

#[test]
fn one_file_is_an_app() {
    let dir = tempfile::tempdir().unwrap();
    let queries = "define stream In (n int);\nfrom In[n > ${limit}] select n insert into Out;\n";
    write(
        dir.path(),
        &[
            ("one.siddhi", queries),
            (
                "two.rules",
                "event E { n: int };\nevent F { n: int };\nrule R { when { e: E(n > 5); } then { emit F(1); } }\n",
            ),
            ("two.test", "test big\ngiven events E\n{\"n\": 6}\nthen fired R 1\n"),
            ("notes.txt", "x"),
        ],
    );
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let data = path("data");
    let (_, err) = run(&["check", &path("one.siddhi")], 1);
    assert!(err.contains("`--set limit=VALUE`") && err.contains("[vars] in app.toml"), "{err}");
    let (out, _) = run(&["check", &path("one.siddhi"), "--set", "limit=1"], 0);
    assert!(out.contains("one: 2 streams"), "{out}");
    run(&["explain", &path("one.siddhi"), "--set", "limit=1"], 0);
    let (_, err) = run(&["check", &path("one.siddhi"), "--set", "limt=1"], 1);
    assert!(err.contains("nothing uses `${limt}`"), "{err}");
    let (_, err) = run(&["check", &path("notes.txt")], 1);
    assert!(err.contains("an app of one file is a *.siddhi or a *.rules file"), "{err}");
    let (_, err) = run(&["check", &path("nowhere")], 1);
    assert!(err.contains("no such file or directory"), "{err}");
    run(&["check", &path("two.rules")], 0);
    let (out, _) = run(&["test", &path("two.rules")], 0);
    assert!(out.contains("1 passed, 0 failed"), "{out}");
    // only the variables of an app.toml in the same directory apply
    write(
        dir.path(),
        &[(
            "app.toml",
            "name = \"other\"\n[vars]\nlimit = \"2\"\n[[source]]\nname = \"f\"\ntype = \"file\"\npath = \"x\"\nformat = \"ndjson\"\nstream = \"Nowhere\"\n",
        )],
    );
    let (out, _) = run(&["check", &path("one.siddhi")], 0);
    assert!(out.contains("one: 2 streams"), "{out}");
    run(&["run", &path("one.siddhi"), "--data", &data, "--until-idle"], 0);
    // the data directory stores the variables
    assert_eq!(sql(&data, "SELECT count(*) AS n FROM events.\"Out\""), [json!({"n": 0})]);
    let (out, _) = run(&["backtest", &path("one.siddhi"), "--data", &data, "--set", "limit=1"], 0);
    assert!(out.contains("0 events of In"), "{out}");
}

#[test]
fn variables_stay_when_apps_are_formatted() {
    let dir = tempfile::tempdir().unwrap();
    let written = "define stream In (n int);\n\nfrom In[n > ${limit}]\nselect n\ninsert into ${out};\n";
    write(dir.path(), &[("a.siddhi", &written.replace('\n', " "))]);
    let app = dir.path().to_str().unwrap();
    run(&["fmt", app], 0);
    assert_eq!(std::fs::read_to_string(dir.path().join("a.siddhi")).unwrap(), written);
    run(&["fmt", app, "--check"], 0);
}

#[test]
fn hidden_files_are_no_part_of_an_app() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "event A { id: string } key id;";
    // a mounted ConfigMap of Kubernetes: links to a hidden directory, which has the files
    std::fs::create_dir(dir.path().join("..2026_11_29")).unwrap();
    write(dir.path(), &[("..2026_11_29/a.rules", rules), (".b.rules", "not a rule")]);
    std::os::unix::fs::symlink("..2026_11_29", dir.path().join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/a.rules", dir.path().join("a.rules")).unwrap();
    let (out, _) = run(&["check", dir.path().to_str().unwrap()], 0);
    assert!(out.contains("1 stream"), "{out}");
}

#[test]
fn an_app_may_have_documents_and_sql_only() {
    let dir = tempfile::tempdir().unwrap();
    let (app, data) = (dir.path().join("app"), dir.path().join("data"));
    std::fs::create_dir(&app).unwrap();
    let (app_text, data_text) = (app.to_str().unwrap(), data.to_str().unwrap());
    let note = "there are no *.rules and no *.siddhi files in it";
    let (out, err) = run(&["check", app_text], 0);
    assert!(out.contains("app: 0 streams, 0 entities") && err.contains(note), "{out}\n{err}");
    let (_, err) = run(&["run", app_text, "--data", data_text, "--until-idle"], 0);
    assert!(err.contains(note), "{err}");
    run(&["explain", app_text], 0);
    run(&["fmt", app_text, "--check"], 0);
    // the deployed app is opened again, with documents this time
    write(
        &app,
        &[
            ("app.toml", "[[documents]]\ncollection = \"Gate\"\npath = \"gates.ndjson\"\n"),
            ("gates.ndjson", "{\"_id\": \"B4\", \"open\": true}\n"),
        ],
    );
    let server = crate::serve(app_text, &data);
    let post = |path: &str, body: &str| {
        ureq::post(format!("{}{path}", server.base))
            .header("authorization", format!("Bearer {}", server.token))
            .header("content-type", "application/json")
            .send(body)
            .unwrap();
    };
    post("/api/v1/collections/Gate/documents", "{\"_id\": \"B5\", \"open\": false}");
    drop(server);
    let rows = sql(data_text, "SELECT _id, open FROM docs.Gate ORDER BY _id");
    assert_eq!(rows, [json!({"_id": "B4", "open": true}), json!({"_id": "B5", "open": false})]);
    drop(crate::serve_data(&data));
    // events may come later, and go again
    write(&app, &[("e.rules", "event E { n: int };\n"), ("e.csv", "n\n1\n")]);
    let (_, err) =
        run(&["load", "E", app.join("e.csv").to_str().unwrap(), "--data", data_text, "--app", app_text], 0);
    assert!(!err.contains(note), "{err}");
    std::fs::remove_file(app.join("e.rules")).unwrap();
    run(&["run", app_text, "--data", data_text, "--until-idle"], 0);
    assert_eq!(sql(data_text, "SELECT n FROM events.E"), [json!({"n": 1})]);
}

#[test]
fn a_new_app_is_good_formatted_and_tested() {
    let dir = tempfile::tempdir().unwrap();
    let app = dir.path().join("cold-rooms_2");
    let app = app.to_str().unwrap();
    let (out, _) = run(&["new", app], 0);
    assert!(out.contains(&format!("tidemill test {app} ")), "{out}");
    run(&["check", app], 0);
    run(&["fmt", app, "--check"], 0);
    let (out, err) = run(&["test", app], 0);
    assert!(out.contains("3 passed, 0 failed"), "{out}");
    // what its sinks print does not stand between the results, unless it is asked for
    assert_eq!(err, "");
    let (_, err) = run(&["-v", "test", app], 0);
    assert!(err.contains("ALARM : Event"), "{err}");
    assert!(std::fs::read_to_string(format!("{app}/app.toml")).unwrap().contains("name = \"cold-rooms_2\""));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    // an empty directory is taken, one with files is not touched
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    run(&["new", empty.to_str().unwrap()], 0);
    run(&["test", empty.to_str().unwrap()], 0);
    let full = dir.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("mine"), "text").unwrap();
    std::fs::write(dir.path().join("file"), "text").unwrap();
    let inside = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for (name, message) in [
        (inside("full"), "exists already and is not empty"),
        (inside("file"), "exists already and is no directory"),
        (inside("none/app"), "no such directory; make it first with `mkdir -p"),
        (inside("two words"), "cannot be the name of an app: expected letters, digits, `-` and `_`"),
        (inside("1st"), "cannot be the name of an app"),
        (inside("ä"), "cannot be the name of an app"),
        ("..".to_owned(), "cannot be the name of an app"),
        (inside(&"a".repeat(101)), "expected at most 100"),
    ] {
        let (_, err) = run(&["new", &name], 1);
        assert!(err.contains(message), "{name}: {err}");
    }
    assert_eq!(std::fs::read_dir(&full).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
    run(&["new"], 2);
    run(&["new", "-x"], 2);
}

/// A source need not end: the program says at once where it is reached, and prints what happens.
#[test]
fn a_new_app_runs_and_shows_what_happens() {
    let dir = tempfile::tempdir().unwrap();
    let (app, data) = (dir.path().join("rooms"), dir.path().join("data"));
    run(&["new", app.to_str().unwrap()], 0);
    let arguments =
        ["run", app.to_str().unwrap(), "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let mut child = tidemill(&arguments).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut wanted = vec!["Listening on http://", "Ready: rooms, 0 log records recovered", "ALARM : Event"];
    let serving = "Reading sources, serving http://127.0.0.1:";
    let mut said = false;
    for line in lines.map_while(Result::ok) {
        said |= line.starts_with(serving) && line.ends_with("/token); Ctrl-C stops.");
        if wanted.first().is_some_and(|first| line.starts_with(first)) {
            wanted.remove(0);
        }
        if wanted.is_empty() {
            break;
        }
    }
    crate::interrupt(child.id());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(wanted.is_empty() && said, "missing: {wanted:?}, {serving}");
}

#[test]
fn the_examples_are_formatted() {
    for app in ["examples/flights", "examples/otel"] {
        run(&["fmt", app, "--check"], 0);
    }
}

#[test]
fn streams_of_telemetry_are_declared_as_the_example_has_them() {
    let (out, _) = run(&["declare", "opentelemetry"], 0);
    let file = crate::root().join("examples/otel/opentelemetry.rules");
    assert_eq!(out, std::fs::read_to_string(file).unwrap());
    let (out, _) = run(&["test", "examples/otel"], 0);
    assert!(out.contains("2 passed, 0 failed"), "{out}");

    let dir = tempfile::tempdir().unwrap();
    let (out, _) = run(&["declare", "remote-write"], 0);
    write(dir.path(), &[("a.rules", &out)]);
    let (out, err) = run(&["check", dir.path().to_str().unwrap()], 0);
    assert!(out.contains("3 streams") && err.is_empty(), "{out}{err}");
    let (out, _) = run(&["declare", "remote-write", "prometheus_metadata"], 0);
    assert!(out.starts_with("event prometheus_metadata {") && out.matches("event ").count() == 1, "{out}");
    let (_, err) = run(&["declare", "opentelemetry", "otel_log"], 1);
    assert!(err.contains("`otel_log`") && err.contains("otel_logs, otel_traces"), "{err}");
}

#[test]
fn errors_are_called_so_once() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[("a.rules", "event E { n: in };\n")]);
    let (app, data) = (dir.path().to_str().unwrap(), dir.path().join("data"));
    let (_, err) = run(&["run", app, "--data", data.to_str().unwrap(), "--until-idle"], 1);
    assert!(err.starts_with("error[R0209]: unknown type `in`"), "{err}");
}

#[test]
fn replay_fails_when_an_input_cannot_be_done() {
    let dir = tempfile::tempdir().unwrap();
    let app = "define stream In (n int);\nfrom In[n > ${limit}] select n insert into Out;\n";
    write(dir.path(), &[("a.siddhi", app), ("app.toml", "[vars]\nlimit = \"2\"\n")]);
    let (app, events) = (dir.path().to_str().unwrap(), dir.path().join("events.jsonl"));
    let events = events.to_str().unwrap();
    let line = |stream: &str, data: Value| {
        json!({"stream": stream, "timestamp": 1, "data": data}).to_string() + "\n"
    };
    let write_events = |lines: &[String]| std::fs::write(events, lines.concat()).unwrap();
    write_events(&[line("In", json!([3])), line("In", json!([2]))]);
    let (out, _) = run(&["replay", app, "--events", events], 0);
    assert_eq!(out.lines().count(), 1, "{out}");
    let (out, _) = run(&["replay", app, "--events", events, "--set", "limit=1"], 0);
    assert_eq!(out.lines().count(), 2, "{out}");
    write_events(&[line("In", json!([3])), line("Inn", json!([3])), line("In", json!([3, 4]))]);
    let (out, err) = run(&["replay", app, "--events", events], 1);
    assert!(out.contains("\"data\":[3]"), "{out}");
    assert!(err.contains("events.jsonl:2: there is no stream `Inn`"), "{err}");
    assert!(err.contains("events.jsonl:3: `In` has 1 attributes, the event has 2"), "{err}");
}

#[test]
fn an_app_reads_and_writes_its_files_in_the_engine() {
    let dir = tempfile::tempdir().unwrap();
    let app = "
        @source(type='file', file.uri='in.csv', @map(type='csv')) define stream In (n int);
        @sink(type='file', file.uri='out.csv', @map(type='csv')) define stream Out (n int);
        from In[n > 1] select n insert into Out;";
    write(dir.path(), &[("a.siddhi", app), ("in.csv", "1\n2\n3\n")]);
    let (app, data) = (dir.path().join("a.siddhi"), dir.path().join("data"));
    let arguments = ["run", app.to_str().unwrap(), "--data", data.to_str().unwrap(), "--until-idle"];
    let out = || std::fs::read_to_string(dir.path().join("out.csv")).unwrap();
    run(&arguments, 0);
    assert_eq!(out(), "2\n3\n");
    write(dir.path(), &[("in.csv", "1\n2\n3\n4\n")]);
    run(&arguments, 0);
    assert_eq!(out(), "2\n3\n4\n", "the file is continued, and so is the sink's");
}

#[test]
fn paths_of_files_count_from_where_the_app_is() {
    let dir = tempfile::tempdir().unwrap();
    let app = "
        @source(type='file', file.uri='in.csv', @map(type='csv')) define stream In (n int);
        @sink(type='file', file.uri='out.csv', @map(type='csv')) define stream Out (n int);
        from In[n > 1] select n insert into Out;";
    write(dir.path(), &[("a.siddhi", app), ("in.csv", "1\n2\n3\n")]);
    let app = dir.path().join("a.siddhi");
    let app = app.to_str().unwrap();
    run(&["replay", app], 0);
    let out = || std::fs::read_to_string(dir.path().join("out.csv")).unwrap();
    assert_eq!(out(), "2\n3\n");
    // good rows are processed, and the exit code reports that there were bad ones
    write(dir.path(), &[("in.csv", "1\ntwo\n3\nfour\n5\n")]);
    let (_, err) = run(&["replay", app], 1);
    assert_eq!(out(), "2\n3\n3\n5\n", "a sink appends");
    assert!(err.contains("in.csv: 2 bad rows were left out; each is reported above"), "{err}");
}

#[test]
fn check_refuses_what_run_refuses() {
    let dir = tempfile::tempdir().unwrap();
    for app in ["documents", "field", "name", "case", "query"] {
        std::fs::create_dir(dir.path().join(app)).unwrap();
    }
    let rule =
        "entity D key id;\nevent F { n: int };\nrule R { when { f: F(n > 5); } then { emit F { n: 1 }; } }\n";
    write(
        dir.path(),
        &[
            (
                "documents/app.toml",
                "name = \"a\"\n[[documents]]\ncollection = \"D\"\npath = \"nope.ndjson\"\n",
            ),
            ("documents/app.rules", rule),
            ("field/app.rules", "event E { `t,k`: int };\n"),
            ("name/app.rules", "event `my disk` { n: int };\n"),
            ("case/app.rules", "event E { a: int, A: int };\n"),
            ("query/app.siddhi", "define stream S (`a b` int);\nfrom S select `a b` as n insert into T;\n"),
        ],
    );
    for (app, reason) in [
        ("documents", "app.toml: [[documents]] of `D`:"),
        ("documents", "nope.ndjson: no such file"),
        ("field", "app.rules:1: stream `E`: field `t,k` cannot be a table column"),
        ("name", "app.rules:1: stream name `my disk` cannot be a table"),
        ("case", "fields `a` and `A` differ in case only"),
        ("query", "app.siddhi:1: stream `S`: field `a b` cannot be a table column"),
    ] {
        let path = dir.path().join(app);
        let (_, err) = run(&["check", path.to_str().unwrap()], 1);
        assert!(err.contains(reason), "{app}: {err}");
    }
    std::fs::write(dir.path().join("documents/nope.ndjson"), "{\"id\": \"a\"}\n").unwrap();
    run(&["check", dir.path().join("documents").to_str().unwrap()], 0);
}

#[test]
fn values_that_are_filled_in_later_are_warned_of_by_check_and_refused_by_run() {
    let dir = tempfile::tempdir().unwrap();
    let text = "@store(type='rdbms', datasource='SHOP_DB')\ndefine table T (n int);\n\
                @source(type='http', receiver.url='${RECEIVER_OF_TEST}', @map(type='json'))\n\
                define stream In (n int);\nfrom In select n insert into T;\n";
    write(dir.path(), &[("shop.siddhi", text)]);
    let (app, data) = (dir.path().join("shop.siddhi"), dir.path().join("data"));
    let (app, data) = (app.to_str().unwrap(), data.to_str().unwrap());
    let (out, err) = run(&["check", app], 0);
    assert!(out.contains("shop.siddhi: 1 streams, 1 queries: good"), "{out}");
    for expected in [
        "warning[L0110]: `${RECEIVER_OF_TEST}` has no value",
        "warning[F0607]: app.toml has no datasource `SHOP_DB`",
        "shop.siddhi:1:22",
        "`tidemill run` refuses the app",
    ] {
        assert!(err.contains(expected), "{expected}: {err}");
    }
    let variable = ["--set", "RECEIVER_OF_TEST=http://localhost:1/x"];
    let (_, err) = run(&["check", app, "--connect"], 1);
    assert!(err.contains("error[L0110]: `${RECEIVER_OF_TEST}` has no value"), "{err}");
    let (_, err) = run(&["run", app, "--data", data, variable[0], variable[1]], 1);
    assert!(err.contains("error[F0607]: app.toml has no datasource `SHOP_DB`"), "{err}");
    assert!(err.contains("shop.siddhi:1:22"), "{err}");
}
