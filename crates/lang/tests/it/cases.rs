//! Texts and what becomes of them, in `tests/cases/*.txt`.
//!
//! A case is `=== name`, the text, `---`, and the outcome: the diagnostics as they are shown, else the summary of the
//! tree; in `format*.txt` the canonical text. `␍` stands for a carriage return, `␉` for a tab.
//! `UPDATE_CASES=1` writes the outcomes anew.

use std::fs;
use std::path::{Path, PathBuf};

use tidemill_lang::rules::{format, parse, summary};
use tidemill_lang::{Sources, render_all};

struct Case {
    name: String,
    input: String,
    expected: String,
}

fn read_cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut in_expected = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("=== ") {
            cases.push(Case { name: name.to_owned(), input: String::new(), expected: String::new() });
            in_expected = false;
        } else if line == "---" {
            in_expected = true;
        } else {
            let case = cases.last_mut().expect("a file begins with `=== name`");
            let part = if in_expected { &mut case.expected } else { &mut case.input };
            part.push_str(line);
            part.push('\n');
        }
    }
    for case in &mut cases {
        case.input = case.input.trim_end_matches('\n').to_owned() + "\n";
        case.expected = case.expected.trim_end_matches('\n').to_owned() + "\n";
    }
    cases
}

fn outcome(input: &str, formats: bool) -> String {
    let mut sources = Sources::default();
    let text = input.replace('␍', "\r").replace('␉', "\t");
    let id = sources.add("a.rules", text.clone());
    let file = sources.get(id).expect("just added");
    let parsed = parse(file);
    if !parsed.diagnostics.is_empty() {
        return render_all(&parsed.diagnostics, &sources).replace('\t', "␉");
    }
    let canonical = format(file).expect("there are no diagnostics");
    let mut again = Sources::default();
    let again_id = again.add("a.rules", canonical.clone());
    let again_file = again.get(again_id).expect("just added");
    assert_eq!(format(again_file).as_deref(), Ok(canonical.as_str()), "formatting twice changes {input}");
    assert_eq!(
        summary(&parse(again_file).module),
        summary(&parsed.module),
        "formatting changes the tree of {input}"
    );
    if formats { canonical } else { summary(&parsed.module) }
}

fn check(path: &Path, update: bool, failures: &mut Vec<String>) -> (usize, usize) {
    let text = fs::read_to_string(path).expect("case file");
    let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or("");
    let cases = read_cases(&text);
    let mut refilled = String::new();
    let mut errors = 0;
    for case in &cases {
        let mut actual = outcome(&case.input, name.starts_with("format"));
        errors += usize::from(actual.starts_with("error["));
        actual = actual.trim_end_matches('\n').to_owned() + "\n";
        if actual != case.expected {
            failures.push(format!("{name}: {}\n{actual}", case.name));
        }
        refilled.push_str(&format!("=== {}\n{}---\n{actual}\n", case.name, case.input));
    }
    if update {
        fs::write(path, refilled.trim_end_matches('\n').to_owned() + "\n").expect("case file");
    }
    (cases.len(), errors)
}

#[test]
fn cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .expect("tests/cases")
        .map(|e| e.expect("entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "txt"))
        .collect();
    paths.sort();
    let update = std::env::var_os("UPDATE_CASES").is_some();
    let mut failures = Vec::new();
    let (mut all, mut errors) = (0, 0);
    for path in &paths {
        let (cases, bad) = check(path, update, &mut failures);
        all += cases;
        errors += bad;
    }
    println!("{all} cases, {errors} of them errors");
    assert!(
        update || failures.is_empty(),
        "{} differ; UPDATE_CASES=1 refills\n\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(all >= 60 && errors >= 40, "{all} cases, {errors} of them errors");
}
