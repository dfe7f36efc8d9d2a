//! HTTP servers: each port has endpoints by path, which sources and sinks register.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use parking_lot::RwLock;
use tidemill_connect::{ConnectorContext, OptionError, OptionSpec, Options};
use tidemill_types::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use crate::ports::{PortService, Ports, SharedPort};
use crate::tls::{ClientCertificates, OptionFile, ServerTls};

/// Timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// Default time for which a client may send nothing within a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Key of the endpoint of all paths that have none; no URL has this path.
const ANY_PATH: &str = "*";

static PORTS: Ports<HttpService> = Ports::new();

/// Options of every server.
pub(crate) const SERVER_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text(
        "https.keystore.file",
        "PEM file with the certificate of an `https` server, and its key.",
    ),
    OptionSpec::text("https.keystore.key.file", "PEM file with the key, if it is not with the certificate."),
    OptionSpec::text("https.keystore.password", "Accepted without effect; PEM keys are not encrypted.")
        .secret(),
    OptionSpec::text("https.keystore.key.password", "Accepted without effect; PEM keys are not encrypted.")
        .secret(),
    OptionSpec::text("https.truststore.file", "PEM file with the authorities of client certificates."),
    OptionSpec::text("https.truststore.password", "Accepted without effect; certificates are public.")
        .secret(),
    OptionSpec::one_of("ssl.verify.client", &["require", "optional"], "Whether clients need a certificate."),
    OptionSpec::text("ssl.protocol", "Accepted without effect; TLS 1.2 and 1.3 are spoken."),
    OptionSpec::text("tls.store.type", "Accepted without effect; files are PEM files."),
    OptionSpec::text("ssl.configurations", "Accepted without effect; TLS 1.2 and 1.3 with current ciphers."),
    OptionSpec::text("parameters", "Accepted without effect; the old name of `ssl.configurations`."),
    OptionSpec::duration("socket.idle.timeout", "How long a client may send nothing within a request.")
        .default("120000"),
    OptionSpec::text(
        "server.bootstrap.configurations",
        "Accepted without effect; sockets have good defaults.",
    ),
    OptionSpec::integer("worker.count", 1, 10_000, "Accepted without effect; events keep their order."),
    OptionSpec::flag("trace.log.enabled", "false", "Accepted without effect; use the log filter instead."),
];

/// Address, path and TLS of an endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    host: String,
    port: u16,
    path: String,
    tls: Option<ServerTls>,
    idle_timeout: Duration,
}

impl Place {
    /// Reads the place from the URL in `option`, by default `http://0.0.0.0:<port>/<app>/<stream>`.
    ///
    /// Errors: a URL that no server can have, TLS without certificate.
    pub(crate) fn of(
        options: &Options,
        option: &'static str,
        default_port: u16,
        context: &ConnectorContext,
    ) -> Result<Self, OptionError> {
        let wrong = |message: String| {
            let example = format!("{option}='http://0.0.0.0:{default_port}/path'");
            OptionError::option(option, message).expected([example])
        };
        let default = || format!("http://0.0.0.0:{default_port}/{}/{}", context.app, context.schema.name);
        let url = options.get(option).map_or_else(default, str::to_owned);
        let url = Url::parse(&url).map_err(|e| wrong(format!("not a URL: {e}")))?;
        let tls = match url.scheme() {
            "http" => None,
            "https" => Some(server_tls(options, &context.dir)?),
            scheme => return Err(wrong(format!("unknown scheme `{scheme}`"))),
        };
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let place = Self {
            host: host.to_owned(),
            port: url.port_or_known_default().unwrap_or(default_port),
            path: normal_path(url.path()).to_owned(),
            tls,
            idle_timeout: options.duration("socket.idle.timeout").unwrap_or(IDLE_TIMEOUT),
        };
        // finds keys that do not fit before the source starts
        place.tls.as_ref().map(|tls| tls.acceptor(&[])).transpose()?;
        Ok(place)
    }

    /// Returns the place of these parts; without `path`, all paths that no other connector has.
    #[cfg(feature = "websocket")]
    pub(crate) fn new(host: &str, port: u16, path: Option<&str>, tls: Option<ServerTls>) -> Self {
        let path = path.map_or(ANY_PATH, normal_path).to_owned();
        Self { host: host.to_owned(), port, path, tls, idle_timeout: IDLE_TIMEOUT }
    }

