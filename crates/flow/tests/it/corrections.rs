//! Late events that correct emitted output: `tests/cases/corrections.txt`.
//!
//! A case is `=== name`, an app, `---`, and steps: `Stream 1000 ["a", 5]` sends an event, several events of
//! one call are separated by ` & `; `clock 2000` advances time, `restart` restores the state into a new app,
//! `ask from T select *` runs an on-demand query. The indented output follows: `+` emitted, `-` retracted,
//! `!` failed. `UPDATE_CASES=1` rewrites it. `random/corrected.rs` tests that the result equals that of a run
//! in order.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::{env, fs};

use serde_json::json;
use tidemill_flow::Registry;
use tidemill_flow::late::CorrectingRuntime;
use tidemill_flow::limits::Limits;
use tidemill_flow::replay::{Input, OutputKind, Replay, compile};
use tidemill_flow::runtime::{AppRuntime, StreamBatch};
use tidemill_flow::{Column, Value};
use tidemill_types::FieldType;

use crate::random::corrected::Net;

fn input(line: &str) -> Input {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let read = match word {
        "clock" => json!({ "timestamp": rest.parse::<i64>().expect("a time") }),
        "restart" => json!({ "restart": true }),
        "ask" => json!({ "on_demand": rest }),
        stream => {
            let events = rest.split(" & ").map(|event| {
                let event = event.strip_prefix(&format!("{stream} ")).unwrap_or(event);
                let (time, data) = event.split_once(' ').expect("a time and values");
                let data: serde_json::Value = serde_json::from_str(data).expect("values");
                json!({ "timestamp": time.parse::<i64>().expect("a time"), "data": data })
            });
            json!({ "stream": stream, "events": events.collect::<Vec<_>>() })
        }
    };
    serde_json::from_value(read).expect("an input")
}

/// Returns the file with the current output.
fn filled(text: &str) -> String {
    let mut out = String::new();
    for case in text.split("=== ").skip(1) {
        let (head, steps) = case.split_once("\n---\n").expect("an app and steps");
        let (_, app) = head.split_once('\n').expect("a name and an app");
        let _ = writeln!(out, "=== {head}\n---");
        let plan = compile("app.siddhi", app, &Registry::standard(), &|_| None);
        let plan = plan.unwrap_or_else(|e| panic!("{e}"));
        let all = |_: &str| true;
        let mut replay = Replay::new(plan, 0, &all, &|_| false);
        for line in steps.lines().filter(|line| !line.starts_with("  ")) {
            let _ = writeln!(out, "{line}");
            if line.is_empty() {
                continue;
            }
            replay.input(&input(line));
            for output in replay.take_outputs() {
                let row = |data: &[serde_json::Value]| serde_json::to_string(data).expect("JSON");
                let _ = match &output.what {
                    OutputKind::Stream { stream, timestamp, data } => {
                        writeln!(out, "  + {stream} {timestamp} {}", row(data))
                    }
                    OutputKind::Retracted { retracted, timestamp, data } => {
                        writeln!(out, "  - {retracted} {timestamp} {}", row(data))
                    }
                    OutputKind::Rows { rows } => writeln!(out, "  {}", json!(rows)),
                    OutputKind::Failure { failure } => writeln!(out, "  ! {failure}"),
                    OutputKind::Query { .. } => Ok(()),
                };
            }
        }
    }
    out
}

#[test]
fn late_events_correct_what_was_put_out() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/corrections.txt");
    let text = fs::read_to_string(&path).expect("a file of cases");
    let now = filled(&text);
    if env::var_os("UPDATE_CASES").is_some() {
        fs::write(&path, now).expect("writing a file of cases");
        return;
    }
    let mut case = "";
    for (number, (is, wanted)) in now.lines().zip(text.lines()).enumerate() {
        case = wanted.strip_prefix("=== ").unwrap_or(case);
        assert_eq!(is, wanted, "{}:{}, case `{case}`", path.display(), number + 1);
    }
    assert_eq!(now, text);
    assert!(text.matches("\n  - ").count() >= 10, "some rows are taken back");
}

