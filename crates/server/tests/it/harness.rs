//! Test server on a free port with its own engine, and clients for it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, Peekable, StreamExt};
use serde_json::Value as Json;
use tempfile::TempDir;
use tidemill_access::{Access, AccessFile, Grant, Principal};
use tidemill_database::{
    BatchReply, Database, Description, EncodedReply, Format, Page, PageStream, PagedReply, QueryRequest,
    ResultColumn, SendReceipt, SendRequest, StatementInfo, StatementPhase,
};
use tidemill_engine::{Analytics, App, Engine};
use tidemill_server::{Server, ServerOptions, Token, serve};
use tidemill_types::{Error, Result, Timestamp};
use tokio::runtime::Runtime;

pub const TOKEN: &str = "test-token-0123456789";

const RULES: &str = r#"
event Flight { id: string, origin: string, delay: double, at: time } id id time at;
event Late { id: string, delay: double } key id;

entity Gate key name index (terminal);

rule MarkLate {
  when {
    f: Flight(delay > 15);
  } then {
    emit new Late(f.id, f.delay);
  }
}

entity OriginInsight key id;

rule Origins every 1 day {
  aggregate { f: Flight(); }
  groupby { f.origin }
  do { insert OriginInsight { id: f.origin, flights: count() }; }
}
"#;

/// Running server. Dropping it removes everything.
pub struct Mill {
    pub engine: Arc<Engine>,
    pub address: SocketAddr,
    server: Option<Server>,
    runtime: Runtime,
    dir: TempDir,
}

/// Returns the base settings of tests: a token, and limits that are easy to reach.
pub fn options() -> ServerOptions {
    ServerOptions {
        token: Some(Token::new(TOKEN).unwrap()),
        body_bytes_max: 64 << 10,
        bodies_bytes_max: 256 << 10,
        ..ServerOptions::default()
    }
}

/// Returns the users of a server, which looks at their file whenever it is asked.
fn access(dir: &TempDir) -> Arc<Access> {
    let clock = AtomicI64::new(0);
    let now = move || Timestamp(clock.fetch_add(1_000_000, Ordering::Relaxed));
    Arc::new(Access::with_clock(AccessFile::in_directory(dir.path()), Box::new(now)).unwrap())
}

impl Mill {
    pub fn start() -> Self {
        Self::with(options())
    }

    pub fn with(options: ServerOptions) -> Self {
        Self::with_rules(options, "")
    }

    /// Starts a server whose app has these rules, too.
    pub fn with_rules(options: ServerOptions, more: &str) -> Self {
        let rules = format!("{RULES}{more}");
        let dir = tempfile::tempdir().unwrap();
        // without a token, an open server is tested
        let access = options.token.as_ref().map(|_| access(&dir));
        let options = ServerOptions { access, ..options };
        let engine = Arc::new(Engine::open(dir.path(), Some(App::from_rules("test", &rules))).unwrap());
        engine.set_analytics(Arc::new(NoRows));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let server = runtime.block_on(serve(local, engine.clone(), Arc::new(ScriptedSql), options)).unwrap();
        Self { engine, address: server.addr(), server: Some(server), runtime, dir }
    }

    /// Makes a token of a user, who is added with these grants if there is none of that name.
    pub fn new_token(&self, user: &str, grants: Vec<Grant>, limits: Option<Vec<Grant>>) -> String {
        let update = AccessFile::in_directory(self.dir.path()).update(|accounts| {
            if accounts.user(user).is_none() {
                accounts.add_user(user, grants, None)?;
            }
            accounts.new_token(user, limits, Timestamp(0), None)
        });
        update.unwrap().text
    }

    /// Grants a user a right.
    pub fn grant(&self, user: &str, grant: &str) {
        let grant = grant.parse().unwrap();
        AccessFile::in_directory(self.dir.path()).update(|accounts| accounts.grant(user, grant)).unwrap();
    }

    /// Gives a token another secret. Returns its text.
    pub fn rotate_token(&self, text: &str) -> String {
        let id = text.split('_').nth(1).unwrap();
        let update = AccessFile::in_directory(self.dir.path())
            .update(|accounts| accounts.rotate_token(id, Timestamp(0)));
        update.unwrap().text
    }

    /// Replaces the file of users by a damaged one.
    pub fn damage_users(&self) {
        std::fs::write(AccessFile::in_directory(self.dir.path()).path(), "{").unwrap();
    }

