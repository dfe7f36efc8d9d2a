//! Tests of the limits of the SiddhiQL parser: exceeding one is reported as a diagnostic.

use tidemill_lang::diagnostic::{DIAGNOSTICS_MAX, Diagnostic, TOO_MANY};
use tidemill_lang::siddhi::{EXPR_DEPTH_MAX, NESTING_MAX, diagnostic_codes, format, parse, parse_expression};
use tidemill_lang::source::FILE_BYTES_MAX;

use super::file;

fn codes(diagnostics: &[Diagnostic]) -> Vec<&'static str> {
    diagnostics.iter().map(|d| d.code).collect()
}

fn app(query: &str) -> String {
    format!("define stream S (a int); {query};")
}

#[test]
fn nesting_is_bounded() {
    let forms = [
        ("from S[", "(", "1", ")", "] insert into O"),
        ("from S[", "not ", "a", "", "] insert into O"),
        ("from S[", "f(", "1", ")", "] insert into O"),
        ("from S[", "! ", "a", "", "] insert into O"),
        ("from ", "(", "a=A", ")", " -> b=B insert into O"),
        ("from ", "every (", "a=A", ")", " -> b=B insert into O"),
        ("from ", "(", "from S return", ")", " insert into O"),
        ("from ", "from ", "S ", "return ", "insert into O"),
    ];
    for (before, open, inner, close, after) in forms {
        let deep = |n: usize| app(&format!("{before}{}{inner}{}{after}", open.repeat(n), close.repeat(n)));
        if open != "every (" && open != "! " {
            let parsed = parse(&file(deep(NESTING_MAX / 2 - 2)));
            assert_eq!(codes(&parsed.diagnostics), [] as [&str; 0], "{open}");
        }
        for n in [NESTING_MAX + 1, 50_000] {
            let parsed = parse(&file(deep(n)));
            let too_deep = codes(&parsed.diagnostics).contains(&diagnostic_codes::TOO_DEEP);
            assert!(too_deep || parsed.diagnostics.len() > DIAGNOSTICS_MAX, "{open} {n}");
        }
    }
    let annotation = |n: usize| format!("{}'x'{} define stream S (a int)", "@x(".repeat(n), ")".repeat(n));
    assert_eq!(codes(&parse(&file(annotation(NESTING_MAX - 2))).diagnostics), [] as [&str; 0]);
    assert!(
        codes(&parse(&file(annotation(NESTING_MAX + 1))).diagnostics).contains(&diagnostic_codes::TOO_DEEP)
    );
    let partitions = app(&"partition with (a of S) begin ".repeat(10_000));
    assert!(codes(&parse(&file(partitions)).diagnostics).contains(&diagnostic_codes::NESTED_PARTITION));
}

#[test]
fn long_chains_are_bounded_and_their_trees_can_be_walked() {
    let chain = |n: usize| app(&format!("from S[{}] insert into O", vec!["a == 1"; n].join(" or ")));
    let longest = file(chain(EXPR_DEPTH_MAX - 2));
    assert_eq!(codes(&parse(&longest).diagnostics), [] as [&str; 0]);
    assert!(format(&longest).is_ok());
    assert_eq!(codes(&parse(&file(chain(EXPR_DEPTH_MAX))).diagnostics), [diagnostic_codes::TOO_DEEP]);
    let tables = format!("a{}", " in T".repeat(100_000));
    assert_eq!(codes(&parse_expression(&file(tables)).unwrap_err()), [diagnostic_codes::TOO_DEEP]);
}

#[test]
fn the_number_of_diagnostics_is_bounded() {
    for text in ["x;\u{1}\n", "define stream S (a text)\n", "from S[a = 1] select 'x;\n", "@x('a' 'b')\n"] {
        let parsed = parse(&file(text.repeat(10_000)));
        assert_eq!(parsed.diagnostics.len(), DIAGNOSTICS_MAX + 1, "{text}");
        assert_eq!(parsed.diagnostics.last().map(|d| d.code), Some(TOO_MANY));
    }
}

#[test]
fn the_size_of_a_file_is_bounded() {
    let one = "define stream S (a int)";
    let largest = format!("{one}{}", " ".repeat(FILE_BYTES_MAX - one.len()));
    assert_eq!(codes(&parse(&file(largest.clone())).diagnostics), [] as [&str; 0]);
    assert_eq!(codes(&parse(&file(largest + " ")).diagnostics), ["L0001"]);
}

#[test]
fn a_large_app_is_read_and_formatted() {
    let one = "from every e=S[a > 1 and not (b is null)] -> f=R<2:5> /* c */ within 1 min select e.a, 'x' as y insert into O; ";
    let head = "define stream S (a int); ";
    let text = format!("{head}{}", one.repeat((FILE_BYTES_MAX - head.len()) / one.len()));
    assert_eq!(codes(&parse(&file(text.clone())).diagnostics), [] as [&str; 0]);
    assert!(format(&file(text)).is_ok());
}

#[test]
fn what_repeats_is_read_in_linear_time() {
    // each input would take minutes if the parser scanned the rest of the source repeatedly
    let texts = [
        "'a' ",
        "\"a\" ",
        "'",
        "`a` ",
        "( ",
        "[ ",
        "{ ",
        "@a(",
        "@app:a ",
        "-- a\n",
        "/* a */ ",
        "/*",
        "a, ",
        "a. ",
        "1 sec ",
        "from ",
        "every ",
        "not ",
        "from (",
        "define ",
        "define stream ",
        "partition with (",
        "begin ",
        "end ",
        "select ",
        "${",
        "\\'",
        "{'",
        "{\\'",
        "<2:",
        "- ",
        "a#b[",
        "x:",
    ];
    for text in texts {
        let _ = format(&file(text.repeat(200_000 / text.len())));
        let _ = format(&file(app(&format!("from S select {}", text.repeat(200_000 / text.len())))));
    }
}