    /// Opens the port, if it is not open, and registers the endpoint until the claim is dropped.
    ///
    /// Errors: the port or the path is taken.
    pub(crate) async fn serve(&self, endpoint: Arc<dyn Endpoint>) -> Result<Claim> {
        let acceptor = self.tls.as_ref().map(|tls| tls.acceptor(&["h2", "http/1.1"])).transpose();
        let acceptor = acceptor.map_err(|e| Error::invalid(e.to_string()))?;
        let create = || HttpService {
            tls: self.tls.clone(),
            acceptor,
            idle_timeout: self.idle_timeout,
            endpoints: RwLock::default(),
        };
        let port = PORTS.open(&self.host, self.port, create).await?;
        let at = format!("{}:{}", self.host, self.port);
        if port.service.tls != self.tls {
            let message = format!("{at}: the servers of a port need the same scheme and TLS files");
            return Err(Error::conflict(message));
        }
        {
            let mut endpoints = port.service.endpoints.write();
            if endpoints.contains_key(&self.path) {
                let message = format!("{at}: another connector has the path `{}`", self.path);
                return Err(Error::conflict(message));
            }
            endpoints.insert(self.path.clone(), endpoint);
        }
        Ok(Claim { port, path: self.path.clone() })
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        self.idle_timeout
    }
}

fn server_tls(options: &Options, dir: &Path) -> Result<ServerTls, OptionError> {
    let file = |option| OptionFile::read(options, option, dir);
    let certificate = file("https.keystore.file")?.ok_or_else(|| {
        OptionError::connector("an `https` server needs a certificate and a key")
            .expected(["https.keystore.file='server.pem'"])
    })?;
    let clients = match options.get("ssl.verify.client") {
        None => ClientCertificates::Ignored,
        Some(text) if text.trim().eq_ignore_ascii_case("optional") => ClientCertificates::Optional,
        Some(_) => ClientCertificates::Required,
    };
    Ok(ServerTls {
        certificate,
        key: file("https.keystore.key.file")?,
        authorities: file("https.truststore.file")?,
        clients,
    })
}

fn normal_path(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" => "/",
        path => path,
    }
}

/// Handler of the requests of a path.
#[async_trait]
pub(crate) trait Endpoint: Send + Sync + 'static {
    /// Returns the answer to a request.
    async fn answer(&self, request: Request<Incoming>) -> Response<Body>;
}

/// An endpoint's right to its path.
pub(crate) struct Claim {
    port: Arc<SharedPort<HttpService>>,
    path: String,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.port.service.endpoints.write().remove(&self.path);
    }
}

/// Server of one port.
struct HttpService {
    tls: Option<ServerTls>,
    acceptor: Option<tokio_rustls::TlsAcceptor>,
    idle_timeout: Duration,
    endpoints: RwLock<BTreeMap<String, Arc<dyn Endpoint>>>,
}

impl PortService for HttpService {
    async fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        if let Err(e) = stream.set_nodelay(true) {
            tracing::debug!(%peer, error = %e, "options of a connection are not set");
        }
        match self.acceptor.clone() {
            None => self.serve_stream(stream, peer).await,
            Some(acceptor) => match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => self.serve_stream(stream, peer).await,
                Ok(Err(e)) => tracing::debug!(%peer, error = %e, "a TLS handshake failed"),
                Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
            },
        }
    }
}

impl HttpService {
    async fn serve_stream(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: SocketAddr,
    ) {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.idle_timeout);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(self.idle_timeout)
            .keep_alive_timeout(HANDSHAKE_TIMEOUT);
        let service = service_fn(|request: Request<Incoming>| {
            let endpoint = {
                let endpoints = self.endpoints.read();
                let own = endpoints.get(normal_path(request.uri().path()));
                own.or_else(|| endpoints.get(ANY_PATH)).cloned()
            };
            async move {
                Ok::<_, Infallible>(match endpoint {
                    Some(endpoint) => endpoint.answer(request).await,
                    None => {
                        let path = request.uri().path();
                        problem(StatusCode::NOT_FOUND, &format!("nothing is served at the path `{path}`"))
                    }
                })
            }
        });
        if let Err(e) = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await {
            tracing::debug!(%peer, error = %e, "an HTTP connection ended with an error");
        }
    }
}

/// Returns an answer with a JSON object.
pub(crate) fn json_answer(status: StatusCode, body: &serde_json::Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Returns an answer that says what is wrong.
pub(crate) fn problem(status: StatusCode, message: &str) -> Response<Body> {
    json_answer(status, &serde_json::json!({ "error": message }))
}
