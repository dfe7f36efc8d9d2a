//! OTLP and remote write: what does not fit into the text of a case.

use std::io::Write;

use axum::http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use serde_json::json;
use tidemill_access::Grant;
use tidemill_mappers::telemetry::DeclaredStream;
use tidemill_mappers::{otlp, remote_write};
use tidemill_server::ServerOptions;
use tokio::net::TcpStream;

use crate::harness::{Mill, Reply, TOKEN, options};
use crate::http2::{Sender, handshake};

const LOGS: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";

/// Returns the declaration of a stream of telemetry.
pub fn declaration(name: &str) -> String {
    let all = otlp::streams::STREAMS.into_iter().chain(remote_write::streams::STREAMS);
    let stream: Option<&DeclaredStream> = all.into_iter().find(|stream| stream.name == name);
    stream.unwrap_or_else(|| panic!("there is no stream {name} of telemetry")).declaration()
}

fn start(options: ServerOptions, streams: &[&str]) -> Mill {
    let declarations: String = streams.iter().map(|name| declaration(name)).collect();
    Mill::with_rules(options, &declarations)
}

/// Returns a field of a message with a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut len = content.len();
    while len >= 0x80 {
        bytes.push(len as u8 | 0x80);
        len >>= 7;
    }
    bytes.push(len as u8);
    bytes.extend(content);
    bytes
}

