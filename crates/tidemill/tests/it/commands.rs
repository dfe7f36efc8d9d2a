//! Exit codes and messages of commands.

use std::path::Path;
use std::process::Stdio;

use serde_json::json;

use crate::{interrupt, run, sql, tidemill};

#[test]
fn good_apps_check_and_test() {
    let (out, _) = run(&["check", "examples/flights"], 0);
    assert!(out.contains("good"), "{out}");
    let (out, _) = run(&["test", "examples/flights"], 0);
    assert!(out.contains(" passed, 0 failed"), "{out}");
}

#[test]
fn wrong_ones_say_where() {
    let dir = tempfile::tempdir().unwrap();
    let app = dir.path().to_str().unwrap();
    std::fs::write(
        dir.path().join("a.rules"),
        "event E { n: int };\nrule R { when { e: E(m > 1); } then { emit E(1); } }\n",
    )
    .unwrap();
    let (_, err) = run(&["check", app], 1);
    assert!(err.contains("a.rules") && err.contains("`m`"), "{err}");
    let data = dir.path().join("data");
    let (_, err) = run(&["run", app, "--data", data.to_str().unwrap(), "--until-idle"], 1);
    assert!(err.contains("`m`"), "{err}");
    std::fs::write(dir.path().join("app.toml"), "nme = \"x\"\n").unwrap();
    let (_, err) = run(&["check", app], 1);
    assert!(err.contains("app.toml") && err.contains("nme"), "{err}");
}

#[test]
fn usage_is_another_exit_code() {
    run(&["sql"], 2);
    run(&["frobnicate"], 2);
    for (word, hint) in [
        ("init", "tip: `tidemill new NAME` writes a small app"),
        ("demo", "tip: `tidemill run examples/flights --data data`"),
        ("status", "tip: `tidemill sql --data DIR -c 'SELECT * FROM system.problems'`"),
        ("stop", "tip: Ctrl-C"),
        ("chek", "'check'"),
    ] {
        let (_, err) = run(&[word], 2);
        assert!(err.contains(hint), "{err}");
    }
    run(&["why", "R", "--data", "x", "--event", "what"], 2);
    for command in ["run", "serve", "sql", "check", "test", "why"] {
        let (out, _) = run(&[command, "--help"], 0);
        assert!(out.contains("Example"), "{command}: {out}");
    }
}

#[test]
fn help_has_the_commands_in_groups() {
    let (out, _) = run(&["--help"], 0);
    for line in [
        "Write an app:",
        "  new          Writes a small app",
        "Run it:",
        "Look at what it does:",
        "Keep its data:",
    ] {
        assert!(out.lines().any(|found| found.starts_with(line)), "{line}\n{out}");
    }
    let (short, _) = run(&["-h"], 0);
    assert!(short.contains("Run it:") && short.contains("--verbose"), "{short}");
}

#[test]
fn shells_complete_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let (out, _) = run(&["completions", shell], 0);
        for word in ["backtest", "until-idle", "completions"] {
            assert!(out.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn addresses_of_test_servers_are_no_variables_of_the_program() {
    let printed =
        std::process::Command::new(crate::root().join("scripts/servers.sh")).arg("env").output().unwrap();
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(text.lines().count() > 10 && text.contains("SERVERS_KAFKA="), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("TIDEMILL_")), "{text}");
}

#[test]
fn a_stated_size_that_is_not_true_any_more_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let measure = |bytes: u64| {
        let program = dir.path().join("tidemill");
        // a file with holes, which takes no space
        std::fs::File::create(&program).unwrap().set_len(bytes).unwrap();
        let script = crate::root().join("scripts/program_size.sh");
        let output = std::process::Command::new(script).arg(&program).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, printed) = measure(1_000_000);
    assert_eq!(code, Some(1), "{printed}");
    let stated: u64 = printed.trim().rsplit(' ').nth(1).unwrap().parse().unwrap();
    assert!(printed.starts_with("1 MB; docs/building.md says "), "{printed}");
    assert_eq!(measure(stated * 1_000_000).0, Some(0));
    assert_eq!(measure(stated * 1_060_000).0, Some(1));
}

