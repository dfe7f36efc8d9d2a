//! Reports on why queries emit nothing: `tests/cases/why_*.txt`.
//!
//! A case is `=== name`, an app, `---`, and steps: `Stream 1000 ["a", 5]` sends an event, `clock 2000`
//! advances time, `restart` restores the state into a new app. `why name` and `why name of key` request a
//! report, which follows indented. `UPDATE_CASES=1` rewrites the reports. Every case runs twice, with one
//! event per call, and with the events between two other steps in one call; the reports must be equal.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use tidemill_flow::EvalError;
use tidemill_flow::replay::{compile, value_of};
use tidemill_flow::runtime::{AppRuntime, OutputHandler, StreamBatch};
use tidemill_flow::snapshot::RestoreMode;
use tidemill_flow::{Batch, Column, Registry};

struct Nothing;

impl OutputHandler for Nothing {
    fn events(&mut self, _: &str, _: &Batch) {}
    fn emission(&mut self, _: &str, _: &Batch) {}
    fn failure(&mut self, query: &str, failure: &EvalError) {
        panic!("{query}: {}", failure);
    }
}

/// Running app, and the events that have not been sent yet.
struct Run {
    app: AppRuntime,
    together: bool,
    parts: Vec<StreamBatch>,
    order: Vec<u16>,
}

impl Run {
    fn new(text: &str, together: bool) -> Self {
        let plan = compile("app.siddhi", text, &Registry::standard(), &|_| None);
        let mut app = AppRuntime::new(plan.unwrap_or_else(|e| panic!("{e}")).into());
        app.start(0, &mut Nothing);
        Self { app, together, parts: vec![], order: vec![] }
    }

    fn event(&mut self, stream: &str, time: i64, data: &[serde_json::Value]) {
        let number = self.app.plan().catalog.find(stream).unwrap_or_else(|| panic!("no stream {stream}"));
        let attributes = self.app.plan().catalog.streams()[number].attributes.clone();
        let place = self.parts.iter().position(|p| p.stream == number).unwrap_or_else(|| {
            let columns = attributes.iter().map(|(_, ty)| Column::new(*ty)).collect();
            self.parts.push(StreamBatch { stream: number, columns, times: vec![] });
            self.parts.len() - 1
        });
        let part = &mut self.parts[place];
        for ((column, value), (_, ty)) in part.columns.iter_mut().zip(data).zip(&attributes) {
            column.push(value_of(value, *ty));
        }
        part.times.push(time);
        self.order.push(place as u16);
        if !self.together {
            self.hand_in();
        }
    }

    fn hand_in(&mut self) {
        let (parts, order) = (std::mem::take(&mut self.parts), std::mem::take(&mut self.order));
        self.app.send_batch(parts, Some(&order), &mut Nothing).unwrap();
    }

    fn step(&mut self, line: &str) -> Option<String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if !rest.contains('[') {
            self.hand_in();
        }
        match word {
            "clock" => self.app.advance(rest.parse().unwrap(), &mut Nothing),
            "restart" => {
                let mut state = Vec::new();
                self.app.save(&mut state).unwrap();
                self.app = AppRuntime::new(self.app.shared_plan());
                self.app.restore(&mut state.as_slice(), RestoreMode::Exactly).unwrap();
            }
            "why" => {
                let (query, key) = match rest.split_once(" of ") {
                    Some((query, key)) => (query, Some(key)),
                    None => (rest, None),
                };
                return Some(match self.app.why(query, key) {
                    Ok(report) => {
                        let json = serde_json::to_string(&report).unwrap();
                        assert_eq!(report, serde_json::from_str(&json).unwrap(), "{json}");
                        report.to_string()
                    }
                    Err(failure) => format!("refused: {failure}"),
                });
            }
            stream => {
                let (time, data) = rest.split_once(' ').unwrap();
                self.event(stream, time.parse().unwrap(), &serde_json::from_str::<Vec<_>>(data).unwrap());
            }
        }
        None
    }
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let is_ours = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("why_");
    let mut files: Vec<PathBuf> = files.filter(is_ours).collect();
    files.sort();
    files
}

/// Returns the file with the current reports.
fn filled(text: &str, together: bool) -> String {
    let mut out = String::new();
    for case in text.split("=== ").skip(1) {
        let (head, steps) = case.split_once("\n---\n").expect("an app and steps");
        let (_, app) = head.split_once('\n').expect("a name and an app");
        let _ = writeln!(out, "=== {head}\n---");
        let mut run = Run::new(app, together);
        for line in steps.lines().filter(|line| !line.starts_with("  ")) {
            let _ = writeln!(out, "{line}");
            let told = if line.is_empty() { None } else { run.step(line) };
            for line in told.iter().flat_map(|told| told.lines()) {
                let _ = writeln!(out, "  {line}");
            }
        }
    }
    out
}

#[test]
fn queries_tell_what_they_wait_for() {
    let mut asked = 0;
    for path in cases() {
        let text = fs::read_to_string(&path).unwrap();
        asked += text.lines().filter(|line| line.starts_with("why ")).count();
        let one_by_one = filled(&text, false);
        if env::var_os("UPDATE_CASES").is_some() {
            fs::write(&path, one_by_one).unwrap();
            continue;
        }
        for (how, filled) in [("one by one", one_by_one), ("together", filled(&text, true))] {
            let mut case = "";
            for (number, (is, wanted)) in filled.lines().zip(text.lines()).enumerate() {
                case = wanted.strip_prefix("=== ").unwrap_or(case);
                assert_eq!(is, wanted, "{}:{}, case `{case}`, events {how}", path.display(), number + 1);
            }
            assert_eq!(filled, text, "{}, events {how}", path.display());
        }
    }
    assert!(asked >= 40, "{asked} questions");
}

/// Reports must not draw random values, because that would change later output.
#[test]
fn asking_changes_nothing() {
    let text = "@app:name('random') define stream S (a int);
        @info(name='q') from S[math:rand() < 0.5]#window.length(5) select a, UUID() as id insert into O;";
    let ids = |asks: bool| {
        let mut seen = Recorder::default();
        let plan = compile("app.siddhi", text, &Registry::standard(), &|_| None).unwrap();
        let mut app = AppRuntime::new(plan.into());
        app.start(0, &mut seen);
        for i in 0..200 {
            let mut column = Column::new(tidemill_types::FieldType::Int);
            column.push(tidemill_flow::Value::Int(i));
            app.send(0, vec![column], vec![i64::from(i)], &mut seen).unwrap();
            if asks {
                app.why("q", None).unwrap();
            }
        }
        seen.0
    };
    let quiet = ids(false);
    assert!(quiet.len() > 50);
    assert_eq!(quiet, ids(true));
}

#[derive(Default)]
struct Recorder(Vec<String>);

impl OutputHandler for Recorder {
    fn events(&mut self, _: &str, events: &Batch) {
        self.0.extend((0..events.len()).map(|row| events.columns[1].get(row).to_string()));
    }
    fn sent(&mut self, _: &str, _: &Batch) {}
    fn emission(&mut self, _: &str, _: &Batch) {}
    fn failure(&mut self, _: &str, _: &EvalError) {}
}
