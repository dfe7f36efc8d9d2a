//! Input that is no message, or not a good one.

use serde_json::{Value as Json, json};

use crate::fixture::McpServer;

const GOOD: [(&str, &str); 3] = [
    ("content-type", "application/json"),
    ("accept", "application/json, text/event-stream"),
    ("user", "admin"),
];

/// Returns the error of a reply, which has the form of JSON-RPC.
#[track_caller]
fn error_of(body: &str) -> Json {
    let reply: Json = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}"));
    assert_eq!(reply["jsonrpc"], "2.0", "{body}");
    assert!(reply["error"]["code"].is_i64() && reply["error"]["message"].is_string(), "{body}");
    reply["error"].clone()
}

#[test]
fn what_is_no_message_is_refused_in_the_form_of_json_rpc() {
    let server = McpServer::start();
    for body in [
        "",
        "{",
        "null",
        "[]",
        "1",
        "\"ping\"",
        "{}",
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        "\u{0}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"}",
    ] {
        let (status, reply) = server.send("POST", &GOOD, body.as_bytes());
        assert!((400..500).contains(&status) || status == 200, "{body}: {status} {reply}");
        error_of(&reply);
    }
    let (status, reply) = server.send("POST", &GOOD, b"\xff\xfe");
    assert!((400..500).contains(&status), "{status} {reply}");
    error_of(&reply);
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let (status, reply) = server.send("POST", &GOOD, deep.as_bytes());
    assert!((400..500).contains(&status), "{status} {reply}");
    error_of(&reply);
}

#[test]
fn headers_methods_and_sizes_have_our_text() {
    let server = McpServer::start();
    let ping = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for method in ["GET", "DELETE", "PUT"] {
        let (status, reply) = server.send(method, &GOOD, b"");
        assert_eq!(status, 405, "{reply}");
        assert!(error_of(&reply)["message"].as_str().unwrap().contains("send each message as POST"));
    }
    let (status, reply) = server.send("POST", &[GOOD[0], GOOD[2]], ping);
    assert_eq!(status, 406, "{reply}");
    assert!(
        error_of(&reply)["message"].as_str().unwrap().contains("Accept: application/json, text/event-stream")
    );
    let (status, reply) = server.send("POST", &[("content-type", "text/plain"), GOOD[1], GOOD[2]], ping);
    assert_eq!(status, 415, "{reply}");
    assert!(error_of(&reply)["message"].as_str().unwrap().contains("Content-Type: application/json"));
    let (status, reply) = server.send("POST", &GOOD, &[b' '; 10_001]);
    assert_eq!(status, 413, "{reply}");
    assert!(error_of(&reply)["message"].as_str().unwrap().contains("more than 10000 bytes"));
}

#[test]
fn unknown_methods_tools_and_arguments_say_what_there_is() {
    let server = McpServer::start();
    let ask = |method: &str, params: Json| {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        server.post("admin", &message).1
    };
    let error = error_of(&ask("tools/cal", json!({})));
    assert_eq!(error["code"], -32_601, "{error}");
    let error = error_of(&ask("tools/call", json!({"name": "sqll", "arguments": {}})));
    assert_eq!(error["code"], -32_602, "{error}");
    assert!(error["message"].as_str().unwrap().contains("Did you mean `sql`"), "{error}");
    // a model corrects what the result of a tool says
    for (tool, arguments, expected) in [
        ("sql", json!({}), "missing field `query`"),
        ("sql", json!({"query": 1}), "expected a string"),
        ("sql", json!({"query": "SELECT 1", "rows": 1}), "unknown field `rows`"),
        ("list_streams", json!({"all": true}), "unknown field `all`"),
        ("backtest", json!({"files": [{"name": "a"}]}), "missing field `text`"),
    ] {
        let error = server.call("admin", tool, arguments).unwrap_err();
        assert!(error.contains(&format!("arguments of `{tool}`")) && error.contains(expected), "{error}");
    }
    // a defect of a tool is the error of one call
    let error = server.call("admin", "why", json!({"event": "panic"})).unwrap_err();
    assert!(error.contains("cut short"), "{error}");
    server.call("admin", "list_streams", json!({})).unwrap();
}

#[test]
fn nothing_is_kept_between_requests() {
    let server = McpServer::start();
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
    let (status, body) = server.post("admin", &initialize);
    assert_eq!(status, 200, "{body}");
    let reply: Json = serde_json::from_str(&body).unwrap();
    assert_eq!(reply["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(reply["result"]["serverInfo"]["name"], "tidemill");
    assert!(reply["result"]["instructions"].as_str().unwrap().contains("list_streams"));
    let (status, body) =
        server.post("admin", &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!((status, body.as_str()), (202, ""));
    // a tool is called without any of that
    server.call("admin", "list_streams", json!({})).unwrap();
    // and a request without a caller gets nothing
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_streams", "arguments": {}}});
    let (_, body) = server.send("POST", &GOOD[..2], message.to_string().as_bytes());
    assert!(error_of(&body)["message"].as_str().unwrap().contains("no caller"), "{body}");
}
