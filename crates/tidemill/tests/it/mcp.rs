//! MCP of the program: the tools over an engine, and the checks of the server in front of them.

use serde_json::{Value, json};

use crate::{Serving, run, serve};

const RULES: &str = r#"
event Flight { id: string, origin: string, delay: double } id id;
event Late { id: string, delay: double };
event Secret { id: string };
rule MarkLate { when { f: Flight(delay > 15); } then { emit new Late(f.id, f.delay); } }
"#;
const QUERIES: &str = "define stream Flight (id string, origin string, delay double);
define stream Long (id string);
@info(name = 'long') from Flight[delay > 60] select id insert into Long;
";

struct World {
    _dir: tempfile::TempDir,
    server: Serving,
    reader: String,
}

impl World {
    fn new(settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (app, data) = (dir.path().join("app"), dir.path().join("data"));
        std::fs::create_dir(&app).unwrap();
        std::fs::write(app.join("flights.rules"), RULES).unwrap();
        std::fs::write(app.join("long.siddhi"), QUERIES).unwrap();
        std::fs::write(app.join("app.toml"), settings).unwrap();
        let data_arguments = ["--data", data.to_str().unwrap()];
        run(&[&["run", app.to_str().unwrap()][..], &data_arguments, &["--until-idle"]].concat(), 0);
        let user = ["users", "add", "reader", "--no-password", "--grant", "read stream:Flight"];
        run(&[&user[..], &data_arguments].concat(), 0);
        let (reader, _) = run(&[&["tokens", "new", "reader"][..], &data_arguments].concat(), 0);
        let server = serve(app.to_str().unwrap(), &data);
        Self { server, reader: reader.trim().to_owned(), _dir: dir }
    }

