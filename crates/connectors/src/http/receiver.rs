//! The source `http`: receives requests and answers when their events are durable. Its way of reading requests also
//! serves `http-service`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::json;
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, Receipt, SourceConnector,
    SourceOutput, SourceType,
};
use tidemill_types::Result;
use tokio::time::timeout;

use super::auth::{AUTH_OPTIONS, Refusal, RequiredLogin};
use super::options::{Settings, joined};
use super::server::{Endpoint, Place, SERVER_OPTIONS, json_answer, problem};
use crate::property_text::property_text;

/// Bytes of the longest body if the user sets no limit.
const BODY_BYTES_MAX: u64 = 32 << 20;
/// Port if the user names none.
pub(super) const DEFAULT_PORT: u16 = 9763;

/// Options of all sources that receive requests.
pub(super) const RECEIVER_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text(
        "receiver.url",
        "Where to listen, by default `http://0.0.0.0:9763/<app>/<stream>`; several sources may share a port.",
    ),
    OptionSpec::text(
        "request.size.validation.configurations",
        "Limit of the body: `'request.size.validation:true','request.size.validation.maximum.value:2048'`, with \
         `.reject.status.code`, `.reject.message` and `.reject.message.content.type`; 32 MiB without.",
    ),
    OptionSpec::text(
        "header.validation.configurations",
        "Accepted without effect; headers end at about 400 KiB.",
    ),
];

const OPTIONS: [OptionSpec; RECEIVER_OPTIONS.len() + AUTH_OPTIONS.len() + SERVER_OPTIONS.len()] =
    joined(&[RECEIVER_OPTIONS, AUTH_OPTIONS, SERVER_OPTIONS]);

/// Type of the source.
pub(crate) struct HttpSourceType;

impl SourceType for HttpSourceType {
    fn name(&self) -> &'static str {
        "http"
    }

    fn summary(&self) -> &'static str {
        "Listens for HTTP requests, such as webhooks, and answers when their events are durable."
    }

    fn options(&self) -> &'static [OptionSpec] {
        &OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        let place = Place::of(options, "receiver.url", DEFAULT_PORT, context)?;
        let reader = RequestReader::of(options, &place)?;
        Ok(Box::new(HttpSource { place, reader }))
    }
}

struct HttpSource {
    place: Place,
    reader: RequestReader,
}

#[async_trait]
impl SourceConnector for HttpSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let endpoint = Webhook { reader: self.reader.clone(), output: output.clone() };
        let _claim = self.place.serve(Arc::new(endpoint)).await?;
        output.report_connected();
        std::future::pending().await
    }
}

struct Webhook {
    reader: RequestReader,
    output: SourceOutput,
}

#[async_trait]
impl Endpoint for Webhook {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let message = match self.reader.read(request).await {
            Ok(message) => message,
            Err(answer) => return *answer,
        };
        match hand_over(&self.output, message).await {
            Ok(receipt) => json_answer(StatusCode::OK, &json!({ "accepted": receipt.accepted })),
            Err(answer) => *answer,
        }
    }
}

/// Hands a message over and waits until its events are durable.
///
/// Errors: the answer if they are not, or if some were rejected.
pub(super) async fn hand_over(output: &SourceOutput, message: Message) -> Result<Receipt, Refusal> {
    let receipt = match output.send(vec![message]).await {
        Ok(pending) => pending.wait().await,
        Err(e) => Err(e),
    };
    match receipt {
        Ok(receipt) if receipt.rejected.is_empty() => Ok(receipt),
        Ok(receipt) => {
            let body = json!({ "accepted": receipt.accepted, "rejected": receipt.rejected });
            Err(Box::new(json_answer(StatusCode::BAD_REQUEST, &body)))
        }
        Err(e) => {
            let message = format!("the events are not stored; send them again: {}", e.message());
            let mut answer = problem(StatusCode::SERVICE_UNAVAILABLE, &message);
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            Err(Box::new(answer))
        }
    }
}

/// Reads requests as messages.
#[derive(Clone)]
pub(super) struct RequestReader {
    login: RequiredLogin,
    body: BodyLimit,
    idle_timeout: Duration,
}

/// The longest body, and the answer to a longer one.
#[derive(Clone)]
struct BodyLimit {
    bytes_max: u64,
    status: StatusCode,
    /// Message and content type of the user.
    message: Option<(String, HeaderValue)>,
}

impl RequestReader {
    /// Errors: options that make no sense together.
    pub(super) fn of(options: &Options, place: &Place) -> Result<Self, OptionError> {
        let login = RequiredLogin::of(options)?;
        Ok(Self { login, body: BodyLimit::of(options)?, idle_timeout: place.idle_timeout() })
    }

