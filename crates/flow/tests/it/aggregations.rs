//! Rejected aggregations and their messages: `tests/cases/aggregations_refused.txt`.
//!
//! A case is a paragraph: statements, or an on-demand query after `?`; then the expected message after `!`.
//! The streams of [`STREAMS`] and an aggregation `Known` are defined. `UPDATE_CASES=1` rewrites the messages.

use std::path::Path;
use std::{env, fs};

use tidemill_flow::replay::{Input, OutputKind, Replay, compile};
use tidemill_flow::{Registry, plan::AppPlan};

const STREAMS: &str = "define stream S (k string, n int, v double, b bool, o object, ts long, at string);
define stream R (k string, p string, f long);
define table T (k string);
define aggregation Known from S select k, sum(n) as total group by k aggregate by ts every sec ... hour;
";

fn compiled(statements: &str) -> Result<AppPlan, String> {
    compile("app.siddhi", &format!("{STREAMS}{statements}"), &Registry::standard(), &|_| None)
}

/// Returns the output for a case: a line with the message and one with the help.
fn said(case: &str) -> Vec<String> {
    let text = match case.strip_prefix('?') {
        None => compiled(&format!("{case};\nfrom S select k insert into Out;")).err().unwrap_or_default(),
        Some(query) => {
            let mut replay = Replay::new(compiled("").expect("the streams"), 0, &|_| true, &|_| true);
            replay.input(&Input::OnDemand { on_demand: query.trim().to_owned() });
            match replay.take_outputs().pop().map(|out| out.what) {
                Some(OutputKind::Failure { failure }) => failure,
                _ => String::new(),
            }
        }
    };
    let lines = text.lines().filter(|line| line.starts_with("error") || line.contains("= help:"));
    lines.map(|line| line.trim_start().trim_start_matches("= ").to_owned()).collect()
}

#[test]
fn what_is_refused_is_told() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/aggregations_refused.txt");
    let written = fs::read_to_string(&path).expect("the cases");
    let mut found = Vec::new();
    for paragraph in written.trim_end().split("\n\n") {
        let case: Vec<&str> = paragraph.lines().filter(|line| !line.starts_with("! ")).collect();
        let said = said(&case.join("\n"));
        assert!(!said.is_empty(), "not refused: {paragraph}");
        let said = said.iter().map(|line| format!("! {line}"));
        found.push(case.iter().map(|line| (*line).to_owned()).chain(said).collect::<Vec<_>>().join("\n"));
    }
    let found = format!("{}\n", found.join("\n\n"));
    if env::var_os("UPDATE_CASES").is_some() {
        fs::write(&path, &found).expect("writing the cases");
        return;
    }
    assert!(found.matches("\n\n").count() > 30, "few cases");
    assert!(found == written, "what is said has changed:\n{found}");
}
