//! Results page by page: the same rows as the whole, and what a statement keeps while it waits.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use arrow::compute::concat_batches;
use arrow::ipc::reader::StreamReader;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use futures::StreamExt;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tidemill_access::Principal;
use tidemill_database::{Format, PageStream, QueryRequest};
use tidemill_sql::{PagedQuery, Sql, SqlOptions, StatementLimits, StatementPhase};
use tidemill_types::{ErrorKind, Result};

use crate::fixture::{self, Fixture, State, options};

/// Query that does not finish within these tests.
const ENDLESS: &str = "select count(*) from generate_series(1, 2000000) a join generate_series(1, 2000000) b \
                       on a.value % 2 = b.value % 2";

fn request(text: &str) -> QueryRequest {
    QueryRequest::new(text, "http", Principal::system())
}

async fn start(sql: &Sql, text: &str, format: Format, rows: usize) -> Result<PagedQuery> {
    start_as(sql, text, format, rows, Principal::system()).await
}

async fn start_as(
    sql: &Sql,
    text: &str,
    format: Format,
    rows: usize,
    caller: Principal,
) -> Result<PagedQuery> {
    sql.run_paged(
        QueryRequest { principal: caller, ..request(text) },
        format,
        NonZeroUsize::new(rows).unwrap(),
    )
    .await
}

/// Returns the bytes of the next page, and whether it is the last.
async fn page(query: &mut PagedQuery) -> (Vec<u8>, bool) {
    let page = query.next_page().await.unwrap();
    (page.pieces.concat(), page.is_last)
}

