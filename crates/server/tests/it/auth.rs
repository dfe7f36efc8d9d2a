//! The token and the host check.

use crate::harness::{Mill, TOKEN, options};
use tidemill_server::ServerOptions;

#[test]
fn the_token_opens_everything_but_health_needs_none() {
    let mill = Mill::start();
    let none = [("Authorization", "")];
    for path in ["/", "/livez", "/readyz"] {
        assert_eq!(mill.send("GET", path, &none, b"").status, 200, "{path}");
    }
    for path in [
        "/api/v1/streams",
        "/metrics",
        "/api/v1/openapi.json",
        "/api/v1/nothing",
        "/nothing",
        "//api/v1/streams",
    ] {
        let reply = mill.send("GET", path, &none, b"");
        let message = reply.refusal(401, "unauthorized");
        assert!(message.contains("DATA/token") && !message.contains(TOKEN), "{message}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer realm=\"tidemill\""));
    }
    for wrong in ["Bearer nope", "Basic dGVzdA==", TOKEN, &format!("Bearer {TOKEN}x")] {
        assert_eq!(
            mill.send("GET", "/api/v1/streams", &[("Authorization", wrong)], b"").status,
            401,
            "{wrong}"
        );
    }
    let lower = format!("bearer {TOKEN}");
    assert_eq!(mill.send("GET", "/api/v1/streams", &[("Authorization", &lower)], b"").status, 200);
}

#[test]
fn without_a_token_a_loopback_server_is_open_to_this_machine_only() {
    let mill = Mill::with(ServerOptions { token: None, hosts: vec!["mill.example".into()], ..options() });
    let none = ("Authorization", "");
    assert_eq!(mill.send("GET", "/api/v1/streams", &[none], b"").status, 200);
    for (host, status) in
        [("localhost:1", 200), ("mill.example", 200), ("evil.example", 421), ("127.0.0.1.evil.example", 421)]
    {
        assert_eq!(
            mill.send("GET", "/api/v1/streams", &[none, ("Host", host)], b"").status,
            status,
            "{host}"
        );
    }
    for (origin, status) in [("http://localhost:3000", 200), ("https://evil.example", 421), ("null", 421)] {
        let reply = mill.send(
            "POST",
            "/api/v1/sql",
            &[none, ("Origin", origin), ("Content-Type", "text/plain")],
            b"rows 0",
        );
        assert_eq!(reply.status, status, "{origin}");
    }
}
