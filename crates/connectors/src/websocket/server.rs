//! Accepting clients, on the ports that all HTTP servers of the process share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tidemill_connect::{OptionError, OptionSpec, Options, runtime};
use tidemill_types::Result;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::connection::{idle_timeout, limits};
use crate::http::auth::RequiredLogin;
use crate::http::receiver::header_properties;
use crate::http::server::{Claim, Endpoint, Place, problem};
use crate::pairs::parse_names;
use crate::tls::{ClientCertificates, OptionFile, ServerTls};

/// Clients of one source or sink at the same time.
const CLIENTS_MAX: usize = 4096;

/// Options of servers.
pub(super) const SERVER_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("host", "Address to listen on, `0.0.0.0` for all.").required(),
    OptionSpec::integer("port", 1, 65535, "Port to listen on.").required(),
    OptionSpec::text("path", "Path of the clients' URL; without it, all paths that no other connector has."),
    OptionSpec::flag("tls.enabled", "false", "Whether connections are encrypted."),
    OptionSpec::text("keystore.path", "PEM file with the certificate of the server, and its key."),
    OptionSpec::text("keystore.key.path", "PEM file with the key, if it is not with the certificate."),
    OptionSpec::text("keystore.password", "Accepted without effect; PEM keys are not encrypted.").secret(),
];

/// Connection of a client.
pub(super) type ServerSocket = WebSocketStream<TokioIo<Upgraded>>;

/// Settings for listening.
pub(super) struct ServerSettings {
    place: Place,
    protocols: Vec<String>,
    login: RequiredLogin,
    pub(super) idle: Option<Duration>,
}

impl ServerSettings {
    /// Errors: TLS without certificate, options that make no sense together.
    pub(super) fn of(options: &Options, dir: &Path) -> Result<Self, OptionError> {
        let file = |option| OptionFile::read(options, option, dir);
        let tls = match options.flag("tls.enabled") {
            false => None,
            true => {
                let certificate = file("keystore.path")?.ok_or_else(|| {
                    OptionError::option("tls.enabled", "the server needs a certificate and a key")
                        .expected(["keystore.path='server.pem'"])
                })?;
                let key = file("keystore.key.path")?;
                let tls =
                    ServerTls { certificate, key, authorities: None, clients: ClientCertificates::Ignored };
                // finds keys that do not fit before the connector starts
                tls.acceptor(&[])?;
                Some(tls)
            }
        };
        let port = options.integer("port").and_then(|port| u16::try_from(port).ok()).unwrap_or_default();
        Ok(Self {
            place: Place::new(options.text("host").trim(), port, options.get("path"), tls),
            protocols: parse_names(options.get("sub.protocol").unwrap_or_default()),
            login: RequiredLogin::of(options)?,
            idle: idle_timeout(options)?,
        })
    }

    /// Listens until the claim is dropped, which ends the connections too.
    ///
    /// Errors: the port or the path is taken.
    pub(super) async fn serve(&self, take_client: impl TakeClient) -> Result<Claim> {
        let endpoint = WebSocketEndpoint {
            protocols: self.protocols.clone(),
            login: self.login.clone(),
            take_client: Box::new(take_client),
            clients: Mutex::new(JoinSet::new()),
        };
        self.place.serve(Arc::new(endpoint)).await
    }
}

/// Serves a client until its connection ends.
pub(super) type ServedClient = Box<dyn FnOnce(ServerSocket) -> BoxFuture<'static, ()> + Send>;

/// Takes a client whose request has these properties. It is called before the answer, so that the client gets all that is
/// sent from then on.
pub(super) trait TakeClient:
    Fn(Vec<(String, String)>) -> ServedClient + Send + Sync + 'static
{
}

impl<F: Fn(Vec<(String, String)>) -> ServedClient + Send + Sync + 'static> TakeClient for F {}

struct WebSocketEndpoint {
    protocols: Vec<String>,
    login: RequiredLogin,
    take_client: Box<dyn TakeClient>,
    /// Tasks of the clients, which end with the endpoint.
    clients: Mutex<JoinSet<()>>,
}

#[async_trait]
impl Endpoint for WebSocketEndpoint {
    async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        if let Err(refusal) = self.login.check(request.headers()) {
            return *refusal;
        }
        let protocol = match self.choose_protocol(&request) {
            Ok(protocol) => protocol,
            Err(message) => return problem(StatusCode::BAD_REQUEST, &message),
        };
        let mut answer = match create_response_with_body(&request, Body::empty) {
            Ok(answer) => answer,
            Err(e) => {
                let message = format!("connect with a client of WebSocket, version 13: {e}");
                let mut answer = problem(StatusCode::UPGRADE_REQUIRED, &message);
                answer.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                answer.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
                return answer;
            }
        };
        let mut properties = header_properties(request.headers());
        let path = request.uri().path().to_owned();
        let target = request.uri().path_and_query().map_or(path.clone(), ToString::to_string);
        properties.push(("REQUEST_URL".into(), target));
        properties.push(("TO".into(), path));
        if let Some(protocol) = protocol
            && let Ok(value) = HeaderValue::from_str(&protocol)
        {
            answer.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, value);
            properties.push(("sub.protocol".into(), protocol));
        }
        let mut clients = self.clients.lock();
        while clients.try_join_next().is_some() {}
        if clients.len() >= CLIENTS_MAX {
            return problem(StatusCode::SERVICE_UNAVAILABLE, "too many clients are connected");
        }
        let upgrade = hyper::upgrade::on(&mut request);
        let serve = (self.take_client)(properties);
        let serving = async move {
            match upgrade.await {
                Ok(upgraded) => {
                    let stream = TokioIo::new(upgraded);
                    let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits())).await;
                    serve(socket).await;
                }
                Err(e) => tracing::debug!(error = %e, "a client of WebSocket has gone"),
            }
        };
        clients.spawn_on(serving, runtime().handle());
        answer
    }
}

impl WebSocketEndpoint {
    /// Chooses a subprotocol; none if the client offers none.
    ///
    /// Errors: the client offers only others.
    fn choose_protocol(&self, request: &Request<Incoming>) -> Result<Option<String>, String> {
        let offered = request.headers().get_all(header::SEC_WEBSOCKET_PROTOCOL);
        let offered: Vec<String> =
            offered.iter().filter_map(|value| value.to_str().ok()).flat_map(parse_names).collect();
        let chosen = self.protocols.iter().find(|protocol| offered.contains(protocol));
        match (chosen, offered.is_empty()) {
            (Some(protocol), _) => Ok(Some(protocol.clone())),
            (None, true) => Ok(None),
            (None, false) => {
                let own = match self.protocols.is_empty() {
                    true => "no subprotocol".to_owned(),
                    false => format!("the subprotocols {}", self.protocols.join(", ")),
                };
                Err(format!("the client offers other subprotocols; the server speaks {own}"))
            }
        }
    }
}
