//! Health, metrics and the front page.

use crate::harness::Mill;

#[test]
fn health_says_how_it_is() {
    let mill = Mill::start();
    assert_eq!(mill.get("/livez").json(), serde_json::json!({"alive": true}));
    let reply = mill.get("/readyz");
    assert_eq!((reply.status, reply.json()["ready"].as_bool()), (200, Some(true)));
}

#[test]
fn metrics_count_requests_by_route() {
    let mill = Mill::start();
    mill.post_json("/api/v1/streams/Flight", r#"{"id":"F1","delay":3}"#);
    mill.get("/api/v1/streams/Nothing");
    mill.get("/api/v1/nothing/here");
    let reply = mill.get("/metrics");
    assert!(reply.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let text = reply.text();
    for line in [
        r#"http_requests_total{method="POST",route="/api/v1/streams/{stream}",status="200"} 1"#,
        r#"http_requests_total{method="GET",route="/api/v1/streams/{stream}",status="404"} 1"#,
        r#"http_requests_total{method="GET",route="unmatched",status="404"} 1"#,
        r#"http_request_duration_seconds_count{method="POST",route="/api/v1/streams/{stream}"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(text.contains("\n# TYPE tidemill_"), "{text}");
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn the_front_page_is_text_or_html() {
    let mill = Mill::start();
    assert!(mill.get("/").text().contains("/api/v1/openapi.json"));
    let reply = mill.send("GET", "/", &[("Accept", "text/html,*/*;q=0.8")], b"");
    assert!(reply.header("content-type").unwrap().starts_with("text/html"));
    let head = mill.send("HEAD", "/livez", &[], b"");
    assert_eq!((head.status, head.body.len()), (200, 0));
}
