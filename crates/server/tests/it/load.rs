//! The limit of requests that are worked on, and defects.

use crate::harness::{Mill, TOKEN, options};
use tidemill_server::ServerOptions;

#[test]
fn requests_above_the_limit_are_told_to_try_again() {
    let mill = Mill::with(ServerOptions { concurrency_max: 2, ..options() });
    let head = format!(
        "POST /api/v1/streams/Flight HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
         Connection: close\r\nContent-Length: 11\r\n\r\n"
    );
    let mut held = [mill.connect(head.as_bytes()), mill.connect(head.as_bytes())];
    mill.wait_for_metric("http_requests_in_flight", 2.0);
    let reply = mill.get("/api/v1/streams");
    let message = reply.refusal(429, "limit_reached");
    assert!(message.contains("concurrency_max"), "{message}");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(reply.json()["error"]["retryable"], true);
    // health and metrics answer all the same
    assert_eq!(mill.get("/readyz").status, 200);
    held[0].write(br#"{"id":"F1"}"#);
    let [first, second] = held;
    assert_eq!(first.read_all().status, 200);
    mill.wait_for_metric("http_requests_in_flight", 1.0);
    assert_eq!(mill.get("/api/v1/streams").status, 200);
    // a client that goes away gives its place back
    drop(second);
    mill.wait_for_metric("http_requests_in_flight", 0.0);
}

#[test]
fn a_defect_in_a_handler_is_a_reply_and_is_counted() {
    let mill = Mill::start();
    let reply = mill.post_json("/api/v1/sql", r#"{"query":"panic"}"#);
    let message = reply.refusal(500, "internal");
    assert!(!message.contains("as the test asked"), "{message}");
    assert_eq!(mill.metric("http_panics_total"), 1.0);
    assert_eq!(mill.get("/livez").status, 200);
    mill.wait_for_metric("http_requests_in_flight", 0.0);
}
