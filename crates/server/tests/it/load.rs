//! Concurrency limit, connection limit, and panics in handlers.

use std::sync::Arc;
use std::time::Duration;

use tidemill_server::{ServerOptions, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Mill, ScriptedSql, TOKEN, options};

/// Returns a request that is never answered.
fn endless() -> String {
    let query = r#"{"query":"wait"}"#;
    format!(
        "POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{query}",
        query.len()
    )
}

fn head(length: usize) -> String {
    format!(
        "POST /api/v1/streams/Flight HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
         Connection: close\r\nContent-Length: {length}\r\n\r\n"
    )
}

#[test]
fn requests_above_the_limit_are_told_to_try_again() {
    let mill = Mill::with(ServerOptions { concurrency_max: 2, ..options() });
    let held = [mill.connect(endless().as_bytes()), mill.connect(endless().as_bytes())];
    mill.wait_for_metric("http_requests_in_flight", 2.0);
    let reply = mill.get("/api/v1/streams");
    let message = reply.refusal(429, "limit_reached");
    assert!(message.contains("concurrency_max"), "{message}");
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(reply.json()["error"]["retryable"], true);
    // health and metrics still answer, and statements can be cancelled
    assert_eq!(mill.get("/readyz").status, 200);
    assert_eq!(mill.get("/api/v1/statements").status, 200);
    assert_eq!(mill.send("DELETE", "/api/v1/statements/7", &[], b"").status, 200);
    // a client that disconnects releases its permit
    let [first, second] = held;
    drop(first);
    mill.wait_for_metric("http_requests_in_flight", 1.0);
    assert_eq!(mill.get("/api/v1/streams").status, 200);
    drop(second);
    mill.wait_for_metric("http_requests_in_flight", 0.0);
}

#[test]
fn bodies_that_arrive_slowly_do_not_take_the_places_of_others() {
    let mill = Mill::with(ServerOptions { concurrency_max: 2, ..options() });
    let body = br#"{"id":"F1"}"#;
    let mut slow: Vec<_> = (0..20)
        .map(|_| {
            let mut connection = mill.connect(head(body.len()).as_bytes());
            connection.write(&body[..1]);
            connection
        })
        .collect();
    mill.wait_for_metric("http_connections", 21.0);
    mill.wait_for_metric("http_requests_in_flight", 0.0);
    assert_eq!(mill.post_json("/api/v1/streams/Flight", r#"{"id":"F0"}"#).status, 200);
    // the concurrency limit is checked again when a body is complete
    let held = [mill.connect(endless().as_bytes()), mill.connect(endless().as_bytes())];
    mill.wait_for_metric("http_requests_in_flight", 2.0);
    let mut late = slow.pop().unwrap();
    late.write(&body[1..]);
    late.read_all().refusal(429, "limit_reached");
    drop(held);
    mill.wait_for_metric("http_requests_in_flight", 0.0);
    let mut last = slow.pop().unwrap();
    last.write(&body[1..]);
    assert_eq!(last.read_all().status, 200);
}

/// Unauthenticated clients may open connections, but authorized ones must still get in.
#[test]
fn connections_that_send_nothing_shut_nobody_out() {
    let mill = Mill::with(ServerOptions { connections_max: 8, ..options() });
    let mut begun = mill.connect(head(11).as_bytes());
    begun.write(b"{");
    mill.wait_for_metric("http_request_body_bytes", 1024.0);
    let mut kept = mill.connect(b"");
    assert_eq!(kept.get("/api/v1/streams").status, 200);
    let mut idle: Vec<_> = (0..40).map(|_| mill.connect(b"")).collect();
    idle.extend((0..40).map(|_| mill.connect(b"GET /livez HTTP/1.1\r\nHost: loc")));
    // health needs no token, so its callers are not trusted either
    idle.extend((0..40).map(|_| mill.connect(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")));
    assert_eq!(mill.get("/livez").status, 200);
    assert_eq!(mill.post_json("/api/v1/streams/Flight", r#"{"id":"F0"}"#).status, 200);
    assert!(mill.metric("http_connections") <= 8.0);
    // a client that sent the token keeps its connection, also while a request arrives
    assert_eq!(kept.get("/api/v1/streams").status, 200);
    begun.write(br#""id":"F1"}"#);
    assert_eq!(begun.read_all().status, 200);
}

/// The clock of the runtime advances whenever all of its tasks wait, so that the client's pauses take no time.
#[test]
fn a_head_that_never_ends_is_given_up() {
    let mill = Mill::start();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let local = ([127, 0, 0, 1], 0).into();
        let server = serve(local, mill.engine.clone(), Arc::new(ScriptedSql), options()).await.unwrap();
        let mut slow = TcpStream::connect(server.addr()).await.unwrap();
        let begun = tokio::time::Instant::now();
        slow.write_all(b"GET /livez HTTP/1.1\r\nX: ").await.unwrap();
        let mut byte = [0];
        loop {
            tokio::select! {
                read = slow.read(&mut byte) => {
                    // a reply, or the end
                    if read.unwrap_or(0) == 0 {
                        break;
                    }
                }
                () = tokio::time::sleep(Duration::from_secs(5)) => {
                    let _ = slow.write_all(b"x").await;
                }
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "it is still open");
        }
        assert!(begun.elapsed() >= Duration::from_secs(30));
        server.shutdown(Duration::ZERO).await;
    });
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