/// Runs `check` of the example with `RUST_LOG` and returns what is on standard error.
fn logged(rust_log: Option<&str>, arguments: &[&str]) -> String {
    let mut command = tidemill(&[arguments, &["check", "examples/flights"]].concat());
    if let Some(value) = rust_log {
        command.env("RUST_LOG", value);
    }
    command.env("TIDEMILL_DAT", "x");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn more_is_logged_when_it_is_asked_for() {
    let (warning, detail) = ("TIDEMILL_DAT is not read", "the app was read");
    for (rust_log, arguments, warned, detailed) in [
        (None, &[][..], true, false),
        // an empty variable is as none
        (Some(""), &[], true, false),
        (Some("  "), &["-vv"], true, true),
        (None, &["-vv"], true, true),
        (None, &["-v"], true, false),
        (Some("error"), &["-vv"], false, false),
        (Some("debug"), &[], true, true),
    ] {
        let found = logged(rust_log, arguments);
        assert_eq!(
            (found.contains(warning), found.contains(detail)),
            (warned, detailed),
            "{rust_log:?} {found}"
        );
    }
    let found = logged(Some("tidemill=nonsense"), &[]);
    assert!(found.contains("RUST_LOG is not read") && found.contains(warning), "{found}");
}

#[test]
fn scripts_have_the_commands_of_the_prompt() {
    let dir = tempfile::tempdir().unwrap();
    let (app, data) = (dir.path().join("a.rules"), dir.path().join("data"));
    std::fs::write(&app, "event E { n: int, at: time } time at;\n").unwrap();
    let data = data.to_str().unwrap();
    run(&["run", app.to_str().unwrap(), "--data", data, "--until-idle"], 0);
    let inner = dir.path().join("inner.sql");
    std::fs::write(&inner, "\\echo inner\nselect 3 as c;\n").unwrap();
    let script = format!(
        "-- what there is\n\\dt\n\\d events.E;\n\\o csv\n\\echo now\nselect 1 as a; select 'b\n\\d' as b;\n\\i {}\n\
         \\q\nselect 'never'\n",
        inner.display()
    );
    let file = dir.path().join("script.sql");
    std::fs::write(&file, &script).unwrap();
    let mut piped = tidemill(&["sql", "--data", data]);
    let output = piped.stdin(std::fs::File::open(&file).unwrap()).output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{out}\n{err}");
    for part in ["events | E", "_extra", "now\na\n1\nb\n\"b\n\\d\"\ninner\nc\n3\n"] {
        assert!(out.contains(part), "{part}\n{out}");
    }
    assert!(!out.contains("never"), "{out}");
    for (command, message) in [
        ("\\x", "`\\x` is not a command: type \\? for the list"),
        ("\\o xml", "`xml` is not an output format"),
        ("select 1;\n\\i none.sql", "statement 2 of 2: none.sql"),
    ] {
        let (_, err) = run(&["sql", "--data", data, "-c", command], 1);
        assert!(err.contains(message), "{err}");
    }
    let (out, _) = run(&["sql", "--data", data, "-c", "\\timing on\nselect 1;"], 0);
    assert!(out.contains("Time: ") && out.contains(" ms"), "{out}");
}

#[test]
fn queries_that_cannot_be_answered_fail() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere");
    let (_, err) = run(&["sql", "--data", nowhere.to_str().unwrap(), "-c", "SELECT 1"], 1);
    assert!(err.contains("tidemill run APP"), "{err}");
    let (_, err) = run(&["sql", "--data", dir.path().to_str().unwrap(), "-c", "SELECT 1"], 1);
    assert!(err.contains("no app is deployed"), "{err}");
    std::fs::write(dir.path().join("a.rules"), "event E { n: int };\n").unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    run(&["run", dir.path().to_str().unwrap(), "--data", data, "--until-idle"], 0);
    let (_, err) = run(&["sql", "--data", data, "-c", "SELECT * FROM events.F"], 1);
    assert!(err.contains('E'), "{err}");
    assert!(
        tidemill(&["sql", "--data", data, "-c", "SELECT count(*) FROM events.E"]).status().unwrap().success()
    );
}

/// A rule may read fields and collections before the first document has them.
#[test]
fn aggregates_run_before_there_is_anything_to_read() {
    let dir = tempfile::tempdir().unwrap();
    let app = dir.path().to_str().unwrap();
    let rules = "
        event Landed { flight: string } key flight;
        entity Flight key id;
        entity Insight key id;
        relation Landed.flight_doc(): Flight by flight;
        rule Arrived { when { l: Landed(); f: l.flight_doc(); } then { update f.landed = true; } }
        rule Insights every 1 hour {
          aggregate { l: Landed(); flight: Flight(id == l.flight and exists(departed)); }
          groupby { flight.carrier }
          do {
            insert Insight {
              id: flight.carrier, flights: count(), worst: max(flight.delay_min), seats: sum(flight.plane.seats),
              cancelled: sum(if(coalesce(flight.cancelled, false), 1, 0)), since: min(flight.departed),
            };
          }
        }";
    std::fs::write(dir.path().join("a.rules"), rules).unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    run(&["run", app, "--data", data, "--until-idle"], 0);
    let rule = "SELECT errors, last_error FROM system.rules WHERE rule = 'Insights'";
    assert_eq!(sql(data, rule), [json!({"errors": 0, "last_error": null})]);
}

