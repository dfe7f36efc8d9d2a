//! Calling methods.

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tidemill_connect::{OptionError, OptionSpec, Options, SinkBatch, Template, runtime};
use tidemill_types::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};
use tonic::{Code, Status};

use super::message::{MessageForm, RawCodec};
use super::method::GrpcMethod;
use crate::client_tls::{TlsOptionNames, named_client_config};
use crate::http::options::parse_pairs;
use crate::http::sink::Outcome;

/// Timeout for connecting, including the handshakes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Characters of a status that an error shows.
const SHOWN_CHARS: usize = 300;

/// Options of sinks that call methods.
pub(super) const CLIENT_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("publisher.url", "Method to call: `grpc://host:port/service/method`.").required(),
    OptionSpec::text("headers", "Headers in the events of EventService: `'name:value','name:value'`.")
        .dynamic(),
    OptionSpec::text("metadata", "Metadata of the calls: `'name:value','name:value'`.").dynamic(),
    OptionSpec::duration("call.timeout", "How long a call may take.").default("30 sec"),
    OptionSpec::integer(
        "max.inflight",
        1,
        1024,
        "Calls under way at the same time. With one, events arrive in order.",
    ),
    OptionSpec::integer("max.inbound.message.size", 1, 1 << 30, "Bytes of the longest answer.")
        .default("4194304"),
    OptionSpec::integer("max.inbound.metadata.size", 1, 1 << 20, "Bytes of metadata in an answer.")
        .default("8192"),
    OptionSpec::duration(
        "keep.alive.time",
        "When to ping the server if nothing comes from it; never without.",
    ),
    OptionSpec::duration("keep.alive.timeout", "How long the server may take to answer a ping.")
        .default("20 sec"),
    OptionSpec::flag("keep.alive.without.calls", "false", "Whether pings are sent if no call is under way."),
    OptionSpec::flag("enable.ssl", "false", "Whether connections are encrypted; the files below do so too."),
    OptionSpec::text(
        "truststore.file",
        "PEM file with the authorities that are trusted; default: those of the system.",
    ),
    OptionSpec::text("keystore.file", "PEM file with the certificate of this client, and its key."),
    OptionSpec::text("keystore.key.file", "PEM file with the key, if it is not with the certificate."),
    OptionSpec::text("truststore.password", "Accepted without effect; certificates are public.").secret(),
    OptionSpec::text("keystore.password", "Accepted without effect; PEM keys are not encrypted.").secret(),
    OptionSpec::text("truststore.algorithm", "Accepted without effect."),
    OptionSpec::text("keystore.algorithm", "Accepted without effect."),
    OptionSpec::text("tls.store.type", "Accepted without effect; files are PEM files."),
    OptionSpec::text("idle.timeout", "Accepted without effect; connections stay open."),
    OptionSpec::flag(
        "enable.retry",
        "false",
        "Accepted without effect; calls that fail are always repeated.",
    ),
    OptionSpec::text(
        "max.retry.attempts",
        "Accepted without effect; `on.error` says what follows a failure.",
    ),
    OptionSpec::text("max.hedged.attempts", "Accepted without effect."),
    OptionSpec::text("retry.buffer.size", "Accepted without effect."),
    OptionSpec::text("per.rpc.buffer.size", "Accepted without effect."),
    OptionSpec::text("channel.termination.waiting.time", "Accepted without effect."),
];

const TLS_OPTIONS: TlsOptionNames =
    TlsOptionNames { authorities: "truststore.file", certificate: "keystore.file", key: "keystore.key.file" };

/// A method, and the connection to its server.
pub(super) struct GrpcClient {
    pub(super) method: GrpcMethod,
    headers: Template,
    metadata: Template,
    tls: Option<Arc<ClientConfig>>,
    call_timeout: Duration,
    answer_bytes_max: usize,
    metadata_bytes_max: u32,
    /// Time without anything from the server, time to answer, and whether without calls too.
    keep_alive: (Option<Duration>, Duration, bool),
    connection: Mutex<Option<Connection>>,
}

