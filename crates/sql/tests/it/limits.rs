//! Limits, damaged files and cancellation of queries.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use tidemill_sql::{Sql, SqlOptions};
use tidemill_types::{Error, ErrorKind};

use crate::fixture::{self, Fixture, State, options};

/// 400,000 rows to sort, without a table.
const WIDE: &str =
    "select value, md5(cast(value as varchar)) as m from generate_series(1, 400000) order by m";
/// Query that does not finish within any timeout of these tests.
const ENDLESS: &str = "select count(*) from generate_series(1, 2000000) a join generate_series(1, 2000000) b \
                       on a.value % 2 = b.value % 2";

async fn session(options: SqlOptions) -> Sql {
    fixture::sql(State::Both, options).await.1
}

async fn fails(sql: &Sql, query: &str) -> Error {
    match sql.query(query).await {
        Ok(result) => result.collect().await.unwrap_err(),
        Err(error) => error,
    }
}

#[tokio::test]
async fn too_much_memory_is_refused_and_spilled_where_there_is_a_place() {
    let tight = SqlOptions { memory_bytes: 16 << 20, ..options() };
    let error = fails(&session(tight.clone()).await, WIDE).await;
    assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
    assert!(error.to_string().contains("sql.memory_bytes"), "{error}");

    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("spill");
    // one partition: DataFusion's merge of several sorted partitions cannot spill, and may fail to reserve
    // even this little memory
    let tight = SqlOptions { target_partitions: 1, ..tight };
    let sql = session(SqlOptions { spill_dir: Some(place.clone()), ..tight.clone() }).await;
    let rows = sql.query(WIDE).await.unwrap().collect().await.unwrap();
    assert_eq!(rows.num_rows(), 400_000);
    // spilled rows are as confidential as stored ones
    let modes: Vec<u32> = std::fs::read_dir(&place)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().permissions().mode() & 0o777)
        .collect();
    assert_eq!(modes, [0o700]);

    let sql = session(SqlOptions { spill_dir: Some(place), spill_bytes: 1 << 20, ..tight }).await;
    let error = fails(&sql, WIDE).await;
    assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
    assert!(error.to_string().contains("sql.spill_bytes"), "{error}");
}

#[tokio::test]
async fn a_query_ends_at_its_timeout_and_when_nobody_reads_it() {
    let sql =
        session(SqlOptions { query_timeout: Duration::from_millis(300), queries_max: 1, ..options() }).await;
    let error = fails(&sql, ENDLESS).await;
    assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
    assert!(error.to_string().contains("300ms (`sql.query_timeout`)"), "{error}");

    // with one slot, the next query runs only after the dropped one has ended
    let sql = session(SqlOptions { queries_max: 1, ..options() }).await;
    for _ in 0..3 {
        drop(sql.query(ENDLESS).await.unwrap());
    }
    assert_eq!(sql.query("select 1").await.unwrap().collect().await.unwrap().num_rows(), 1);
}

