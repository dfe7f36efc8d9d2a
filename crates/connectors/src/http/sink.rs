//! The sink `http`, and the requests that it has in common with `http-call`.

use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use futures::{FutureExt, StreamExt};
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use reqwest::{RequestBuilder, Response};
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    Payload, SinkBatch, SinkConnector, SinkType, Template,
};
use tidemill_types::{Error, ErrorKind, Result};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use super::client::{
    CLIENT_OPTIONS, HttpClient, IDLE_TIMEOUT_OPTIONS, describe_answer, is_temporary, parse_url, read_body,
    shown_url,
};
use super::options::{joined, parse_headers};

/// Bytes of an answer that are read to show them in an error.
const ERROR_BYTES: usize = 64 << 10;
/// Timeout for the test of the address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Header with the id of the event, which stays the same when it is sent again.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Options of the sinks that send requests.
pub(super) const REQUEST_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("publisher.url", "Where to send: an `http` or `https` URL.").required().dynamic(),
    OptionSpec::text("method", "HTTP method; GET and HEAD have no body.").default("POST").dynamic(),
    OptionSpec::text(
        "headers",
        "Headers: `'name:value','name:value'`. Without Content-Type the first byte of the message decides it; \
         Idempotency-Key is the id of the event.",
    )
    .dynamic(),
    OptionSpec::integer(
        "max.pool.active.connections",
        -1,
        1024,
        "Requests under way at the same time. With one, events arrive in order.",
    ),
];

const OPTIONS: [OptionSpec; REQUEST_OPTIONS.len() + CLIENT_OPTIONS.len() + IDLE_TIMEOUT_OPTIONS.len()] =
    joined(&[REQUEST_OPTIONS, CLIENT_OPTIONS, IDLE_TIMEOUT_OPTIONS]);

/// Type of the sink.
pub(crate) struct HttpSinkType;

impl SinkType for HttpSinkType {
    fn name(&self) -> &'static str {
        "http"
    }

    fn summary(&self) -> &'static str {
        "Sends each message as an HTTP request; an answer of 2xx takes it."
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
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        Ok(Box::new(HttpSink { requests: Requests::of(options, context)?, parallel: parallel(options, 1) }))
    }
}

/// Returns how many requests are under way at the same time.
pub(super) fn parallel(options: &Options, default: usize) -> usize {
    let written = options.integer("max.pool.active.connections").and_then(|n| usize::try_from(n).ok());
    written.filter(|n| *n != 0).unwrap_or(default)
}

struct HttpSink {
    requests: Requests,
    parallel: usize,
}

#[async_trait]
impl SinkConnector for HttpSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.requests.check_address().await?;
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        let messages = batch.messages_from(progress);
        deliver_parallel(messages, self.parallel, progress, |message| self.exchange(batch, message).boxed())
            .await
    }
}

impl HttpSink {
    async fn exchange(&self, batch: &SinkBatch, message: &Payload) -> Result<Outcome> {
        let (url, request) = match self.requests.make(batch, message) {
            Ok(made) => made,
            Err(reason) => return Ok(Outcome::Refused(reason)),
        };
        match self.requests.client.send(request, &url).await {
            Ok(response) => answer_outcome(&url, response).await,
            Err(e) => refused_if_impossible(e),
        }
    }
}

/// Returns the outcome of a request that got no answer.
///
/// Errors: the same request may get one later.
pub(super) fn refused_if_impossible(e: Error) -> Result<Outcome> {
    match e.kind() {
        ErrorKind::Invalid => Ok(Outcome::Refused(e.to_string())),
        _ => Err(e),
    }
}

/// Runs the exchanges of messages, at most `parallel` at the same time, and counts their outcomes in order.
///
/// Errors: that of the first exchange that failed; later ones are given up.
pub(crate) async fn deliver_parallel<'m>(
    messages: &'m [Payload],
    parallel: usize,
    progress: &mut DeliveryProgress,
    exchange: impl Fn(&'m Payload) -> BoxFuture<'m, Result<Outcome>>,
) -> Result<()> {
    let mut under_way = FuturesOrdered::new();
    let mut waiting = messages.iter();
    for message in messages {
        while under_way.len() < parallel
            && let Some(next) = waiting.next()
        {
            under_way.push_back(exchange(next));
        }
        if let Some(outcome) = under_way.next().await {
            outcome?.count(message, progress);
        }
    }
    Ok(())
}

/// Outcome of a message.
pub(crate) enum Outcome {
    Taken,
    /// Refused for good, with the reason.
    Refused(String),
}

impl Outcome {
    fn count(self, message: &Payload, progress: &mut DeliveryProgress) {
        match self {
            Self::Taken => progress.took(message),
            Self::Refused(reason) => progress.refused(message, &reason),
        }
    }
}

