//! Properties of output that the text cases cannot show.

use std::io::{self, Write};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Schema};
use arrow::ipc::reader::StreamReader;
use futures::StreamExt;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tidemill_access::Principal;
use tidemill_database::QueryRequest;
use tidemill_sql::Sql;
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
    let formats = [Format::Table, Format::Json, Format::Ndjson, Format::Csv, Format::Arrow, Format::Parquet];
    for format in formats {
        let written = Writer::new(format, &rows.schema, Full(100)).and_then(|mut writer| {
            rows.batches.iter().try_for_each(|b| writer.write(b)).and_then(|()| writer.finish().map(drop))
        });
        let error = written.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{format}: {error}");
        assert!(error.to_string().contains("pipe closed"), "{format}: {error}");
    }
    let error = "jsn".parse::<Format>().unwrap_err();
    assert_eq!(error.to_string(), "`jsn` is not an output format. Did you mean `json`?");
}

/// Runs a query and returns its output and the names and types of its columns.
async fn encoded(sql: &Sql, query: &str, format: Format) -> (Vec<u8>, Vec<(String, String)>) {
    let request = QueryRequest::new(query, "http", Principal::system());
    let mut result = sql.run_encoded(request, format).await.unwrap();
    let columns = result.columns().into_iter().map(|column| (column.name, column.type_name)).collect();
    let mut bytes = vec![];
    while let Some(piece) = result.next().await {
        bytes.extend(piece.unwrap());
    }
    (bytes, columns)
}

fn decoded(format: Format, bytes: Vec<u8>) -> RecordBatch {
    let batches: Vec<RecordBatch> = match format {
        Format::Arrow => {
            StreamReader::try_new(io::Cursor::new(bytes), None).unwrap().collect::<Result<_, _>>().unwrap()
        }
        _ => {
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes)).unwrap();
            let schema = reader.schema().clone();
            let batches = reader.build().unwrap().collect::<Result<Vec<_>, _>>().unwrap();
            return concat_batches(&schema, &batches).unwrap();
        }
    };
    let schema = batches.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
    concat_batches(&schema, &batches).unwrap()
}

#[tokio::test]
async fn arrow_and_parquet_have_the_types_of_the_result() {
    let (_fixture, sql) = fixture::sql(State::Tail, options()).await;
    let query = "select a.n, b.n, 'text ' || a.n as t, a.n / 3.0 as x, a.n % 2 = 0 as even, \
                 timestamp '2026-01-05 09:00:00' as at, make_array(a.n, 2) as list, null as nothing, \
                 case when a.n > 5 then 'x' end as some \
                 from (select value as n from generate_series(1, 20000)) a \
                 join (select value as n from generate_series(1, 20000)) b on a.n = b.n order by a.n";
    let mut results = vec![];
    for format in [Format::Arrow, Format::Parquet] {
        let (bytes, columns) = encoded(&sql, query, format).await;
        let batch = decoded(format, bytes);
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["n", "n_2", "t", "x", "even", "at", "list", "nothing", "some"], "{format}");
        let found: Vec<String> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(found, names, "{format}");
        let types: Vec<&str> = columns.iter().map(|(_, ty)| ty.as_str()).collect();
        assert_eq!(types[..6], ["bigint", "bigint", "text", "double", "boolean", "timestamp"], "{format}");
        assert_eq!(batch.num_rows(), 20_000, "{format}");
        assert_eq!(batch.column(0).data_type(), &DataType::Int64);
        assert_eq!(batch.column(2).data_type(), &DataType::Utf8);
        assert_eq!(batch.column(2).as_string::<i32>().value(19_999), "text 20000");
        assert_eq!(batch.column(8).null_count(), 5);
        results.push(batch);
    }
    // the same values from both
    let text = |batch: &RecordBatch| {
        let mut writer = Writer::new(Format::Ndjson, &batch.schema(), Vec::new()).unwrap();
        writer.write(&batch.slice(0, 50)).unwrap();
        String::from_utf8(writer.finish().unwrap()).unwrap()
    };
    assert_eq!(text(&results[0]), text(&results[1]));

    // without rows there are columns
    for format in [Format::Arrow, Format::Parquet] {
        let (bytes, columns) = encoded(&sql, "select 1 as n where false", format).await;
        assert_eq!(columns, [("n".to_owned(), "bigint".to_owned())]);
        assert_eq!(decoded(format, bytes.clone()).num_rows(), 0);
        assert!(!bytes.is_empty());
    }
    // a type that the format does not have is an error, not a file without it
    let rows = sql.query("select interval '1 day' as span").await.unwrap();
    let error = Writer::new(Format::Parquet, &rows.schema(), Vec::new()).err();
    let batches = rows.collect().await.unwrap().batches;
    let error = error.or_else(|| {
        let mut writer = Writer::new(Format::Parquet, &batches[0].schema(), Vec::new()).ok()?;
        writer.write(&batches[0]).err()
    });
    let error = error.expect("Parquet has no intervals of months, days and nanoseconds");
    assert!(error.to_string().starts_with("the result cannot be written as Parquet: "), "{error}");
    let (_, columns) =
        encoded(&sql, "select a.n, b.n from (select 1 as n) a, (select 2 as n) b", Format::Csv).await;
    assert_eq!(columns[1].0, "n");
}