/// Returns the rows of a reply as text, one a line.
fn lines(format: Format, reply: Vec<u8>) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let of_batches = |batches: Vec<RecordBatch>| {
        let Some(first) = batches.first() else { return vec![] };
        let all = concat_batches(&first.schema(), &batches).unwrap();
        (0..all.num_rows()).map(|row| format!("{:?}", all.slice(row, 1))).collect()
    };
    match format {
        Format::Ndjson => text(&reply).lines().map(str::to_owned).collect(),
        Format::Csv => text(&reply).lines().skip(1).map(str::to_owned).collect(),
        Format::Json => {
            let rows: Vec<serde_json::Value> = serde_json::from_slice(&reply).unwrap();
            rows.iter().map(ToString::to_string).collect()
        }
        // the columns of each page are as wide as its own values
        Format::Table => {
            let text = text(&reply);
            let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
            rows.skip(2).filter(|line| !line.starts_with('(') && !line.is_empty()).collect()
        }
        Format::Arrow => {
            of_batches(StreamReader::try_new(&reply[..], None).unwrap().map(Result::unwrap).collect())
        }
        Format::Parquet => {
            let reader =
                ParquetRecordBatchReaderBuilder::try_new(Bytes::from(reply)).unwrap().build().unwrap();
            of_batches(reader.map(std::result::Result::unwrap).collect())
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_have_the_rows_of_one_moment() {
    const ALL: [Format; 6] =
        [Format::Json, Format::Ndjson, Format::Csv, Format::Table, Format::Arrow, Format::Parquet];
    for state in [State::Tail, State::Both] {
        let (fixture, sql) = fixture::sql(state, options()).await;
        let mut offset = 100;
        let query = "select carrier, flight, sched, distance from events.TakeOffEvent order by sched";
        for format in ALL {
            for rows in [5, 12, 50] {
                let mut whole = sql.run_encoded(request(query), format).await.unwrap();
                let mut bytes = vec![];
                while let Some(piece) = whole.next().await {
                    bytes.extend(piece.unwrap());
                }
                let whole = lines(format, bytes);
                let mut query = start(&sql, query, format, rows).await.unwrap();
                let (mut found, mut sizes) = (vec![], vec![]);
                loop {
                    let (bytes, is_last) = page(&mut query).await;
                    let rows = lines(format, bytes);
                    sizes.push(rows.len());
                    found.extend(rows);
                    // what is written meanwhile is not of this moment
                    let table = fixture.streams.read()["TakeOffEvent"].clone();
                    let late = r#"{"carrier":"ZZ","flight":1,"sched":"2012-01-01T00:00:00Z","actual":"2012-01-01T00:00:00Z"}"#;
                    offset += 1;
                    fixture::push(&table, 1, offset, &[late]);
                    if is_last {
                        break;
                    }
                }
                let table = fixture.streams.read()["TakeOffEvent"].clone();
                fixture::flush(&table).await;
                assert_eq!(found, whole, "{format} {rows}");
                assert!(sizes.iter().rev().skip(1).all(|size| *size == rows), "{format} {rows}: {sizes:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_has_few_bytes() {
    let (_fixture, sql) = fixture::sql(State::Both, options()).await;
    // values of 100 KB, and short ones whose output is long
    for (query, rows) in [
        ("select value, repeat('x', 100000) as x from generate_series(1, 400)", 400),
        (
            "select value as a_column_with_a_rather_long_name_that_every_row_of_json_has from generate_series(1, 300000)",
            300_000,
        ),
    ] {
        let mut query = start(&sql, query, Format::Ndjson, 10_000_000).await.unwrap();
        let (mut count, mut pages) = (0, 0);
        loop {
            let (bytes, is_last) = page(&mut query).await;
            assert!(bytes.len() < 12 << 20, "{}", bytes.len());
            count += bytes.iter().filter(|byte| **byte == b'\n').count();
            pages += 1;
            if is_last {
                break;
            }
        }
        assert_eq!(count, rows);
        assert!(pages > 2, "{pages}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_statement_has_neither_a_place_nor_an_end() {
    let options = SqlOptions { queries_max: 1, query_timeout: Duration::from_secs(3), ..options() };
    let (_fixture, sql) = fixture::sql(State::Both, options).await;
    let long = "select value, md5(cast(value as varchar)) from generate_series(1, 200000) order by 2";
    let mut first = start(&sql, long, Format::Csv, 10).await.unwrap();
    assert!(!page(&mut first).await.1);
    // the only place is free for others, and it is theirs until all of their time is over
    let error = sql.query(ENDLESS).await.unwrap().collect().await.unwrap_err();
    assert!(error.to_string().contains("query_timeout"), "{error}");
    assert!(!page(&mut first).await.1);
    let listed = sql.statements(&Principal::system());
    let running: Vec<_> = listed.iter().filter(|s| s.id == first.statement()).collect();
    assert_eq!((running.len(), running[0].phase), (1, StatementPhase::Running));
    // the time of one page has an end
    let mut stuck = start(&sql, ENDLESS, Format::Csv, 10).await.unwrap();
    let error = stuck.next_page().await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::LimitReached && error.to_string().contains("query_timeout"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_statement_is_cancelled() {
    let (_fixture, sql) = fixture::sql(State::Both, options()).await;
    let mut query = start(&sql, "select value from generate_series(1, 1000)", Format::Csv, 10).await.unwrap();
    page(&mut query).await;
    assert!(!query.has_ended());
    let kill = format!("kill query {}", query.statement());
    sql.query(&kill).await.unwrap().collect().await.unwrap();
    assert!(query.has_ended());
    let error = query.next_page().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("was cancelled by KILL QUERY"), "{error}");
    // and one that is dropped ends
    let mut query = start(&sql, "select value from generate_series(1, 1000)", Format::Csv, 10).await.unwrap();
    page(&mut query).await;
    let id = query.statement();
    drop(query);
    let ended = || sql.statements(&Principal::system()).iter().any(|s| s.id == id && s.ended.is_some());
    while !ended() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waiting_statements_keep_is_limited() {
    let options = SqlOptions { memory_bytes: 64 << 20, target_partitions: 1, ..options() };
    let limits = StatementLimits::new(options.memory_bytes, options.queries_max);
    let sql = Sql::with_limits(Arc::new(Fixture::open(State::Both).await), options.clone(), &limits).unwrap();
    let user = |name: &str| Principal::user(name, vec!["read".parse().unwrap()]);
    // a sort that holds about 6 MB
    let query =
        "select repeat(md5(cast(value as varchar)), 4) as t from generate_series(1, 12000) order by t";
    let start = async |name: &str| {
        let mut query = start_as(&sql, query, Format::Csv, 10, user(name)).await.unwrap();
        let page = query.next_page().await;
        page.map(|page| (query, page))
    };
    let mut kept = vec![];
    let refused = |error: tidemill_types::Error, whose: &str| {
        assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
        assert!(error.to_string().contains(whose) && error.to_string().contains("page_rows"), "{error}");
    };
    let of_caller = loop {
        match start("ana").await {
            Ok((query, page)) => {
                assert!(!page.is_last && kept.len() < 16);
                kept.push(query);
            }
            Err(error) => break error,
        }
    };
    refused(of_caller, "statements of one caller may hold 16777216");
    assert!(!kept.is_empty());
    // another caller has a share of its own, and all together have one
    let mut name = 0;
    let of_all = loop {
        name += 1;
        match start(&format!("user{name}")).await {
            Ok((query, _)) => kept.push(query),
            Err(error) => break error,
        }
    };
    refused(of_all, "all statements may hold 33554432");
    // that is one share of all sessions with common limits, whose statements have equal ids
    let other = Sql::with_limits(Arc::new(Fixture::open(State::Both).await), options, &limits).unwrap();
    for _ in 0..kept.len() {
        let mut query = start_as(&other, query, Format::Csv, 10, user("eve")).await.unwrap();
        refused(query.next_page().await.err().unwrap(), "all statements may hold 33554432");
    }
    // dropped ones are not counted
    kept.clear();
    while sql.statements(&Principal::system()).iter().any(|s| s.ended.is_none()) {
        tokio::task::yield_now().await;
    }
    start("ana").await.unwrap();
}
