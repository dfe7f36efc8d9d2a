//! Apps as other SiddhiQL systems run them: what a check says about them, and what running them says.
//!
//! A case of `tests/cases/loaded_apps.txt` is `=== name`, an app, `---`, and what both say. `UPDATE_CASES=1` rewrites that; review
//! the difference.

use std::path::Path;
use std::sync::Arc;
use std::{env, fs};

use tidemill_engine::App;
use tidemill_flow::Connectors;

/// Values that must never be shown.
const SECRETS: [&str; 1] = ["hunter2"];

fn app(text: &str) -> App {
    let catalog = Connectors::Catalog(Arc::new(tidemill_connectors::catalog()));
    App::from_texts("app", None, &[("app.siddhi", text)]).with_connectors(catalog)
}

/// Returns `good`, warnings, or errors.
fn said(app: &App) -> String {
    let said = match tidemill_engine::compile(app) {
        Ok(compiled) => compiled.queries.files.iter().map(|file| file.warnings.as_str()).collect(),
        Err(e) => e.to_string(),
    };
    if said.is_empty() { "good".to_owned() } else { said.trim_end().to_owned() }
}

#[test]
fn apps_are_checked_with_open_values_and_run_without() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/loaded_apps.txt");
    let text = fs::read_to_string(&path).unwrap();
    let (mut filled, mut wrong, mut count) = (String::new(), vec![], 0);
    for case in text.split("=== ").skip(1) {
        let (name, rest) = case.split_once('\n').expect("a name and a line end");
        let (written, expected) = rest.split_once("---\n").unwrap_or((rest, ""));
        let written = written.trim_end();
        let found =
            format!("check: {}\nrun: {}", said(&app(written).with_open_values()), said(&app(written)));
        let found = found.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        for secret in SECRETS {
            assert!(!found.contains(secret), "{name}: a secret is shown: {found}");
        }
        if found != expected.trim_end() {
            wrong.push(format!("=== {name}\nexpected:\n{}\nfound:\n{found}", expected.trim_end()));
        }
        filled += &format!("=== {name}\n{written}\n---\n{found}\n\n");
        count += 1;
    }
    if env::var_os("UPDATE_CASES").is_some() {
        fs::write(&path, filled.trim_end().to_owned() + "\n").unwrap();
        return;
    }
    assert!(wrong.is_empty(), "{}\nUPDATE_CASES=1 writes what was found into the file", wrong.join("\n\n"));
    assert!(count >= 15, "{count} cases");
}
