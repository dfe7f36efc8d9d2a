//! The source `grpc`, and the server that it has in common with `grpc-service`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, SourceConnector,
    SourceOutput, SourceType,
};
use tidemill_types::Result;
use tokio::time::timeout;
use tonic::server::{ClientStreamingService, Grpc};
use tonic::{Status, Streaming};

use super::client::number;
use super::message::{MessageForm, RawCodec};
use super::method::GrpcMethod;
use crate::http::receiver::header_properties;
use crate::http::server::{Claim, Endpoint, Place, problem};
use crate::tls::{ClientCertificates, OptionFile, ServerTls};

/// Timeout for the event of a call to arrive.
const EVENT_TIMEOUT: Duration = Duration::from_secs(120);
/// Bytes of metadata that the server reads at most, whatever the option says.
const METADATA_BYTES_MAX: i64 = 16 << 10;

/// Options of sources that serve methods.
pub(super) const SERVER_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("receiver.url", "Method to serve: `grpc://host:port/service/method`.").required(),
    OptionSpec::integer("max.inbound.message.size", 1, 1 << 30, "Bytes of the longest message.")
        .default("4194304"),
    OptionSpec::integer("max.inbound.metadata.size", 1, METADATA_BYTES_MAX, "Bytes of metadata of a call.")
        .default("8192"),
    OptionSpec::flag(
        "enable.ssl",
        "false",
        "Whether connections are encrypted; `keystore.file` does so too.",
    ),
    OptionSpec::text("keystore.file", "PEM file with the certificate of the server, and its key."),
    OptionSpec::text("keystore.key.file", "PEM file with the key, if it is not with the certificate."),
    OptionSpec::text("truststore.file", "PEM file with the authorities of client certificates."),
    OptionSpec::flag("mutual.auth.enabled", "false", "Whether clients need a certificate."),
    OptionSpec::text("truststore.password", "Accepted without effect; certificates are public.").secret(),
    OptionSpec::text("keystore.password", "Accepted without effect; PEM keys are not encrypted.").secret(),
    OptionSpec::text("truststore.algorithm", "Accepted without effect."),
    OptionSpec::text("keystore.algorithm", "Accepted without effect."),
    OptionSpec::text("tls.store.type", "Accepted without effect; files are PEM files."),
    OptionSpec::text("threadpool.size", "Accepted without effect; threads are shared."),
    OptionSpec::text("threadpool.buffer.size", "Accepted without effect."),
    OptionSpec::text("server.shutdown.waiting.time", "Accepted without effect."),
];

/// Type of the source.
pub(super) struct GrpcSourceType;

impl SourceType for GrpcSourceType {
    fn name(&self) -> &'static str {
        "grpc"
    }

    fn summary(&self) -> &'static str {
        "Serves a gRPC method, by default `consume` of EventService, and answers when the events are durable."
    }

    fn options(&self) -> &'static [OptionSpec] {
        SERVER_OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        Ok(Box::new(GrpcSource { server: GrpcServer::of(options, "consume", &context.dir)? }))
    }
}

struct GrpcSource {
    server: GrpcServer,
}

#[async_trait]
impl SourceConnector for GrpcSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let of_calls = output.clone();
        let answer = move |messages: CallMessages| consume(messages, of_calls.clone()).boxed();
        let _claims = self.server.serve(answer).await?;
        output.report_connected();
        std::future::pending().await
    }
}

/// Stores the messages of a call. A method of EventService has one; a method of users may have a stream.
async fn consume(mut messages: CallMessages, output: SourceOutput) -> Result<Bytes, Status> {
    while let Some(message) = messages.next().await? {
        hand_over(&output, message).await?;
    }
    // an empty message, which every type has
    Ok(Bytes::new())
}

/// Hands a message over and waits until its events are durable.
///
/// Errors: the status if they are not, or if some were rejected.
pub(super) async fn hand_over(output: &SourceOutput, message: Message) -> Result<(), Status> {
    let receipt = match output.send(vec![message]).await {
        Ok(pending) => pending.wait().await,
        Err(e) => Err(e),
    };
    match receipt {
        Ok(receipt) if receipt.rejected.is_empty() => Ok(()),
        Ok(receipt) => {
            let reasons: String = receipt.rejected.join("; ").chars().take(1000).collect();
            Err(Status::invalid_argument(format!("{} events are stored; {reasons}", receipt.accepted)))
        }
        Err(e) => {
            let message = format!("the events are not stored; send them again: {}", e.message());
            Err(Status::unavailable(message))
        }
    }
}

/// Settings for serving a method.
pub(super) struct GrpcServer {
    places: Vec<Place>,
    pub(super) form: MessageForm,
    message_bytes_max: usize,
    metadata_bytes_max: usize,
}

impl GrpcServer {
    /// Reads the options. `event_method` is the method of EventService that the source serves.
    ///
    /// Errors: what is wrong with the URL or the files.
    pub(super) fn of(options: &Options, event_method: &str, dir: &Path) -> Result<Self, OptionError> {
        let method = GrpcMethod::of(options, "receiver.url", event_method)?;
        let tls = server_tls(options, dir)?;
        let place = |path: String| Place::new(&method.host, method.port, Some(&path), tls.clone());
        Ok(Self {
            places: method.paths().into_iter().map(place).collect(),
            form: method.form,
            message_bytes_max: number(options, "max.inbound.message.size", 4 << 20),
            metadata_bytes_max: number(options, "max.inbound.metadata.size", 8192),
        })
    }

