//! Plans that are executed again see the rows of their moment, and the limits of their session.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tidemill_access::Principal;
use tidemill_database::QueryRequest;
use tidemill_sql::{MissingFields, QueryRows, Sql, SqlOptions};
use tidemill_types::{ErrorKind, Field, FieldType, StreamSchema};

use super::tables::{Sessions, Shape, answer, points, sorted};
use crate::fixture::{self, Fixture, State};

const SHAPE: Shape = Shape { seed: 7, keys: 5, span: 3_600_000_000, lacks_times: false, not_finite: false };

const COUNTS: &str = "select k, count(*) as n, max(_time) from Points group by k";
const LATEST: &str = "select k, v, _time from latest('Points')";
/// The range is wider than that of the rows.
const FILLED: &str = "select k, time_bucket_gapfill('7 minutes', _time, '2023-12-31T23:00:00Z', '2024-01-01T03:00:00Z') as b, \
                      count(*), locf(min(n)) from Points group by k, b";
const JOINED: &str =
    "select p.area, count(*) from docs.places p join Points r on r.k = p._id group by p.area";

#[tokio::test(flavor = "multi_thread")]
async fn new_rows_and_tablets_are_seen() {
    let mut rng = StdRng::seed_from_u64(11);
    let mut sessions = Sessions::open(SHAPE, fixture::options()).await;
    let mut prepared = Vec::new();
    for query in [COUNTS, LATEST, FILLED, JOINED] {
        prepared.push((query, sessions.hot.prepare(query).await.unwrap()));
    }
    for step in 0..8 {
        sessions.push(SHAPE, &mut rng, 100);
        if step % 3 == 2 {
            fixture::flush(&sessions.table).await;
        }
        for (query, prepared) in &prepared {
            let expected = sorted(&answer(&sessions.cold, query).await);
            for _ in 0..2 {
                assert_eq!(sorted(&answer(&sessions.hot, query).await), expected, "step {step}: {query}");
                let rows = prepared.query().await.unwrap();
                assert_eq!(sorted(&rows), expected, "step {step}, prepared: {query}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_columns_are_seen() {
    let mut sessions = Sessions::open(SHAPE, fixture::options()).await;
    sessions.push(SHAPE, &mut StdRng::seed_from_u64(1), 100);
    fixture::flush(&sessions.table).await;
    let all = "select * from latest('Points')";
    let prepared = sessions.hot.prepare(all).await.unwrap();
    let columns = |rows: &QueryRows| rows.schema.fields().len();
    let before = columns(&prepared.query().await.unwrap());
    assert_eq!(columns(&prepared.query().await.unwrap()), before);
    let mut wider = points(Some(0)).as_ref().clone();
    wider.fields.push(Field::new("added", FieldType::Double));
    sessions.declare(&Arc::new(wider)).await;
    assert_eq!(columns(&prepared.query().await.unwrap()), before + 1);
    assert_eq!(columns(&answer(&sessions.hot, all).await), before + 1);
    // another key makes other rows the latest
    let mut by_text = points(Some(5)).as_ref().clone();
    by_text.fields.push(Field::new("added", FieldType::Double));
    sessions.declare(&Arc::new(by_text)).await;
    sessions.compare("select s, _time from latest('Points')", "another key").await;
    sessions.compare("select s, count(*) from Points group by s", "another key").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_documents_and_names_are_seen() {
    let mut sessions = Sessions::open(SHAPE, fixture::options()).await;
    sessions.push(SHAPE, &mut StdRng::seed_from_u64(1), 100);
    let unqualified = "select count(*) from places where area = 'south'";
    let count = |rows: QueryRows| sorted(&rows).concat();
    assert_eq!(count(answer(&sessions.hot, unqualified).await), "2");
    assert_eq!(count(answer(&sessions.hot, unqualified).await), "2");
    let one = fixture::bytes(&bson::doc! { "_id": 1, "area": "south" });
    sessions.collections(|all| _ = all.insert("places".into(), vec![one]));
    assert_eq!(count(answer(&sessions.hot, unqualified).await), "1");
    assert_eq!(count(answer(&sessions.hot, "select count(*) from docs.places").await), "1");
    // a name in another case means the table of that case, once there is one
    assert_eq!(count(answer(&sessions.hot, "select count(*) from docs.PLACES").await), "1");
    sessions.collections(|all| _ = all.insert("PLACES".into(), vec![]));
    assert_eq!(count(answer(&sessions.hot, "select count(*) from docs.PLACES").await), "0");
    sessions.collections(|all| _ = all.remove("places"));
    let error = sessions.hot.query("select count(*) from docs.Places2").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let request = QueryRequest::new("select count(*) from docs.gone", "test", Principal::system())
        .with_missing(MissingFields::Null);
    let absent = sessions.hot.run(request).await.unwrap();
    assert_eq!(count(absent.collect().await.unwrap()), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_served_is_shown() {
    let mut sessions = Sessions::open(SHAPE, fixture::options()).await;
    sessions.push(SHAPE, &mut StdRng::seed_from_u64(1), 500);
    let shown = format!("{:?}", answer(&sessions.hot, &format!("explain analyze {COUNTS}")).await.batches);
    assert!(shown.contains("HotScanExec: aggregates, by=[key], table=Points"), "{shown}");
    assert!(shown.contains("output_rows=6"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn latest_says_what_it_expects() {
    let (_fixture, sql) = fixture::sql(State::Both, fixture::options()).await;
    for (query, message) in [
        ("select * from latest(1)", "latest takes one text"),
        ("select * from latest('TakeOff')", "there is no table `TakeOff`"),
        ("select * from latest('docs.flights')", "docs.flights is not the table of a stream"),
    ] {
        let error = sql.query(query).await.unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_a_query_is_not_kept() {
    let (_fixture, sql) = fixture::sql(State::Both, fixture::options()).await;
    let query = "select max(now()) from TakeOffEvent where distance > 0";
    let first = sorted(&answer(&sql, query).await);
    let second = sorted(&answer(&sql, query).await);
    assert!(first < second, "{first:?} {second:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_for_plans_that_are_kept() {
    let shape = Shape { keys: 300, ..SHAPE };
    let few = SqlOptions { rows_max: Some(10), ..fixture::options() };
    let small = SqlOptions { collect_bytes_max: 1_000, ..fixture::options() };
    let tight = SqlOptions { memory_bytes: 20_000, ..fixture::options() };
    let slow = SqlOptions { query_timeout: Duration::ZERO, ..fixture::options() };
    let grouped = "select k, time_bucket('1 second', _time) as b, avg(v) from Points group by k, b";
    for (options, message) in [
        (few, "sql.rows_max"),
        (small, "sql.collect_bytes_max"),
        (tight, "sql.memory_bytes"),
        (slow, "sql.query_timeout"),
    ] {
        let mut sessions = Sessions::open(shape, fixture::options()).await;
        sessions.push(shape, &mut StdRng::seed_from_u64(1), 5_000);
        let limited = Sql::new(sessions.fixture.clone(), options).unwrap();
        for _ in 0..3 {
            let rows = async { limited.query(grouped).await?.collect().await };
            let error = rows.await.unwrap_err();
            assert!(error.to_string().contains(message), "{message}: {error}");
        }
        let Ok(prepared) = limited.prepare(grouped).await else { continue };
        for _ in 0..3 {
            let error = prepared.query().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
            assert!(error.to_string().contains(message), "{message}: {error}");
        }
    }
}

#[test]
fn prepared_queries_run_on_any_thread_until_the_session_ends() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (fixture, sql) = runtime.block_on(fixture::sql(State::Both, fixture::options()));
    let prepared =
        sql.prepare_blocking("select count(*), sum(flight) from TakeOffEvent where flight > 0").unwrap();
    let expected = sorted(
        &sql.query_blocking("select count(*), sum(flight) from TakeOffEvent where flight > 0").unwrap(),
    );
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(sorted(&prepared.query_blocking().unwrap()), expected);
                }
            });
        }
    });
    drop(sql);
    let error = prepared.query_blocking().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    drop(fixture);
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_see_each_row_once_while_rows_move() {
    let fixture = Fixture::empty().await;
    let fields = vec![Field::new("k", FieldType::String), Field::new("n", FieldType::Long)];
    let stream = StreamSchema { name: "Moving".into(), fields, key: Some(0), id: vec![], time: None };
    let table = fixture.declare(&Arc::new(stream)).await;
    let sql = Arc::new(Sql::new(Arc::new(fixture), fixture::options()).unwrap());
    let prepared = sql
        .prepare("select sum(c), max(m) from (select k, count(*) as c, max(n) as m from Moving group by k)");
    let prepared = Arc::new(prepared.await.unwrap());
    let reader = tokio::spawn({
        let prepared = prepared.clone();
        async move {
            let mut last = 0;
            while last < 200 {
                let text = sorted(&prepared.query().await.unwrap()).concat();
                let (count, largest) = text.split_once('|').unwrap();
                let Ok(count) = count.parse::<u64>() else { continue };
                // every record has two rows, and the records come in order
                assert_eq!(count, 2 * (largest.parse::<u64>().unwrap() + 1));
                assert!(count >= last);
                last = count;
            }
        }
    });
    for offset in 0..100 {
        let rows = [format!(r#"{{"k":"a","n":{offset}}}"#), format!(r#"{{"k":"b","n":{offset}}}"#)];
        fixture::push(&table, 0, offset, &[&rows[0], &rows[1]]);
        if offset % 10 == 9 {
            fixture::flush(&table).await;
        }
    }
    reader.await.unwrap();
}
