//! The parser: round trips, limits, random texts.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::parse::{BoundValue, BoundValues, parameters, parse};
use crate::syntax::{HEIGHT_MAX, LIST_MAX, NESTING_MAX, PATTERNS_MAX, STATEMENTS_MAX, TEXT_BYTES_MAX};

fn printed(text: &str) -> Vec<String> {
    parse(text, &BoundValues::new()).unwrap().iter().map(ToString::to_string).collect()
}

fn refusal(text: &str) -> String {
    parse(text, &BoundValues::new()).unwrap_err().to_string()
}

#[test]
fn what_is_printed_is_parsed_again() {
    for (text, expected) in [
        (
            "select mean(\"usage\") as m,max(v)/2 from a.b.cpu, /^c.*\\/x$/ where host='it\\'s' and (a>-1.5 or b =~ /x/) and time > now()-1h30m group by time(1m, 10s), * fill(previous) order by time desc limit 3 offset 4 slimit 5 soffset 6 tz('Europe/Berlin')",
            "SELECT mean(usage) AS m, max(v) / 2 FROM a.b.cpu, /^c.*\\/x$/ WHERE host = 'it\\'s' AND (a > -1.5 OR b =~ /x/) AND time > now() - 90m GROUP BY time(1m, 10s), * fill(previous) ORDER BY time DESC LIMIT 3 OFFSET 4 SLIMIT 5 SOFFSET 6 tz('Europe/Berlin')",
        ),
        (
            "SELECT *::field, \"a b\"::tag, distinct x, count(distinct x) FROM (SELECT v FROM db..m) -- a comment\n fill(1.0)",
            "SELECT *::field, \"a b\"::tag, DISTINCT x, count(DISTINCT x) FROM (SELECT v FROM db..m) fill(1.0)",
        ),
        ("SELECT -v, - (v) FROM m /* comment */", "SELECT (-1 * v), (-1 * (v)) FROM m"),
        ("SELECT \"select\" FROM \"from\"", "SELECT \"select\" FROM \"from\""),
        (
            "show tag values on db from m with key in (a, \"b c\") where x = 1 limit 2",
            "SHOW TAG VALUES ON db FROM m WITH KEY IN (a, \"b c\") WHERE x = 1 LIMIT 2",
        ),
        (
            "SHOW MEASUREMENTS WITH MEASUREMENT !~ /x/ LIMIT 100",
            "SHOW MEASUREMENTS WITH MEASUREMENT !~ /x/ LIMIT 100",
        ),
        ("create database x with duration 3d replication 1 shard duration 1h name y", "CREATE DATABASE x"),
        ("drop series from \"a;b\"", "drop series from \"a;b\""),
    ] {
        assert_eq!(printed(text), [expected], "{text}");
        assert_eq!(printed(expected), [expected]);
    }
    assert_eq!(printed(";; SHOW DATABASES ; SHOW SERIES;"), ["SHOW DATABASES", "SHOW SERIES"]);
    assert!(printed(" -- nothing").is_empty());
}

#[test]
fn operators_bind_as_in_influxdb() {
    // a tree that is not the one of the precedences needs brackets, so that equal texts mean equal trees
    let tree = |text: &str| format!("{:?}", parse(text, &BoundValues::new()).unwrap());
    assert_eq!(
        tree("SELECT a FROM m WHERE a = 1 OR b = 2 AND c + 1 * 2 > 3"),
        tree("SELECT a FROM m WHERE a=1 or b=2 and c+1*2>3")
    );
    assert!(tree("SELECT a - b - c FROM m").contains("Binary(Subtract, Binary(Subtract"));
    assert!(tree("SELECT a + b * c FROM m").contains("Binary(Add, Name(\"a\", None), Binary(Multiply"));
    assert!(tree("SELECT a FROM m WHERE a = 1 OR b = 2 AND c = 3").contains("Binary(Or, Binary(Equal"));
}

#[test]
fn parameters_stand_for_values() {
    let bound = parameters(
        r#"{"host": "a' OR 1=1", "n": 3, "x": 1.5, "up": true, "re": {"regex": "^a/b"}, "m": {"identifier": "a b"}, "d": {"duration": "5m"}}"#,
    )
    .unwrap();
    let text = "SELECT v FROM $m WHERE host = $host AND n = $n AND x = $x AND up = $up AND host =~ $re AND time > now() - $d";
    let statement = parse(text, &bound).unwrap()[0].to_string();
    assert_eq!(
        statement,
        "SELECT v FROM \"a b\" WHERE host = 'a\\' OR 1=1' AND n = 3 AND x = 1.5 AND up = true AND host =~ /^a\\/b/ AND time > now() - 5m"
    );
    assert_eq!(
        parse("SELECT v FROM m WHERE a = $missing", &bound).unwrap_err().to_string(),
        "missing parameter: missing"
    );
    assert_eq!(bound["n"], BoundValue::Integer(3));
    for bad in [
        "",
        "[]",
        "{\"a\": []}",
        "{\"a\": {\"regex\": 1}}",
        "{\"a\": {\"regex\": \"x\", \"b\": 1}}",
        "{\"a\": null}",
    ] {
        assert!(parameters(bad).is_err(), "{bad}");
    }
}

