//! Bodies of columns: Arrow IPC streams and Parquet files.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, NullArray, RecordBatch, StringArray};
use arrow_ipc::writer::StreamWriter;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde_json::json;

use crate::harness::{Mill, Reply};

const ARROW: &str = "application/vnd.apache.arrow.stream";
const PARQUET: &str = "application/vnd.apache.parquet";

fn arrow(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

fn parquet(batch: &RecordBatch) -> Vec<u8> {
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

fn bodies(batch: &RecordBatch) -> [(&'static str, Vec<u8>); 2] {
    [(ARROW, arrow(batch)), (PARQUET, parquet(batch))]
}

fn send(mill: &Mill, media: &str, body: &[u8]) -> Reply {
    mill.send("POST", "/api/v1/streams/Flight?wait=true", &[("Content-Type", media)], body)
}

fn ids(ids: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(ids.to_vec()))
}

#[test]
fn columns_are_events_and_a_row_that_does_not_fit_is_refused_by_itself() {
    for (media, at) in [(ARROW, 0), (PARQUET, 1)] {
        let mill = Mill::start();
        let delays: ArrayRef = Arc::new(Float64Array::from(vec![Some(20.0), None, Some(1.0)]));
        let good = RecordBatch::try_from_iter([("delay", delays), ("id", ids(&["A", "B", "A"]))]).unwrap();
        let reply = send(&mill, media, &bodies(&good)[at].1);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let json = reply.json();
        assert_eq!((&json["accepted"], &json["duplicates"]), (&json!(3), &json!(1)));
        // the rules ran
        assert_eq!(json["emitted"], json!([{"stream": "Late", "event": {"id": "A", "delay": 20.0}}]));

        let times: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(i64::MAX), None]));
        let bad = RecordBatch::try_from_iter([("at", times), ("id", ids(&["D", "E", "F"]))]).unwrap();
        let reply = send(&mill, media, &bodies(&bad)[at].1);
        assert_eq!((reply.status, reply.json()["accepted"].as_u64()), (207, Some(2)), "{}", reply.text());
        let rejected = &reply.json()["rejected"];
        assert_eq!(rejected[0]["row"], 1);
        assert!(
            rejected[0]["reason"].as_str().unwrap().starts_with("field `at`: expected time"),
            "{rejected}"
        );
        let stream = mill.get("/api/v1/streams/Flight").json();
        assert_eq!(stream["ledger"]["rejected"], 1);

        // the whole body may be compressed
        let body = zstd::encode_all(&bodies(&good)[at].1[..], 1).unwrap();
        let headers = [("Content-Type", media), ("Content-Encoding", "zstd")];
        let reply = mill.send("POST", "/api/v1/streams/Flight", &headers, &body);
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

#[test]
fn columns_that_no_field_has_are_refused_and_recorded() {
    let mill = Mill::start();
    let batch = RecordBatch::try_from_iter([("ident", ids(&["A"]))]).unwrap();
    for (media, body) in bodies(&batch) {
        let message = send(&mill, media, &body).refusal(400, "invalid");
        assert!(message.contains("the stream has no field for the column `ident`"), "{message}");
        let message = send(&mill, media, &body[..body.len() / 2]).refusal(400, "invalid");
        assert!(message.starts_with("the body is not "), "{message}");
    }
    mill.engine.catch_up().unwrap();
    assert_eq!(mill.get("/api/v1/streams/Flight").json()["ledger"]["rejected"], 4);
}

#[test]
fn columns_that_expand_beyond_a_body_are_too_large() {
    let mill = Mill::start();
    // 2^40 rows in a few bytes
    let nulls: ArrayRef = Arc::new(NullArray::new(1 << 40));
    let many = arrow(&RecordBatch::try_from_iter([("id", nulls)]).unwrap());
    let long = "x".repeat(1 << 20);
    let texts = parquet(&RecordBatch::try_from_iter([("id", ids(&[&long, &long]))]).unwrap());
    for (media, body) in [(ARROW, many), (PARQUET, texts)] {
        assert!(body.len() < 60_000, "{media}: {}", body.len());
        let message = send(&mill, media, &body).refusal(413, "limit_reached");
        assert!(message.contains("65536 bytes (`server.body_bytes_max`)"), "{message}");
    }
    mill.wait_for_metric("http_request_body_bytes", 0.0);
}
