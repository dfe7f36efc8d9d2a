//! Compressed, large, slow and broken bodies.

use std::io::Write;
use std::time::Duration;

use crate::harness::{Mill, TOKEN, options};
use tidemill_server::ServerOptions;

const PATH: &str = "/api/v1/streams/Flight";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_bodies_are_read_up_to_the_limit() {
    let mill = Mill::start();
    let small = br#"[{"id":"F1","delay":1},{"id":"F2","delay":2}]"#;
    let zeros = vec![b' '; 10 << 20];
    for (name, encoded, bomb) in [
        ("gzip", gzip(small), gzip(&zeros)),
        ("zstd", zstd::encode_all(&small[..], 3).unwrap(), zstd::encode_all(&zeros[..], 3).unwrap()),
    ] {
        let headers = [("Content-Type", "application/json"), ("Content-Encoding", name)];
        let reply = mill.send("POST", PATH, &headers, &encoded);
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.json()["accepted"], 2);
        let message = mill.send("POST", PATH, &headers, &bomb).refusal(413, "limit_reached");
        assert!(message.contains("65536") && message.contains("decompressed"), "{message}");
        let message =
            mill.send("POST", PATH, &headers, &encoded[..encoded.len() - 5]).refusal(400, "invalid");
        assert!(message.contains(name), "{message}");
        assert_eq!(mill.send("POST", PATH, &headers, b"not compressed").status, 400);
    }
    mill.wait_for_metric("http_request_body_bytes", 0.0);
}

#[test]
fn a_zstd_window_larger_than_http_allows_is_refused() {
    let mill = Mill::start();
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(26).unwrap();
    encoder.write_all(br#"{"id":"F1"}"#).unwrap();
    let headers = [("Content-Type", "application/json"), ("Content-Encoding", "zstd")];
    mill.send("POST", PATH, &headers, &encoder.finish().unwrap()).refusal(400, "invalid");
}

#[test]
fn a_body_above_the_limit_is_refused_before_it_is_read() {
    let mill = Mill::start();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 999999999\r\n\r\n"
    );
    let reply = mill.connect(head.as_bytes()).read_all();
    let message = reply.refusal(413, "limit_reached");
    assert!(message.contains("body_bytes_max"), "{message}");
    // the size of a chunked body is unknown at the start
    let mut chunked = head.replace("Content-Length: 999999999", "Transfer-Encoding: chunked").into_bytes();
    chunked.extend(b"10001\r\n");
    chunked.extend(vec![b' '; 0x10001]);
    mill.connect(&chunked).read_all().refusal(413, "limit_reached");
}

#[test]
fn a_body_that_does_not_arrive_is_given_up() {
    let mill = Mill::with(ServerOptions { request_timeout: Duration::from_millis(200), ..options() });
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 10\r\n\r\n{{"
    );
    let reply = mill.connect(head.as_bytes()).read_all();
    let message = reply.refusal(408, "unavailable");
    assert!(message.contains("request_timeout"), "{message}");
}

#[test]
fn bodies_together_stay_below_their_limit() {
    let mill = Mill::with(ServerOptions { bodies_bytes_max: 64 << 10, ..options() });
    let mut first = mill.connect(
        format!("POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\nContent-Length: 40000\r\n\r\n").as_bytes(),
    );
    first.write(&vec![b' '; 39_000]);
    mill.wait_for_metric("http_request_body_bytes", 39.0 * 1024.0);
    let large = format!("{{\"id\":\"{}\"}}", "x".repeat(30_000));
    let reply = mill.post_json(PATH, &large);
    let message = reply.refusal(429, "limit_reached");
    assert!(message.contains("bodies_bytes_max"), "{message}");
    assert_eq!(reply.header("retry-after"), Some("1"));
    let mut end = vec![b' '; 1000 - 12];
    end.extend(br#"{"id":"abc"}"#);
    first.write(&end);
    assert_eq!(first.read_all().status, 200);
    mill.wait_for_metric("http_request_body_bytes", 0.0);
    assert_eq!(mill.post_json(PATH, &large).status, 200);
}
