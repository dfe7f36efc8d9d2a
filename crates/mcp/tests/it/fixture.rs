//! Server over a scripted engine and database. The header `user` of a request is its caller.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::routing::any;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream;
use serde_json::{Map, Value as Json, json};
use tidemill_access::{Action, Principal, Resource};
use tidemill_database::{
    BatchReply, Database, Description, EncodedReply, Format, QueryRequest, ResultColumn, SendReceipt,
    SendRequest, StatementInfo,
};
use tidemill_mcp::{ChangedFile, McpEngine, McpOptions, McpService, NamedObject, PATH, PreparedBacktest};
use tidemill_types::{Error, Result};

/// Running server.
pub struct McpServer {
    pub url: String,
    _runtime: tokio::runtime::Runtime,
}

fn grants(user: &str) -> Vec<tidemill_access::Grant> {
    let texts: &[&str] = match user {
        "admin" => &["admin"],
        "reader" => &["read stream:Flight", "read rule:Late"],
        "analyst" => &["read"],
        _ => &[],
    };
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Returns limits that are easy to reach.
pub fn options() -> McpOptions {
    McpOptions {
        rows: 3,
        rows_max: 10,
        answer_bytes: 2_000,
        message_bytes_max: 10_000,
        ..McpOptions::default()
    }
}

impl McpServer {
    pub fn start() -> Self {
        Self::with(options())
    }

    pub fn with(options: McpOptions) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let service = McpService::new(Arc::new(ScriptedEngine), Arc::new(ScriptedSql), options);
        let answer = move |request: Request| {
            let service = service.clone();
            async move {
                let (mut parts, body) = request.into_parts();
                let user = parts.headers.get("user").map(|user| user.to_str().unwrap().to_owned());
                if let Some(user) = user {
                    parts.extensions.insert(Principal::user(user.clone(), grants(&user)));
                }
                let body = to_bytes(body, usize::MAX).await.unwrap();
                service.answer(Request::from_parts(parts, body)).await.map(Body::from)
            }
        };
        let router = Router::new().route(PATH, any(answer));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}{PATH}", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, _runtime: runtime }
    }

    /// Sends a request. Returns the status and the body.
    pub fn send(&self, method: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .timeout_global(Some(Duration::from_secs(60)))
            .build()
            .into();
        let mut request = ureq::http::Request::builder().method(method).uri(&self.url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut reply = agent.run(request.body(body).unwrap()).unwrap();
        (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
    }

    /// Sends a message as a client does.
    pub fn post(&self, user: &str, message: &Json) -> (u16, String) {
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-06-18"),
            ("user", user),
        ];
        self.send("POST", &headers, message.to_string().as_bytes())
    }

    /// Calls a tool. Returns its text, or as an error that of its refusal.
    pub fn call(&self, user: &str, tool: &str, arguments: Json) -> Result<String, String> {
        let params = json!({"name": tool, "arguments": arguments});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let (status, body) = self.post(user, &message);
        assert_eq!(status, 200, "{body}");
        let reply: Json = serde_json::from_str(&body).unwrap();
        let result = &reply["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned();
        if result["isError"] == true { Err(text) } else { Ok(text) }
    }
}

/// Database that knows `rows N`, whose rows are so many, `long N`, whose rows have N bytes, and `wait`. Statements begin with
/// `SELECT`, which is left out here.
struct ScriptedSql;

impl Database for ScriptedSql {
    fn query(&self, _: QueryRequest) -> BoxFuture<'static, Result<BatchReply>> {
        Box::pin(async { Err(Error::invalid("tools ask for text")) })
    }

    fn query_encoded(
        &self,
        request: QueryRequest,
        format: Format,
    ) -> BoxFuture<'static, Result<EncodedReply>> {
        assert_eq!(request.origin, "mcp");
        for action in [Action::Write, Action::Author, Action::Administer] {
            assert!(!request.principal.can(action, &Resource::stream("Flight")), "statements only read");
        }
        Box::pin(async move {
            let columns = vec![ResultColumn { name: "n".to_owned(), type_name: "bigint".to_owned() }];
            if let Some(planned) = request.text.strip_prefix("EXPLAIN ") {
                let plan = Bytes::from(format!("{format} plan of {planned}\n"));
                return Ok(EncodedReply {
                    columns,
                    pieces: stream::iter([Ok(plan)]).boxed(),
                    is_endless: false,
                });
            }
            assert_eq!(format, Format::Ndjson);
            if let Some(hidden) = request.text.strip_prefix("SELECT * FROM events.") {
                let name = hidden.split(' ').next().unwrap().trim_matches('"').to_owned();
                if !request.principal.can(Action::Read, &Resource::stream(&name)) {
                    return Err(Error::not_found(format!("no table `events.{name}`"))
                        .with_hint(". Did you mean `events.Secret`?"));
                }
            }
            let mut words = request.text.split(' ').skip(1);
            let (word, n) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let n: usize = n.parse().unwrap_or(0);
            // a piece may end anywhere
            let text: String = match word {
                "rows" | "*" => (0..n.clamp(1, 100_000)).map(|row| format!("{{\"n\":{row}}}\n")).collect(),
                "long" => format!("{{\"n\":\"{}\"}}\n", "x".repeat(n)).repeat(3),
                "none" => String::new(),
                "wait" => {
                    return Ok(EncodedReply {
                        columns,
                        pieces: stream::pending().boxed(),
                        is_endless: false,
                    });
                }
                _ => return Err(Error::invalid(format!("expected a query, found `{}`", request.text))),
            };
            let pieces: Vec<Result<Bytes>> =
                text.as_bytes().chunks(7).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
            Ok(EncodedReply { columns, pieces: stream::iter(pieces).boxed(), is_endless: false })
        })
    }

    fn describe(&self, _: QueryRequest) -> BoxFuture<'static, Result<Description>> {
        Box::pin(async { Err(Error::invalid("tools ask for rows")) })
    }

    fn send(&self, _: SendRequest) -> BoxFuture<'static, Result<SendReceipt>> {
        Box::pin(async { Err(Error::invalid("tools send no events")) })
    }

    fn statements(&self, _: &Principal) -> Vec<StatementInfo> {
        vec![]
    }

    fn cancel(&self, _: u64, _: &Principal, _: &str) -> Result<()> {
        Err(Error::invalid("tools cancel nothing"))
    }
}

