//! Text cases of app tests, in `tests/cases/testing/*.txt`. `UPDATE_CASES=1 cargo test` rewrites their
//! output.
//!
//! ```text
//! === name
//! --- rules
//! (a file `app.rules`; `--- rules` or `--- siddhi` before the first case applies to all cases)
//! --- siddhi
//! (a file `app.siddhi`)
//! --- test
//! (a file `app.test`)
//! --- output
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use tidemill_engine::testing::{TestOptions, run_file};
use tidemill_engine::{App, AppFile, compile};

/// Names of the sections of a case, in order.
const SECTIONS: [&str; 4] = ["rules", "siddhi", "test", "output"];

#[derive(Default)]
struct Case {
    name: String,
    sections: BTreeMap<String, String>,
}

#[test]
fn cases() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/testing");
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let update = std::env::var_os("UPDATE_CASES").is_some();
    let (mut failed, mut run) = (Vec::new(), 0);
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let (head, all, mut cases) = read(&text);
        for case in &mut cases {
            run += 1;
            let found = outcome(&all, case);
            let expected = case.sections.entry("output".to_owned()).or_default();
            if found.trim() != expected.trim() {
                let file = path.file_name().unwrap().to_string_lossy();
                failed.push(format!("{file} — {}\nexpected:\n{expected}\nfound:\n{found}", case.name));
                *expected = found;
            }
        }
        if update {
            std::fs::write(&path, write(&head, &all, &cases)).unwrap();
        }
    }
    assert!(run >= 17, "only {run} cases were found");
    if !update {
        assert!(failed.is_empty(), "{} of {run} cases differ\n\n{}", failed.len(), failed.join("\n\n"));
    }
}

/// Parses a file into its header, the sections shared by all cases, and the cases.
fn read(text: &str) -> (String, Case, Vec<Case>) {
    let (mut head, mut cases) = (String::new(), vec![Case::default()]);
    let mut section: Option<&str> = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("=== ") {
            cases.push(Case { name: name.to_owned(), ..Case::default() });
            section = None;
        } else if let Some(name) = line.strip_prefix("--- ") {
            assert!(SECTIONS.contains(&name), "no section is called {name}");
            section = Some(name);
        } else {
            let case = cases.last_mut().unwrap();
            let target = match section {
                Some(section) => case.sections.entry(section.to_owned()).or_default(),
                None => &mut head,
            };
            target.push_str(line);
            target.push('\n');
        }
    }
    let all = cases.remove(0);
    (head.trim_end().to_owned(), all, cases)
}

fn write(head: &str, all: &Case, cases: &[Case]) -> String {
    let mut out = if head.is_empty() { String::new() } else { format!("{head}\n\n") };
    for case in std::iter::once(all).chain(cases) {
        if !case.name.is_empty() {
            let _ = writeln!(out, "=== {}", case.name);
        }
        let sections = SECTIONS.iter().filter_map(|name| Some((name, case.sections.get(*name)?)));
        for (name, text) in sections {
            let _ = writeln!(out, "--- {name}\n{}", text.trim_end());
        }
        if !case.name.is_empty() || !case.sections.is_empty() {
            out.push('\n');
        }
    }
    format!("{}\n", out.trim_end())
}

fn outcome(all: &Case, case: &Case) -> String {
    let section = |name: &str| case.sections.get(name).or_else(|| all.sections.get(name));
    let queries: Vec<(&str, &str)> =
        section("siddhi").map(|text| ("app.siddhi", text.as_str())).into_iter().collect();
    let app = App::from_texts("app", section("rules").map(String::as_str), &queries);
    let compiled = match compile(&app) {
        Ok(compiled) => compiled,
        Err(error) => return format!("{error}\n"),
    };
    let text = section("test").cloned().unwrap_or_default();
    let file = AppFile { name: "app.test".to_owned(), text };
    let options = TestOptions { filter: None, stops_max: 1000, rounds_max: 200 };
    let mut out = String::new();
    match run_file(&app, &compiled, &file, &options) {
        Err(problems) => {
            let lines: Vec<String> = problems.iter().map(|p| format!("{p}\n")).collect();
            out.push_str(&lines.concat());
        }
        Ok(results) => {
            for result in results {
                let _ = writeln!(out, "{} {}", if result.passed() { "ok" } else { "FAILED" }, result.name);
                for failure in &result.failures {
                    let _ = writeln!(out, "{failure}");
                }
            }
        }
    }
    out
}
