//! Health, metrics and the front page.

use crate::harness::{Mill, Reply, TOKEN};

#[test]
fn health_says_how_it_is() {
    let mill = Mill::start();
    assert_eq!(mill.get("/livez").json(), serde_json::json!({"alive": true}));
    let reply = mill.get("/readyz");
    assert_eq!((reply.status, reply.json()["ready"].as_bool()), (200, Some(true)));
}

#[test]
fn problems_are_for_callers_who_may_know_them() {
    let mill = Mill::start();
    let grant = |text: &str| vec![text.parse().unwrap()];
    let tokens = ["read server", "read system:problems", "read stream:*"]
        .map(|text| mill.new_token(&text.replace([' ', ':', '*'], "-"), grant(text), None));
    assert_eq!(mill.get("/readyz").json()["problems"], serde_json::json!([]));
    mill.damage_users();
    let ask = |header: &str| mill.send("GET", "/readyz", &[("Authorization", header)], b"");
    let told = [format!("Bearer {TOKEN}"), format!("Bearer {}", tokens[0]), format!("Bearer {}", tokens[1])];
    for header in told {
        let problems = ask(&header).json()["problems"].to_string();
        assert!(
            problems.contains("users and tokens: ") && problems.contains("access.json: line 1"),
            "{problems}"
        );
    }
    for header in ["", "Bearer wrong", &format!("Bearer {}", tokens[2])] {
        let reply = ask(header);
        assert_eq!((reply.status, reply.json()), (200, serde_json::json!({"ready": true})), "{header}");
    }
    // a server without users has nobody to hide them from
    let open = Mill::with(tidemill_server::ServerOptions { token: None, ..crate::harness::options() });
    let reply = open.send("GET", "/readyz", &[("Authorization", "")], b"");
    assert_eq!(reply.json(), serde_json::json!({"ready": true, "problems": []}));
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

/// Returns the page as a browser gets it, without the token.
fn page(mill: &Mill) -> Reply {
    mill.send("GET", "/", &[("Accept", "text/html"), ("Authorization", "")], b"")
}

#[test]
fn the_page_is_small_and_its_headers_let_nothing_else_in() {
    let reply = page(&Mill::start());
    assert_eq!(reply.status, 200);
    assert!(reply.body.len() < 20_000, "{} bytes", reply.body.len());
    let policy = reply.header("content-security-policy").unwrap();
    for part in [
        "default-src 'none'",
        "script-src 'sha256-",
        "style-src 'sha256-",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(part), "{part} is not in {policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-cache"),
        ("vary", "accept"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{name}");
    }
    let text = reply.text();
    assert!(!text.contains(TOKEN));
    for elsewhere in ["http:", "https:", "src=", "@import", "url(", "//cdn"] {
        assert!(!text.contains(elsewhere), "{elsewhere}");
    }
}

#[test]
fn the_page_names_only_routes_that_are_published() {
    let mill = Mill::start();
    let api = mill.get("/api/v1/openapi.json").json();
    let text = page(&mill).text();
    let script = text.split_once("<script>").unwrap().1;
    let named: Vec<&str> = script
        .split(['\'', '"', '`'])
        .filter(|part| part.starts_with('/') && part.len() > 1 && !part.contains([' ', '\n']))
        .map(|part| part.split_once('?').map_or(part, |(path, _)| path))
        .collect();
    assert!(named.len() >= 8, "{named:?}");
    for path in named {
        let methods = api["paths"][path].as_object().unwrap_or_else(|| panic!("no route {path}"));
        let method = if path == "/api/v1/sql" { "post" } else { "get" };
        assert!(methods.contains_key(method), "{method} {path}");
    }
}

#[test]
fn the_page_on_a_foreign_name_is_refused_like_all_else() {
    let mill = Mill::start();
    for header in [("Host", "evil.example"), ("Origin", "https://evil.example")] {
        let reply = mill.send("GET", "/", &[("Accept", "text/html"), header], b"");
        assert_eq!(reply.status, 421, "{header:?}");
    }
}