/// Reads an answer as outcome.
///
/// Errors: `Unavailable` if the same request may succeed later.
pub(super) async fn answer_outcome(url: &Url, response: Response) -> Result<Outcome> {
    let status = response.status();
    if status.is_success() {
        // the rest of the body is of no use, but a connection can be used again only behind it
        let _ = read_body(response, url, ERROR_BYTES).await;
        return Ok(Outcome::Taken);
    }
    let body = read_body(response, url, ERROR_BYTES).await.unwrap_or_default();
    status_outcome(url, status, &body)
}

/// Returns the outcome of an answer with a status other than success.
pub(super) fn status_outcome(url: &Url, status: StatusCode, body: &[u8]) -> Result<Outcome> {
    let text = describe_answer(url, status, body);
    match is_temporary(status) {
        true => Err(Error::unavailable(text)),
        false => Ok(Outcome::Refused(text)),
    }
}

/// Makes requests of messages.
pub(super) struct Requests {
    pub(super) client: HttpClient,
    url: Template,
    method: Template,
    headers: Template,
    is_direct: bool,
}

impl Requests {
    /// Errors: options that make no sense together.
    pub(super) fn of(options: &Options, context: &ConnectorContext) -> Result<Self, OptionError> {
        let template = |name: &str| context.template(options, name);
        let (url, method, headers) = (template("publisher.url")?, template("method")?, template("headers")?);
        if let Some(text) = url.constant() {
            parse_url(text).map_err(|e| OptionError::option("publisher.url", e))?;
        }
        if let Some(text) = method.constant() {
            parse_method(text).map_err(|e| OptionError::option("method", e))?;
        }
        if let Some(text) = headers.constant() {
            parse_headers(text).map_err(|e| OptionError::option("headers", e))?;
        }
        let client = HttpClient::of(options, &context.dir, false)?;
        Ok(Self { client, url, method, headers, is_direct: options.get("proxy.host").is_none() })
    }

    /// Connects to the host once, so that an address that cannot be reached is known before the first event.
    ///
    /// Errors: `Unavailable` if it cannot be reached.
    pub(super) async fn check_address(&self) -> Result<()> {
        let url = self.url.constant().filter(|_| self.is_direct).and_then(|text| parse_url(text).ok());
        let Some(url) = url else { return Ok(()) };
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let connecting = TcpStream::connect((host, url.port_or_known_default().unwrap_or(80)));
        let failed =
            |reason: String| Error::unavailable(format!("cannot connect to {}: {reason}", shown_url(&url)));
        match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected.map(drop).map_err(|e| failed(e.to_string())),
            Err(_) => Err(failed("no answer".into())),
        }
    }

    /// Makes the request of a message.
    ///
    /// Errors: why there can be none.
    pub(super) fn make(&self, batch: &SinkBatch, message: &Payload) -> Result<(Url, RequestBuilder), String> {
        let url = parse_url(&self.url.render(&batch.rows, message.row))
            .map_err(|e| format!("publisher.url: {e}"))?;
        let method = parse_method(&self.method.render(&batch.rows, message.row))?;
        let headers = parse_headers(&self.headers.render(&batch.rows, message.row))
            .map_err(|e| format!("headers: {e}"))?;
        let has_body = method != Method::GET && method != Method::HEAD;
        let has = |name: &HeaderName| headers.iter().any(|(known, _)| known == name);
        let (has_type, has_key) = (has(&header::CONTENT_TYPE), has(&IDEMPOTENCY_KEY));
        let mut request = self.client.request(method, url.clone());
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if !has_key && let Some(id) = batch.ids.get(message.row) {
            request = request.header(IDEMPOTENCY_KEY, id.to_string());
        }
        if has_body {
            if !has_type {
                request = request.header(header::CONTENT_TYPE, content_type(&message.bytes));
            }
            request = request.body(message.bytes.clone());
        }
        Ok((url, request))
    }
}

fn parse_method(text: &str) -> Result<Method, String> {
    // Siddhi's documentation writes it in backquotes
    let text = text.trim().trim_matches('`').to_ascii_uppercase();
    Method::from_bytes(text.as_bytes()).map_err(|_| format!("`{text}` is no HTTP method"))
}

/// Returns the content type of a message, which its first byte shows.
pub(super) fn content_type(body: &[u8]) -> HeaderValue {
    HeaderValue::from_static(match body.trim_ascii_start().first() {
        Some(b'{' | b'[') => "application/json",
        Some(b'<') => "application/xml",
        _ if std::str::from_utf8(body).is_ok() => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    })
}
