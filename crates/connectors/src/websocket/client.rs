//! Connecting to a server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, header};
use tidemill_connect::{OptionError, OptionSpec, Options};
use tidemill_types::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::tungstenite::Error as WebSocketError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use url::Url;

use super::connection::{end_reason, idle_timeout, limits};
use crate::client_tls::{TlsOptionNames, named_client_config};
use crate::http::client::shown_url;
use crate::http::options::parse_headers;
use crate::pairs::parse_names;

/// Timeout for connecting, including the handshakes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// When the operating system asks whether the other side is there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Options of clients.
pub(super) const CLIENT_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("url", "Where to connect: a URL with `ws` or `wss`.").required(),
    OptionSpec::text("headers", "Headers of the request: `'name:value','name:value'`."),
    OptionSpec::text(
        "truststore.path",
        "PEM file with the authorities that are trusted; default: those of the system.",
    ),
    OptionSpec::text("truststore.password", "Accepted without effect; certificates are public.").secret(),
    OptionSpec::text("keystore.path", "PEM file with the certificate of this client, and its key."),
    OptionSpec::text("keystore.key.path", "PEM file with the key, if it is not with the certificate."),
    OptionSpec::text("keystore.password", "Accepted without effect; PEM keys are not encrypted.").secret(),
];

const TLS_OPTIONS: TlsOptionNames =
    TlsOptionNames { authorities: "truststore.path", certificate: "keystore.path", key: "keystore.key.path" };

/// Connection of a client.
pub(super) type ClientSocket = WebSocketStream<Box<dyn Transport>>;

/// TCP or TLS.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + Sync {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync> Transport for T {}

/// Connection settings of a client.
pub(super) struct ClientSettings {
    url: Url,
    headers: Vec<(HeaderName, HeaderValue)>,
    tls: Option<Arc<ClientConfig>>,
    pub(super) idle: Option<Duration>,
}

impl ClientSettings {
    /// Errors: another kind of URL, headers or files that cannot be used.
    pub(super) fn of(options: &Options, dir: &Path) -> Result<Self, OptionError> {
        let url = parse_url(options.text("url"))
            .map_err(|e| OptionError::option("url", e).expected(["url='wss://example.com/events'"]))?;
        let headers = parse_headers(options.text("headers"));
        let mut headers = headers.map_err(|e| OptionError::option("headers", e))?;
        let protocols = parse_names(options.get("sub.protocol").unwrap_or_default());
        if !protocols.is_empty() {
            let value = HeaderValue::from_str(&protocols.join(", ")).map_err(|_| {
                OptionError::option("sub.protocol", "names of subprotocols have no control characters")
            })?;
            headers.push((header::SEC_WEBSOCKET_PROTOCOL, value));
        }
        let tls = match url.scheme() {
            "wss" => Some(named_client_config(options, TLS_OPTIONS, dir)?),
            _ => None,
        };
        Ok(Self { url, headers, tls, idle: idle_timeout(options)? })
    }

    /// Connects.
    ///
    /// Errors: `Unavailable` if the server cannot be reached or refuses.
    pub(super) async fn connect(&self) -> Result<ClientSocket> {
        match timeout(CONNECT_TIMEOUT, self.open()).await {
            Ok(opened) => opened,
            Err(_) => Err(self.failed("no answer in time")),
        }
    }

    /// Returns an error of this connection.
    pub(super) fn failed(&self, reason: impl std::fmt::Display) -> Error {
        Error::unavailable(format!("WebSocket {}: {reason}", shown_url(&self.url)))
    }

    async fn open(&self) -> Result<ClientSocket> {
        let host = self.url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let port = self.url.port_or_known_default().unwrap_or(80);
        let cannot = |e: &dyn std::fmt::Display| self.failed(format!("cannot connect: {e}"));
        let stream = TcpStream::connect((host, port)).await.map_err(|e| cannot(&e))?;
        let keep_alive = socket2::TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE / 4);
        let options = stream.set_nodelay(true);
        let options = options.and_then(|()| socket2::SockRef::from(&stream).set_tcp_keepalive(&keep_alive));
        if let Err(e) = options {
            tracing::debug!(error = %e, "options of a connection are not set");
        }
        let transport: Box<dyn Transport> = match &self.tls {
            None => Box::new(stream),
            Some(config) => {
                let name = ServerName::try_from(host.to_owned()).map_err(|e| cannot(&e))?;
                let connector = TlsConnector::from(config.clone());
                Box::new(connector.connect(name, stream).await.map_err(|e| cannot(&e))?)
            }
        };
        let request = self.request().map_err(|e| self.failed(end_reason(&e)))?;
        match client_async_with_config(request, transport, Some(limits())).await {
            Ok((socket, _)) => Ok(socket),
            Err(WebSocketError::Http(answer)) => {
                let status = answer.status().as_u16();
                let body = answer.into_body().unwrap_or_default();
                let body = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
                let body: String = body.chars().filter(|c| !c.is_control()).collect();
                let body = if body.trim().is_empty() { body } else { format!(": {}", body.trim()) };
                Err(self.failed(format!("the server answered HTTP {status}{body}")))
            }
            Err(e) => Err(self.failed(end_reason(&e))),
        }
    }

    fn request(&self) -> Result<Request, WebSocketError> {
        let mut request = self.url.as_str().into_client_request()?;
        for (name, value) in &self.headers {
            request.headers_mut().append(name, value.clone());
        }
        Ok(request)
    }
}

/// Parses the URL of a server.
///
/// Errors: it is not a WebSocket URL.
fn parse_url(text: &str) -> Result<Url, String> {
    let mut url = Url::parse(text.trim()).map_err(|e| format!("not a URL: {e}"))?;
    if !["ws", "wss"].contains(&url.scheme()) {
        return Err(format!("unknown scheme `{}`", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL has no user name here; use headers='Authorization:Basic …'".into());
    }
    // it is for the client only
    url.set_fragment(None);
    Ok(url)
}
