//! Statements that run: `system.statements`, and how one is cancelled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use tidemill_access::Principal;
use tidemill_database::QueryRequest;
use tidemill_sql::{QueryResult, Sql, SqlOptions, StatementInfo, StatementLimits, StatementPhase};
use tidemill_types::{Error, ErrorKind, Result};

use crate::fixture::{self, Fixture, State, options};

/// Statements that take hours, each in loops of another operator, and what of them never yields a row.
const STUCK: &[&str] = &[
    // a nested loop join whose filter lets nothing through
    "select count(*) from generate_series(1, 1000000) a, generate_series(1, 1000000) b where a.value * b.value % 7 = 9",
    "select count(*) from generate_series(1, 3000) a, generate_series(1, 3000) b, generate_series(1, 3000) c
       where a.value || '-' || b.value || c.value like '%zz%'",
    // a cross join
    "select count(*) from generate_series(1, 1000000) a, generate_series(1, 1000000) b",
    "select sum(a.value) from generate_series(1, 3000) a, generate_series(1, 3000) b, generate_series(1, 30000) c",
    // a hash join with few keys, with and without a filter
    "select count(*) from generate_series(1, 1000000) a join generate_series(1, 1000000) b
       on a.value % 2 = b.value % 2 and a.value + b.value < 0",
    "select count(*) from generate_series(1, 1000000) a where exists
       (select 1 from generate_series(1, 1000000) b where b.value % 2 = a.value % 2)",
    "select count(*) from generate_series(1, 1000000) a where not exists
       (select 1 from generate_series(1, 1000000) b where b.value % 2 = a.value % 2 and a.value + b.value < 0)",
    "select count(*) from generate_series(1, 300000) a full join generate_series(1, 300000) b on a.value + b.value < 0",
    // recursion, windows, aggregates, sorts
    "with recursive r as (select 1 as n union all select n + 1 from r where n < 2000000000) select max(n) from r",
    "select max(s) from (select sum(value) over (order by value rows between 100000 preceding and current row) as s
       from generate_series(1, 100000000))",
    "select count(distinct md5(cast(value % 1000 as varchar))) from generate_series(1, 2000000000)",
    "select max(m) from (select md5(cast(value as varchar)) as m from generate_series(1, 2000000000) order by m limit 5)",
    "select count(*) from generate_series(1, 2000000000) where cast(value as varchar) ~ '(a|b|ab)*c[0-9]+$'",
];

/// Options with which no statement of these tests takes all of its time, however busy the machine is.
fn patient() -> SqlOptions {
    SqlOptions { queries_max: 2, query_timeout: Duration::from_secs(3_600), ..options() }
}

/// Query that does not finish within these tests.
const ENDLESS: &str = "select count(*) from generate_series(1, 2000000) a join generate_series(1, 2000000) b \
                       on a.value % 2 = b.value % 2";
/// How long anything here may take at most.
const LIMIT: Duration = Duration::from_secs(30);

/// Returns the statement once it is as wanted.
async fn when(sql: &Sql, text: &str, is_wanted: impl Fn(&StatementInfo) -> bool) -> StatementInfo {
    let begun = Instant::now();
    loop {
        let found = sql.statements(&Principal::system()).into_iter().find(|s| s.text == text && is_wanted(s));
        if let Some(found) = found {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "{text}: {:?}", sql.statements(&Principal::system()));
        tokio::task::yield_now().await;
    }
}

async fn outcome(started: Result<QueryResult>) -> Result<usize> {
    Ok(started?.collect().await?.num_rows())
}

