use datafusion::logical_expr::sqlparser::dialect::GenericDialect;
use datafusion::logical_expr::sqlparser::parser::Parser;

use super::*;

fn parsed(text: &str) -> Statement {
    let mut statements = Parser::parse_sql(&GenericDialect {}, text).unwrap();
    Statement::Statement(Box::new(statements.remove(0)))
}

fn bounded(text: &str) -> Result<Statement> {
    crate::execution::stack::parsing(text, || {
        let mut statement = parsed(text);
        bound(&mut statement, text).map(|()| statement)
    })?
}

fn chain(term: impl Fn(usize) -> String, between: &str, terms: usize) -> String {
    (0..terms).map(term).collect::<Vec<_>>().join(between)
}

#[test]
fn long_chains_keep_their_text() {
    for between in [" AND ", " OR "] {
        let text = format!("SELECT {}", chain(|n| format!("a{n} > {n}"), between, 20_000));
        assert_eq!(bounded(&text).unwrap().to_string(), text);
    }
    for between in [" UNION ALL ", " UNION "] {
        let text = chain(|n| format!("SELECT {n}"), between, 1_500);
        assert_eq!(bounded(&text).unwrap().to_string(), text);
    }
}

#[test]
fn long_chains_of_operators_are_one_call() {
    let text = format!("SELECT a * 2{}", chain(|n| format!(" + {n} - b"), "", 50_000));
    let found = bounded(&text).unwrap().to_string();
    assert!(found.starts_with("SELECT operators('*+-+-"), "{}", &found[..80]);
    assert!(found.ends_with(", 49998, b, 49999, b)"), "{}", &found[found.len() - 80..]);
    let short = "SELECT a + 1 + 2 || 'x'";
    assert_eq!(bounded(short).unwrap().to_string(), short);
}

#[test]
fn comparisons_with_constants_become_lists_by_kind() {
    let terms = |n: usize| match n % 4 {
        0 => format!("a = {n}"),
        1 => format!("a = '{n}'"),
        2 => format!("b = {n}"),
        _ => format!("c > {n}"),
    };
    let mut statement = bounded(&format!("SELECT {}", chain(terms, " OR ", 40))).unwrap();
    make_lists(&mut statement);
    let text = statement.to_string();
    let list = |from: usize| chain(|n| (from + 4 * n).to_string(), ", ", 10);
    assert!(text.starts_with(&format!("SELECT a IN ({}) OR a IN ('1', '5'", list(0))), "{text}");
    assert!(text.contains(&format!("b IN ({}) OR c > 3 OR c > 7", list(2))), "{text}");

    let mut statement = bounded(&format!("SELECT {}", chain(|n| format!("a <> {n}"), " AND ", 40))).unwrap();
    make_lists(&mut statement);
    let text = statement.to_string();
    assert!(text.starts_with("SELECT a NOT IN (0, 1, 2"), "{text}");

    let short = "SELECT a = 1 OR a = 2 OR (b = 3 OR b = 4)";
    let mut statement = bounded(short).unwrap();
    make_lists(&mut statement);
    assert_eq!(statement.to_string(), short);
}

#[test]
fn what_stays_deep_is_refused_with_its_place() {
    let text = format!("SELECT 1,\n a {}", "-> 'b' ".repeat(60_000));
    let error = bounded(&text).unwrap_err().to_string();
    assert!(error.contains("line 2, column 2"), "{error}");
    assert!(error.contains("the limit is 500") && error.contains("json_get"), "{error}");
}

#[test]
fn with_queries_count_where_they_are_used() {
    let doubled = |n: usize| {
        let with = (1..=n).map(|i| format!("t{i} AS (SELECT a.x FROM t{0} a, t{0} b)", i - 1));
        format!("WITH t0 AS (SELECT x FROM t), {} SELECT 1 FROM t{n}", with.collect::<Vec<_>>().join(", "))
    };
    bounded(&doubled(10)).unwrap();
    let error = bounded(&doubled(11)).unwrap_err().to_string();
    assert!(error.contains("2048 tables, the limit is 2000"), "{error}");
    // a name refers to the innermost query of that name
    let shadowed = "WITH t AS (SELECT 1 FROM a, b) SELECT (WITH t AS (SELECT 1 FROM c) SELECT count(*) FROM t), x FROM t";
    bounded(shadowed).unwrap();
    let joined = format!("SELECT 1 FROM {}", chain(|n| format!("t{n}"), ", ", 301));
    assert!(bounded(&joined).unwrap_err().to_string().contains("joins 301 tables, the limit is 300"));
}

#[test]
fn grouping_sets_are_counted() {
    for (group_by, sets) in [
        ("a, b", None),
        ("CUBE (a, b, c)", None),
        ("GROUPING SETS ((a), (b), ())", None),
        ("CUBE (a, b, c, d, e, f, g), CUBE (h, i, j, k, l)", None),
        ("CUBE (a, b, c, d, e, f, g), CUBE (h, i, j, k, l), ROLLUP (m, n)", Some("12288")),
        ("CUBE (a, b, c, d, e, f, g, h, i, j, k, l, m)", Some("8192")),
    ] {
        let outcome = bounded(&format!("SELECT count(*) FROM t GROUP BY {group_by}"));
        match sets {
            None => drop(outcome.unwrap()),
            Some(sets) => {
                let error = outcome.unwrap_err().to_string();
                assert!(
                    error.contains(&format!("GROUP BY makes {sets} grouping sets, the limit is 4096")),
                    "{error}"
                );
            }
        }
    }
}
