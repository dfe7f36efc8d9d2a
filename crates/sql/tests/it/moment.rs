//! A query takes one moment of all its tables.

use std::sync::Arc;
use std::time::Duration;

use tidemill_access::Principal;
use tidemill_database::{HeldMoment, QueryRequest};
use tidemill_sql::{Sql, SqlOptions};

use crate::fixture::{self, State};

#[tokio::test]
async fn all_tables_of_a_query_are_of_one_moment() {
    let (fixture, sql) = fixture::sql(State::Both, fixture::options()).await;
    let joined = "select count(*) from events.TakeOffEvent e
         left join latest('events.Landing') l on l.flight = e.flight
         left join (select carrier from flights where carrier in (select _id from docs.ids)) f using (carrier)";
    let explained = format!("explain {joined}");
    for query in [joined, joined, explained.as_str()] {
        sql.query(query).await.unwrap().collect().await.unwrap();
        let taken = std::mem::take(&mut *fixture.taken.lock());
        let [tables] = taken.as_slice() else { panic!("{query}: {taken:?}") };
        let mut tables = tables.clone();
        tables.sort_unstable();
        assert_eq!(tables, ["Landing", "TakeOffEvent", "flights", "ids"], "{query}");
    }
    // a kept plan takes its moment anew, and the session takes none for a plan that it cannot use
    let prepared = sql.prepare("select count(carrier) from events.TakeOffEvent").await.unwrap();
    fixture.taken.lock().clear();
    for _ in 0..3 {
        prepared.query().await.unwrap();
    }
    assert!(fixture.taken.lock().iter().all(|tables| *tables == ["TakeOffEvent"]));
}

/// Returns the first column of a query at a moment, as texts.
async fn rows(sql: &Sql, text: &str, moment: Option<&HeldMoment>) -> tidemill_types::Result<Vec<String>> {
    let request = QueryRequest::new(text, "test", Principal::system()).with_moment(moment.cloned());
    let rows = sql.run(request).await?.collect().await?;
    let cells = rows.batches.iter().flat_map(|batch| {
        (0..batch.num_rows())
            .map(|row| arrow::util::display::array_value_to_string(batch.column(0), row).unwrap())
    });
    Ok(cells.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_read_the_moment_that_a_transaction_holds() {
    for state in State::ALL {
        let (fixture, sql) = fixture::sql(state, fixture::options()).await;
        let statements = [
            "select count(*) from events.TakeOffEvent",
            "select carrier from events.TakeOffEvent group by carrier order by carrier",
            "select flight from latest('events.TakeOffEvent') order by flight",
            "select count(*) from docs.ids",
            "select relname from pg_class where relnamespace = 'events'::regnamespace order by 1",
        ];
        let mut before = vec![];
        for text in statements {
            before.push(rows(&sql, text, None).await.unwrap());
        }
        let moment = sql.hold_moment(&Principal::system()).await.unwrap();
        let table = fixture.streams.read()["TakeOffEvent"].clone();
        fixture::push(&table, 0, 9, &[r#"{"carrier":"ZZ","flight":9999,"actual":"2013-01-02T00:00:00Z"}"#]);
        fixture.collections.write().insert("ids".into(), vec![]);
        let mut other = table.stream().as_ref().clone();
        other.name = "Other".into();
        fixture.declare(&Arc::new(other)).await;
        for flushed in [false, true] {
            if flushed {
                fixture::flush(&table).await;
            }
            // each twice: a plan that was kept reads the present rows
            for (text, before) in statements.into_iter().chain(statements).zip(before.iter().chain(&before)) {
                assert_eq!(&rows(&sql, text, Some(&moment)).await.unwrap(), before, "{state:?} {text}");
                assert_ne!(&rows(&sql, text, None).await.unwrap(), before, "{state:?} {text}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn moments_are_bounded_and_let_go() {
    let principal = Principal::system();
    let options = SqlOptions { moments_max: 2, ..fixture::options() };
    let (_fixture, sql) = fixture::sql(State::Both, options).await;
    let (first, second) =
        (sql.hold_moment(&principal).await.unwrap(), sql.hold_moment(&principal).await.unwrap());
    let error = sql.hold_moment(&principal).await.unwrap_err();
    assert!(error.to_string().starts_with("2 transactions with REPEATABLE READ are open"), "{error}");
    drop(first.clone());
    sql.hold_moment(&principal).await.unwrap_err();
    drop(first);
    let third = sql.hold_moment(&principal).await.unwrap();
    drop((second, third));

    let (_fixture, sql) =
        fixture::sql(State::Tail, SqlOptions { moment_bytes_max: 100, ..fixture::options() }).await;
    let error = sql.hold_moment(&principal).await.unwrap_err();
    assert!(error.to_string().contains("the limit is 100: try again"), "{error}");

    let options = SqlOptions { moment_timeout: Duration::ZERO, moments_max: 1, ..fixture::options() };
    let (_fixture, sql) = fixture::sql(State::Both, options).await;
    let old = sql.hold_moment(&principal).await.unwrap();
    let error = loop {
        match rows(&sql, "select 1 from events.TakeOffEvent", Some(&old)).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().starts_with("snapshot too old"), "{error}");
    // its content was let go, although the transaction is open
    sql.hold_moment(&principal).await.unwrap();
}
