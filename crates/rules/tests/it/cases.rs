//! Cases as text, in `tests/cases/*.txt`. `UPDATE_CASES=1 cargo test` rewrites their expected output.
//!
//! ```text
//! === name
//! --- rules
//! (a program; `--- prelude` at the top of the file is compiled with it, as a file of its own)
//! --- input
//! documents Flight
//! {"id": "F1"}
//! events TakeOffEvent
//! {"flight_id": "F1"}
//! why Late                       explains what the rule did with the last event; `*` for all rules
//! why Late flight_id="F1"
//! partitions 4                   number of partitions; the rules run in the first
//! --- output
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use tidemill_lang::{Sources, render_all};
use tidemill_rules::why::Selector;
use tidemill_rules::{Program, Trace};
use tidemill_types::{Timestamp, event_json};

use crate::world::World;

struct Case {
    name: String,
    rules: String,
    input: String,
    output: String,
}

#[test]
fn cases() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let update = std::env::var_os("UPDATE_CASES").is_some();
    let (mut failed, mut run) = (Vec::new(), 0);
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let (head, prelude, mut cases) = read(&text);
        for case in &mut cases {
            run += 1;
            let found = outcome(&prelude, case);
            if found.trim() != case.output.trim() {
                failed.push(format!(
                    "{} — {}\nexpected:\n{}\nfound:\n{found}",
                    path.file_name().unwrap().to_string_lossy(),
                    case.name,
                    case.output
                ));
                case.output = found;
            }
        }
        if update {
            std::fs::write(&path, write(&head, &prelude, &cases)).unwrap();
        }
    }
    assert!(run >= 90, "only {run} cases were found");
    if !update {
        assert!(failed.is_empty(), "{} of {run} cases differ\n\n{}", failed.len(), failed.join("\n\n"));
    }
}

fn read(text: &str) -> (String, String, Vec<Case>) {
    let (mut head, mut prelude) = (String::new(), String::new());
    let mut cases: Vec<Case> = Vec::new();
    let mut section = "head";
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("=== ") {
            let empty = String::new;
            cases.push(Case { name: name.to_owned(), rules: empty(), input: empty(), output: empty() });
            section = "";
            continue;
        }
        if let Some(name) = line.strip_prefix("--- ") {
            section = match name {
                "prelude" => "prelude",
                "rules" => "rules",
                "input" => "input",
                "output" => "output",
                other => panic!("no section is called {other}"),
            };
            continue;
        }
        let target = match (section, cases.last_mut()) {
            ("head", _) => &mut head,
            ("prelude", _) => &mut prelude,
            ("rules", Some(case)) => &mut case.rules,
            ("input", Some(case)) => &mut case.input,
            ("output", Some(case)) => &mut case.output,
            _ => continue,
        };
        target.push_str(line);
        target.push('\n');
    }
    (head, prelude, cases)
}