#[test]
fn sizes_and_depths_are_bounded() {
    let brackets = |count: usize| format!("SELECT {}v{} FROM m", "(".repeat(count), ")".repeat(count));
    assert!(parse(&brackets(NESTING_MAX), &BoundValues::new()).is_ok());
    assert!(refusal(&brackets(NESTING_MAX + 1)).starts_with("more than 30 brackets"));
    assert!(refusal(&"SELECT v FROM (".repeat(10_000)).starts_with("more than 30 brackets"));
    let chain = |count: usize| format!("SELECT v FROM m WHERE {}", vec!["a = 1"; count].join(" OR "));
    assert!(parse(&chain(HEIGHT_MAX - 1), &BoundValues::new()).is_ok());
    assert!(refusal(&chain(HEIGHT_MAX + 1)).starts_with("more than 300 operators"));
    assert!(refusal(&"SHOW SERIES;".repeat(STATEMENTS_MAX + 1)).contains("more than 256 statements"));
    assert!(refusal(&" ".repeat(TEXT_BYTES_MAX + 1)).contains("1048577 bytes"));
    assert!(refusal(&format!("SELECT {}v FROM m", "- ".repeat(100))).starts_with("found -, expected"));
    let list = |count: usize| vec!["m"; count].join(",");
    assert!(parse(&format!("SELECT v FROM {}", list(LIST_MAX)), &BoundValues::new()).is_ok());
    for text in [
        "SELECT v FROM LIST",
        "SELECT v FROM m GROUP BY LIST",
        "SELECT f(LIST) FROM m",
        "SHOW TAG VALUES WITH KEY IN (LIST)",
    ] {
        let refused = refusal(&text.replace("LIST", &list(LIST_MAX + 1)));
        assert!(refused.starts_with("more than 1000 items"), "{refused}");
    }
    let patterns = vec!["/a/"; PATTERNS_MAX + 1].join(",");
    assert!(refusal(&format!("SELECT v FROM {patterns}")).contains("more than 200 regular expressions"));
    assert!(refusal("SELECT \"a\0b\" FROM m").contains("NUL"));
    assert!(refusal("SELECT v FROM /(a{1000}){1000}/").contains("error parsing regexp"));
}

/// Tokens from which random statements are made.
const TOKENS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "BY",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "SLIMIT",
    "SOFFSET",
    "SHOW",
    "TAG",
    "KEYS",
    "VALUES",
    "WITH",
    "KEY",
    "IN",
    "FIELD",
    "MEASUREMENTS",
    "SERIES",
    "DATABASES",
    "CREATE",
    "DATABASE",
    "AS",
    "AND",
    "OR",
    "DISTINCT",
    "ON",
    "time",
    "fill",
    "tz",
    "null",
    "none",
    "previous",
    "mean",
    "top",
    "derivative",
    "v",
    "\"a b\"",
    "host",
    "'text'",
    "'Europe/Berlin'",
    "1",
    "1.5",
    ".5",
    "10m",
    "1h30m",
    "99999999999999999999",
    "9223372036854775807w",
    "(",
    "(",
    ")",
    ")",
    ",",
    ";",
    ".",
    "::",
    "float",
    "tag",
    "+",
    "-",
    "*",
    "/",
    "%",
    "=",
    "!=",
    "<>",
    "<",
    ">=",
    "=~",
    "!~",
    "/x/",
    "/(/",
    "/[a-z]+\\/b/",
    "$p",
    "$q",
    "now()",
    "DESC",
    "--",
    "/*",
    "*/",
    "\n",
    "é",
    "\\",
    "\"",
    "'",
    "\u{0}",
    "true",
];

#[test]
fn random_texts_never_panic_and_round_trips_hold() {
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random::<u64>);
    println!("SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let bound = parameters(r#"{"p": 1, "q": {"regex": "x"}}"#).unwrap();
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(60_000);
    let mut parsed = 0;
    for round in 0..rounds {
        let mut text = match round % 3 {
            // a statement with some tokens exchanged
            0 => {
                let whole = "SELECT mean ( v ) , host AS x FROM m , ( SELECT v FROM n ) WHERE host = 'a' AND time > 1 GROUP BY time ( 10m ) , * fill ( none ) ORDER BY time DESC LIMIT 1";
                let mut tokens: Vec<&str> = whole.split(' ').collect();
                for _ in 0..random.random_range(0..3) {
                    let at = random.random_range(0..tokens.len());
                    tokens[at] = TOKENS.choose(&mut random).unwrap();
                }
                tokens.join(" ")
            }
            1 => {
                let count = random.random_range(0..24);
                let tokens = (0..count).map(|_| *TOKENS.choose(&mut random).unwrap());
                tokens.collect::<Vec<_>>().join(if random.random() { " " } else { "" })
            }
            _ => {
                let bytes: Vec<u8> = (0..random.random_range(0..40)).map(|_| random.random()).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
        };
        if random.random_range(0..4) == 0 {
            text = format!("SELECT {text}");
        }
        let Ok(statements) = parse(&text, &bound) else { continue };
        for statement in statements {
            parsed += 1;
            let printed = statement.to_string();
            let again =
                parse(&printed, &bound).unwrap_or_else(|e| panic!("{text:?} is printed as {printed:?}: {e}"));
            assert_eq!(again, [statement], "{text:?} is printed as {printed:?}");
        }
    }
    assert!(parsed > 5_000, "only {parsed} statements were parsed");
}
