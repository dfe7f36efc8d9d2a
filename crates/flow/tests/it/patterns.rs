//! Patterns and sequences, from `tests/cases/patterns*.txt`:
//!
//! ```text
//! == what the case shows
//! from A -> B select …;         the app, over the streams A, B, C (k string, v int)
//! > A 1000 x 1                  an event: stream, time, attributes
//! > A 1000 x 1 | 1100 y 2       events in one call
//! > 2000                        time advances
//! < 1000 1 null                 the output on the stream Out during the input before: time, columns
//! ! refused                     instead of inputs: the app is rejected
//! ```

use serde_json::{Value as Json, json};
use tidemill_flow::Registry;
use tidemill_flow::replay::{Case, check};

const STREAMS: &str = "@app:playback\ndefine stream A (k string, v int);\ndefine stream B (k string, v int);\n\
    define stream C (k string, v int);\n";

fn word(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|_| Json::String(text.to_owned()))
}

fn event(text: &str) -> (Json, Vec<Json>) {
    let mut words = text.split_whitespace().map(word);
    (words.next().unwrap(), words.collect())
}

fn input(text: &str) -> Json {
    let Some((stream, rest)) = text.split_once(' ') else { return json!({"timestamp": word(text)}) };
    let events = rest.split('|').map(event).map(|(time, data)| json!({"timestamp": time, "data": data}));
    json!({"stream": stream, "events": events.collect::<Vec<_>>()})
}

fn case(text: &str) -> (String, Case) {
    let (name, body) = text.split_once('\n').unwrap();
    let mut app = STREAMS.to_owned();
    let (mut inputs, mut expected) = (Vec::new(), Vec::new());
    let mut error = Json::Null;
    for line in body.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
        match line.split_at(1) {
            (">", rest) => inputs.push(input(rest.trim())),
            ("<", rest) => {
                let (time, data) = event(rest);
                let number = inputs.len() as i64 - 1;
                expected.push(json!({"input": number, "stream": "Out", "timestamp": time, "data": data}));
            }
            ("!", _) => error = json!({"phase": "create"}),
            _ => {
                app.push_str(line);
                app.push('\n');
            }
        }
    }
    let mut case = json!({"app": app, "inputs": inputs, "outputs": ["Out"], "expected": expected});
    if !error.is_null() {
        case["error"] = error;
    }
    (name.trim().to_owned(), serde_json::from_value(case).unwrap())
}

fn run(text: &str) {
    let registry = Registry::standard();
    let mut wrong = Vec::new();
    let cases: Vec<_> = text.split("\n== ").skip(1).map(case).collect();
    assert!(cases.len() > 10);
    for (name, case) in &cases {
        let differences = check(case, &registry);
        wrong.extend(differences.iter().map(|d| format!("{name}: {d}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn steps_and_every() {
    run(include_str!("../cases/patterns_steps.txt"));
}

#[test]
fn counts_and_logic() {
    run(include_str!("../cases/patterns_counts.txt"));
}

#[test]
fn absence() {
    run(include_str!("../cases/patterns_absence.txt"));
}

#[test]
fn sequences() {
    run(include_str!("../cases/patterns_sequences.txt"));
}