fn write(head: &str, prelude: &str, cases: &[Case]) -> String {
    let mut out = head.to_owned();
    if !prelude.is_empty() {
        let _ = write!(out, "--- prelude\n{}\n\n", prelude.trim_end());
    }
    for case in cases {
        let _ = writeln!(out, "=== {}\n--- rules\n{}", case.name, case.rules.trim_end());
        if !case.input.trim().is_empty() {
            let _ = writeln!(out, "--- input\n{}", case.input.trim_end());
        }
        let _ = writeln!(out, "--- output\n{}\n", case.output.trim_end());
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn outcome(prelude: &str, case: &Case) -> String {
    let mut sources = Sources::default();
    sources.add("app.rules", case.rules.as_str());
    if !prelude.trim().is_empty() {
        sources.add("prelude.rules", prelude);
    }
    let program = match Program::compile(&sources) {
        Ok(program) => program,
        Err(diagnostics) => return render_all(&diagnostics, &sources),
    };
    let mut out = render_all(program.warnings(), &sources);
    for aggregate in program.aggregates() {
        for insert in &aggregate.inserts {
            let sql = insert.sql_at(Timestamp(1_000_000_000_000_000));
            let _ = writeln!(out, "{} -> {}\n{sql}", aggregate.name, insert.entity);
        }
    }
    let mut world = World::new(&program);
    let mut open: Option<(bool, String, Vec<String>)> = None;
    let mut whys = Vec::new();
    for line in case.input.lines().chain([""]) {
        if let (true, Some((_, _, rows))) = (line.starts_with('{'), &mut open) {
            rows.push(line.to_owned());
            continue;
        }
        if let Some((is_events, name, rows)) = open.take() {
            let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
            if is_events {
                effects(&program, &mut world, &name, &rows, &mut out);
            } else {
                rows.iter().for_each(|row| world.insert(&program, &name, row));
            }
        }
        match line.split_once(' ').unwrap_or((line, "")) {
            ("documents", name) => open = Some((false, name.to_owned(), vec![])),
            ("events", name) => open = Some((true, name.to_owned(), vec![])),
            ("partitions", n) => world.partitions = n.parse().unwrap(),
            ("why", rest) => whys.push(rest.to_owned()),
            ("", _) => {}
            (other, _) => panic!("no input is called {other}"),
        }
    }
    if world.records > 0 {
        for entity in program.entities() {
            for doc in world.documents(&entity.name) {
                let _ = writeln!(out, "document {} {doc}", entity.name);
            }
        }
        for counters in world.executor.counters().iter() {
            let _ = writeln!(out, "fired {} {}", counters.name, counters.fired);
        }
    }
    for why in whys {
        let _ = writeln!(out, "why {why}");
        out.push_str(&explain(&program, &world, &why));
    }
    out
}

fn effects(program: &Program, world: &mut World, stream: &str, rows: &[&str], out: &mut String) {
    let effects = world.events(program, stream, rows);
    for emitted in &effects.emitted {
        let schema = &program.streams()[emitted.stream];
        for row in 0..emitted.batch.num_rows() {
            let event = serde_json::Value::Object(event_json(schema, &emitted.batch, row));
            let time = tidemill_types::row_value(&emitted.batch, schema.fields.len(), row);
            let (own, source) = (emitted.rows[row], emitted.source_rows[row]);
            let _ = writeln!(out, "event {} {event} at {time} row {own} from {source}", schema.name);
        }
    }
    for outbound in &effects.outbound {
        let name = &program.streams()[outbound.stream].name;
        let _ = writeln!(
            out,
            "elsewhere {} {name} {:?} at {} number {} from {}",
            outbound.partition, outbound.cells, outbound.time, outbound.number, outbound.source_row
        );
    }
    for (stream, count) in &effects.duplicates {
        let _ = writeln!(out, "duplicates {} {count}", program.streams()[*stream].name);
    }
    for error in &effects.errors {
        let _ = writeln!(out, "error row {} {error}", error.row);
    }
    let _ = writeln!(out, "changed {}", effects.changed_documents);
}

fn explain(program: &Program, world: &World, why: &str) -> String {
    let mut words = why.split(' ').filter(|w| !w.is_empty());
    let rule = words.next().filter(|w| *w != "*");
    let fields: Vec<(String, serde_json::Value)> = words
        .map(|w| {
            let (name, value) = w.split_once('=').unwrap();
            (name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into()))
        })
        .collect();
    let selector = match fields.as_slice() {
        [(name, value)]
            if name == "id"
                && value.as_str().is_some_and(|v| v.parse::<tidemill_types::EventId>().is_ok()) =>
        {
            Selector::Id(value.as_str().unwrap().parse().unwrap())
        }
        _ => Selector::Fields { stream: None, fields },
    };
    let told = |trace: &Trace| match trace.explain(program, &selector, rule) {
        Ok(explanation) => explanation.to_string(),
        Err(error) => format!("{error}\n"),
    };
    let told_before = told(&world.trace);
    assert_eq!(told(&restarted(program, &world.trace)), told_before, "after a restart");
    told_before
}

/// Returns the trace after writing and reading it back.
fn restarted(program: &Program, trace: &Trace) -> Trace {
    let mut bytes = Vec::new();
    trace.image().write_to(program, &mut bytes).unwrap();
    let mut read = Trace::new(tidemill_rules::TraceLimits::default());
    assert!(read.read_from(program, &mut bytes.as_slice()).unwrap());
    assert_eq!((read.events(), read.bytes()), (trace.events(), trace.bytes()));
    read
}