async fn text(sql: &Sql, query: &str) -> String {
    let rows = sql.query(query).await.unwrap().collect().await.unwrap();
    arrow::util::pretty::pretty_format_batches(&rows.batches).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_listed_and_cancelled_by_another() {
    let (_fixture, sql) = fixture::sql(State::Both, options()).await;
    let cancel = async {
        let running = when(&sql, ENDLESS, |s| s.phase == StatementPhase::Running).await;
        let listed =
            text(&sql, "select statement, origin, phase, ended from system.statements where ended is null")
                .await;
        assert!(listed.contains("generate_series(1, 2000000)"), "{listed}");
        assert!(listed.contains("| http "), "{listed}");
        assert!(listed.contains("| running "), "{listed}");
        assert!(listed.contains("| program "), "the query itself: {listed}");
        let killed = text(&sql, &format!("kill query {};", running.id)).await;
        assert!(killed.contains("cancelled") && killed.contains(&running.id.to_string()), "{killed}");
        (running.id, Instant::now())
    };
    let started = async {
        let result = outcome(sql.run(QueryRequest::new(ENDLESS, "http", Principal::system())).await).await;
        (result, Instant::now())
    };
    let ((result, ended), (id, cancelled)) = tokio::join!(started, cancel);
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(error.message(), format!("statement {id} was cancelled by KILL QUERY {id} (program)"));
    assert!(ended.saturating_duration_since(cancelled) < Duration::from_secs(1));
    let ended = when(&sql, ENDLESS, |s| s.ended.is_some()).await;
    assert_eq!((ended.id, ended.phase), (id, StatementPhase::Cancelled));
    assert_eq!(ended.error.as_deref(), Some(error.message()));

    let twice = sql.cancel(id, &Principal::system(), "me").unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::NotFound, "{twice}");
    assert!(twice.message().contains("system.statements"), "{twice}");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_wait_are_cancelled_although_no_place_is_free() {
    let (_fixture, sql) = fixture::sql(State::Both, SqlOptions { queries_max: 1, ..options() }).await;
    let waiting = &format!("{ENDLESS} and a.value > 0");
    let first = async { outcome(sql.query(ENDLESS).await).await };
    let second = async {
        when(&sql, ENDLESS, |s| s.phase == StatementPhase::Running).await;
        outcome(sql.query(waiting).await).await
    };
    let cancel = async {
        let waits = when(&sql, waiting, |s| s.phase == StatementPhase::Waiting).await;
        assert_eq!(outcome(sql.query("select 1").await).await.unwrap(), 1, "short statements need no place");
        assert_eq!(outcome(sql.query(&format!("KILL QUERY {}", waits.id)).await).await.unwrap(), 1);
        let runs = when(&sql, ENDLESS, |s| s.phase == StatementPhase::Running).await;
        sql.cancel(runs.id, &Principal::system(), "an administrator").unwrap();
    };
    let (first, second, ()) = tokio::join!(first, second, cancel);
    let says = |result: Result<usize>, by: &str| {
        let error: Error = result.unwrap_err();
        assert!(error.message().contains(&format!("was cancelled by {by}")), "{error}");
    };
    says(first, "an administrator");
    says(second, "KILL QUERY");
    assert_eq!(outcome(sql.query("select 1").await).await.unwrap(), 1, "the place is free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_with_common_limits_wait_for_each_other() {
    let limits = StatementLimits::new(64 << 20, 1);
    let mut sessions = vec![];
    for _ in 0..2 {
        let fixture = Arc::new(Fixture::open(State::Both).await);
        sessions.push(Sql::with_limits(fixture, patient(), &limits).unwrap());
    }
    let [mut one, mut other] = sessions.try_into().ok().unwrap();
    for round in 0..2 {
        let first = async { outcome(one.query(ENDLESS).await).await };
        let second = async {
            when(&one, ENDLESS, |s| s.phase == StatementPhase::Running).await;
            outcome(other.query(ENDLESS).await).await
        };
        let cancel = async {
            let waits = when(&other, ENDLESS, |s| s.phase == StatementPhase::Waiting).await;
            assert_eq!(outcome(other.query("select 1").await).await.unwrap(), 1, "short ones need no place");
            let runs = when(&one, ENDLESS, |s| s.phase == StatementPhase::Running).await;
            one.cancel(runs.id, &Principal::system(), "a test").unwrap();
            // the place of one session is then that of the other
            let id = when(&other, ENDLESS, |s| s.phase == StatementPhase::Running).await.id;
            assert_eq!(id, waits.id);
            other.cancel(id, &Principal::system(), "a test").unwrap();
        };
        let (first, second, ()) = tokio::join!(first, second, cancel);
        assert!(first.is_err() && second.is_err(), "{round}");
        std::mem::swap(&mut one, &mut other);
    }
    // a session that ends gives back its places, and takes none of the other one
    drop(one.query(ENDLESS).await.unwrap());
    drop(one);
    assert_eq!(
        outcome(other.query("select count(*) from TakeOffEvent a, TakeOffEvent b").await).await.unwrap(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operator_ends_with_its_statement() {
    let (_fixture, sql) = fixture::sql(State::Both, patient()).await;
    for (number, query) in STUCK.iter().enumerate() {
        let running = async {
            let id = when(&sql, query, |s| s.phase == StatementPhase::Running).await.id;
            // long enough that it is in its loop; a shorter time would only test less
            tokio::time::sleep(Duration::from_millis(300)).await;
            match number % 2 {
                0 => sql.cancel(id, &Principal::system(), "a test").unwrap(),
                _ => assert_eq!(outcome(sql.query(&format!("kill query {id}")).await).await.unwrap(), 1),
            }
        };
        let (result, ()) = tokio::join!(async { outcome(sql.query(query).await).await }, running);
        let error = result.unwrap_err();
        assert!(error.message().contains("was cancelled by"), "{query}: {error}");
        // listed as ended only when no thread works for it any more
        let ended = when(&sql, query, |s| s.ended.is_some()).await;
        assert_eq!(ended.phase, StatementPhase::Cancelled, "{query}");
    }
    assert_eq!(outcome(sql.query("select 1").await).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn short_statements_are_answered_beside_long_ones_that_have_all_places() {
    let (_fixture, sql) = fixture::sql(State::Both, patient()).await;
    let hostile =
        futures::future::join_all(STUCK.iter().map(|query| async { outcome(sql.query(query).await).await }));
    let others = async {
        let long = |s: &StatementInfo| STUCK.contains(&s.text.as_str());
        while sql.statements(&Principal::system()).iter().filter(|s| long(s)).count() < STUCK.len() {
            tokio::task::yield_now().await;
        }
        for _ in 0..20 {
            assert_eq!(outcome(sql.query("select 1").await).await.unwrap(), 1);
            let listed =
                text(&sql, "select count(*) > 3 as many from system.statements where ended is null").await;
            assert!(listed.contains("| true"), "{listed}");
        }
        for statement in sql.statements(&Principal::system()).iter().filter(|s| long(s)) {
            assert_eq!(outcome(sql.query(&format!("kill query {}", statement.id)).await).await.unwrap(), 1);
        }
        for query in STUCK {
            when(&sql, query, |s| s.phase == StatementPhase::Cancelled && s.ended.is_some()).await;
        }
    };
    let (results, ()) = tokio::join!(hostile, others);
    assert!(results.iter().all(Result::is_err));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_counted_and_a_stream_ends_with_the_error() {
    let (_fixture, sql) = fixture::sql(State::Both, options()).await;
    let query = "select value from generate_series(1, 1000000000)";
    let mut result = sql.query(query).await.unwrap();
    let first = result.next().await.unwrap().unwrap().num_rows() as u64;
    let running = when(&sql, query, |s| s.rows >= first).await;
    sql.cancel(running.id, &Principal::system(), "DELETE /api/v1/statements/1").unwrap();
    let mut batches = 0;
    let error = loop {
        match result.next().await.expect("an error comes before the end") {
            Ok(_) => batches += 1,
            Err(error) => break error,
        }
    };
    assert!(batches < 10, "{batches} batches were still sent");
    assert!(error.message().ends_with("was cancelled by DELETE /api/v1/statements/1"), "{error}");
    assert!(result.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_says_how_statements_ended() {
    let (_fixture, sql) = fixture::sql(State::Both, options()).await;
    outcome(sql.query("select value from generate_series(1, 3)").await).await.unwrap();
    let done = when(&sql, "select value from generate_series(1, 3)", |s| s.ended.is_some()).await;
    assert_eq!((done.phase, done.rows, done.error), (StatementPhase::Done, 3, None));

    outcome(sql.query("select nothing").await).await.unwrap_err();
    let failed = when(&sql, "select nothing", |s| s.ended.is_some()).await;
    assert_eq!(failed.phase, StatementPhase::Failed);
    assert!(failed.error.unwrap().contains("nothing"));

    let left = "select value from generate_series(1, 1000000001)";
    let mut result = sql.query(left).await.unwrap();
    result.next().await.unwrap().unwrap();
    drop(result);
    let left = when(&sql, left, |s| s.ended.is_some()).await;
    assert_eq!(
        (left.phase, left.error.as_deref()),
        (StatementPhase::Failed, Some("its reader took no more rows"))
    );

    let long = format!("select '{}'", "ä".repeat(2_000));
    outcome(sql.query(&long).await).await.unwrap();
    assert_eq!(sql.statements(&Principal::system()).last().unwrap().text.chars().count(), 1_001);
    for _ in 0..100 {
        outcome(sql.query("select 1").await).await.unwrap();
    }
    assert_eq!(sql.statements(&Principal::system()).iter().filter(|s| s.ended.is_some()).count(), 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_queries_are_listed_once() {
    let (_fixture, sql) = fixture::sql(State::Both, options()).await;
    let query = "select count(carrier) as prepared from events.TakeOffEvent";
    let prepared = sql.prepare(query).await.unwrap();
    for times in 1..5 {
        prepared.query().await.unwrap();
        let listed = sql
            .statements(&Principal::system())
            .into_iter()
            .filter(|s| s.text == query && s.phase == StatementPhase::Done);
        assert_eq!(listed.count(), times);
    }
}
