//! Tables from which the columns of a result come.

use tidemill_access::Principal;
use tidemill_database::{ColumnOrigin, QueryRequest};
use tidemill_sql::Sql;

use crate::fixture::{self, State};

/// Statements, and their columns as `table.column`; `-` for those that are no column of a table.
const CASES: [(&str, &str); 15] = [
    (
        "select flight, carrier as c, distance * 2, 1 from TakeOffEvent",
        "TakeOffEvent.flight TakeOffEvent.carrier - -",
    ),
    (
        "select t.* from (select gate, flight from events.TakeOffEvent where flight > 1) t",
        "TakeOffEvent.gate TakeOffEvent.flight",
    ),
    (
        "with w as (select flight f from TakeOffEvent order by 1 limit 3) select l.\"Gate\", w.f from w left join events.Landing l on l.flight = w.f",
        "Landing.Gate TakeOffEvent.flight",
    ),
    (
        "select carrier, count(*) from TakeOffEvent group by carrier having count(*) > 0 order by 2",
        "TakeOffEvent.carrier -",
    ),
    (
        "select distinct on (carrier) carrier, flight from TakeOffEvent order by carrier",
        "TakeOffEvent.carrier TakeOffEvent.flight",
    ),
    ("select distinct carrier from TakeOffEvent", "TakeOffEvent.carrier"),
    ("select carrier from TakeOffEvent union all select carrier from TakeOffEvent", "-"),
    ("select flight, row_number() over (order by flight) from TakeOffEvent", "TakeOffEvent.flight -"),
    (
        "select flight from TakeOffEvent t where exists (select 1 from events.Landing l where l.flight = t.flight)",
        "TakeOffEvent.flight",
    ),
    ("select a.flight, b.flight from TakeOffEvent a, events.Landing b", "TakeOffEvent.flight Landing.flight"),
    ("select carrier::text, coalesce(gate, 'x') from TakeOffEvent", "- -"),
    ("select relname, oid from pg_class", "pg_class.relname pg_class.oid"),
    ("select table_name from information_schema.tables", "tables.table_name"),
    ("select * from generate_series(1, 2)", "-"),
    ("explain select flight from TakeOffEvent", "- -"),
];

async fn named(sql: &Sql, origins: &[Option<ColumnOrigin>]) -> String {
    let mut names = vec![];
    for origin in origins {
        let Some(ColumnOrigin { table, column }) = origin else {
            names.push("-".to_owned());
            continue;
        };
        // the catalogs have the same numbers
        let text = format!(
            "select c.relname || '.' || a.attname as name from pg_class c join pg_attribute a on a.attrelid = c.oid \
             where c.oid = {table} and a.attnum = {column}"
        );
        let rows = sql.query(&text).await.unwrap().collect().await.unwrap();
        let row = rows.batches.first().unwrap_or_else(|| panic!("{origin:?} is in no catalog"));
        names.push(arrow::util::display::array_value_to_string(row.column(0), 0).unwrap());
    }
    names.join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_have_the_numbers_of_their_tables() {
    let (_fixture, sql) = fixture::sql(State::Both, fixture::options()).await;
    for (text, expected) in CASES {
        let request = || QueryRequest::new(text, "test", Principal::system());
        // the second time, the plan is one that was kept
        for _ in 0..2 {
            let result = sql.run(request().with_origins()).await.unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(named(&sql, &result.origins()).await, expected, "{text}");
        }
        assert!(sql.run(request()).await.unwrap().origins().is_empty());
        if !text.starts_with("explain") {
            let described = sql.describe_request(request().with_origins()).await.unwrap();
            assert_eq!(named(&sql, &described.origins).await, expected, "{text}");
        }
    }
}