    /// Sends a request with the token and returns the whole reply.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .timeout_global(Some(Duration::from_secs(60)))
            .build()
            .into();
        let mut request =
            ureq::http::Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            request = request.header("Authorization", format!("Bearer {TOKEN}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = agent.run(request.body(body).unwrap()).unwrap();
        let (parts, mut body) = response.into_parts();
        let headers = parts
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        Reply { status: parts.status.as_u16(), headers, body: body.read_to_vec().unwrap() }
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"")
    }

    pub fn post_json(&self, path: &str, body: &str) -> Reply {
        self.send("POST", path, &[("Content-Type", "application/json")], body.as_bytes())
    }

    /// Opens a connection and writes `text` on it.
    pub fn connect(&self, text: &[u8]) -> Connection {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(text).unwrap();
        Connection(stream)
    }

    /// Returns the value of a metric without labels, 0 if it is missing.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text();
        let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap_or(" 0");
        line.trim().parse().unwrap()
    }

    /// Polls the metric until it has the value.
    pub fn wait_for_metric(&self, name: &str, value: f64) {
        for _ in 0..2000 {
            if self.metric(name) == value {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{name} is {}, expected {value}", self.metric(name));
    }

    /// Starts the shutdown in the background; the handle returns the number of connections that were cut off.
    pub fn begin_shutdown(&mut self, grace: Duration) -> tokio::task::JoinHandle<usize> {
        let server = self.server.take().unwrap();
        self.runtime.spawn(server.shutdown(grace))
    }

    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

impl Drop for Mill {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.shutdown(Duration::ZERO));
        }
        let stopped = self.engine.stop();
        if !std::thread::panicking() {
            stopped.unwrap();
        }
    }
}

/// Connection on which tests write raw requests.
pub struct Connection(TcpStream);

impl Connection {
    pub fn write(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// Sends a GET with the token and reads the reply; the connection stays open.
    pub fn get(&mut self, path: &str) -> Reply {
        self.write(
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n")
                .as_bytes(),
        );
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            bytes.extend(byte);
        }
        let mut reply = Reply::parse(&bytes);
        let length = reply.header("content-length").unwrap().parse().unwrap();
        reply.body = vec![0; length];
        self.0.read_exact(&mut reply.body).unwrap();
        reply
    }

    /// Sends a GET with the token and a header, and reads the reply until `end` comes.
    pub fn read_until(&mut self, path: &str, header: &str, end: &str) -> String {
        let token = format!("Authorization: Bearer {TOKEN}\r\n");
        let token = if header.starts_with("Authorization") { "" } else { &token };
        self.write(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{token}{header}\r\n").as_bytes());
        self.read_on(end)
    }

    /// Reads on until `end` comes.
    pub fn read_on(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            bytes.extend(byte);
        }
        String::from_utf8(bytes).unwrap()
    }

    /// Reads a reply until the server closes the connection.
    pub fn read_all(mut self) -> Reply {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).unwrap();
        Reply::parse(&bytes)
    }

    /// Reads text until the server closes the connection.
    pub fn read_text(mut self) -> String {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    /// Parses a reply whose body ends with the connection.
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP reply: {text:?}"));
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .map(|l| l.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let reply = Self { status, headers, body: body.as_bytes().to_vec() };
        if reply.header("transfer-encoding") == Some("chunked") {
            return Self { body: chunks(body).into_bytes(), ..reply };
        }
        reply
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    #[track_caller]
    pub fn json(&self) -> Json {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.text()))
    }

    /// Returns the message of an error reply and checks its status and kind.
    #[track_caller]
    pub fn refusal(&self, status: u16, kind: &str) -> String {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/json"));
        let json = self.json();
        assert_eq!(json["error"]["kind"], kind, "{json}");
        json["error"]["message"].as_str().unwrap().to_owned()
    }
}

/// Decodes a chunked body.
fn chunks(mut body: &str) -> String {
    let mut whole = String::new();
    loop {
        let (len, rest) = body.split_once("\r\n").unwrap();
        let len = usize::from_str_radix(len, 16).unwrap();
        if len == 0 {
            return whole;
        }
        whole += &rest[..len];
        body = &rest[len + 2..];
    }
}

/// Substitute for a SQL engine: `rows N` returns N rows in chunks of one, `fail N` fails after N rows,
/// `cancelled N` is cancelled once its first page is taken, `panic` panics, `wait` never answers, `stuck N` never does after N rows; any other text is an error. Statement 7 runs.
pub struct ScriptedSql;

