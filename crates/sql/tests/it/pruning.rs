//! Pruning: tablets, row groups, pages and columns that are not read.

use std::sync::Arc;

use tidemill_sql::output::Format;
use tidemill_sql::{Sql, SqlOptions};
use tidemill_types::FieldType;

use crate::cases::print;
use crate::fixture::{Fixture, flush, options, push, stream};

/// Creates ten tablets of 2,000 rows: tablet `i` has hour `i` of the day and numbers from `2000 * i`; ten
/// rows are in the tail.
async fn ten_hours() -> (Arc<Fixture>, Sql) {
    let fixture = Fixture::empty().await;
    let fields = [
        ("key", FieldType::String),
        ("n", FieldType::Long),
        ("at", FieldType::Time),
        ("x", FieldType::Double),
    ];
    let table = fixture.declare(&stream("Hours", &fields, Some(2))).await;
    let row = |hour: usize, i: usize| {
        let n = hour * 2000 + i;
        let seconds = i * 3600 / 2000;
        format!(
            r#"{{"key":"k{}","n":{n},"at":"2013-01-01T{hour:02}:{:02}:{:02}.123456Z","x":{n}.25}}"#,
            i % 50,
            seconds / 60,
            seconds % 60
        )
    };
    for hour in 0..11 {
        let rows: Vec<String> = (0..if hour < 10 { 2000 } else { 10 }).map(|i| row(hour, i)).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        push(&table, (hour % 2) as u32, hour as u64, &rows);
        if hour < 10 {
            flush(&table).await;
        }
    }
    let fixture = Arc::new(fixture);
    // rows in memory need no pruning
    (fixture.clone(), Sql::new(fixture, SqlOptions { hot_bytes: 0, ..options() }).unwrap())
}

async fn plan(sql: &Sql, query: &str) -> String {
    print(sql, query, Format::Table).await.unwrap()
}

fn files(plan: &str) -> usize {
    plan.matches(".parquet").count()
}

#[tokio::test]
async fn tablets_are_left_out_while_planning() {
    let (_fixture, sql) = ten_hours().await;
    for (filter, expected) in [
        ("true", 10),
        ("at >= '2013-01-01T03:00:00Z' and at < '2013-01-01T05:00:00Z'", 2),
        ("_time < timestamp '2013-01-01 00:30:00'", 1),
        ("at = '2013-01-01T04:00:00.123456Z'", 1),
        ("n between 3999 and 4000", 2),
        ("n = 4000 or n = 19000", 2),
        ("x > 19999", 1),
        ("n in (1, 2, 3)", 1),
        ("n > 100000", 0),
        ("at is null", 0),
        ("key = 'k7'", 10),
        ("abs(n) = 5", 10),
    ] {
        let plan = plan(&sql, &format!("explain select key from events.Hours where {filter}")).await;
        assert_eq!(files(&plan), expected, "{filter}\n{plan}");
    }
}

#[tokio::test]
async fn counts_come_from_the_log() {
    let (_fixture, sql) = ten_hours().await;
    for query in ["select count(*) from events.Hours", "select count(at) from events.Hours"] {
        let explained = plan(&sql, &format!("explain {query}")).await;
        assert!(!explained.contains("DataSourceExec"), "{explained}");
        assert!(plan(&sql, query).await.contains("20010"));
    }
    // bounds in the log are rounded to milliseconds: the exact values must be read
    let edges = plan(&sql, "select min(at), max(at) from events.Hours where n < 20000").await;
    assert!(
        edges.contains("2013-01-01T00:00:00.123456Z") && edges.contains("2013-01-01T09:59:58.123456Z"),
        "{edges}"
    );
    let edges = plan(&sql, "select min(at), max(at) from events.Hours").await;
    assert!(
        edges.contains("2013-01-01T00:00:00.123456Z") && edges.contains("2013-01-01T10:00:16.123456Z"),
        "{edges}"
    );
}

#[tokio::test]
async fn row_groups_and_pages_are_skipped_while_reading() {
    let (_fixture, sql) = ten_hours().await;
    // within the bounds of every tablet, but not in the Bloom filter of the key
    let plan_text = plan(&sql, "explain analyze select n from events.Hours where key = 'k7x'").await;
    assert!(plan_text.contains("row_groups_pruned_bloom_filter=10 total → 0 matched"), "{plan_text}");
    // tablets are sorted by key, so the page index finds the rows
    let plan_text =
        plan(&sql, "explain analyze select x from events.Hours where key = 'k7' and n < 2000").await;
    assert!(plan_text.contains("page_index_rows_pruned="), "{plan_text}");
    assert_eq!(files(&plan_text), 1, "{plan_text}");
}

#[tokio::test]
async fn only_wanted_columns_are_read() {
    let (_fixture, sql) = ten_hours().await;
    let plan_text = plan(&sql, "explain select max(x) from events.Hours where n > 7").await;
    assert!(plan_text.contains("projection=[n, x]"), "{plan_text}");
}