impl GrpcClient {
    /// Creates a client. `event_method` is the method of EventService that the sink calls.
    ///
    /// Errors: options that make no sense together, unusable PEM files.
    pub(super) fn of(
        options: &Options,
        event_method: &str,
        context: &tidemill_connect::ConnectorContext,
    ) -> Result<Self, OptionError> {
        let method = GrpcMethod::of(options, "publisher.url", event_method)?;
        let template = |name| context.template(options, name);
        let (headers, metadata) = (template("headers")?, template("metadata")?);
        if method.form == MessageForm::Raw && options.is_written("headers") {
            let message = "only events of EventService have headers; metadata='…' goes with every call";
            return Err(OptionError::option("headers", message));
        }
        if let Some(text) = headers.constant() {
            parse_pairs(text).map_err(|e| OptionError::option("headers", e))?;
        }
        if let Some(text) = metadata.constant() {
            parse_metadata(text).map_err(|e| OptionError::option("metadata", e))?;
        }
        Ok(Self {
            method,
            headers,
            metadata,
            tls: client_tls(options, &context.dir)?,
            call_timeout: options.duration("call.timeout").unwrap_or(Duration::from_secs(30)),
            answer_bytes_max: number(options, "max.inbound.message.size", 4 << 20),
            metadata_bytes_max: number(options, "max.inbound.metadata.size", 8192),
            keep_alive: (
                options.duration("keep.alive.time").filter(|time| !time.is_zero()),
                options.duration("keep.alive.timeout").unwrap_or(Duration::from_secs(20)),
                options.flag("keep.alive.without.calls"),
            ),
            connection: Mutex::new(None),
        })
    }

    /// Connects unless a connection is open.
    ///
    /// Errors: `Unavailable` if the server cannot be reached.
    pub(super) async fn connect(&self) -> Result<()> {
        self.connection().await.map(drop)
    }

    /// Calls the method with the message of an event. Returns the answer, or the outcome of the event if the
    /// call returned no answer.
    ///
    /// Errors: `Unavailable` if the same call may succeed later.
    pub(super) async fn call(
        &self,
        batch: &SinkBatch,
        row: usize,
        payload: &Bytes,
    ) -> Result<Result<tonic::Response<Bytes>, Outcome>> {
        let made = self.make(batch, row, payload);
        let (message, metadata) = match made {
            Ok(made) => made,
            Err(reason) => return Ok(Err(Outcome::Refused(reason))),
        };
        let mut status = self.call_once(&message, &metadata).await?;
        // each of the other names of EventService once
        for _ in 1..self.method.paths().len() {
            match status {
                Err((ref path, ref failed))
                    if failed.code() == Code::Unimplemented && self.method.is_unknown(path) =>
                {
                    status = self.call_once(&message, &metadata).await?;
                }
                _ => break,
            }
        }
        let status = match status {
            Ok(answer) => return Ok(Ok(answer)),
            Err((_, status)) => status,
        };
        let text = self.describe(&status);
        match is_permanent(status.code()) {
            true => Ok(Err(Outcome::Refused(text))),
            false => Err(Error::unavailable(text)),
        }
    }

    /// Calls the method under one name. Returns the answer, or the path and the status.
    ///
    /// Errors: `Unavailable` if the server cannot be reached.
    async fn call_once(
        &self,
        message: &Bytes,
        metadata: &Metadata,
    ) -> Result<Result<tonic::Response<Bytes>, (String, Status)>> {
        let path = self.method.path();
        let call = self.call_path(&path, message.clone(), metadata);
        match timeout(self.call_timeout, call).await {
            Ok(Ok(answer)) => Ok(Ok(answer)),
            Ok(Err(CallError::Connection(e))) => Err(e),
            Ok(Err(CallError::Status(status))) => Ok(Err((path, status))),
            Err(_) => Ok(Err((path, Status::deadline_exceeded("no answer within call.timeout")))),
        }
    }

    /// Returns the message and the metadata of an event.
    ///
    /// Errors: why there can be none.
    fn make(&self, batch: &SinkBatch, row: usize, payload: &Bytes) -> Result<(Bytes, Metadata), String> {
        let headers =
            parse_pairs(&self.headers.render(&batch.rows, row)).map_err(|e| format!("headers: {e}"))?;
        let sequence = self.method.sequence.iter().map(|name| ("sequence".to_owned(), name.clone()));
        let message = self.method.form.encode(payload, headers.into_iter().chain(sequence).collect())?;
        let metadata =
            parse_metadata(&self.metadata.render(&batch.rows, row)).map_err(|e| format!("metadata: {e}"))?;
        Ok((message, metadata))
    }

