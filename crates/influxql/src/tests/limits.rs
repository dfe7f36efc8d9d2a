//! What is bounded, and what is refused by name.

use super::memory::Points;
use crate::parse::{BoundValues, parse};
use crate::rows::MemoryPool;
use crate::run::Session;
use crate::series::StatementResult;
use crate::syntax::{HEIGHT_MAX, NESTING_MAX};

const NOW: i64 = 1_767_600_600_000_000_000;

fn session(pool: &MemoryPool) -> Session {
    let points = Points::read(include_str!("../../tests/cases/points.lp"));
    let catalog = points.catalog.clone();
    Session::with_source(Box::new(points), catalog, pool.clone(), NOW, "1.8")
}

fn run(session: &Session, text: &str) -> StatementResult {
    let statements = parse(text, &BoundValues::new()).unwrap();
    futures::executor::block_on(session.run(0, &statements[0]))
}

fn error(text: &str) -> String {
    run(&session(&MemoryPool::new(64 << 20)), text).error.unwrap_or_else(|| panic!("{text} is not refused"))
}

#[test]
fn memory_is_shared_and_given_back() {
    let pool = MemoryPool::new(4_000);
    let session = session(&pool);
    let all = run(&session, "SELECT * FROM cpu").error.unwrap();
    assert!(all.starts_with("the rows of the statement need more than"), "{all}");
    let one = run(&session, "SELECT usage FROM cpu LIMIT 20");
    assert_eq!(one.error, None);
    // the rows of a result count as long as it lives
    assert!(run(&session, "SELECT usage FROM cpu LIMIT 20").error.is_some());
    drop(one);
    assert_eq!(run(&session, "SELECT usage FROM cpu LIMIT 20").error, None);
}

#[test]
fn deep_and_long_statements_are_executed() {
    let session = session(&MemoryPool::new(64 << 20));
    let nested = (1..NESTING_MAX)
        .fold("SELECT usage FROM cpu".to_owned(), |inner, _| format!("SELECT usage FROM ({inner})"));
    assert_eq!(run(&session, &nested).series[0].rows.len(), 42);
    let chain = vec!["host = 'a'"; HEIGHT_MAX - 2].join(" OR ");
    assert_eq!(run(&session, &format!("SELECT usage FROM cpu WHERE {chain}")).series[0].rows.len(), 20);
    let sum = vec!["busy"; HEIGHT_MAX - 2].join(" + ");
    assert_eq!(run(&session, &format!("SELECT {sum} FROM cpu")).series[0].rows.len(), 32);
    let wide = vec!["usage"; 2_000].join(", ");
    let wide = run(&session, &format!("SELECT {wide} FROM cpu LIMIT 1"));
    assert_eq!(wide.series[0].columns.last().map(String::as_str), Some("usage_1999"));
}

#[test]
fn too_much_is_refused() {
    let many = error("SELECT count(usage) FROM cpu WHERE time > 0 GROUP BY time(1ms)");
    assert!(many.contains("at most 1000000 are allowed"), "{many}");
    let columns = vec!["usage"; 10_001].join(", ");
    assert!(error(&format!("SELECT {columns} FROM cpu")).contains("more than 10000 columns"));
    let calls: Vec<String> = (1..=1_001).map(|n| format!("percentile(usage, 0.{n:04})")).collect();
    assert!(error(&format!("SELECT {} FROM cpu", calls.join(", "))).contains("more than 1000 functions"));
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for (statement, said) in [
        ("DROP MEASUREMENT cpu", "DROP MEASUREMENT is not supported"),
        ("DELETE FROM cpu WHERE time < now()", "DELETE is not supported"),
        ("SELECT usage INTO x FROM cpu", "SELECT INTO is not supported"),
        ("EXPLAIN SELECT usage FROM cpu", "EXPLAIN is not supported"),
        (
            "SHOW SERIES EXACT CARDINALITY",
            "SHOW SERIES CARDINALITY is not supported: ask in SQL with count(DISTINCT",
        ),
        (
            "SHOW TAG KEY CARDINALITY",
            "SHOW TAG KEY CARDINALITY is not supported: count the rows of SHOW TAG KEYS",
        ),
        (
            "SHOW MEASUREMENT EXACT CARDINALITY ON any",
            "SHOW MEASUREMENT CARDINALITY is not supported: count the rows of SHOW MEASUREMENTS",
        ),
        ("SHOW QUERIES", "SHOW QUERIES is not supported"),
        (
            "SELECT holt_winters(mean(usage), 1, 1) FROM cpu GROUP BY time(1m)",
            "holt_winters() is not supported",
        ),
        ("SELECT max(usage) + top(usage, 1) FROM cpu", "cannot be combined"),
        ("SELECT 1 + top(usage, 1) FROM cpu", "top() inside of an expression is not supported"),
        (
            "SELECT difference(distinct(busy)) FROM cpu GROUP BY time(1m)",
            "distinct() inside of difference() is not supported",
        ),
        ("SELECT difference(round(usage)) FROM cpu", "round() inside of difference() is not supported"),
        ("SELECT mean(usage) FROM cpu GROUP BY time(500ns)", "time(500ns) is not supported"),
        (
            "SELECT usage FROM cpu WHERE time > now() - 1h OR host = 'a'",
            "cannot use OR with conditions of time",
        ),
        ("SELECT usage FROM cpu WHERE time != 1", "invalid time comparison operator: !="),
        ("SELECT usage FROM cpu WHERE time + 1h > now()", "time is compared with a constant only"),
        ("SELECT usage FROM cpu WHERE busy / (busy + 1) > 2", "select it in a subquery"),
        ("SELECT usage FROM cpu WHERE busy ^ 3 = 2", "select it in a subquery"),
        ("SELECT count(busy) FROM cpu GROUP BY usage", "GROUP BY of the float field usage is not supported"),
        ("SELECT mean(note) FROM cpu", "unsupported mean of the string field note"),
    ] {
        let found = error(statement);
        assert!(found.contains(said), "{statement}: {found}");
    }
}

#[test]
fn values_of_other_types_in_a_column_of_a_subquery_are_left_out() {
    let session = session(&MemoryPool::new(64 << 20));
    let both = "(SELECT note AS x FROM cpu WHERE host = 'b'), (SELECT busy AS x FROM cpu WHERE host = 'c')";
    for (function, expected) in [("count", "8"), ("median", "6.5"), ("difference", "21")] {
        let result = run(&session, &format!("SELECT {function}(x) FROM {both}"));
        let value = result.series[0].rows[0].values[0].clone();
        let shown = format!("{value:?}");
        assert!(shown.contains(expected), "{function}: {shown}");
    }
    let texts = run(&session, "SELECT median(x) FROM (SELECT note AS x FROM cpu)").error.unwrap();
    assert!(texts.contains("unsupported median of the string field x"), "{texts}");
}

#[test]
fn samples_are_points_in_order() {
    let session = session(&MemoryPool::new(64 << 20));
    let result = run(&session, "SELECT sample(busy, 5), host FROM cpu");
    let rows = &result.series[0].rows;
    assert_eq!(rows.len(), 5);
    assert!(rows.is_sorted_by_key(|row| row.time));
    assert_eq!(run(&session, "SELECT sample(busy, 500) FROM cpu").series[0].rows.len(), 32);
}
