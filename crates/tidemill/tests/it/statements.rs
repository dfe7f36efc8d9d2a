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

#[test]
fn pages_are_of_one_moment_and_end_with_their_statement() {
    let dir = tempfile::tempdir().unwrap();
    let app = dir.path().join("app");
    std::fs::create_dir(&app).unwrap();
    std::fs::write(app.join("trade.rules"), "event Trade { symbol: string, n: long } key symbol;").unwrap();
    let server = serve(app.to_str().unwrap(), &dir.path().join("data"));
    let send = |path: &str, body: &str| {
        let request = agent().post(format!("{}{path}", server.base));
        let request = request.header("authorization", format!("Bearer {}", server.token));
        let mut reply = request.header("content-type", "text/plain").send(body).unwrap();
        let header = |name: &str| reply.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let (token, statement) = (header("tidemill-next-page"), header("tidemill-statement"));
        (reply.status().as_u16(), token, statement, reply.body_mut().read_to_string().unwrap())
    };
    let trades = |from: u64, to: u64| {
        let rows: Vec<Value> = (from..to).map(|n| json!({"symbol": format!("S{}", n % 7), "n": n})).collect();
        let request = agent().post(format!("{}/api/v1/streams/Trade?wait=true", server.base));
        let reply = request.header("authorization", format!("Bearer {}", server.token)).send_json(rows);
        assert_eq!(reply.unwrap().status().as_u16(), 200);
    };
    trades(0, 1_000);
    let query = "SELECT n FROM events.Trade ORDER BY n DESC";
    let (status, mut next, _, mut rows) = send("/api/v1/sql?page_rows=300&format=ndjson", query);
    assert_eq!(status, 200, "{rows}");
    let mut pages = 1;
    while let Some(token) = next {
        // newer rows would be the first ones
        trades(1_000 * pages, 1_000 * pages + 10);
        let (status, token, _, more) = send(&format!("/api/v1/sql?page={token}"), "");
        assert_eq!(status, 200, "{more}");
        (next, rows, pages) = (token, rows + &more, pages + 1);
    }
    let expected: String = (0..1_000).rev().map(|n| format!("{{\"n\":{n}}}\n")).collect();
    assert_eq!((rows, pages), (expected, 4));

    let (_, next, statement, _) = send("/api/v1/sql?page_rows=1&format=ndjson", query);
    let (next, statement) = (next.unwrap(), statement.unwrap());
    let id: u64 = statement.parse().unwrap();
    let kept = when(&server, |found| found["id"] == id);
    assert_eq!((&kept["phase"], &kept["statement"]), (&json!("running"), &json!(query)));
    let (status, .., body) = send("/api/v1/sql", &format!("KILL QUERY {statement}"));
    assert_eq!(status, 200, "{body}");
    let (status, .., body) = send(&format!("/api/v1/sql?page={next}"), "");
    assert_eq!(status, 409, "{body}");
    assert!(
        body.contains(&format!("statement {statement} was cancelled by KILL QUERY {statement} (http)")),
        "{body}"
    );
}
