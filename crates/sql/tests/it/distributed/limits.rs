//! Limits of statements hold for their parts at other nodes, which end with them.

use std::time::{Duration, Instant};

use tidemill_access::Principal;
use tidemill_sql::{SqlOptions, StatementPhase};
use tidemill_types::ErrorKind;

use super::cluster::{TestCluster, options, rows};

/// A statement that keeps more rows than memory has room for.
const FIRST_ROWS: &str = "SELECT at, device, n, v, label FROM readings ORDER BY at, n LIMIT 500";

#[tokio::test(flavor = "multi_thread")]
async fn parts_are_listed_and_end_with_their_statement() {
    let cluster = TestCluster::with_readings(&options()).await;
    let mut result = cluster.sql.query("SELECT * FROM readings WHERE n > -9").await.unwrap();
    futures::StreamExt::next(&mut result).await.unwrap().unwrap();
    let of = |node: &str| cluster.nodes.other(node).statements(&Principal::system());
    let start = Instant::now();
    // rows of another node may come before this one has begun
    let listed = loop {
        if let Some(listed) = of("n2").pop() {
            break listed;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no part is listed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(listed.text.starts_with("part of a statement of node n1: SELECT * FROM readings"), "{listed:?}");
    assert_eq!(listed.origin, "node");
    drop(result);
    let start = Instant::now();
    let runs = |node: &str| of(node).iter().any(|s| StatementPhase::BEFORE_END.contains(&s.phase));
    while runs("n2") || runs("n3") {
        assert!(start.elapsed() < Duration::from_secs(60), "parts run after their statement has ended");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_of_other_nodes_is_limited() {
    let small = SqlOptions { memory_bytes: 1 << 10, ..options() };
    let cluster = TestCluster::with_readings(&small).await;
    let error = rows(&cluster.sql, FIRST_ROWS).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
    assert!(error.message().contains("node n") && error.message().contains("sql.memory_bytes"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_and_pages_of_the_whole_statement_are_limited() {
    let cluster = TestCluster::with_readings(&options()).await;
    let pages = cluster
        .sql
        .run_paged(
            tidemill_database::QueryRequest::new("SELECT sum(v) FROM readings", "test", Principal::system()),
            tidemill_sql::output::Format::Ndjson,
            std::num::NonZeroUsize::MIN,
        )
        .await
        .unwrap();
    drop(pages);
    assert!(cluster.nodes.called.lock().is_empty(), "a statement that waits for its reader stays here");
    let limited = SqlOptions { rows_max: Some(10), ..options() };
    let sql = tidemill_sql::Sql::new(std::sync::Arc::new(cluster.tables(None)), limited).unwrap();
    let error = rows(&sql, "SELECT n FROM readings WHERE n > -9").await.unwrap_err();
    assert!(error.message().contains("sql.rows_max"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_tables_stay_at_the_node() {
    let cluster = TestCluster::with_readings(&options()).await;
    let keys = tidemill_zones::TabletKeys::new(tidemill_encryption::DataKeys::random().unwrap());
    let sql = tidemill_sql::Sql::new(std::sync::Arc::new(cluster.tables(Some(keys))), options()).unwrap();
    let plan = rows(&sql, "EXPLAIN SELECT sum(v) FROM readings").await.unwrap().join("\n");
    assert!(plan.contains("at this node, because tables are encrypted"), "{plan}");
}