#[tokio::test]
async fn results_and_texts_have_a_size() {
    let sql = session(SqlOptions { rows_max: Some(100), ..options() }).await;
    let error = fails(&sql, "select * from generate_series(1, 101)").await;
    assert!(error.to_string().contains("more than 100 rows (`sql.rows_max`)"), "{error}");
    assert_eq!(
        sql.query("select * from generate_series(1, 100)").await.unwrap().collect().await.unwrap().num_rows(),
        100
    );

    let sql = session(SqlOptions { collect_bytes_max: 10_000, ..options() }).await;
    let error = fails(&sql, "select * from generate_series(1, 100000)").await;
    assert!(error.to_string().contains("sql.collect_bytes_max"), "{error}");

    let sql = session(SqlOptions { text_bytes_max: 20, ..options() }).await;
    let error = fails(&sql, "select 1, 2, 3, 4, 5, 6, 7").await;
    assert!(error.to_string().contains("26 bytes long, the limit is 20"), "{error}");

    let deep = format!("select {}1{}", "(".repeat(2_000), ")".repeat(2_000));
    let error = fails(&session(options()).await, &deep).await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[tokio::test]
async fn filled_gaps_have_a_number() {
    let filled = |groups: usize| {
        format!(
            "select count(*) from (select value % {groups} as k, time_bucket_gapfill('1 minute', to_timestamp(value), \
             '1970-01-01', '1970-01-01T01:40:00Z') as b, count(*) from generate_series(0, 100) group by k, b)"
        )
    };
    let sql = session(SqlOptions { gap_rows_max: 1_000, ..options() }).await;
    let rows = sql.query(&filled(10)).await.unwrap().collect().await.unwrap();
    assert_eq!(rows.num_rows(), 1);
    // 1,100 buckets, of which 22 have rows
    let error = fails(&sql, &filled(11)).await;
    assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
    assert!(error.to_string().contains("1000 rows (`sql.gap_rows_max`)"), "{error}");

    // a group is in memory while it is filled
    let wide = "select time_bucket_gapfill('1 second', to_timestamp(value), '1970-01-01', '1970-01-02') as b, \
                locf(max(repeat('x', 100))) from generate_series(0, 80000) group by b";
    let sql = session(SqlOptions { memory_bytes: 16 << 20, ..options() }).await;
    let error = fails(&sql, wide).await;
    assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
    assert!(error.to_string().contains("sql.memory_bytes"), "{error}");
}

#[tokio::test]
async fn many_collections_are_listed_once() {
    let fixture = Fixture::empty().await;
    *fixture.collections.write() = (0..2_500).map(|n| (format!("c{n}"), vec![])).collect();
    let fixture = Arc::new(fixture);
    let sql = Sql::new(fixture.clone(), options()).unwrap();
    let counted = "select * from information_schema.tables where table_schema = 'docs'";
    let rows = sql.query(counted).await.unwrap().collect().await.unwrap();
    assert_eq!(rows.num_rows(), 2_500);
    let listings = fixture.listings.load(Ordering::Relaxed);
    assert_eq!(listings, 1, "each listing copies and sorts all names");
}

#[tokio::test]
async fn text_and_patterns_that_cannot_be_used_are_the_callers_to_change() {
    let sql = session(options()).await;
    let deep = format!("select {}1{}", "abs(".repeat(60), ")".repeat(60));
    for query in [
        &deep,
        "select regexp_like(carrier, '((x{100}){100}){100}') from events.TakeOffEvent",
        "select carrier ~ '((x{100}){100}){100}' from events.TakeOffEvent",
        "select regexp_replace('abc', '((x{100}){100}){100}', 'y')",
        "select regexp_count(carrier, '((x{100}){100}){100}') from events.TakeOffEvent",
    ] {
        let error = fails(&sql, query).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{query}: {error}");
        assert!(!error.kind().is_retryable(), "{query}: {error}");
    }
}

#[test]
fn callers_without_a_runtime_block() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (_fixture, sql) = runtime.block_on(fixture::sql(State::Both, options()));
    assert_eq!(sql.query_blocking("select * from events.TakeOffEvent").unwrap().num_rows(), 12);
    assert_eq!(sql.query_blocking("select nonsense").unwrap_err().kind(), ErrorKind::Invalid);
    let mut result =
        futures::executor::block_on(sql.query("select * from generate_series(1, 20000)")).unwrap();
    let mut rows = 0;
    while let Some(batch) = result.next_blocking() {
        rows += batch.unwrap().num_rows();
    }
    assert_eq!(rows, 20_000);
}

#[tokio::test]
async fn closing_the_session_ends_running_results_with_an_error() {
    let sql = session(options()).await;
    let mut result = sql
        .query("select a.value from generate_series(1, 1000000) a, generate_series(1, 1000) b")
        .await
        .unwrap();
    assert!(result.next().await.unwrap().is_ok());
    drop(sql);
    let last = result.collect().await.unwrap_err();
    assert_eq!(last.kind(), ErrorKind::Unavailable, "{last}");
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_is_not_a_damaged_file() {
    let (fixture, sql) = fixture::sql(State::Tablets, options()).await;
    let query = "select max(gate), max(distance) from events.TakeOffEvent";
    fixture.store.down.store(true, Ordering::Relaxed);
    let error = fails(&sql, query).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    fixture.store.down.store(false, Ordering::Relaxed);
    assert_eq!(sql.query(query).await.unwrap().collect().await.unwrap().num_rows(), 1);
}

#[tokio::test]
async fn damaged_and_missing_files_are_named() {
    let fixture = Arc::new(Fixture::open(State::Tablets).await);
    let sql = Sql::new(fixture.clone(), options()).unwrap();
    let snapshot = fixture.streams.read()["TakeOffEvent"].snapshot();
    let victim = snapshot.tablets.iter().max_by_key(|t| t.rows).unwrap();
    let path = std::path::Path::new("/").join(victim.path.as_ref());
    let whole = std::fs::read(&path).unwrap();
    let query =
        "select max(gate), max(distance), max(carrier), max(meta), max(actual) from events.TakeOffEvent";

    let mut torn = whole.clone();
    for byte in torn.iter_mut().take(whole.len() / 2).skip(4) {
        *byte ^= 0x5a;
    }
    std::fs::write(&path, &torn).unwrap();
    let error = fails(&sql, query).await;
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(victim.path.filename().unwrap()), "{error}");

    std::fs::remove_file(&path).unwrap();
    let error = fails(&sql, query).await;
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(victim.path.filename().unwrap()), "{error}");

    // tablets that the filter prunes are not opened
    let other =
        "select count(*) from events.TakeOffEvent where gate is null and _time < '2013-01-01T08:30:00Z'";
    assert_eq!(sql.query(other).await.unwrap().collect().await.unwrap().num_rows(), 1);
    std::fs::write(&path, whole).unwrap();
    assert_eq!(sql.query(query).await.unwrap().collect().await.unwrap().num_rows(), 1);
}
