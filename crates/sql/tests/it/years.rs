//! Times before 1677 and after 2262: one such row ends no query of its table.

use std::sync::Arc;

use tidemill_sql::Sql;
use tidemill_sql::output::Format;
use tidemill_types::FieldType;

use crate::cases::print;
use crate::fixture::{self, Fixture, State};

async fn session(state: State) -> (Arc<Fixture>, Sql) {
    let fixture = Arc::new(Fixture::empty().await);
    let fields = [("n", FieldType::Long), ("at", FieldType::Time), ("until", FieldType::Time)];
    let table = fixture.declare(&fixture::stream("P", &fields, Some(1))).await;
    let rows = [
        r#"{"n":1,"at":"2026-01-01T00:00:00Z","until":"9999-12-31T23:59:59.999999Z"}"#,
        r#"{"n":2,"at":"0001-01-01T00:00:00Z","until":"2026-06-01T00:00:00Z"}"#,
        r#"{"n":3,"at":"1600-02-29T12:30:00Z","until":"9999-12-31T23:59:59+01:00"}"#,
    ];
    let stored = match state {
        State::Tail => 0,
        State::Tablets => rows.len(),
        State::Both => 2,
    };
    fixture::push(&table, 0, 0, &rows[..stored]);
    if stored > 0 {
        fixture::flush(&table).await;
    }
    fixture::push(&table, 0, 1, &rows[stored..]);
    let sql = Sql::new(fixture.clone(), fixture::options()).unwrap();
    (fixture, sql)
}

#[tokio::test(flavor = "multi_thread")]
async fn years_1_to_9999_are_compared_cut_and_grouped() {
    let queries: &[(&str, &str)] = &[
        ("select n from P where until < '9999-12-31' order by n", "2"),
        ("select n from P where until >= '9999-12-31' order by n", "1 3"),
        ("select n from P where at = timestamp '0001-01-01'", "2"),
        ("select n from P where at between '1500-01-01' and '1700-01-01'", "3"),
        ("select n from P where at < date '1700-01-01' order by n", "2 3"),
        ("select n from P where until > cast('2262-05-01' as timestamp) order by n", "1 3"),
        ("select n from P where now() < until and until - now() > interval '120000 days' order by n", "1 3"),
        ("select n from P where until in ('2026-06-01', '9999-12-31T22:59:59Z') order by n", "2 3"),
        (
            "select time_bucket('1 day', at) from P order by n",
            "2026-01-01T00:00:00Z 0001-01-01T00:00:00Z 1600-02-29T00:00:00Z",
        ),
        (
            "select time_bucket('1 day', until) as b, count(*) from P group by b order by b",
            "2026-06-01T00:00:00Z,1 9999-12-31T00:00:00Z,2",
        ),
        (
            "select time_bucket('1 month', at), max(n) from P group by 1 order by 1",
            "0001-01-01T00:00:00Z,2 1600-02-01T00:00:00Z,3 2026-01-01T00:00:00Z,1",
        ),
        ("select n, avg(n) from P where at > '0001-01-01' group by n order by n", "1,1.0 3,3.0"),
        (
            "select date_trunc('month', until) from P order by n",
            "9999-12-01T00:00:00Z 2026-06-01T00:00:00Z 9999-12-01T00:00:00Z",
        ),
        ("select extract(year from at) from P order by n", "2026 1 1600"),
        ("select last(n, until), first(n, at) from P", "1,2"),
        ("select n from latest('events.P') where until > '9000-01-01' order by n", "1 3"),
        ("select to_char(at, 'YYYY') from P order by n", "2026 0001 1600"),
        ("select coalesce(until, now()) from P where n = 3", "9999-12-31T22:59:59Z"),
        (
            "select case when n = 1 then until else timestamp '1000-01-01' end from P where n < 3 order by n",
            "9999-12-31T23:59:59.999999Z 1000-01-01T00:00:00Z",
        ),
        ("select n from P where until = (select max(until) from P)", "1"),
        ("select n from P where until in (select until from P where n < 3) order by n", "1 2"),
        ("select a.n from P a join P b on a.until > b.at where b.n = 1 order by 1", "1 2 3"),
        (
            "select count(*) from (select time_bucket_gapfill('1000 days', until) as b, count(*) from P where until >= '9990-01-01' and until <= '9999-12-31T23:59:59.999999Z' group by b)",
            "4",
        ),
    ];
    for state in State::ALL {
        let (_fixture, sql) = session(state).await;
        for (query, expected) in queries {
            let printed =
                print(&sql, query, Format::Csv).await.unwrap_or_else(|e| panic!("{state:?}: {query}: {e}"));
            let rows: Vec<&str> = printed.lines().skip(1).collect();
            assert_eq!(rows.join(" "), *expected, "{state:?}: {query}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn such_rows_are_deleted_and_changed() {
    for (statement, left) in [
        ("delete from P where until >= '9999-12-31'", "2"),
        ("delete from P where at < timestamp '1700-01-01 05:15'", "1"),
        ("delete from P where until > now() or at between '1500-01-01' and date '1700-01-01'", "2"),
        ("update P set until = '9999-01-01 12:00' where until < '9999-12-31'", "1 2 3"),
    ] {
        let (_fixture, sql) = session(State::Both).await;
        print(&sql, statement, Format::Csv).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
        let printed = print(&sql, "select n from P order by n", Format::Csv).await.unwrap();
        let rows: Vec<&str> = printed.lines().skip(1).collect();
        assert_eq!(rows.join(" "), left, "{statement}");
        let changed =
            print(&sql, "select n from P where until = '9999-01-01 12:00'", Format::Csv).await.unwrap();
        assert_eq!(
            changed.lines().skip(1).count(),
            usize::from(statement.starts_with("update")),
            "{statement}"
        );
    }
}