#[test]
fn queries_are_checked_formatted_and_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let app = dir.path().join("app.siddhi");
    let (app, apps) = (app.to_str().unwrap().to_owned(), dir.path().to_str().unwrap());
    let events = dir.path().join("events.jsonl");
    let text = "define stream Trades (symbol string, price double);\nfrom Trades[price>0]#window.length(2) select symbol, avg(price) as mean group by symbol insert into Means;\n";
    std::fs::write(&app, text).unwrap();
    run(&["fmt", apps, "--check"], 1);
    run(&["fmt", apps], 0);
    run(&["fmt", apps, "--check"], 0);
    let (out, _) = run(&["check", apps], 0);
    assert!(out.contains("1 queries: good"), "{out}");
    let line = |time: u32, price: f64| {
        json!({"stream": "Trades", "timestamp": time, "data": ["A", price]}).to_string() + "\n"
    };
    std::fs::write(&events, line(1, 10.0) + &line(2, 20.0) + &line(3, 40.0)).unwrap();
    let (out, _) = run(&["replay", &app, "--events", events.to_str().unwrap()], 0);
    let means: Vec<serde_json::Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let means: Vec<&serde_json::Value> = means.iter().map(|m| &m["data"][1]).collect();
    assert_eq!(means, [&json!(10.0), &json!(15.0), &json!(30.0)]);
    std::fs::write(&events, "{\"stream\": 5}\n").unwrap();
    let (_, err) = run(&["replay", &app, "--events", events.to_str().unwrap()], 1);
    assert!(err.contains("events.jsonl:1: expected"), "{err}");
    let case = dir.path().join("case.json");
    let recorded = |mean: f64| {
        json!({"app": text, "inputs": [{"stream": "Trades", "timestamp": 1, "data": ["A", 1.0]}], "outputs": ["Means"],
            "expected": [{"input": 0, "stream": "Means", "timestamp": 1, "data": ["A", mean]}]})
    };
    std::fs::write(&case, recorded(1.0).to_string()).unwrap();
    run(&["replay", "--case", case.to_str().unwrap()], 0);
    std::fs::write(&case, recorded(2.0).to_string()).unwrap();
    let (out, _) = run(&["replay", "--case", case.to_str().unwrap()], 1);
    assert!(out.contains("0 of 1 as recorded"), "{out}");
    let data = dir.path().join("data");
    run(&["run", apps, "--data", data.to_str().unwrap(), "--until-idle"], 0);
    let queries = sql(data.to_str().unwrap(), "SELECT query, runs, keeps FROM system.queries");
    assert_eq!(queries[0]["runs"], json!("partition 2"), "{queries:?}");
    let (out, _) = run(&["explain", apps], 0);
    assert!(out.contains("keeps the rows of length(2)") && out.contains("Trades has no key"), "{out}");
    std::fs::write(&app, text.replace("price>0", "prize>0")).unwrap();
    let (_, err) = run(&["check", apps], 1);
    assert!(err.contains("prize") && err.contains("price"), "{err}");
}

#[test]
fn lines_that_queries_log_are_on_standard_error() {
    let dir = tempfile::tempdir().unwrap();
    let (app, events) = (dir.path().join("app.siddhi"), dir.path().join("events.jsonl"));
    let text = "define stream Trades (symbol string, price double);\nfrom Trades#log('seen:') #log('DEBUG', 'in detail:') select symbol insert into Seen;\n";
    std::fs::write(&app, text).unwrap();
    let event = json!({"stream": "Trades", "timestamp": 1, "data": ["A", 10.5]});
    std::fs::write(&events, event.to_string() + "\n").unwrap();
    let (app, events) = (app.to_str().unwrap(), events.to_str().unwrap());
    let (_, err) = run(&["replay", app, "--events", events], 0);
    assert!(err.contains("seen:") && err.contains("10.5") && !err.contains("in detail:"), "{err}");
    let (_, err) = run(&["-v", "replay", app, "--events", events], 0);
    assert!(err.contains("seen:") && err.contains("in detail:"), "{err}");
}