/// Returns a request with log records, whose times are these nanoseconds after 2026-01-05T09:00:00Z.
fn logs(times: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let record = |nanos: u64| {
        let time = (1_767_603_600_000_000_000 + nanos).to_le_bytes();
        field(2, &[&[0x09], time.as_slice(), &field(5, &field(1, b"text"))].concat())
    };
    let records: Vec<u8> = times.into_iter().flat_map(record).collect();
    field(1, &field(2, &records))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn post(mill: &Mill, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    mill.send("POST", path, headers, body)
}

const PROTOBUF: (&str, &str) = ("Content-Type", "application/x-protobuf");

fn ledger(mill: &Mill, stream: &str) -> (serde_json::Value, serde_json::Value) {
    mill.engine.catch_up().unwrap();
    let ledger = mill.get(&format!("/api/v1/streams/{stream}")).json()["ledger"].clone();
    (ledger["stored"].clone(), ledger["duplicate"].clone())
}

#[test]
fn what_is_sent_again_is_stored_once() {
    let mill = start(options(), &["otel_logs"]);
    let body = logs(0..300);
    for (headers, body) in [
        (&[PROTOBUF][..], body.clone()),
        (&[PROTOBUF, ("Content-Encoding", "gzip")], gzip(&body)),
        // other records in other requests
        (&[PROTOBUF], logs(200..400)),
    ] {
        let reply = post(&mill, "/v1/logs", headers, &body);
        assert_eq!((reply.status, reply.body.as_slice()), (200, &[][..]));
        assert_eq!(reply.header("content-type"), Some("application/x-protobuf"));
    }
    assert_eq!(ledger(&mill, "otel_logs"), (json!(400), json!(400)));
}

#[test]
fn errors_and_partial_success_have_the_encoding_of_the_request() {
    let mill = start(options(), &["otel_logs"]);
    let reply = post(&mill, "/v1/logs", &[PROTOBUF], b"\x0a\x05");
    assert_eq!((reply.status, reply.header("content-type")), (400, Some("application/x-protobuf")));
    // code 3, and a message
    assert_eq!(&reply.body[..3], b"\x08\x03\x12");
    assert!(String::from_utf8_lossy(&reply.body).contains("the body is not a message of OTLP: "));
    // in the middle a record whose time is out of range
    let bad = field(2, &[&[0x09], u64::MAX.to_le_bytes().as_slice()].concat());
    let body = [logs([1]), field(1, &field(2, &bad)), logs([2])].concat();
    let reply = post(&mill, "/v1/logs", &[PROTOBUF], &body);
    assert_eq!((reply.status, reply.body[0], &reply.body[3..5]), (200, 0x0a, &b"\x08\x01"[..]));
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    assert!(
        text.contains("1 of 3 records were rejected\nrecord 2: timeUnixNano: expected nanoseconds"),
        "{text}"
    );
    let text = mill.get("/metrics").text();
    assert!(text.contains(r#"http_requests_total{method="POST",route="/v1/logs",status="400"} 1"#), "{text}");
    // what is rejected for itself is kept
    mill.engine.catch_up().unwrap();
    assert_eq!(mill.get("/api/v1/streams/otel_logs").json()["ledger"]["rejected"], 1);
}

#[test]
fn bodies_that_expand_are_bounded() {
    let mill = start(options(), &["otel_logs", "prometheus"]);
    // records of two bytes, of which there are many
    let empty = field(1, &field(2, &[0x12, 0].repeat(20_000)));
    let reply = post(&mill, "/v1/logs", &[PROTOBUF], &empty);
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    assert_eq!(reply.status, 400, "{text}");
    assert!(text.contains("memory once it is decoded"), "{text}");
    // zeros that are compressed
    let zeros = gzip(&vec![0; 10 << 20]);
    let reply = post(&mill, "/v1/logs", &[PROTOBUF, ("Content-Encoding", "gzip")], &zeros);
    assert_eq!(reply.status, 413, "{}", String::from_utf8_lossy(&reply.body));
    // and nothing of all this is held
    mill.wait_for_metric("http_request_body_bytes", 0.0);
    assert_eq!(ledger(&mill, "otel_logs"), (json!(0), json!(0)));
}

#[test]
fn lack_of_room_is_told_so_that_it_is_sent_again() {
    let limited = ServerOptions { concurrency_max: 1, ..options() };
    let mill = start(limited, &["otel_logs", "prometheus"]);
    // a statement that takes its time holds the only place
    let token = mill.new_token("reader", vec!["read *".parse::<Grant>().unwrap()], None);
    let head = format!(
        "POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nwait"
    );
    let _statement = mill.connect(head.as_bytes());
    mill.wait_for_metric("http_requests_in_flight", 1.0);
    let reply = post(&mill, "/v1/logs", &[("Content-Type", "application/json")], b"{}");
    assert_eq!(
        (reply.status, reply.header("retry-after"), reply.json()["code"].clone()),
        (429, Some("1"), json!(8))
    );
    let reply = post(&mill, "/api/v1/write", &[PROTOBUF], b"\x00");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
    mill.block_on(async {
        let (mut sender, _task) = handshake(TcpStream::connect(mill.address).await.unwrap()).await;
        let reply = call(&mut sender, TOKEN, None, &framed(0, &logs([1]))).await;
        assert_eq!(reply.status, "8");
        // with details that say when
        assert!(reply.details.contains("google.rpc.RetryInfo"), "{}", reply.details);
    });
}

/// Reply of a call.
struct GrpcReply {
    status: String,
    message: String,
    details: String,
    body: Vec<u8>,
}

async fn call(sender: &mut Sender, token: &str, encoding: Option<&str>, body: &[u8]) -> GrpcReply {
    use base64::Engine;
    let mut request =
        Request::post(format!("http://localhost{LOGS}")).header("content-type", "application/grpc");
    request = request.header("te", "trailers").header("authorization", format!("Bearer {token}"));
    if let Some(encoding) = encoding {
        request = request.header("grpc-encoding", encoding);
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body))).unwrap();
    let reply = sender.send_request(request).await.unwrap();
    assert_eq!(reply.status(), 200);
    assert_eq!(reply.headers()["content-type"], "application/grpc");
    let headers = reply.headers().clone();
    let body = reply.into_body().collect().await.unwrap();
    let trailers = body.trailers().cloned().unwrap_or_default();
    let value = |name: &str| {
        let value = headers.get(name).or_else(|| trailers.get(name));
        value.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    };
    let details = base64::prelude::BASE64_STANDARD_NO_PAD.decode(value("grpc-status-details-bin")).unwrap();
    GrpcReply {
        status: value("grpc-status"),
        message: value("grpc-message"),
        details: String::from_utf8_lossy(&details).into_owned(),
        body: body.to_bytes().to_vec(),
    }
}

fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    [&[flag], (message.len() as u32).to_be_bytes().as_slice(), message].concat()
}