    fn post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> (u16, Value) {
        let config = ureq::Agent::config_builder().http_status_as_error(false).build();
        let mut request = ureq::Agent::from(config).post(format!("{}{path}", self.server.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut reply = request.send_json(body).unwrap();
        let text = reply.body_mut().read_to_string().unwrap();
        (reply.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Calls a tool. Returns its text, or as an error that of its refusal.
    fn call(&self, token: &str, tool: &str, arguments: Value) -> Result<String, String> {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("accept", "application/json, text/event-stream")];
        let params = json!({"name": tool, "arguments": arguments});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let (status, reply) = self.post("/mcp", &headers, &message);
        assert_eq!(status, 200, "{reply}");
        let text = reply["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{reply}"));
        if reply["result"]["isError"] == true { Err(text.to_owned()) } else { Ok(text.to_owned()) }
    }
}

#[test]
fn a_model_asks_what_happened_and_what_would_have() {
    let world = World::new("[settings]\nserver.mcp = true\n");
    let token = world.server.token.clone();
    let flights: Vec<Value> = [5.0, 20.0, 90.0]
        .iter()
        .enumerate()
        .map(|(n, delay)| json!({"id": format!("F{n}"), "origin": "EWR", "delay": delay}))
        .collect();
    let bearer = format!("Bearer {token}");
    let (status, reply) =
        world.post("/api/v1/streams/Flight?wait=true", &[("authorization", &bearer)], &json!(flights));
    assert_eq!(status, 200, "{reply}");
    let admin = |tool: &str, arguments| world.call(&token, tool, arguments);
    let reader = |tool: &str, arguments| world.call(&world.reader, tool, arguments);

    let streams = admin("list_streams", json!({})).unwrap();
    let flight = streams.lines().find(|line| line.contains("\"Flight\"")).unwrap();
    let flight: Value = serde_json::from_str(flight).unwrap();
    assert_eq!((&flight["stored"], &flight["fields"]["delay"]), (&json!(3), &json!("double")), "{streams}");
    assert!(streams.contains("Secret"), "{streams}");
    let streams = reader("list_streams", json!({})).unwrap();
    assert_eq!(streams.lines().count(), 1, "{streams}");

    let rules = admin("list_rules", json!({})).unwrap();
    assert!(rules.contains("MarkLate") && rules.contains("\"query\":\"long\""), "{rules}");
    let rows =
        reader("sql", json!({"query": "SELECT id FROM events.Flight WHERE delay > 15 ORDER BY id"})).unwrap();
    assert_eq!(rows, "columns: id text\n{\"id\":\"F1\"}\n{\"id\":\"F2\"}\n2 rows\n");
    let error = reader("sql", json!({"query": "SELECT * FROM events.Secret"})).unwrap_err();
    assert!(error.contains("Secret") && !error.contains("Did you mean"), "{error}");
    for changing in [
        "DELETE FROM events.Flight",
        "EXPLAIN ANALYZE DELETE FROM events.Flight",
        "WITH a AS (SELECT 1) INSERT INTO events.Flight SELECT 'x', 'y', 1",
    ] {
        let error = admin("sql", json!({"query": changing})).unwrap_err();
        assert!(!error.is_empty());
    }
    assert!(
        admin("sql", json!({"query": "SELECT count(*) AS n FROM events.Flight"}))
            .unwrap()
            .contains("{\"n\":3}")
    );
    assert!(admin("plan", json!({"query": "SELECT id FROM events.Flight"})).unwrap().contains("plan"));

    let why = admin("why", json!({"rule": "MarkLate", "event": "id=F2"})).unwrap();
    assert!(why.contains("MarkLate"), "{why}");
    let error = reader("why", json!({"rule": "MarkLate", "event": "id=F2"})).unwrap_err();
    assert!(error.contains("may not read rule:MarkLate"), "{error}");
    admin("why", json!({"query": "long"})).unwrap();

    assert!(admin("explain", json!({})).unwrap().contains("long"));
    let changed = |text: &str| json!({"files": [{"name": "long.siddhi", "text": text}]});
    let text = admin("backtest", changed(&QUERIES.replace("> 60", "> 10"))).unwrap();
    assert!(
        text.contains("3 events of Flight") && text.contains("Long: 1 in both, 0 only in old, 1 only in new"),
        "{text}"
    );
    assert!(text.contains("\"F1\""), "{text}");
    assert!(admin("backtest", changed(QUERIES)).unwrap().contains("Nothing differs."));
    let error = admin("explain", changed("define stream")).unwrap_err();
    assert!(error.contains("long.siddhi"), "{error}");
    let rules = json!({"files": [{"name": "flights.rules", "text": RULES.replace("> 15", "> 16")}]});
    assert!(admin("backtest", rules).unwrap_err().contains("rule MarkLate"));
    assert!(reader("backtest", changed(QUERIES)).unwrap_err().contains("the role `author`"));
}

#[test]
fn the_server_checks_its_callers() {
    let world = World::new("[settings]\nserver.mcp = true\n");
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let bearer = format!("Bearer {}", world.server.token);
    let good = [("authorization", bearer.as_str()), ("accept", "application/json, text/event-stream")];
    let ask = |headers: &[(&str, &str)]| world.post("/mcp", &[&good[..], headers].concat(), &message);
    let (status, reply) = ask(&[]);
    assert_eq!((status, &reply["result"]), (200, &json!({})), "{reply}");
    let (status, reply) = world.post("/mcp", &good[1..], &message);
    assert_eq!((status, &reply["jsonrpc"]), (401, &json!("2.0")), "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("no token"), "{reply}");
    let (status, reply) = ask(&[("origin", "https://evil.example")]);
    assert_eq!((status, &reply["jsonrpc"]), (403, &json!("2.0")), "{reply}");
    assert_eq!(ask(&[("origin", "http://localhost:6274")]).0, 200);
    let (status, reply) = ask(&[("host", "evil.example")]);
    assert_eq!((status, &reply["jsonrpc"]), (421, &json!("2.0")), "{reply}");
}

#[test]
fn it_is_off_unless_it_is_asked_for() {
    let world = World::new("");
    let bearer = format!("Bearer {}", world.server.token);
    let (status, _) = world.post("/mcp", &[("authorization", &bearer)], &json!({}));
    assert_eq!(status, 404);
}
