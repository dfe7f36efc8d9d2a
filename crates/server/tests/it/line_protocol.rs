//! Line protocol: what does not fit into the text of a case.

use std::io::Write;

use serde_json::json;

use crate::harness::{Mill, Reply};

fn send(mill: &Mill, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    mill.send("POST", path, headers, body)
}

#[test]
fn replies_name_some_of_many_bad_lines_and_none_at_length() {
    let mill = Mill::start();
    let body = "Flight,id=x delay\n".repeat(150);
    let reply = send(&mill, "/write", &[], body.as_bytes());
    let error = reply.json()["error"].as_str().unwrap().to_owned();
    assert_eq!(error.lines().count(), 102, "{error}");
    assert!(error.starts_with("partial write: 0 of 150 lines were stored\nline 1: "), "{error}");
    assert!(error.ends_with("\nand 50 more lines"), "{error}");
    let data = send(&mill, "/api/v3/write_lp", &[], body.as_bytes()).json()["data"].clone();
    assert_eq!(data.as_array().unwrap().len(), 100);

    let name = "m".repeat(30_000);
    for (path, line) in [
        ("/write", format!("{name} n=1i")),
        ("/api/v3/write_lp", format!("Flight {name}=1i,{name}=2i")),
        ("/api/v2/write", format!("Flight,id=a {name}")),
    ] {
        let reply = send(&mill, path, &[], line.as_bytes());
        assert_eq!(reply.status, 400, "{path}");
        assert!(reply.body.len() < 10_000, "{path}: {}", reply.body.len());
    }
}

#[test]
fn compressed_lines_are_read_and_a_retry_is_stored_once() {
    let mill = Mill::start();
    let lines: String = (0..1000).map(|n| format!("Flight,id=F{n} delay={n} {n}000000\n")).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(lines.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    for path in ["/write", "/api/v2/write", "/api/v3/write_lp"] {
        let reply = send(&mill, path, &[("Content-Encoding", "gzip")], &gzip);
        assert_eq!((reply.status, reply.text().as_str()), (204, ""), "{path}");
    }
    mill.engine.catch_up().unwrap();
    let ledger = mill.get("/api/v1/streams/Flight").json()["ledger"].clone();
    assert_eq!((&ledger["stored"], &ledger["duplicate"]), (&json!(1000), &json!(2000)), "{ledger}");
    // and rules have run
    let late = mill.get("/api/v1/streams/Late").json()["ledger"]["stored"].clone();
    assert_eq!(late, 984);
}

#[test]
fn a_body_beyond_the_limit_is_refused_in_each_form() {
    let mill = Mill::start();
    let body = "Flight,id=x delay=1\n".repeat(5_000);
    let reply = send(&mill, "/write", &[], body.as_bytes());
    assert_eq!(reply.status, 413);
    assert!(reply.json()["error"].as_str().unwrap().contains("server.body_bytes_max"));
    let reply = send(&mill, "/api/v2/write", &[], body.as_bytes());
    assert_eq!((reply.status, reply.json()["code"].as_str()), (413, Some("request too large")));
}
