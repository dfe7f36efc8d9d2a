use proptest::prelude::*;

use super::words::literal;
use super::*;

fn parse(text: &str) -> Command {
    Command::parse(text).unwrap()
}

#[test]
fn statements_are_told_from_those_of_the_database() {
    assert_eq!(parse("select 1"), Command::Query("SELECT"));
    assert_eq!(parse("/* a */ WITH x AS (SELECT 1) SELECT * FROM x"), Command::Query("SELECT"));
    assert_eq!(parse("(SELECT 1)"), Command::Query("SELECT"));
    assert_eq!(parse("SHOW TABLES"), Command::Query("SHOW"));
    assert_eq!(parse("KILL QUERY 7"), Command::Query("SELECT"));
    assert_eq!(parse("update events.a set x = 1"), Command::Change("UPDATE"));
    assert_eq!(parse(" "), Command::Empty);
}

#[test]
fn settings_have_names_and_values() {
    let set = |name: &str, value: Option<&str>, is_local| Command::Set {
        name: name.to_owned(),
        value: value.map(str::to_owned),
        is_local,
    };
    for (text, expected) in [
        ("SET a TO b", set("a", Some("b"), false)),
        ("SET SESSION a = 'it''s'", set("a", Some("it's"), false)),
        ("set local a.B = -5", set("a.b", Some("-5"), true)),
        ("SET search_path = \"A b\", public, 'c'", set("search_path", Some("A b, public, c"), false)),
        ("SET TIME ZONE 'UTC'", set("TimeZone", Some("UTC"), false)),
        ("SET TIME ZONE LOCAL", set("TimeZone", None, false)),
        ("SET a TO DEFAULT", set("a", None, false)),
        ("SET NAMES 'utf8'", set("names", Some("utf8"), false)),
        ("SET local = 1", set("local", Some("1"), false)),
    ] {
        assert_eq!(parse(text), expected, "{text}");
    }
    assert_eq!(parse("SHOW ALL"), Command::Show(None));
    assert_eq!(parse("SHOW TIME ZONE"), Command::Show(Some("TimeZone".to_owned())));
}

#[test]
fn texts_lose_their_quotes() {
    for (text, expected) in [
        ("'a''b'", Some("a'b")),
        ("E'a\\n\\\\b'", Some("a\n\\b")),
        ("$$a'b$$", Some("a'b")),
        ("$t$a$$b$t$", Some("a$$b")),
        ("E'\\u0041'", None),
        ("'a", None),
        ("$t$a", None),
        ("$", None),
        ("'", None),
    ] {
        assert_eq!(literal(text).as_deref(), expected, "{text}");
    }
}

#[test]
fn copies_are_queries() {
    let copy = |text: &str| match parse(text) {
        Command::CopyOut(copy) => copy,
        other => panic!("{other:?}"),
    };
    assert_eq!(copy("COPY (SELECT (1) ) TO STDOUT").text, "SELECT (1)");
    assert_eq!(
        copy("copy events.\"A b\" ( x, \"Y\" ) to stdout").text,
        "SELECT x, \"Y\" FROM events.\"A b\""
    );
    let csv = copy("COPY a TO STDOUT WITH CSV HEADER DELIMITER AS ';' NULL 'n' FORCE QUOTE x").options;
    assert_eq!((csv.format, csv.has_header, csv.delimiter), (CopyFormat::Csv, true, b';'));
    assert_eq!((csv.null.as_str(), csv.force_quote.len()), ("n", 1));
    let places = Command::parse("COPY a TO nowhere").unwrap_err();
    assert_eq!(places.position, Some(11));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(
        verb in "(SET|RESET|SHOW|BEGIN|ROLLBACK|PREPARE|EXECUTE|DECLARE|FETCH|MOVE|CLOSE|COPY|DISCARD)",
        rest in "( |\\(|\\)|'|\"|\\$|,|=|-|[a-z]|[0-9]|TO|FROM|ALL|STDOUT|AS|FOR|CURSOR|WITH|é){0,12}",
    ) {
        let _ = Command::parse(&format!("{verb} {rest}"));
    }
}

#[test]
fn long_statements_are_refused_before_they_are_taken_apart() {
    let brackets = "(".repeat(COMMAND_BYTES_MAX);
    assert_eq!(parse(&format!("SELECT {brackets}")), Command::Query("SELECT"));
    assert_eq!(Command::parse(&format!("SET a = {brackets}")).unwrap_err().code, code::TOO_LARGE);
}