    /// Reads a request.
    ///
    /// Errors: the answer that refuses it.
    pub(super) async fn read(&self, request: Request<Incoming>) -> Result<Message, Refusal> {
        let (parts, body) = request.into_parts();
        self.login.check(&parts.headers)?;
        if ![Method::POST, Method::PUT, Method::PATCH].contains(&parts.method) {
            let message = format!("events are sent by POST, not {}", parts.method);
            let mut answer = problem(StatusCode::METHOD_NOT_ALLOWED, &message);
            let methods = HeaderValue::from_static("POST, PUT, PATCH");
            answer.headers_mut().insert(header::ALLOW, methods);
            return Err(Box::new(answer));
        }
        let encoding = parts.headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
        if encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case(b"identity")) {
            let message = "bodies are taken without content encoding";
            let mut answer = problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
            answer.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            return Err(Box::new(answer));
        }
        let payload = self.read_body(&parts.headers, body).await?;
        let mut message = Message::new(payload);
        message.properties = header_properties(&parts.headers);
        let path = parts.uri.path().to_owned();
        let target = parts.uri.path_and_query().map_or(path.clone(), ToString::to_string);
        message.properties.push(("HTTP_METHOD".into(), parts.method.to_string()));
        message.properties.push(("REQUEST_URL".into(), target));
        message.properties.push(("TO".into(), path));
        Ok(message)
    }

    async fn read_body(&self, headers: &HeaderMap, mut body: Incoming) -> Result<Bytes, Refusal> {
        let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let announced: u64 = announced.and_then(|text| text.parse().ok()).unwrap_or_default();
        if announced > self.body.bytes_max {
            return Err(self.body.refusal());
        }
        let mut bytes = BytesMut::new();
        loop {
            let frame = match timeout(self.idle_timeout, body.frame()).await {
                Ok(None) => return Ok(bytes.freeze()),
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(e))) => {
                    let message = format!("the body ended early: {e}");
                    return Err(Box::new(problem(StatusCode::BAD_REQUEST, &message)));
                }
                Err(_) => {
                    let message = "the body did not arrive in time (socket.idle.timeout)";
                    return Err(Box::new(problem(StatusCode::REQUEST_TIMEOUT, message)));
                }
            };
            if let Ok(data) = frame.into_data() {
                if (bytes.len() + data.len()) as u64 > self.body.bytes_max {
                    return Err(self.body.refusal());
                }
                bytes.extend_from_slice(&data);
            }
        }
    }
}

impl BodyLimit {
    fn of(options: &Options) -> Result<Self, OptionError> {
        const OPTION: &str = "request.size.validation.configurations";
        let settings = Settings::parse(
            options,
            OPTION,
            &[
                "request.size.validation",
                "request.size.validation.maximum.value",
                "request.size.validation.reject.status.code",
                "request.size.validation.reject.message",
                "request.size.validation.reject.message.content.type",
            ],
        )?;
        let wrong = |message: String| OptionError::option(OPTION, message);
        let enabled = settings.text("request.size.validation").is_none_or(|text| text != "false");
        let bytes_max = settings.number("request.size.validation.maximum.value")?.filter(|_| enabled);
        let status = match settings.number("request.size.validation.reject.status.code")? {
            None => StatusCode::PAYLOAD_TOO_LARGE,
            Some(code) => u16::try_from(code)
                .ok()
                .and_then(|code| StatusCode::from_u16(code).ok())
                .ok_or_else(|| wrong(format!("`{code}` is no HTTP status")))?,
        };
        let message = settings.text("request.size.validation.reject.message").map(|message| {
            let ty = settings.text("request.size.validation.reject.message.content.type");
            let ty = ty.unwrap_or("text/plain");
            match HeaderValue::from_str(ty) {
                Ok(value) => Ok((message.to_owned(), value)),
                Err(_) => Err(wrong(format!("`{ty}` is no content type"))),
            }
        });
        Ok(Self { bytes_max: bytes_max.unwrap_or(BODY_BYTES_MAX), status, message: message.transpose()? })
    }

    fn refusal(&self) -> Refusal {
        let Some((message, ty)) = &self.message else {
            let message = format!("the body has more than {} bytes", self.bytes_max);
            return Box::new(problem(self.status, &message));
        };
        let mut answer = Response::new(Body::from(message.clone()));
        *answer.status_mut() = self.status;
        answer.headers_mut().insert(header::CONTENT_TYPE, ty.clone());
        Box::new(answer)
    }
}

/// Returns headers as transport properties. Credentials are left out: properties can become attributes.
pub(crate) fn header_properties(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .filter(|(name, _)| **name != header::AUTHORIZATION && **name != header::COOKIE)
        .map(|(name, value)| (name.to_string(), property_text(value.as_bytes())))
        .collect()
}