/// Engine with the streams Flight and Secret, the rules Late and Hidden, and the query Delays.
struct ScriptedEngine;

fn named(kind: &str, names: &[&str]) -> Vec<NamedObject> {
    let object = |name: &&str| NamedObject { name: (*name).to_owned(), description: json!({ kind: name }) };
    names.iter().map(object).collect()
}

impl McpEngine for ScriptedEngine {
    fn streams(&self) -> Result<Vec<NamedObject>> {
        Ok(named("name", &["Flight", "Secret"]))
    }

    fn rules(&self) -> Result<Vec<NamedObject>> {
        Ok(named("rule", &["Late", "Hidden"]))
    }

    fn queries(&self) -> Result<Vec<NamedObject>> {
        Ok(named("query", &["Delays"]))
    }

    fn why_rule(&self, rule: Option<&str>, event: &str) -> Result<String> {
        match event {
            "0-1-1" => Ok(format!("{} fired for {event}", rule.unwrap_or("all rules"))),
            "panic" => panic!("as the test asked"),
            _ => Err(Error::not_found(format!("no event {event}")).with_hint(". Did you mean `Hidden`?")),
        }
    }

    fn why_query(&self, file: Option<&str>, query: &str, key: Option<&str>) -> Result<String> {
        Ok(format!("{file:?} {query} {key:?}"))
    }

    fn explain(&self, files: Vec<ChangedFile>) -> Result<String> {
        Ok(files.iter().map(|file| format!("{} has {} bytes\n", file.name, file.text.len())).collect())
    }

    fn backtest(
        &self,
        files: Vec<ChangedFile>,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Box<dyn PreparedBacktest>> {
        assert!(from.is_some() || to.is_none());
        Ok(Box::new(Counted { stream: files[0].text.clone(), rows: 0 }))
    }
}

/// Backtest over the stream that a file names, with so many rows as it says behind it.
struct Counted {
    stream: String,
    rows: usize,
}

impl PreparedBacktest for Counted {
    fn history(&self) -> Vec<(String, String)> {
        let (name, rows) = self.stream.split_once(' ').unwrap();
        vec![
            (name.to_owned(), format!("SELECT * FROM events.\"{name}\"")),
            (name.to_owned(), format!("SELECT rows {rows}")),
        ]
    }

    fn add(&mut self, _: &str, row: Map<String, Json>) -> Result<()> {
        assert!(row.contains_key("n"));
        self.rows += 1;
        Ok(())
    }

    fn run(self: Box<Self>, show: usize, output_max: usize) -> Result<String> {
        Ok(format!("{} rows, {show} shown, {output_max} at most", self.rows))
    }
}
