//! The server, with a client on one connection.

use std::net::SocketAddr;
use std::sync::Arc;

use arrow_flight::Action;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any, ProstMessageExt,
};
use axum::body::Body;
use axum::http::{Request, Response};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tempfile::TempDir;
use tidemill::flight::{FlightOptions, FlightSql};
use tidemill::gateway::{Gateway, ListenOptions, Listener, Metrics};
use tidemill::server::{GrpcService, HttpFrontEnd, ServerOptions, Token};
use tidemill::{App, Durability, Tidemill};
use tidemill_mappers::{otlp, remote_write};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tonic::transport::Endpoint;
use tower::ServiceExt;

use crate::requests;

const TOKEN: &str = "a-token-of-this-search";
/// Bytes of a body after it was decompressed.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Characters of a reply that are shown.
const SHOWN_MAX: usize = 2_000;
/// Stands for the handle of a prepared statement, which another start of the server has not.
pub const PREPARED_HANDLE: &[u8; 16] = b"PREPARED-HANDLE!";

const RULES: &str = "
event Flight { id: string, origin: string, seats: int, hits: long, ratio: float, delay: double, late: bool, at: time, more: object } id id time at;
entity Gate key name index (terminal);
";

/// A server over an engine of its own.
pub struct Server {
    address: SocketAddr,
    sender: Option<SendRequest<Full<Bytes>>>,
    /// Handle of a prepared statement with a parameter.
    prepared: Bytes,
    runtime: Runtime,
    _gateway: Gateway,
    _tidemill: Tidemill,
    _dir: TempDir,
}

/// Flight SQL on the connections of HTTP.
struct Flight(FlightSql);

impl GrpcService for Flight {
    fn paths(&self) -> &'static [&'static str] {
        FlightSql::paths()
    }

    fn answer(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        let reply = self.0.clone().oneshot(request);
        async move {
            let Ok(reply) = reply.await;
            reply.map(Body::new)
        }
        .boxed()
    }

    fn tick(&self) {
        self.0.tick();
    }

    fn drain(&self) {
        self.0.drain();
    }
}

fn app() -> App {
    let streams = otlp::streams::STREAMS.into_iter().chain(remote_write::streams::STREAMS);
    let declarations: String = streams.map(|stream| stream.declaration()).collect();
    let influxql = include_str!("../../../influxql/tests/cases/streams.rules");
    let mut app = App::from_rules("requests", &format!("{RULES}{influxql}{declarations}"));
    app.settings.durability = Durability::Memory;
    app.settings.partitions = 2;
    app
}

impl Server {
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let tidemill = Tidemill::open_with(dir.path(), app()).expect("an engine");
        let options = ServerOptions {
            token: Some(Token::new(TOKEN).expect("a token")),
            body_bytes_max: BODY_BYTES_MAX,
            bodies_bytes_max: 8 * BODY_BYTES_MAX,
            ..tidemill.server_options()
        };
        let flight = FlightOptions { message_bytes_max: BODY_BYTES_MAX, ..FlightOptions::default() };
        let flight = Flight(FlightSql::new(tidemill.database(), flight));
        let runtime = Runtime::new().expect("a runtime");
        let metrics = Arc::new(Metrics::default());
        let front_end =
            HttpFrontEnd::new(tidemill.engine().clone(), tidemill.database(), options, metrics.clone());
        let front_end = front_end.expect("a front end").with_grpc(Arc::new(flight));
        let listen = ListenOptions::new(([127, 0, 0, 1], 0).into());
        let (gateway, address) = runtime.block_on(async {
            let listener = Listener::bind(Arc::new(front_end), listen).await.expect("a free port");
            let address = listener.address();
            (Gateway::start(vec![listener], metrics), address)
        });
        let prepared = runtime.block_on(prepare(address));
        let sender = None;
        Self { address, sender, prepared, runtime, _gateway: gateway, _tidemill: tidemill, _dir: dir }
    }

    /// Sends the request of an input. Returns status and text of the reply.
    pub fn send(&mut self, route: u8, treatment: u8, content: &[u8]) -> String {
        let mut content = content.to_vec();
        if let Some(at) = content.windows(PREPARED_HANDLE.len()).position(|part| part == PREPARED_HANDLE) {
            content[at..at + self.prepared.len()].copy_from_slice(&self.prepared);
        }
        let request = requests::request(route, treatment, &content, TOKEN);
        let mut sender = match self.sender.take().filter(SendRequest::is_ready) {
            Some(sender) => sender,
            None => self.runtime.block_on(connect(self.address)),
        };
        let exchange = async {
            let reply = sender.send_request(request).await?;
            let (head, body) = reply.into_parts();
            let collected = body.collect().await?;
            let trailers = collected.trailers().cloned();
            Ok::<_, hyper::Error>((head, collected.to_bytes(), trailers))
        };
        let reply = self.runtime.block_on(exchange);
        self.sender = Some(sender);
        match reply {
            Ok((head, body, trailers)) => {
                let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN_MAX)]).into_owned();
                let status = |name: &str| {
                    let value = head.headers.get(name).or_else(|| trailers.as_ref()?.get(name));
                    value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
                };
                let (grpc, message) = (status("grpc-status"), status("grpc-message"));
                // 13 is INTERNAL, which the server answers for its own defects
                let is_defect = head.status == 500 || grpc.as_deref() == Some("13");
                assert!(!is_defect, "{}: {grpc:?} {message:?} {text}", head.status);
                format!("{} {grpc:?} {message:?} {text}", head.status)
            }
            // a body that is not read to its end
            Err(error) => format!("closed: {error}"),
        }
    }
}

async fn connect(address: SocketAddr) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.expect("the server listens");
    stream.set_nodelay(true).expect("a connection");
    let (sender, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("the server speaks HTTP/2");
    tokio::spawn(async move {
        // the server closes connections of bodies that it does not read
        let _ = connection.await;
    });
    sender
}

/// Prepares a statement with parameters. Returns its handle.
async fn prepare(address: SocketAddr) -> Bytes {
    let endpoint = Endpoint::new(format!("http://{address}")).expect("an address");
    let mut client = FlightServiceClient::new(endpoint.connect().await.expect("the server listens"));
    let query = "SELECT id, $1::bigint FROM events.\"Flight\" WHERE delay > $2".to_owned();
    let body = ActionCreatePreparedStatementRequest { query, transaction_id: None }.as_any().encode_to_vec();
    let mut request = tonic::Request::new(Action::new("CreatePreparedStatement", body));
    let token = format!("Bearer {TOKEN}").parse().expect("ASCII");
    request.metadata_mut().insert("authorization", token);
    let mut replies = client.do_action(request).await.expect("a statement").into_inner();
    let reply = replies.try_next().await.expect("a reply").expect("a reply");
    let packed = Any::decode(reply.body).expect("a message of Flight SQL");
    let result: Option<ActionCreatePreparedStatementResult> = packed.unpack().expect("a result");
    result.expect("a result").prepared_statement_handle
}
