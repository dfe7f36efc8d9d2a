//! Rows with large texts: they are read, handed on and written in batches of few bytes.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use futures::StreamExt;
use tidemill_access::Principal;
use tidemill_database::QueryRequest;
use tidemill_sql::output::Format;
use tidemill_sql::{Sql, SqlOptions};

use crate::fixture::{self, Fixture, options};
use crate::hot::tables::{START, points};

const ROWS: usize = 600;
const TEXT: usize = 20_000;

/// A table of 600 rows with texts of 20 KB, of which a file has each only once, and one of 3 MB.
async fn sessions(flushed: bool, options: &[SqlOptions]) -> (Arc<Fixture>, Vec<Sql>) {
    let fixture = Fixture::empty().await;
    let table = fixture.declare(&points(Some(0))).await;
    let texts = (0..ROWS).map(|n| match n {
        300 => "y".repeat(3_000_000),
        _ => ["a", "b", "c"][n % 3].repeat(TEXT),
    });
    let times = (0..ROWS as i64).map(|n| START + n * 1_000_000);
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC"));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![1; ROWS])),
        times.clone(),
        Arc::new(Float64Array::from(vec![1.0; ROWS])),
        Arc::new(Int32Array::from_iter_values(0..ROWS as i32)),
        Arc::new(Int64Array::from(vec![1; ROWS])),
        Arc::new(StringArray::from_iter_values(texts)),
        times,
        Arc::new(StringArray::from(vec![None::<&str>; ROWS])),
    ];
    let batch = RecordBatch::try_new(points(Some(0)).batch_schema(), columns).unwrap();
    fixture::push_batch(&table, 0, 0, &batch);
    if flushed {
        fixture::flush(&table).await;
    }
    let fixture = Arc::new(fixture);
    let sessions = options.iter().map(|options| Sql::new(fixture.clone(), options.clone()).unwrap());
    let sessions = sessions.collect();
    (fixture, sessions)
}

fn bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_have_few_bytes_and_text_comes_in_pieces() {
    // batches of 1 MiB, and no column of this table in hot data
    let spill = tempfile::tempdir().unwrap();
    let spill_dir = Some(spill.path().to_owned());
    let small = SqlOptions { memory_bytes: 128 << 20, hot_bytes: 16 << 20, spill_dir, ..options() };
    for flushed in [false, true] {
        let (_fixture, sessions) = sessions(flushed, std::slice::from_ref(&small)).await;
        let sql = &sessions[0];
        for query in [
            "select n, s from Points where n >= 0 and s is not null",
            "select n, s || '' as s from Points order by n",
            "select p.n, q.s from Points p join Points q on p.n = q.n",
            "select n, s from Points",
        ] {
            let mut result = sql.query(query).await.unwrap();
            let (mut rows, mut largest) = (0, 0);
            while let Some(batch) = result.next().await {
                let batch = batch.unwrap();
                rows += batch.num_rows();
                largest = largest.max(bytes(&batch));
            }
            assert_eq!(rows, ROWS, "flushed {flushed}: {query}");
            // a scan of memory hands on what is there, without a copy
            let is_copy = flushed || query.contains("||") || query.contains("join");
            assert!(
                !is_copy || largest < 5_000_000,
                "flushed {flushed}: {largest} bytes in a batch of {query}"
            );
        }
        for format in [Format::Json, Format::Ndjson, Format::Csv, Format::Table] {
            let mut text = sql
                .run_encoded(
                    QueryRequest::new("select n, s from Points order by n", "http", Principal::system()),
                    format,
                )
                .await
                .unwrap();
            let (mut whole, mut pieces) = (Vec::new(), vec![]);
            while let Some(piece) = text.next().await {
                let piece = piece.unwrap();
                pieces.push(piece.len());
                whole.extend_from_slice(&piece);
            }
            let whole = String::from_utf8(whole).unwrap();
            let large = pieces.iter().filter(|len| **len > 600_000).count();
            assert!(pieces.len() > 40 && large <= 1, "flushed {flushed}, {format}: {pieces:?}");
            for (letter, count) in [("a", 200), ("b", 200), ("y", 1)] {
                let length = if letter == "y" { 3_000_000 } else { TEXT };
                let found = whole.matches(&letter.repeat(length)).count();
                let count = if letter == "a" { count - usize::from(300 % 3 == 0) } else { count };
                assert_eq!(found, count, "flushed {flushed}, {format}: {letter}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hot_data_has_no_large_texts() {
    let small = SqlOptions { hot_bytes: 16 << 20, ..options() };
    for flushed in [false, true] {
        let (_fixture, sessions) =
            sessions(flushed, &[small.clone(), SqlOptions { hot_bytes: 0, ..options() }]).await;
        for query in [
            "select max(length(s)), count(*) from Points",
            "select n, length(s) from latest('Points')",
            "select k, last(s, _time) = repeat('c', 20000) from Points group by k",
            "select k, count(s), min(n) from Points where s like 'a%' group by k",
        ] {
            let mut found = vec![];
            for sql in &sessions {
                // the second time columns that were asked for before would be kept
                for _ in 0..2 {
                    found.push(crate::hot::tables::sorted(&crate::hot::tables::answer(sql, query).await));
                }
            }
            assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "flushed {flushed}: {query}: {found:?}");
            let plan = crate::hot::plans::plan(&sessions[0], query).await;
            assert!(!plan.contains("HotRowsExec"), "{plan}");
        }
    }
}