#[test]
fn tests_of_an_app_end_with_the_right_code() {
    let dir = tempfile::tempdir().unwrap();
    let app = dir.path().to_str().unwrap();
    let junit = dir.path().join("results.xml");
    let junit = junit.to_str().unwrap();
    let siddhi =
        "define stream A (n int);\nfrom every a=A -> not A for 1 min select a.n as n insert into Silent;\n";
    std::fs::write(dir.path().join("app.siddhi"), siddhi).unwrap();
    let (_, err) = run(&["test", app], 1);
    assert!(err.contains("no tests; they are in files *.test"), "{err}");
    let good =
        "test silence is told\ngiven events A\n{\"n\": 1}\nafter 1 min\nthen events Silent\n{\"n\": 1}\n";
    std::fs::write(dir.path().join("good.test"), good).unwrap();
    let (out, _) = run(&["test", app, "--junit", junit], 0);
    assert!(
        out.contains("ok      good.test:1 silence is told") && out.contains("1 passed, 0 failed"),
        "{out}"
    );
    let (_, err) = run(&["test", app, "typo"], 1);
    assert!(err.contains("no test's name contains `typo`"), "{err}");
    let bad = "test there is none & <so>\ngiven events A\n{\"n\": 1}\nafter 1 min\nthen no events Silent\n";
    std::fs::write(dir.path().join("bad.test"), bad).unwrap();
    let (out, _) = run(&["test", app, "--junit", junit], 1);
    assert!(out.contains("expected no Silent event, found 1") && out.contains("1 passed, 1 failed"), "{out}");
    let xml = std::fs::read_to_string(junit).unwrap();
    assert!(
        xml.contains("<testcase classname=\"bad.test\" name=\"there is none &amp; &lt;so&gt;\""),
        "{xml}"
    );
    assert!(
        xml.contains("failures=\"1\"") && xml.contains("<failure message=\"expected no Silent event"),
        "{xml}"
    );
    run(&["test", app, "silence"], 0);
    std::fs::write(dir.path().join("torn.test"), "tset x\n").unwrap();
    let (_, err) = run(&["test", app, "silence"], 1);
    assert!(err.contains("torn.test:1: expected `test NAME` first"), "{err}");
}

/// Starts `tidemill serve` and returns its lines before it is ready.
fn serve_with_listeners(data: &Path, arguments: &[&str], listen: &str) -> (std::process::Child, Vec<String>) {
    let arguments = [&["serve", "--data", data.to_str().unwrap()], arguments].concat();
    let mut command = tidemill(&arguments);
    command.env("TIDEMILL_SETTINGS__LISTEN", listen).env_remove("TIDEMILL_MONGO").stdout(Stdio::piped());
    let mut serving = command.spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(serving.stdout.take().unwrap()));
    let lines = lines.map_while(Result::ok).take_while(|line| !line.starts_with("Ready: ")).collect();
    (serving, lines)
}

#[test]
fn listeners_of_the_settings_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let (data, app) = (dir.path().join("data"), dir.path().join("app.rules"));
    std::fs::write(&app, "event Sale { item: string } key item;\n").unwrap();
    run(&["run", app.to_str().unwrap(), "--data", data.to_str().unwrap(), "--until-idle"], 0);
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let file = dir.path().join("server.pem");
    std::fs::write(&file, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
    let file = file.to_str().unwrap();
    // the server has the directory, so this asks it
    let ask = || sql(data.to_str().unwrap(), "SELECT count(*) AS n FROM events.\"Sale\"");
    let starts = |lines: &[String], starts: &[&str]| {
        let is_so = lines.len() == starts.len()
            && lines.iter().zip(starts).all(|(line, start)| line.starts_with(start));
        assert!(is_so, "{lines:?} {starts:?}");
    };

    let listen = format!(
        r#"[{{protocol = "mongodb", address = "0"}}, {{protocol = "http", address = "0", tls_file = "{file}"}},
            {{protocol = "http", address = "localhost:0", connections_max = 5}},
            {{protocol = "mongodb", address = "[::1]:0", tls_file = "{file}"}}]"#
    );
    let (mut serving, lines) = serve_with_listeners(&data, &[], &listen);
    starts(
        &lines,
        &[
            "Listening on https://127.0.0.1:",
            "Listening on http://127.0.0.1:",
            "MongoDB drivers: mongodb://admin@127.0.0.1:",
            "MongoDB drivers: mongodb://admin@[::1]:",
        ],
    );
    assert!(lines[3].contains("/?tls=true"), "{lines:?}");
    assert_eq!(ask(), [json!({ "n": 0 })]);
    interrupt(serving.id());
    assert_eq!(serving.wait().unwrap().code(), Some(0));
    assert!(!data.join("server.json").exists());

    // the command line takes the place of the settings, and commands need a listener without TLS
    let arguments = ["--listen", "127.0.0.1:0", "--listen-tls", file, "--mongo", "off"];
    let (mut serving, lines) = serve_with_listeners(&data, &arguments, &listen);
    starts(&lines, &["Listening on https://127.0.0.1:", "Commands of this machine: http://127.0.0.1:"]);
    assert_eq!(ask(), [json!({ "n": 0 })]);
    interrupt(serving.id());
    assert_eq!(serving.wait().unwrap().code(), Some(0));
}