fn app(limits: Limits) -> CorrectingRuntime {
    let text = "@app:playback @late(policy='correct', allowed='1 sec') define stream S (n int);
        from S select n insert into O;";
    let plan =
        compile("app.siddhi", text, &Registry::standard(), &|_| None).unwrap_or_else(|e| panic!("{e}"));
    CorrectingRuntime::new(Arc::new(plan.with_limits(limits)), 1000)
}

fn event(n: i32, time: i64) -> Vec<StreamBatch> {
    let mut column = Column::new(FieldType::Int);
    column.push(Value::Int(n));
    vec![StreamBatch { stream: 0, columns: vec![column], times: vec![time] }]
}

#[test]
fn no_more_is_kept_than_the_limit_says() {
    let mut net = Net::default();
    let mut app = app(Limits { corrected_rows: 9, ..Limits::default() });
    let mut send = |app: &mut CorrectingRuntime, n: i32, time: i64| {
        let sent = app.send_batch(event(n, time), None, &mut net).map(|_| ());
        app.apply_corrections(&mut net).expect("settled");
        sent
    };
    // each event is buffered together with its output
    (0..4).for_each(|n| send(&mut app, n, 100).expect("there is room"));
    send(&mut app, 4, 101).expect("the last one");
    let why = send(&mut app, 5, 500).expect_err("there is no room");
    let tidemill_flow::EvalError::Limit(limit) = why else { panic!("{why}") };
    assert_eq!((limit.max, limit.remedy.is_some_and(|r| r.contains("allowed='1000 millisec'"))), (9, true));
    // final events are evicted
    send(&mut app, 6, 1101).expect("the clock went on");
    assert_eq!(app.rows(), 4);
    assert_eq!((net.put_out, net.retracted), (6, 0));
}

#[test]
fn what_is_final_is_let_go() {
    let mut net = Net::default();
    let mut app = app(Limits::default());
    let mut most = 0;
    for n in 0..20_000 {
        app.send_batch(event(n, i64::from(n) * 10), None, &mut net).expect("it fits");
        app.apply_corrections(&mut net).expect("settled");
        most = most.max(app.rows());
    }
    // a second has a hundred events, and 1,024 are evicted at once
    assert!(most < 2_400, "{most}");
    assert_eq!((net.put_out, net.retracted), (20_000, 0));
}

/// An app accepts a state with an equal `allowed`, and none of an app without corrections.
#[test]
fn states_belong_to_their_policy() {
    let make = |late: &str| {
        let text = format!(
            "@app:playback {late} define stream S (n int); from S#window.length(3) select sum(n) as n insert into O;"
        );
        Arc::new(
            compile("app.siddhi", &text, &Registry::standard(), &|_| None).unwrap_or_else(|e| panic!("{e}")),
        )
    };
    let plan = make("@late(policy='correct', allowed='1 sec')");
    let mut app = CorrectingRuntime::new(plan.clone(), 1000);
    let mut net = Net::default();
    for n in 0..10 {
        app.send_batch(event(n, i64::from(n) * 300), None, &mut net).expect("it fits");
        app.apply_corrections(&mut net).expect("settled");
    }
    let mut state = Vec::new();
    app.save(&mut state).expect("saved");
    CorrectingRuntime::new(plan.clone(), 1000).restore(&mut state.as_slice()).expect("taken back");
    let other = make("@late(policy='correct', allowed='2 sec')");
    let why = CorrectingRuntime::new(other, 2000).restore(&mut state.as_slice()).expect_err("another time");
    assert!(why.to_string().contains("1 sec"), "{why}");
    let mut plain = AppRuntime::new(make(""));
    let why = plain
        .restore(&mut state.as_slice(), tidemill_flow::snapshot::RestoreMode::Exactly)
        .expect_err("plain");
    assert!(why.to_string().contains("expected the section `app`"), "{why}");
    for at in (0..state.len()).step_by(7) {
        let mut damaged = state.clone();
        damaged[at] ^= 4;
        let found = CorrectingRuntime::new(plan.clone(), 1000).restore(&mut damaged.as_slice());
        assert!(found.is_err(), "byte {at}");
        let cut = CorrectingRuntime::new(plan.clone(), 1000).restore(&mut &state[..at]);
        assert!(cut.is_err(), "cut at {at}");
    }
}
