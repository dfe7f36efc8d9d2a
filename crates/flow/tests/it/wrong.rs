//! Rejected apps and their diagnostics: `tests/cases/wrong/*.txt`.
//!
//! A case is `=== name`, the app, `---`, and the rendered diagnostics. `UPDATE_CASES=1` rewrites them; an app
//! that compiles fails the test. `tests/cases/warnings.txt` has apps that compile, with their warnings.

use std::path::Path;
use std::{env, fs};

use tidemill_flow::Registry;
use tidemill_flow::replay::compile;
use tidemill_lang::{Sources, render_all};

/// Returns name and app of each case.
fn cases(text: &str) -> Vec<(String, String)> {
    let cases = text.split("=== ").skip(1).map(|case| {
        let (name, rest) = case.split_once('\n').expect("a name and a line end");
        let app = rest.split_once("\n---\n").map_or(rest, |(app, _)| app);
        (name.to_owned(), app.trim_end().to_owned() + "\n")
    });
    cases.collect()
}

#[test]
fn wrong_apps_are_told_what_is_wrong() {
    let registry = Registry::standard();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/wrong");
    let (mut wrong, mut count) = (Vec::new(), 0);
    for entry in fs::read_dir(folder).expect("a folder of cases") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a file of cases");
        let mut filled = String::new();
        for (name, app) in cases(&text) {
            count += 1;
            let why = compile("app.siddhi", &app, &registry, &|_| None).err();
            let why = why.unwrap_or_else(|| panic!("{}: `{name}` is not refused", path.display()));
            filled.push_str(&format!("=== {name}\n{app}---\n{}\n\n", why.trim_end()));
        }
        if env::var_os("UPDATE_CASES").is_some() {
            fs::write(&path, filled).expect("writing a file of cases");
        } else if filled != text {
            let places = filled.lines().zip(text.lines()).zip(1..);
            let first = places.into_iter().find(|((is, was), _)| is != was);
            wrong.push(format!("{}: {first:?}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 90, "{count} cases");
}

#[test]
fn apps_with_parts_that_have_no_effect_are_warned_about() {
    let registry = Registry::standard();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/warnings.txt");
    let text = fs::read_to_string(&path).expect("a file of cases");
    let mut filled = String::new();
    for (name, app) in cases(&text) {
        let plan =
            compile("app.siddhi", &app, &registry, &|_| None).unwrap_or_else(|e| panic!("`{name}`: {e}"));
        let mut sources = Sources::default();
        sources.add("app.siddhi", &app);
        let warnings = render_all(&plan.warnings, &sources);
        filled.push_str(&format!("=== {name}\n{app}---\n{}\n\n", warnings.trim_end()));
    }
    if env::var_os("UPDATE_CASES").is_some() {
        fs::write(&path, filled).expect("writing a file of cases");
    } else {
        assert_eq!(filled, text);
    }
}
