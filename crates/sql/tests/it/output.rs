//! Properties of output that the text cases cannot show.

use std::io::{self, Write};

use tidemill_sql::output::{Format, Writer};
use tidemill_types::ErrorKind;

use crate::cases::print;
use crate::fixture::{self, State, options};

#[tokio::test]
async fn long_results_are_written_as_they_come() {
    let (_fixture, sql) = fixture::sql(State::Tail, options()).await;
    let query = "select value as n, 'x' as x from generate_series(1, 30000) order by n";
    let table = print(&sql, query, Format::Table).await.unwrap();
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("  n   | x"));
    // the widths are fixed after 1,000 rows; wider numbers overflow
    assert_eq!(lines.nth(1), Some("    1 | x"));
    assert_eq!(lines.nth(29_998), Some(" 30000 | x"));
    assert_eq!(lines.next(), Some("(30000 rows)"));

    let ndjson = print(&sql, query, Format::Ndjson).await.unwrap();
    assert_eq!(ndjson.lines().count(), 30_000);
    let json: serde_json::Value =
        serde_json::from_str(&print(&sql, query, Format::Json).await.unwrap()).unwrap();
    assert_eq!(json[29_999], serde_json::json!({ "n": 30_000, "x": "x" }));
    assert_eq!(print(&sql, query, Format::Csv).await.unwrap().lines().count(), 30_001);
}

/// Writer that accepts some bytes, then fails.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.checked_sub(bytes.len()) {
            Some(left) => {
                self.0 = left;
                Ok(bytes.len())
            }
            None => Err(io::Error::other("pipe closed")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_broken_output_is_an_error() {
    let (_fixture, sql) = fixture::sql(State::Tail, options()).await;
    let rows = sql.query("select * from generate_series(1, 5000)").await.unwrap().collect().await.unwrap();
    for format in [Format::Table, Format::Json, Format::Ndjson, Format::Csv] {
        let mut writer = Writer::new(format, &rows.schema, Full(100));
        let written =
            rows.batches.iter().try_for_each(|b| writer.write(b)).and_then(|()| writer.finish().map(drop));
        let error = written.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{format}: {error}");
        assert!(error.to_string().contains("pipe closed"), "{format}: {error}");
    }
    let error = "jsn".parse::<Format>().unwrap_err();
    assert_eq!(error.to_string(), "`jsn` is not an output format. Did you mean `json`?");
}
