//! Statements that read rows: columns that are asked for repeatedly are kept decoded.

use rand::SeedableRng;
use rand::rngs::StdRng;
use tidemill_sql::SqlOptions;

use super::plans::plan;
use super::tables::{Sessions, Shape};
use crate::fixture;

const SHAPE: Shape = Shape { seed: 5, keys: 40, span: 86_400_000_000, lacks_times: false, not_finite: true };

/// Statements that no synopsis answers.
const STATEMENTS: [&str; 6] = [
    "select s, sum(m) from Points where at between '2020-01-01T06:00:00' and '2020-01-01T18:00:00' group by s",
    "select n, s, count(*), sum(m) from Points group by n, s",
    "select k, m from Points order by m desc, k limit 20",
    "select a.k, count(*) from Points a join Points b on a.m = b.m group by a.k",
    "select m from (select m, row_number() over (order by m) as number from Points) where number % 1000 = 0",
    "select count(distinct m), min(s), max(k) from Points where _time > '2020-01-01T23:00:00'",
];

/// A table of 70,000 rows in three files and a tail: too large to be kept as a whole.
async fn large(options: SqlOptions) -> Sessions {
    let mut sessions = Sessions::open(SHAPE, options).await;
    let mut rng = StdRng::seed_from_u64(5);
    for rows in [30_000, 39_000, 700] {
        sessions.push(SHAPE, &mut rng, rows);
        fixture::flush(&sessions.table).await;
    }
    sessions.push(SHAPE, &mut rng, 300);
    sessions
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_a_repeated_scan_are_kept() {
    for statement in STATEMENTS {
        let sessions = large(fixture::options()).await;
        let first = plan(&sessions.hot, statement).await;
        assert!(first.contains("DataSourceExec"), "{first}");
        let second = plan(&sessions.hot, statement).await;
        assert!(second.contains("HotRowsExec: table=Points"), "{statement}\n{second}");
        for context in ["decodes", "has decoded"] {
            sessions.compare(statement, context).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_in_memory_follow_the_table() {
    let mut sessions = large(fixture::options()).await;
    let mut rng = StdRng::seed_from_u64(6);
    for step in 0..4 {
        for statement in STATEMENTS {
            sessions.compare(statement, &format!("step {step}")).await;
        }
        // cells and rows share the columns
        sessions.compare("select k, sum(m), count(s) from Points group by k", &format!("step {step}")).await;
        sessions.push(SHAPE, &mut rng, 2_000);
        if step % 2 == 0 {
            fixture::flush(&sessions.table).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_read_for_few_rows_and_for_columns_that_do_not_fit() {
    let sessions = large(fixture::options()).await;
    for statement in [
        "select v from Points where k = 3 and s like '%1'",
        "select v from Points where k in (3, 4) and n > 1",
        "select v from Points limit 5",
        "select count(*) from Points",
    ] {
        for _ in 0..3 {
            let plan = plan(&sessions.hot, statement).await;
            assert!(!plan.contains("HotRowsExec"), "{statement}\n{plan}");
        }
    }
    let little = large(SqlOptions { hot_bytes: 1_000_000, ..fixture::options() }).await;
    for _ in 0..3 {
        let plan = plan(&little.hot, STATEMENTS[0]).await;
        assert!(!plan.contains("HotRowsExec"), "{plan}");
        little.compare(STATEMENTS[0], "files").await;
    }
}

/// A minimum over numbers that are not finite is computed from rows, which is known only when they are decoded.
#[tokio::test(flavor = "multi_thread")]
async fn what_synopses_cannot_answer_is_read_from_decoded_columns() {
    let sessions = large(fixture::options()).await;
    let statement = "select min(v), max(v) from Points";
    assert!(plan(&sessions.hot, statement).await.contains("HotScanExec"));
    sessions.compare(statement, "columns that no scan of rows has asked for").await;
    let ran = plan(&sessions.hot, &format!("analyze {statement}")).await;
    assert!(ran.contains("HotRowsExec: table=Points"), "{ran}");
    sessions.compare(statement, "decoded columns").await;
}

/// An operator that keeps batches counts their memory, which must be that of their rows.
#[tokio::test(flavor = "multi_thread")]
async fn rows_in_memory_are_not_counted_as_whole_columns() {
    let sessions = large(SqlOptions { memory_bytes: 16 << 20, ..fixture::options() }).await;
    for _ in 0..3 {
        sessions.compare("select m, v from Points order by v, m", "sort").await;
    }
}
