//! What `EXPLAIN` says about the zones of a table.

use arrow::array::AsArray;
use tidemill_sql::{Sql, SqlOptions};

use crate::fixture::{self, State};
use crate::hot::tables::answer;

/// Returns the row about zones that `statement` gets.
async fn zones(sql: &Sql, statement: &str) -> Option<String> {
    let rows = answer(sql, statement).await;
    let mut found = None;
    for batch in &rows.batches {
        let (kinds, texts) = (batch.column(0).as_string::<i32>(), batch.column(1).as_string::<i32>());
        for row in (0..batch.num_rows()).filter(|row| kinds.value(*row) == "zones") {
            assert_eq!(found.replace(texts.value(row).to_owned()), None, "one row");
        }
    }
    found
}

/// Returns the text without sizes in bytes, which depend on the encoding.
fn without_bytes(text: &str) -> String {
    let parts: Vec<&str> = text.split([',', ';']).filter(|part| !part.ends_with(" bytes")).collect();
    parts.join(",")
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_says_what_is_read_of_each_zone() {
    let cold = SqlOptions { hot_bytes: 0, ..fixture::options() };
    let (_fixture, sql) = fixture::sql(State::Both, cold).await;
    for explain in ["explain", "explain analyze"] {
        for (condition, flushed) in [
            ("true", "2 of 2 files, 8 rows"),
            ("_time > '2013-01-01T10:30:00'", "1 of 2 files, 4 rows"),
            ("_time > '2030-01-01'", "0 of 2 files, 0 rows"),
        ] {
            let statement = format!("{explain} select flight from TakeOffEvent where {condition}");
            let found = zones(&sql, &statement).await.unwrap();
            let expected = format!(
                "events.TakeOffEvent: tail 4 rows, flushed {flushed}, merged 0 of 0 files, 0 rows, read from files"
            );
            assert_eq!(without_bytes(&found), expected, "{statement}");
        }
    }
    let joined = "explain select count(*) from TakeOffEvent a join events.Landing b on a.flight = b.flight";
    assert_eq!(zones(&sql, joined).await.unwrap().lines().count(), 2);
    assert_eq!(zones(&sql, "explain select count(*) from docs.flights").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_analyze_says_how_many_blocks_of_hot_data_are_read() {
    let (_fixture, sql) = fixture::sql(State::Both, fixture::options()).await;
    // a block each for two files and the tail, whose times are not known before it is decoded
    for (condition, blocks) in [("true", 3), ("_time < '2013-01-01T08:30:00'", 2)] {
        let statement =
            format!("explain analyze select count(*), sum(distance) from TakeOffEvent where {condition}");
        let found = zones(&sql, &statement).await.unwrap();
        assert_eq!(
            found,
            format!("events.TakeOffEvent: hot data, aggregates, {blocks} of 3 blocks"),
            "{statement}"
        );
    }
}