    /// Serves the method until the claims are dropped.
    ///
    /// Errors: the port or the method is taken.
    pub(super) async fn serve(&self, answer: impl AnswerCall) -> Result<Vec<Claim>> {
        let endpoint = Arc::new(MethodEndpoint {
            answer: Arc::new(answer),
            form: self.form,
            message_bytes_max: self.message_bytes_max,
            metadata_bytes_max: self.metadata_bytes_max,
        });
        let mut claims = vec![];
        for place in &self.places {
            claims.push(place.serve(endpoint.clone()).await?);
        }
        Ok(claims)
    }
}

fn server_tls(options: &Options, dir: &Path) -> Result<Option<ServerTls>, OptionError> {
    let file = |option| OptionFile::read(options, option, dir);
    let Some(certificate) = file("keystore.file")? else {
        let option = ["enable.ssl", "mutual.auth.enabled"].into_iter().find(|name| options.flag(name));
        return match option {
            None => Ok(None),
            Some(option) => Err(OptionError::option(option, "the server needs a certificate and a key")
                .expected(["keystore.file='server.pem'"])),
        };
    };
    let authorities = file("truststore.file")?;
    let clients = match (options.flag("mutual.auth.enabled"), &authorities) {
        (false, _) => ClientCertificates::Ignored,
        (true, Some(_)) => ClientCertificates::Required,
        (true, None) => {
            let message = "client certificates are checked with authorities, which are missing";
            return Err(OptionError::option("mutual.auth.enabled", message)
                .expected(["truststore.file='authorities.pem'"]));
        }
    };
    let tls = ServerTls { certificate, key: file("keystore.key.file")?, authorities, clients };
    // finds keys that do not fit before the source starts
    tls.acceptor(&[])?;
    Ok(Some(tls))
}

/// Answers a call.
pub(super) trait AnswerCall:
    Fn(CallMessages) -> BoxFuture<'static, Result<Bytes, Status>> + Send + Sync + 'static
{
}

impl<F> AnswerCall for F where
    F: Fn(CallMessages) -> BoxFuture<'static, Result<Bytes, Status>> + Send + Sync + 'static
{
}

/// Messages of a call, as they arrive.
pub(super) struct CallMessages {
    stream: Streaming<Bytes>,
    form: MessageForm,
    /// Metadata.
    properties: Vec<(String, String)>,
}

impl CallMessages {
    /// Returns the next message, with headers and metadata as properties.
    ///
    /// Errors: the call broke off, or the message cannot be read.
    pub(super) async fn next(&mut self) -> Result<Option<Message>, Status> {
        let message = match self.form {
            // a stream may be silent for as long as it likes, an event is on its way
            MessageForm::Raw => self.stream.message().await?,
            MessageForm::Event => match timeout(EVENT_TIMEOUT, self.stream.message()).await {
                Ok(message) => message?,
                Err(_) => return Err(Status::deadline_exceeded("the event did not arrive in time")),
            },
        };
        let Some(message) = message else { return Ok(None) };
        let (payload, mut properties) = self.form.decode(message).map_err(Status::invalid_argument)?;
        properties.extend_from_slice(&self.properties);
        Ok(Some(Message { payload, properties, ..Message::default() }))
    }
}

/// The method on the shared server.
struct MethodEndpoint {
    answer: Arc<dyn AnswerCall>,
    form: MessageForm,
    message_bytes_max: usize,
    metadata_bytes_max: usize,
}

#[async_trait]
impl Endpoint for MethodEndpoint {
    async fn answer(&self, request: Request<Incoming>) -> Response<axum::body::Body> {
        let kind = request.headers().get(header::CONTENT_TYPE).map_or(&[][..], |value| value.as_bytes());
        if !kind.starts_with(b"application/grpc") {
            let message = "call the method with a client of gRPC";
            return problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
        }
        // counted as HTTP/2 does
        let metadata: usize =
            request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
        if metadata > self.metadata_bytes_max {
            let message = format!("the metadata has more than {} bytes", self.metadata_bytes_max);
            return Status::resource_exhausted(message).into_http();
        }
        let call = GrpcCall { answer: self.answer.clone(), form: self.form };
        let mut grpc = Grpc::new(RawCodec).max_decoding_message_size(self.message_bytes_max);
        grpc.client_streaming(call, request).await.map(axum::body::Body::new)
    }
}

struct GrpcCall {
    answer: Arc<dyn AnswerCall>,
    form: MessageForm,
}

impl ClientStreamingService<Bytes> for GrpcCall {
    type Response = Bytes;
    type Future = BoxFuture<'static, Result<tonic::Response<Bytes>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<Bytes>>) -> Self::Future {
        let (metadata, _, stream) = request.into_parts();
        let properties = metadata_properties(&metadata.into_headers());
        let messages = CallMessages { stream, form: self.form, properties };
        let answering = (self.answer)(messages);
        async move { answering.await.map(tonic::Response::new) }.boxed()
    }
}

/// Returns metadata as transport properties, without credentials and without what belongs to the protocol.
pub(super) fn metadata_properties(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut properties = header_properties(headers);
    properties
        .retain(|(name, _)| !name.starts_with("grpc-") && !["te", "content-type"].contains(&name.as_str()));
    properties
}
