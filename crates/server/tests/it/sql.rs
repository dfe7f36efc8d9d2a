//! Streaming of rows, and failures during it.

use std::time::Duration;

use crate::harness::{Mill, TOKEN, options};
use tidemill_server::ServerOptions;

fn ask(mill: &Mill, sql: &str, accept: &str) -> crate::harness::Reply {
    mill.send("POST", "/api/v1/sql", &[("Content-Type", "text/plain"), ("Accept", accept)], sql.as_bytes())
}

#[test]
fn rows_come_in_the_form_that_was_asked_for() {
    let mill = Mill::start();
    let reply = ask(&mill, "rows 3", "application/x-ndjson");
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(reply.text(), "{\"n\":0}\n{\"n\":1}\n{\"n\":2}\n");
    assert_eq!(ask(&mill, "rows 2", "text/csv").text(), "0\n1\n");
    let reply = mill.post_json("/api/v1/sql?format=table", r#"{"query":"rows 1"}"#);
    assert_eq!((reply.status, reply.text().as_str()), (200, "0\n"));
    assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(reply.header("tidemill-columns"), Some(r#"[{"name":"n\u00b0","type":"bigint"}]"#));
    for (format, media) in
        [("arrow", "application/vnd.apache.arrow.stream"), ("parquet", "application/vnd.apache.parquet")]
    {
        let reply = ask(&mill, "rows 2", media);
        assert_eq!((reply.header("content-type"), reply.text().as_str()), (Some(media), "<0><1>"));
        let reply = mill.post_json(&format!("/api/v1/sql?format={format}"), r#"{"query":"rows 1"}"#);
        assert_eq!((reply.header("content-type"), reply.text().as_str()), (Some(media), "<0>"));
    }
    let many = ask(&mill, "rows 20000", "application/x-ndjson");
    assert_eq!(many.text().lines().count(), 20_000);
    mill.wait_for_metric("http_requests_in_flight", 0.0);
}

#[test]
fn a_client_that_leaves_between_rows_ends_its_query() {
    let mill = Mill::start();
    for query in ["wait 0", "stuck 3"] {
        let request = format!(
            "POST /api/v1/sql?format=ndjson HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n{query}",
            query.len()
        );
        let connection = mill.connect(request.as_bytes());
        mill.wait_for_metric("http_requests_in_flight", 1.0);
        drop(connection);
        mill.wait_for_metric("http_requests_in_flight", 0.0);
    }
}

#[test]
fn a_failure_before_the_first_row_is_a_status() {
    let mill = Mill::start();
    let message = ask(&mill, "fail 0", "*/*").refusal(429, "limit_reached");
    assert!(message.contains("memory"), "{message}");
    ask(&mill, "selec 1", "*/*").refusal(400, "invalid");
}

#[test]
fn a_failure_after_the_first_row_is_told_and_the_body_is_not_ended() {
    let mill = Mill::start();
    let text = |format: &str| {
        let request = format!(
            "POST /api/v1/sql?format={format} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
             Content-Type: text/plain\r\nContent-Length: 6\r\n\r\nfail 2"
        );
        mill.connect(request.as_bytes()).read_text()
    };
    for (format, line) in [
        (
            "ndjson",
            r#"{"error":{"kind":"limit_reached","message":"the query needs more memory","retryable":true}}"#,
        ),
        (
            "json",
            r#"{"error":{"kind":"limit_reached","message":"the query needs more memory","retryable":true}}"#,
        ),
        ("csv", "error: the query needs more memory"),
        ("table", "error: the query needs more memory"),
    ] {
        let reply = text(format);
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        assert!(reply.contains(&format!("\n{line}\n")), "{reply}");
        // a complete chunked body ends with a chunk of length 0
        assert!(!reply.ends_with("0\r\n\r\n"), "{reply}");
    }
    // no text among bytes that a reader decodes
    for format in ["arrow", "parquet"] {
        let reply = text(format);
        assert!(reply.contains("<1>\r\n") && !reply.contains("memory"), "{reply}");
        assert!(!reply.ends_with("0\r\n\r\n"), "{reply}");
    }
    mill.wait_for_metric("http_requests_in_flight", 0.0);
}

#[test]
fn a_query_that_takes_too_long_is_ended() {
    let mill = Mill::with(ServerOptions { query_timeout: Duration::from_millis(100), ..options() });
    let message = ask(&mill, "wait", "*/*").refusal(503, "unavailable");
    assert!(message.contains("query_timeout"), "{message}");
    mill.wait_for_metric("http_requests_in_flight", 0.0);
}

#[test]
fn a_client_that_goes_away_ends_its_query() {
    let mill = Mill::start();
    let request = format!(
        "POST /api/v1/sql?format=ndjson HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: text/plain\r\nContent-Length: 15\r\n\r\nrows 9999999999"
    );
    let connection = mill.connect(request.as_bytes());
    mill.wait_for_metric("http_requests_in_flight", 1.0);
    drop(connection);
    mill.wait_for_metric("http_requests_in_flight", 0.0);
}
