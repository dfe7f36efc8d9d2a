//! Sending events.

use crate::harness::Mill;

#[test]
fn good_rows_go_on_when_others_do_not() {
    let mill = Mill::start();
    let body = "{\"id\":\"F1\",\"delay\":20}\nnot json\n{\"id\":\"F2\",\"delay\":3}\n";
    let send = |body: &str| {
        mill.send(
            "POST",
            "/api/v1/streams/Flight?wait=true",
            &[("Content-Type", "application/x-ndjson")],
            body.as_bytes(),
        )
    };
    let reply = send(body);
    assert_eq!(reply.status, 207, "{}", reply.text());
    let json = reply.json();
    assert_eq!((json["accepted"].as_u64(), json["rejected"].as_array().unwrap().len()), (Some(2), 1));
    assert_eq!(json["rejected"][0]["row"], 1);
    assert_eq!(json["durability"], "fsync");
    assert_eq!(json["events"].as_array().unwrap().len(), 2);
    assert_eq!(
        json["emitted"],
        serde_json::json!([{"stream": "Late", "event": {"id": "F1", "delay": 20.0}}])
    );
    assert!(json.get("error").is_none());

    let json = send("{\"id\":\"F1\",\"delay\":99}\n").json();
    assert_eq!((json["accepted"].as_u64(), json["duplicates"].as_u64()), (Some(1), Some(1)));

    let reply = send("no\nno\n");
    assert_eq!(reply.status, 400);
    let json = reply.json();
    assert_eq!((json["accepted"].as_u64(), json["rejected"].as_array().unwrap().len()), (Some(0), 2));
    assert!(json["error"]["message"].as_str().unwrap().contains("all 2 rows"), "{json}");

    let ledger = &mill.get("/api/v1/streams/Flight").json()["ledger"];
    assert_eq!((ledger["stored"].as_u64(), ledger["duplicate"].as_u64()), (Some(2), Some(1)));
    assert_eq!(ledger["balances"], true, "{ledger}");
}

#[test]
fn every_form_of_body_and_durability_is_taken() {
    let mill = Mill::start();
    for (durability, media, body) in [
        ("memory", "application/json", r#"{"id":"A"}"#),
        ("os", "application/json; charset=utf-8", r#"[{"id":"B"}]"#),
        ("fsync", "text/csv", "id,delay\nC,1.5\n"),
        ("fsync", "application/x-ndjson", "{\"id\":\"D\"}\n"),
    ] {
        let path = format!("/api/v1/streams/Flight?durability={durability}");
        let reply = mill.send("POST", &path, &[("Content-Type", media)], body.as_bytes());
        assert_eq!(reply.status, 200, "{media}: {}", reply.text());
        assert_eq!(
            (reply.json()["accepted"].as_u64(), reply.json()["durability"].as_str()),
            (Some(1), Some(durability))
        );
    }
}

#[test]
fn why_explains_an_event_as_json_and_as_text() {
    let mill = Mill::start();
    let reply =
        mill.post_json("/api/v1/streams/Flight?wait=true", r#"{"id":"F1","origin":"EWR","delay":20}"#);
    let id = reply.json()["events"][0].as_str().unwrap().to_owned();
    for path in
        [format!("/api/v1/rules/MarkLate/why?event={id}"), "/api/v1/why?event=origin%3DEWR".to_owned()]
    {
        let reply = mill.get(&path);
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        assert_eq!(reply.json().as_array().unwrap().len(), 1, "{path}: {}", reply.text());
        let text = mill.send("GET", &path, &[("Accept", "text/plain")], b"");
        assert_eq!(text.header("content-type"), Some("text/plain; charset=utf-8"));
        assert!(text.text().contains("MarkLate"), "{}", text.text());
    }
    let rules = mill.get("/api/v1/rules").json();
    let rule = |name: &str| rules.as_array().unwrap().iter().find(|r| r["name"] == name).unwrap().clone();
    assert_eq!(rule("MarkLate")["fired"], 1);
    assert_eq!((&rule("Origins")["kind"], &rule("Origins")["fired"]), (&"aggregate".into(), &0.into()));
}

#[test]
fn an_aggregate_rule_is_run_when_asked() {
    let mill = Mill::start();
    let reply = mill.post_json("/api/v1/rules/Origins/run", "");
    assert_eq!((reply.status, reply.json()), (200, serde_json::json!({"documents_written": 0})));
    let rules = mill.get("/api/v1/rules").json();
    let origins = rules.as_array().unwrap().iter().find(|r| r["name"] == "Origins").unwrap();
    assert_eq!(origins["fired"], 1);
}

#[test]
fn a_new_secret_of_a_token_ends_the_streams_that_it_follows() {
    let mill = Mill::start();
    let token = mill.new_token("ana", vec!["read stream:Late".parse().unwrap()], None);
    let mut tail = mill.connect(b"");
    let header = format!("Authorization: Bearer {token}\r\n");
    let head = tail.read_until("/api/v1/streams/Late/tail", &header, "\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let rotated = mill.rotate_token(&token);
    // without an event, and within the time that a follower waits for one
    tail.read_text();
    let asked = |token: &str| {
        let header = format!("Bearer {token}");
        mill.send("GET", "/api/v1/streams", &[("Authorization", &header)], b"").status
    };
    assert_eq!((asked(&token), asked(&rotated)), (401, 200));
}

#[test]
fn a_stream_is_followed_live() {
    let mut mill = Mill::start();
    let mut tail = mill.connect(b"");
    let head = tail.read_until("/api/v1/streams/Late/tail", "", "\r\n\r\n");
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    mill.post_json(
        "/api/v1/streams/Flight",
        r#"[{"id":"A","delay":20},{"id":"B","delay":1},{"id":"C","delay":30}]"#,
    );
    let mut events = String::new();
    while events.matches("\ndata: ").count() < 2 {
        events += &tail.read_on("\n\n");
    }
    let data: Vec<serde_json::Value> = events
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let mut ids: Vec<_> = data.iter().map(|event| event["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["A", "C"]);
    assert!(data[0]["_time"].as_str().unwrap().ends_with('Z'), "{events}");
    let last = events.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap();
    assert!(last.split(',').all(|part| part.split('-').count() == 3), "{last}");

    // a follower does not keep the server from its end
    let shutdown = mill.begin_shutdown(std::time::Duration::from_secs(60));
    assert_eq!(mill.block_on(shutdown).unwrap(), 0);
}

#[test]
fn followers_are_counted() {
    let mill = Mill::start();
    let mut tails = vec![];
    for _ in 0..64 {
        let mut tail = mill.connect(b"");
        tail.read_until("/api/v1/streams/Late/tail", "", "\r\n\r\n");
        tails.push(tail);
    }
    let refused = mill.get("/api/v1/streams/Late/tail").refusal(429, "limit_reached");
    assert_eq!(refused, "64 callers follow streams, which is the limit");
    drop(tails.pop());
    for _ in 0..2000 {
        let mut tail = mill.connect(b"");
        if tail.read_until("/api/v1/streams/Late/tail", "", "\r\n\r\n").starts_with("HTTP/1.1 200") {
            return;
        }
    }
    panic!("the place of a follower that has gone stays taken");
}