#[test]
fn calls_of_grpc_are_answered_on_the_same_port() {
    let mill = start(options(), &["otel_logs"]);
    let nobody = mill.new_token("nobody", vec![], None);
    mill.block_on(async {
        let (mut sender, _task) = handshake(TcpStream::connect(mill.address).await.unwrap()).await;
        let body = logs(0..200);
        let reply = call(&mut sender, TOKEN, None, &framed(0, &body)).await;
        assert_eq!((reply.status.as_str(), reply.body.as_slice()), ("0", &[0, 0, 0, 0, 0][..]));
        let reply = call(&mut sender, TOKEN, Some("gzip"), &framed(1, &gzip(&body))).await;
        assert_eq!(reply.status, "0", "{}", reply.message);
        let bad = field(1, &field(2, &field(2, &[&[0x09], u64::MAX.to_le_bytes().as_slice()].concat())));
        let reply = call(&mut sender, TOKEN, None, &framed(0, &[logs([7]), bad.clone()].concat())).await;
        assert_eq!(reply.status, "0");
        assert!(String::from_utf8_lossy(&reply.body).contains("1 of 2 records were rejected"));
        for (token, encoding, body, status, message) in [
            ("wrong", None, framed(0, &body), "16", "wrong token"),
            (nobody.as_str(), None, framed(0, &body), "7", "otel_logs"),
            (TOKEN, None, framed(0, b"\x0a\x05"), "3", "the body is not a message of OTLP"),
            (TOKEN, None, framed(0, &bad), "3", "1 of 1 records were rejected"),
            (TOKEN, None, vec![], "3", "the call has 0 bytes"),
            (TOKEN, None, framed(0, &body)[..20].to_vec(), "3", "expected one message"),
            (TOKEN, Some("gzip"), framed(1, b"no gzip"), "3", "the body is not whole gzip data"),
            (TOKEN, Some("zstd"), framed(1, &body), "3", "message encoding `zstd`: expected gzip"),
            (TOKEN, Some("gzip"), framed(1, &gzip(&vec![0; 10 << 20])), "8", "larger than 65536 bytes"),
            (TOKEN, None, framed(0, &vec![0; 100 << 10]), "8", "larger than 65536 bytes"),
        ] {
            let reply = call(&mut sender, token, encoding, &body).await;
            assert_eq!(reply.status, status, "{}", reply.message);
            assert!(reply.message.contains(message), "{message}: {}", reply.message);
            assert!(!reply.details.contains("RetryInfo"), "{}", reply.details);
        }
    });
    assert_eq!(ledger(&mill, "otel_logs"), (json!(200), json!(201)));
    let text = mill.get("/metrics").text();
    for (status, count) in [(200, 3), (401, 1), (403, 1), (400, 5), (413, 2)] {
        let line =
            format!(r#"http_requests_total{{method="POST",route="{LOGS}",status="{status}"}} {count}"#);
        assert!(text.contains(&line), "{line}: {text}");
    }
}

#[test]
fn prometheus_exemplars_without_a_stream_are_counted() {
    let mill = start(options(), &["prometheus"]);
    let label =
        |name: &str, value: &str| field(1, &[field(1, name.as_bytes()), field(2, value.as_bytes())].concat());
    let sample = |time: u8| field(2, &[&[0x09][..], &1.5_f64.to_le_bytes(), &[0x10, time]].concat());
    let exemplar = field(3, &[&label("trace_id", "abc")[..], &[0x11], &1.5_f64.to_le_bytes()].concat());
    let series = field(1, &[label("__name__", "up"), sample(1), sample(2), exemplar].concat());
    let body = snap(&series);
    let reply = post(&mill, "/api/v1/write", &[PROTOBUF, ("Content-Encoding", "snappy")], &body);
    assert_eq!(reply.status, 204, "{}", reply.text());
    for (kind, count) in [("samples", "2"), ("histograms", "0"), ("exemplars", "0")] {
        assert_eq!(reply.header(&format!("x-prometheus-remote-write-{kind}-written")), Some(count), "{kind}");
    }
    assert_eq!(mill.metric("http_remote_write_left_out_total"), 1.0);
    assert_eq!(ledger(&mill, "prometheus"), (json!(2), json!(0)));
}

/// Returns a block of snappy whose content is not compressed.
fn snap(content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 1 << 14);
    let mut block = vec![(content.len() & 0x7f | 0x80) as u8, (content.len() >> 7) as u8];
    block.extend([61 << 2, (content.len() - 1) as u8, ((content.len() - 1) >> 8) as u8]);
    block.extend(content);
    block
}
