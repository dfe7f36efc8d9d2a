//! Case tests of the parsers and formatters: rules in `tests/cases/*.txt`, SiddhiQL in
//! `tests/cases/siddhi/*.txt`.
//!
//! A case is `=== name`, the input, `---`, and the expected output: the rendered diagnostics, or without any
//! the structural text of the tree; in `format*.txt` the formatted input. The inputs of
//! `siddhi/on_demand*.txt` are on-demand queries; those of `siddhi/expression*.txt` are expressions, and
//! their output is the formatted expression. `␍` stands for a carriage return, `␉` for a tab.
//! `UPDATE_CASES=1` rewrites the expected output.

use std::fs;
use std::path::{Path, PathBuf};

use tidemill_lang::diagnostic::Diagnostic;
use tidemill_lang::source::SourceFile;
use tidemill_lang::{Sources, render_all, rules, siddhi};

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

type Read<T> = Result<T, Vec<Diagnostic>>;

/// Parser and formatter of a language.
struct Language {
    /// File name in diagnostics.
    file: &'static str,
    /// Parses the input and returns its structural text.
    summary: fn(&SourceFile) -> Read<String>,
    /// Formats the input; `None` if the language has no formatter.
    format: Option<fn(&SourceFile) -> Read<String>>,
}

const RULES: Language = Language {
    file: "a.rules",
    summary: |file| {
        let parsed = rules::parse(file);
        if parsed.diagnostics.is_empty() {
            Ok(rules::structural_text(&parsed.module))
        } else {
            Err(parsed.diagnostics)
        }
    },
    format: Some(rules::format),
};

const SIDDHI: Language = Language {
    file: "a.siddhi",
    summary: |file| {
        let parsed = siddhi::parse(file);
        if parsed.diagnostics.is_empty() {
            Ok(siddhi::structural_text(&parsed.app))
        } else {
            Err(parsed.diagnostics)
        }
    },
    format: Some(siddhi::format),
};

/// Apps with variables, which are only formatted, not parsed.
const TEMPLATE: Language =
    Language { file: "a.siddhi", summary: siddhi::format, format: Some(siddhi::format) };

const ON_DEMAND: Language = Language {
    file: "query",
    summary: |file| siddhi::parse_on_demand(file).map(|query| siddhi::on_demand_structural_text(&query)),
    format: None,
};

const EXPRESSION: Language = Language {
    file: "expression",
    summary: |file| siddhi::parse_expression(file).map(|expr| expr.to_string()),
    format: None,
};

fn outcome(input: &str, language: &Language, formats: bool) -> String {
    let mut sources = Sources::default();
    let text = input.replace('␍', "\r").replace('␉', "\t");
    let id = sources.add(language.file, text.clone());
    let file = sources.get(id).expect("just added");
    let summary = match (language.summary)(file) {
        Ok(summary) => summary,
        Err(diagnostics) => return render_all(&diagnostics, &sources).replace('\t', "␉"),
    };
    let Some(format) = language.format else { return summary };
    let canonical = format(file).expect("there are no diagnostics");
    let mut again = Sources::default();
    let again_id = again.add(language.file, canonical.clone());
    let again_file = again.get(again_id).expect("just added");
    assert_eq!(format(again_file).as_deref(), Ok(canonical.as_str()), "formatting twice changes {input}");
    assert_eq!(
        (language.summary)(again_file).as_deref(),
        Ok(summary.as_str()),
        "formatting changes the tree of {input}"
    );
    if formats { canonical } else { summary }
}

fn check(path: &Path, language: &Language, update: bool, failures: &mut Vec<String>) -> (usize, usize) {
    let text = fs::read_to_string(path).expect("case file");
    let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or("");
    let cases = read_cases(&text);
    let mut refilled = String::new();
    let mut errors = 0;
    for case in &cases {
        let mut actual = outcome(&case.input, language, name.starts_with("format"));
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

/// Checks all cases of `folder`, of which at least `least` must have errors.
fn check_folder(folder: &str, language: fn(&str) -> &'static Language, least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .expect("a folder of cases")
        .map(|e| e.expect("entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "txt"))
        .collect();
    paths.sort();
    let update = std::env::var_os("UPDATE_CASES").is_some();
    let mut failures = Vec::new();
    let (mut all, mut errors) = (0, 0);
    for path in &paths {
        let name = path.file_stem().and_then(|n| n.to_str()).unwrap_or("");
        let (cases, bad) = check(path, language(name), update, &mut failures);
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
    assert!(errors >= least, "{all} cases, {errors} of them errors");
}

#[test]
fn rules_cases() {
    check_folder("tests/cases", |_| &RULES, 40);
}

#[test]
fn siddhi_cases() {
    let language = |name: &str| match name {
        name if name.starts_with("on_demand") => &ON_DEMAND,
        name if name.starts_with("expression") => &EXPRESSION,
        "format_variables" => &TEMPLATE,
        _ => &SIDDHI,
    };
    check_folder("tests/cases/siddhi", language, 60);
}
