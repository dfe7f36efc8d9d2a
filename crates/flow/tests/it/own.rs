//! Runs of tables, joins, named windows and on-demand queries: `tests/cases/recorded-own/<subject>/*.json`,
//! in the format of [`Case`].
//!
//! `UPDATE_CASES=1` rewrites the outputs.

use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::{Value, json};
use tidemill_flow::Registry;
use tidemill_flow::replay::{Case, Replay, check, compile};

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/recorded-own");
    let entries =
        |folder: &Path| fs::read_dir(folder).expect("a folder of cases").map(|e| e.expect("an entry").path());
    let mut files: Vec<PathBuf> =
        entries(&folder).flat_map(|subject| entries(&subject).collect::<Vec<_>>()).collect();
    files.sort();
    files
}

/// Returns the case with the current outputs, one input or output per line.
fn filled(case: &Case, written: &Value) -> String {
    let registry = Registry::standard();
    let mut fields: Vec<String> = Vec::new();
    let mut lines = |name: &str, items: &[Value]| {
        let items: Vec<String> = items.iter().map(|item| format!("    {item}")).collect();
        fields.push(format!("  \"{name}\": [\n{}\n  ]", items.join(",\n")));
    };
    lines("inputs", written["inputs"].as_array().map_or(&[], Vec::as_slice));
    let mut schemas = json!({});
    match compile("app.siddhi", &case.app, &registry, &|_| None) {
        Err(_) => fields.push("  \"error\": {\"phase\": \"create\"}".into()),
        Ok(plan) => {
            for stream in plan.catalog.streams().iter().filter(|s| case.outputs.contains(&s.name)) {
                let of = stream.attributes.iter().map(|(name, ty)| json!([name, ty.name()]));
                schemas[&stream.name] = of.collect();
            }
            let watches = |stream: &str| case.outputs.iter().any(|o| o == stream);
            let watches_query = |query: &str| case.queries.iter().any(|q| q == query);
            let mut replay = Replay::new(plan, case.start, &watches, &watches_query);
            case.inputs.iter().for_each(|input| replay.input(input));
            let found: Vec<Value> = replay.take_outputs().iter().map(|o| json!(o)).collect();
            lines("expected", &found);
        }
    }
    let mut head: Vec<String> = ["about", "app", "start", "outputs", "queries", "unordered"]
        .iter()
        .filter(|name| !written[**name].is_null())
        .map(|name| format!("  \"{name}\": {}", written[*name]))
        .collect();
    head.push(format!("  \"schemas\": {schemas}"));
    head.append(&mut fields);
    format!("{{\n{}\n}}\n", head.join(",\n"))
}

#[test]
fn runs_give_what_is_written() {
    let registry = Registry::standard();
    let mut wrong = Vec::new();
    let files = files();
    for path in &files {
        let text = fs::read_to_string(path).expect("a case");
        let written: Value =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let case = serde_json::from_value::<Case>(written.clone())
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        if env::var_os("UPDATE_CASES").is_some() {
            fs::write(path, filled(&case, &written)).expect("writing a case");
            continue;
        }
        wrong.extend(check(&case, &registry).into_iter().map(|why| format!("{}: {why}", path.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(files.len() >= 30, "{} cases", files.len());
}
