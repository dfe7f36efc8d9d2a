//! The tools, and the rights of their callers.

use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::json;
use tidemill_mcp::McpOptions;

use crate::blocking_client::Blocking;
use crate::fixture::{McpServer, options};

const TOOLS: [&str; 7] = ["list_streams", "list_rules", "sql", "plan", "why", "explain", "backtest"];

#[tokio::test(flavor = "multi_thread")]
async fn the_client_of_rmcp_finds_and_calls_the_tools() {
    let server = tokio::task::spawn_blocking(McpServer::start).await.unwrap();
    let config = StreamableHttpClientTransportConfig::with_uri(server.url.clone());
    let transport = StreamableHttpClientTransport::with_client(Blocking { user: "admin" }, config);
    let client = ().serve(transport).await.unwrap();
    let tools = client.list_all_tools().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    assert_eq!(names, TOOLS);
    for tool in &tools {
        let annotations = tool.annotations.as_ref().unwrap();
        assert_eq!(annotations.read_only_hint, Some(true), "{}", tool.name);
        assert_eq!(tool.input_schema["type"], "object", "{}", tool.name);
    }
    let arguments = json!({"query": "SELECT rows 2"}).as_object().unwrap().clone();
    let result = client.call_tool(CallToolRequestParams::new("sql").with_arguments(arguments)).await.unwrap();
    assert_ne!(result.is_error, Some(true));
    let text = result.content[0].as_text().unwrap().text.clone();
    assert_eq!(text, "columns: n bigint\n{\"n\":0}\n{\"n\":1}\n2 rows\n");
    client.cancel().await.unwrap();
    // a runtime cannot be dropped where others run
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
}

#[test]
fn a_caller_sees_what_it_may_read() {
    let server = McpServer::start();
    let list = |user: &str, tool: &str| server.call(user, tool, json!({})).unwrap();
    assert_eq!(list("admin", "list_streams"), "{\"name\":\"Flight\"}\n{\"name\":\"Secret\"}\n");
    assert_eq!(list("reader", "list_streams"), "{\"name\":\"Flight\"}\n");
    assert!(list("nobody", "list_streams").contains("no streams"));
    assert_eq!(
        list("admin", "list_rules"),
        "{\"rule\":\"Late\"}\n{\"rule\":\"Hidden\"}\n{\"query\":\"Delays\"}\n"
    );
    assert_eq!(list("reader", "list_rules"), "{\"rule\":\"Late\"}\n");
    assert!(list("nobody", "list_rules").contains("no rules"));

    let why = |user: &str, arguments| server.call(user, "why", arguments);
    let late = json!({"rule": "Late", "event": "0-1-1"});
    assert_eq!(why("reader", late.clone()).unwrap(), "Late fired for 0-1-1");
    assert_eq!(why("analyst", json!({"event": "0-1-1"})).unwrap(), "all rules fired for 0-1-1");
    assert_eq!(why("analyst", json!({"query": "Delays", "key": "a"})).unwrap(), "None Delays Some(\"a\")");
    for refused in
        [json!({"rule": "Hidden", "event": "0-1-1"}), json!({"event": "0-1-1"}), json!({"query": "Delays"})]
    {
        let error = why("reader", refused).unwrap_err();
        assert!(
            error.contains("may not read") && error.contains("tidemill users grant reader read"),
            "{error}"
        );
    }
    // hints name what the caller may not see
    let unknown = json!({"rule": "Late", "event": "9-9-9"});
    assert_eq!(why("reader", unknown.clone()).unwrap_err(), "no event 9-9-9");
    assert!(why("analyst", unknown).unwrap_err().contains("Did you mean `Hidden`"));
    for both in [json!({}), json!({"rule": "Late"}), json!({"query": "Delays", "event": "0-1-1"})] {
        assert!(why("admin", both).unwrap_err().contains("expected `event`"));
    }
}