#[test]
fn listeners_that_cannot_be_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let (data, app) = (dir.path().join("data"), dir.path().join("app.rules"));
    std::fs::write(&app, "event Sale { item: string } key item;\n").unwrap();
    run(&["run", app.to_str().unwrap(), "--data", data.to_str().unwrap(), "--until-idle"], 0);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    for (arguments, listen, expected) in [
        (
            &[][..],
            format!(r#"[{{protocol = "http", address = "0"}}, {{protocol = "http", address = "{taken}"}}]"#),
            format!(
                "listener 2 of [[settings.listen]]: port {} of 127.0.0.1 is taken by another process",
                taken.port()
            ),
        ),
        (
            &[],
            r#"[{protocol = "htp", address = "0"}]"#.to_owned(),
            "TIDEMILL_SETTINGS__LISTEN: unknown value `htp`. Did you mean `http`?".to_owned(),
        ),
        (
            &[],
            r#"[{protocol = "http", address = "4700x"}]"#.to_owned(),
            "setting listen, listener 1: address = \"4700x\": expected HOST:PORT".to_owned(),
        ),
        (
            &["--mongo-without-login"],
            r#"[{protocol = "mongodb", address = "0.0.0.0:0"}]"#.to_owned(),
            "listener 1 of [[settings.listen]]: mongodb at 0.0.0.0:0: other machines can reach this address"
                .to_owned(),
        ),
        (
            &[],
            r#"[{protocol = "mongodb", address = "0", tls_file = "missing.pem"}]"#.to_owned(),
            "listener 1 of [[settings.listen]]: mongodb at 127.0.0.1:0: missing.pem: the file cannot be read"
                .to_owned(),
        ),
    ] {
        let arguments =
            [&["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"], arguments].concat();
        // the second listener of HTTP is the one that cannot be
        let arguments = if listen.contains("\"http\"") {
            vec!["serve", "--data", data.to_str().unwrap()]
        } else {
            arguments
        };
        let failed = tidemill(&arguments)
            .env("TIDEMILL_SETTINGS__LISTEN", &listen)
            .env_remove("TIDEMILL_MONGO")
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&failed.stderr);
        assert!(!failed.status.success() && error.contains(&expected), "{error}");
    }
}

#[test]
fn mongodb_drivers_connect_where_the_command_line_says() {
    let dir = tempfile::tempdir().unwrap();
    let (data, app) = (dir.path().join("data"), dir.path().join("app.rules"));
    std::fs::write(&app, "entity Customer key id;\n").unwrap();
    run(&["run", app.to_str().unwrap(), "--data", data.to_str().unwrap(), "--until-idle"], 0);
    let serve = |mongo: &str| {
        tidemill(&["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0", "--mongo", mongo])
    };
    let mut serving = serve("127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(serving.stdout.take().unwrap()));
    let line = lines.map_while(Result::ok).find(|line| line.starts_with("MongoDB drivers: ")).unwrap();
    let address = line.split(['@', ' ']).find(|part| part.starts_with("127.0.0.1:")).unwrap().to_owned();
    assert_eq!(line, format!("MongoDB drivers: mongodb://admin@{address} (the password is the token)"));
    std::net::TcpStream::connect(&address).unwrap();
    interrupt(serving.id());
    assert_eq!(serving.wait().unwrap().code(), Some(0));
    // an address that was asked for must be free
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let failed = serve(&taken.local_addr().unwrap().to_string()).output().unwrap();
    let error = String::from_utf8_lossy(&failed.stderr);
    assert!(!failed.status.success() && error.contains("is taken by another process"), "{error}");
    let wrong = serve("nowhere").output().unwrap();
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("or `off`"), "{wrong:?}");
}
