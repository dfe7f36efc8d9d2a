//! Tests of the limits of the rule parser: exceeding one is reported as a diagnostic.

use tidemill_lang::diagnostic::{DIAGNOSTICS_MAX, Diagnostic, TOO_MANY};
use tidemill_lang::rules::{EXPR_DEPTH_MAX, NESTING_MAX, diagnostic_codes, format, parse};
use tidemill_lang::source::{FILE_BYTES_MAX, FileId, SourceFile};

fn file(text: impl Into<String>) -> SourceFile {
    SourceFile::new(FileId(0), "a.rules", text)
}

fn codes(diagnostics: &[Diagnostic]) -> Vec<&'static str> {
    diagnostics.iter().map(|d| d.code).collect()
}

fn rule(condition: &str) -> SourceFile {
    file(format!("rule R {{ when {{ x: A(); {condition}; }} then {{ delete x; }} }}"))
}

#[test]
fn nesting_is_bounded() {
    for (open, close) in
        [("(", ")"), ("[", "]"), ("{a:", "}"), ("not ", ""), ("-(", ")"), ("! ", ""), ("f(", ")")]
    {
        let deep = |n: usize| rule(&format!("{}1{}", open.repeat(n), close.repeat(n)));
        let parsed = parse(&deep(NESTING_MAX / 2 - 2));
        assert_eq!(codes(&parsed.diagnostics), [] as [&str; 0], "{open}");
        for n in [NESTING_MAX, 200_000] {
            assert_eq!(codes(&parse(&deep(n)).diagnostics), [diagnostic_codes::TOO_DEEP], "{open} {n}");
        }
    }
}

#[test]
fn long_chains_are_bounded_and_their_trees_can_be_walked() {
    let chain = |n: usize| rule(&vec!["x.a == 1"; n].join(" or "));
    let longest = chain(EXPR_DEPTH_MAX - 2);
    assert_eq!(codes(&parse(&longest).diagnostics), [] as [&str; 0]);
    assert!(format(&longest).is_ok());
    assert_eq!(codes(&parse(&chain(EXPR_DEPTH_MAX)).diagnostics), [diagnostic_codes::TOO_DEEP]);
    assert_eq!(
        codes(&parse(&rule(&format!("x{}", ".a".repeat(100_000)))).diagnostics),
        [diagnostic_codes::TOO_DEEP]
    );
}

#[test]
fn the_number_of_diagnostics_is_bounded() {
    let parsed = parse(&file("x\n;\u{1}\n".repeat(10_000)));
    assert_eq!(parsed.diagnostics.len(), DIAGNOSTICS_MAX + 1);
    assert_eq!(parsed.diagnostics.last().map(|d| d.code), Some(TOO_MANY));
    let parsed =
        parse(&file(format!("rule R {{ when {{ {} }} then {{ delete x; }} }}", "? ;".repeat(10_000))));
    assert_eq!(parsed.diagnostics.len(), DIAGNOSTICS_MAX + 1);
}

#[test]
fn the_size_of_a_file_is_bounded() {
    let largest = " ".repeat(FILE_BYTES_MAX);
    assert_eq!(codes(&parse(&file(largest.clone())).diagnostics), [] as [&str; 0]);
    assert_eq!(codes(&parse(&file(largest + " ")).diagnostics), ["L0001"]);
}

#[test]
fn a_large_file_is_read_and_formatted() {
    let one =
        "rule R { when { x: A(a > 1, b in [1, 2], /* c */ c == \"text\"); } then { emit B(x.a + 1); } }\n";
    let text = one.repeat(FILE_BYTES_MAX / one.len());
    assert_eq!(codes(&parse(&file(text.clone())).diagnostics), [] as [&str; 0]);
    assert!(format(&file(text)).is_ok());
}