#[test]
fn apps_are_explained_and_tested_to_those_who_may() {
    let server = McpServer::start();
    let files = json!([{"name": "delays.siddhi", "text": "Flight 5"}]);
    let call = |user: &str, tool: &str, arguments| server.call(user, tool, arguments);
    assert_eq!(call("analyst", "explain", json!({})).unwrap(), "The app has no queries.");
    assert_eq!(call("admin", "explain", json!({"files": files})).unwrap(), "delays.siddhi has 8 bytes\n");
    assert!(call("reader", "explain", json!({})).unwrap_err().contains("may not read"));
    assert!(call("analyst", "explain", json!({"files": files})).unwrap_err().contains("the role `author`"));
    assert!(call("analyst", "backtest", json!({"files": files})).unwrap_err().contains("the role `author`"));
    let text = call("admin", "backtest", json!({"files": files, "from": "-1h", "show": 4})).unwrap();
    assert_eq!(text, "6 rows, 4 shown, 200000 at most");
}

#[test]
fn a_backtest_reads_a_limited_history() {
    let files = |text: &str| json!({"files": [{"name": "delays.siddhi", "text": text}]});
    for limits in
        [McpOptions { events_max: 50, ..options() }, McpOptions { events_bytes_max: 400, ..options() }]
    {
        let server = McpServer::with(limits);
        server.call("admin", "backtest", files("Flight 40")).unwrap();
        let error = server.call("admin", "backtest", files("Flight 60")).unwrap_err();
        assert!(error.contains("choose a shorter one with from and to"), "{error}");
    }
}

#[test]
fn statements_only_read_and_answers_are_limited() {
    let server = McpServer::start();
    let sql = |arguments| server.call("admin", "sql", arguments);
    assert_eq!(sql(json!({"query": "SELECT none"})).unwrap(), "columns: n bigint\n0 rows\n");
    let text = sql(json!({"query": "SELECT rows 9"})).unwrap();
    assert!(
        text.contains("{\"n\":2}\n3 rows (more rows follow: raise max_rows, up to 10, or select less)"),
        "{text}"
    );
    assert!(sql(json!({"query": "SELECT rows 3"})).unwrap().ends_with("{\"n\":2}\n3 rows\n"));
    assert!(sql(json!({"query": "SELECT rows 9", "max_rows": 9})).unwrap().ends_with("\n9 rows\n"));
    let text = sql(json!({"query": "SELECT long 900", "max_rows": 9})).unwrap();
    assert!(
        text.ends_with("2 rows (more rows follow, beyond 2000 bytes: select fewer or shorter columns)\n"),
        "{text}"
    );
    let text = sql(json!({"query": "SELECT long 100000"})).unwrap();
    assert_eq!(text, "columns: n bigint\n0 rows (the next row is longer than 2000 bytes)\n");
    for (max_rows, expected) in
        [(json!(0), "expected 1 to 10"), (json!(11), "expected 1 to 10"), (json!(-1), "arguments of `sql`")]
    {
        let error = sql(json!({"query": "SELECT rows 1", "max_rows": max_rows})).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    for changing in ["DELETE FROM a", "INSERT INTO a VALUES (1)", "UPDATE a SET b = 1", "KILL QUERY 1", ""] {
        for tool in ["sql", "plan"] {
            let error = server.call("admin", tool, json!({"query": changing})).unwrap_err();
            assert!(error.contains("only read"), "{error}");
        }
    }
    assert_eq!(
        server.call("admin", "plan", json!({"query": "SELECT rows 1"})).unwrap(),
        "table plan of SELECT rows 1\n"
    );
    assert!(sql(json!({"query": "SELECT wrong"})).unwrap_err().contains("expected a query"));
}

#[test]
fn a_tool_that_takes_too_long_ends() {
    let server = McpServer::with(McpOptions { tool_timeout: Duration::from_millis(50), ..options() });
    let error = server.call("admin", "sql", json!({"query": "SELECT wait"})).unwrap_err();
    assert!(error.contains("`sql` took longer than 50ms"), "{error}");
}