    async fn call_path(
        &self,
        path: &str,
        message: Bytes,
        metadata: &Metadata,
    ) -> Result<tonic::Response<Bytes>, CallError> {
        let connection = self.connection().await.map_err(CallError::Connection)?;
        let status = |e: &dyn std::fmt::Display| CallError::Status(Status::internal(e.to_string()));
        let path: PathAndQuery = path.parse().map_err(|e| status(&e))?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let host = if self.method.host.contains(':') {
            format!("[{}]", self.method.host)
        } else {
            self.method.host.clone()
        };
        let origin: Uri =
            format!("{scheme}://{host}:{}", self.method.port).parse().map_err(|e| status(&e))?;
        let mut grpc = Grpc::with_origin(connection, origin).max_decoding_message_size(self.answer_bytes_max);
        let mut request = tonic::Request::new(message);
        request.set_timeout(self.call_timeout);
        for (name, value) in metadata {
            request.metadata_mut().append(name.clone(), value.clone());
        }
        grpc.ready().await.map_err(|e| CallError::Status(Status::unavailable(e.to_string())))?;
        grpc.unary(request, path, RawCodec).await.map_err(CallError::Status)
    }

    async fn connection(&self) -> Result<Connection> {
        let mut connection = self.connection.lock().await;
        if let Some(open) = connection.as_ref().filter(|open| !open.0.is_closed()) {
            return Ok(open.clone());
        }
        let opened = match timeout(CONNECT_TIMEOUT, self.open()).await {
            Ok(opened) => opened?,
            Err(_) => return Err(self.failed("no answer in time")),
        };
        Ok(connection.insert(opened).clone())
    }

    async fn open(&self) -> Result<Connection> {
        let host = self.method.host.as_str();
        let stream = TcpStream::connect((host, self.method.port)).await.map_err(|e| self.failed(e))?;
        if let Err(e) = stream.set_nodelay(true) {
            tracing::debug!(error = %e, "options of a connection are not set");
        }
        match &self.tls {
            None => self.handshake(stream).await,
            Some(config) => {
                let name = ServerName::try_from(host.to_owned()).map_err(|e| self.failed(e))?;
                let connector = TlsConnector::from(config.clone());
                let stream = connector.connect(name, stream).await.map_err(|e| self.failed(e))?;
                self.handshake(stream).await
            }
        }
    }

    async fn handshake(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Connection> {
        let (interval, answer, without_calls) = self.keep_alive;
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(interval)
            .keep_alive_timeout(answer)
            .keep_alive_while_idle(without_calls)
            .max_header_list_size(self.metadata_bytes_max);
        let (sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(|e| self.failed(e))?;
        // it ends when the last sender is dropped
        runtime().spawn(async move {
            if let Err(e) = connection.await {
                tracing::debug!(error = %e, "a gRPC connection ended with an error");
            }
        });
        Ok(Connection(sender))
    }

    fn failed(&self, reason: impl std::fmt::Display) -> Error {
        Error::unavailable(format!("cannot connect to {}: {reason}", self.method))
    }

    fn describe(&self, status: &Status) -> String {
        let text: String = status.message().chars().filter(|c| !c.is_control()).take(SHOWN_CHARS).collect();
        let text = if text.is_empty() { text } else { format!(": {text}") };
        format!("{} answered {:?}{text}", self.method, status.code())
    }
}

enum CallError {
    Connection(Error),
    Status(Status),
}

/// A connection, which many calls share.
#[derive(Clone)]
struct Connection(SendRequest<Body>);

impl GrpcService<Body> for Connection {
    type ResponseBody = Incoming;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Response<Incoming>, hyper::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.0.send_request(request).boxed()
    }
}

/// Returns whether the same call fails again.
fn is_permanent(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::DataLoss
    )
}

type Metadata = Vec<(AsciiMetadataKey, AsciiMetadataValue)>;

/// Parses metadata in the form `'name:value','name:value'`.
///
/// Errors: another form, or a name or value that metadata cannot have.
fn parse_metadata(text: &str) -> Result<Metadata, String> {
    let pairs = parse_pairs(text)?.into_iter().map(|(name, value)| {
        let key: AsciiMetadataKey =
            name.to_ascii_lowercase().parse().map_err(|_| format!("`{name}` is no name of metadata"))?;
        let value =
            value.parse().map_err(|_| format!("the value of `{name}` has other characters than ASCII"))?;
        Ok((key, value))
    });
    pairs.collect()
}

fn client_tls(options: &Options, dir: &Path) -> Result<Option<Arc<ClientConfig>>, OptionError> {
    let files = [TLS_OPTIONS.authorities, TLS_OPTIONS.certificate, TLS_OPTIONS.key];
    if !options.flag("enable.ssl") && !files.iter().any(|name| options.is_written(name)) {
        return Ok(None);
    }
    let mut config = (*named_client_config(options, TLS_OPTIONS, dir)?).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(Arc::new(config)))
}

/// Reads an option whose range fits the type.
pub(super) fn number<N: TryFrom<i64>>(options: &Options, name: &str, default: N) -> N {
    options.integer(name).and_then(|n| N::try_from(n).ok()).unwrap_or(default)
}