impl Database for ScriptedSql {
    fn query(&self, _: QueryRequest) -> BoxFuture<'static, Result<BatchReply>> {
        Box::pin(async { Err(Error::invalid("HTTP asks for text")) })
    }

    fn describe(&self, _: QueryRequest) -> BoxFuture<'static, Result<Description>> {
        Box::pin(async { Err(Error::invalid("HTTP asks for text")) })
    }

    fn query_encoded(
        &self,
        request: QueryRequest,
        format: Format,
    ) -> BoxFuture<'static, Result<EncodedReply>> {
        let QueryRequest { text: sql, parameters, .. } = request;
        Box::pin(async move {
            if !parameters.is_empty() {
                let values: Vec<String> = parameters.iter().map(ToString::to_string).collect();
                return Err(Error::invalid(format!("parameters {}", values.join(" "))));
            }
            let (word, n) = sql.split_once(' ').unwrap_or((&sql, "0"));
            let n: u64 = n.parse().unwrap_or(0);
            let rows = stream::iter(0..n).map(move |i| Ok(row(i, format)));
            let pieces = match word {
                "rows" => rows.boxed(),
                "fail" => {
                    rows.chain(stream::iter([Err(Error::limit("the query needs more memory"))])).boxed()
                }
                "wait" => stream::pending().boxed(),
                "stuck" => rows.chain(stream::pending()).boxed(),
                "panic" => panic!("as the test asked"),
                _ => return Err(Error::invalid(format!("expected a query, found `{sql}`"))),
            };
            let columns = vec![ResultColumn { name: "n°".to_owned(), type_name: "bigint".to_owned() }];
            Ok(EncodedReply { columns, pieces, is_endless: false })
        })
    }

    fn query_paged(
        &self,
        request: QueryRequest,
        format: Format,
        page_rows: NonZeroUsize,
    ) -> BoxFuture<'static, Result<PagedReply>> {
        let is_cancelled = request.text.starts_with("cancelled");
        let text = request.text.replace("cancelled", "rows");
        let whole = self.query_encoded(QueryRequest { text, ..request }, format);
        Box::pin(async move {
            let EncodedReply { columns, pieces, .. } = whole.await?;
            let pages = ScriptedPages {
                pieces: pieces.peekable(),
                rows: page_rows.get(),
                has_begun: false,
                is_cancelled,
            };
            Ok(PagedReply { columns, statement: 7, pages: Box::new(pages) })
        })
    }

    fn send(&self, _: SendRequest) -> BoxFuture<'static, Result<SendReceipt>> {
        Box::pin(async { Err(Error::invalid("HTTP sends events to the engine")) })
    }

    fn statements(&self, _: &Principal) -> Vec<StatementInfo> {
        vec![StatementInfo {
            id: 7,
            text: "SELECT 1".to_owned(),
            origin: "http",
            caller: "admin".to_owned(),
            phase: StatementPhase::Running,
            started: Timestamp(1_000_000),
            ended: None,
            rows: 3,
            error: None,
        }]
    }

    fn cancel(&self, id: u64, _: &Principal, by: &str) -> Result<()> {
        match id {
            7 => Ok(()),
            _ => Err(Error::not_found(format!("no statement {id} runs ({by})"))),
        }
    }
}

/// Pages of a script. A cancelled one is so from its first page on.
struct ScriptedPages {
    pieces: Peekable<BoxStream<'static, Result<Bytes>>>,
    rows: usize,
    has_begun: bool,
    is_cancelled: bool,
}

impl PageStream for ScriptedPages {
    fn next_page(&mut self) -> BoxFuture<'_, Result<Page>> {
        Box::pin(async move {
            if self.has_ended() {
                return Err(Error::conflict("statement 7 was cancelled by KILL QUERY 7 (http)"));
            }
            self.has_begun = true;
            let mut page = Page::default();
            while page.pieces.len() < self.rows
                && let Some(piece) = self.pieces.next().await
            {
                page.pieces.push(piece?);
            }
            page.is_last = Pin::new(&mut self.pieces).peek().await.is_none();
            Ok(page)
        })
    }

    fn has_ended(&self) -> bool {
        self.has_begun && self.is_cancelled
    }
}

/// Analytics for aggregate rules that returns no rows.
struct NoRows;

impl Analytics for NoRows {
    fn query(&self, _sql: &str) -> Result<Vec<RecordBatch>> {
        Ok(Vec::new())
    }
}

fn row(i: u64, format: Format) -> Bytes {
    match format {
        Format::Ndjson => format!("{{\"n\":{i}}}\n"),
        Format::Json => format!("{}{{\"n\":{i}}}", if i == 0 { "[" } else { "," }),
        Format::Csv | Format::Table => format!("{i}\n"),
        Format::Arrow | Format::Parquet => format!("<{i}>"),
    }
    .into()
}
