//! Prose of comments, messages and pages: forms that an English engineer would not write.
//!
//! `cargo xtask prose` counts them by crate, `cargo xtask prose CRATE` lists those of a crate. [`problems`] keeps the counts from
//! growing: who lowers one lowers its bound.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::files::files;

/// Maximum number of doc comments that open with a question word instead of a noun or a verb.
const OPENINGS_MAX: usize = 11;
/// Maximum number of the other forms.
const FORMS_MAX: usize = 296;

/// Words with which a doc comment should not open: "What the queries know" is "Query state".
const OPENINGS: &[&str] = &["What", "How", "Whether", "Which", "Who", "Whose", "Where"];

/// Forms with a plainer way to say the same.
const FORMS: &[&str] = &[
    "is no ",
    "are none",
    "is none",
    "goes on",
    "go on ",
    "of which",
    "nobody",
    "whoever",
    "lets go",
    "let go",
    "puts out",
    "put out",
    "works off",
    "begin anew",
    "begins anew",
    "is told",
    "are told",
];

/// A place with one of the forms.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: PathBuf,
    pub line: usize,
    pub is_opening: bool,
    pub form: &'static str,
    pub text: String,
}

/// Reads the sources of all crates, and the pages, by crate; pages count as `docs/`.
pub fn read(root: &Path) -> Result<BTreeMap<String, Vec<Finding>>> {
    let mut found: BTreeMap<String, Vec<Finding>> = BTreeMap::new();
    let crates = root.join("crates");
    for entry in std::fs::read_dir(&crates).with_context(|| crates.display().to_string())? {
        let dir = entry?.path();
        let name = dir.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        let own = found.entry(name).or_default();
        for path in files(&dir.join("src"), "rs")? {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            own.extend(in_source(&path, &text));
        }
    }
    let pages = found.entry("docs/".to_owned()).or_default();
    for path in files(&root.join("docs"), "md")?.into_iter().chain([root.join("README.md")]) {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        pages.extend(text.lines().enumerate().flat_map(|(line, text)| forms_in(&path, line, text)));
    }
    Ok(found)
}

/// Returns a message for each bound that is exceeded.
pub fn problems(found: &BTreeMap<String, Vec<Finding>>) -> Vec<String> {
    let count = |opening| found.values().flatten().filter(|f| f.is_opening == opening).count();
    let over = |count: usize, max: usize, of: &str| {
        (count > max).then(|| {
            format!("{count} {of}, at most {max} are allowed: `cargo xtask prose CRATE` lists them; say it with a noun or a verb")
        })
    };
    let openings = over(count(true), OPENINGS_MAX, "doc comments open with a question word");
    let forms = over(count(false), FORMS_MAX, "places have an unidiomatic form");
    openings.into_iter().chain(forms).collect()
}

/// Formats the counts by crate.
pub fn table(found: &BTreeMap<String, Vec<Finding>>) -> String {
    let mut text = format!("{:<12} {:>8} {:>6}\n", "crate", "openings", "forms");
    let (mut openings, mut forms) = (0, 0);
    for (name, findings) in found {
        let own = findings.iter().filter(|f| f.is_opening).count();
        (openings, forms) = (openings + own, forms + findings.len() - own);
        text += &format!("{name:<12} {own:>8} {:>6}\n", findings.len() - own);
    }
    text + &format!("{:<12} {openings:>8} {forms:>6}\n", "all")
}

/// Formats the findings of a crate.
pub fn list(findings: &[Finding]) -> String {
    let line = |f: &Finding| format!("{}:{}: {}: {}\n", f.path.display(), f.line, f.form.trim(), f.text);
    findings.iter().map(line).collect()
}

fn in_source(path: &Path, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut in_doc = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let doc = line.strip_prefix("/// ");
        if let Some(doc) = doc.filter(|_| !in_doc)
            && let Some(opening) = OPENINGS.iter().find(|word| first_word(doc) == **word)
        {
            found.push(finding(path, number, true, opening, line));
        }
        in_doc = line.starts_with("///");
        if line.starts_with("//") || line.contains('"') {
            found.extend(forms_in(path, number, line));
        }
    }
    found
}

fn forms_in(path: &Path, line: usize, text: &str) -> Vec<Finding> {
    // "there is no value" is plain English, "x is no option" is not
    let text_of_forms = text.replace("here is no ", "").replace("here are none", "");
    let found = FORMS.iter().filter(|form| text_of_forms.contains(**form));
    found.map(|form| finding(path, line, false, form, text.trim())).collect()
}

fn first_word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

fn finding(path: &Path, line: usize, is_opening: bool, form: &'static str, text: &str) -> Finding {
    Finding { path: path.to_owned(), line: line + 1, is_opening, form, text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_line_of_a_doc_comment_opens_it() {
        assert_eq!(forms_in(Path::new("a.md"), 0, "There is no value."), []);
        let text = "/// What it does.\n/// What else.\nfn f() {}\n/// State.\n/// Whether it is.\nlet x = \"x is no option\";\nlet is_no = 1;";
        let found = in_source(Path::new("a.rs"), text);
        let found: Vec<_> = found.iter().map(|f| (f.line, f.is_opening, f.form)).collect();
        assert_eq!(found, [(1, true, "What"), (6, false, "is no ")]);
    }
}
