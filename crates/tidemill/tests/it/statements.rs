//! SQL statements over HTTP: cancelled by another request, and stopped when their client goes away.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Serving, serve};

const ENDLESS: &str = "select count(*) from generate_series(1, 2000000) a join generate_series(1, 2000000) b \
                       on a.value % 2 = b.value % 2";
/// How long anything here may take at most.
const LIMIT: Duration = Duration::from_secs(30);

fn agent() -> ureq::Agent {
    ureq::Agent::new_with_config(ureq::Agent::config_builder().http_status_as_error(false).build())
}

/// Waits until a statement is as wanted, and returns it.
fn when(server: &Serving, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let mut reply = agent()
            .get(format!("{}/api/v1/statements", server.base))
            .header("authorization", format!("Bearer {}", server.token))
            .call()
            .unwrap();
        let all: Vec<Value> = reply.body_mut().read_json().unwrap();
        if let Some(found) = all.iter().find(|statement| is_wanted(statement)) {
            return found.clone();
        }
        assert!(begun.elapsed() < LIMIT, "{all:?}");
    }
}

fn running(server: &Serving) -> Value {
    when(server, |statement| statement["phase"] == "running" && statement["statement"] == ENDLESS)
}

#[test]
fn a_statement_is_cancelled_and_stops_when_its_client_goes_away() {
    let dir = tempfile::tempdir().unwrap();
    let app = dir.path().join("app");
    std::fs::create_dir(&app).unwrap();
    std::fs::write(app.join("trade.rules"), "event Trade { symbol: string } key symbol;").unwrap();
    let server = serve(app.to_str().unwrap(), &dir.path().join("data"));
    let (base, token) = (server.base.clone(), server.token.clone());
    let asked = std::thread::spawn(move || {
        let mut reply = agent()
            .post(format!("{base}/api/v1/sql"))
            .header("authorization", format!("Bearer {token}"))
            .send_json(json!({ "query": ENDLESS }))
            .unwrap();
        let body: Value = reply.body_mut().read_json().unwrap();
        (reply.status().as_u16(), body)
    });
    let statement = running(&server);
    assert_eq!(statement["origin"], "http");
    let id = &statement["id"];
    let cancelled = agent()
        .delete(format!("{}/api/v1/statements/{id}", server.base))
        .header("authorization", format!("Bearer {}", server.token))
        .call()
        .unwrap();
    assert_eq!(cancelled.status().as_u16(), 200);
    let (status, body) = asked.join().unwrap();
    assert_eq!(status, 409, "{body}");
    let message = format!("statement {id} was cancelled by DELETE /api/v1/statements/{id}");
    assert_eq!(body["error"]["message"], message);
    let ended = when(&server, |found| found["id"] == *id && found["ended"].is_string());
    assert_eq!((&ended["phase"], &ended["error"]), (&json!("cancelled"), &json!(message)));

    let mut client = TcpStream::connect(server.base.strip_prefix("http://").unwrap()).unwrap();
    let request = format!(
        "POST /api/v1/sql HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Type: text/plain\r\n\
         Content-Length: {}\r\n\r\n{ENDLESS}",
        server.token,
        ENDLESS.len()
    );
    client.write_all(request.as_bytes()).unwrap();
    let statement = running(&server);
    drop(client);
    let ended = when(&server, |found| found["id"] == statement["id"] && found["ended"].is_string());
    assert_eq!(ended["error"], "its reader took no more rows");
}
