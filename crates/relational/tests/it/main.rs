//! Statements as text cases. What needs a server is tested with the connectors.

use std::path::Path;

mod expressions;
mod sqlite;
mod statements;
mod tables;

/// Compares the cases of a file, `HEAD`, `----` and what `render` makes of the head, each ended by an empty line. With
/// `UPDATE_CASES` it rewrites them.
fn check_cases(file: &str, render: impl Fn(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(file);
    let source = std::fs::read_to_string(&path).unwrap();
    let mut written = String::new();
    for part in source.split_inclusive("\n\n") {
        match part.split_once("----\n") {
            Some((head, _)) => written += &format!("{head}----\n{}\n", render(head.trim())),
            None => written += part,
        }
    }
    let written = written.trim_end().to_owned() + "\n";
    if std::env::var_os("UPDATE_CASES").is_some() {
        std::fs::write(path, written).unwrap();
        return;
    }
    assert_eq!(written, source);
}
