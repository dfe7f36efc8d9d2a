//! The source `sse`: reads a stream of server-sent events, and continues it after a lost connection.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use reqwest::Response;
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, SourceConnector,
    SourceOutput, SourceType,
};
use tidemill_types::{Error, Result};
use url::Url;

use super::parser::{EventParser, SseEvent};
use crate::http::client::{
    CLIENT_OPTIONS, HttpClient, describe, describe_answer, parse_url, read_body, shown_url,
};
use crate::http::options::{joined, parse_headers};
use crate::http::receiver::header_properties;
use crate::receipts::Receipts;

/// Bytes of the longest event.
const EVENT_BYTES_MAX: usize = 32 << 20;
/// Bytes of an answer that are read to show them in an error.
const ERROR_BYTES: usize = 64 << 10;
/// Deliveries that may wait until they are durable.
const RECEIPTS_MAX: usize = 1000;
/// Name of the split whose positions are ids that are numbers.
const SPLIT: &str = "events";
/// Header with the id behind which the stream continues.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

const SSE_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("event.source.url", "What to read: an `http` or `https` URL.").required(),
    OptionSpec::one_of("method", &["GET", "POST"], "HTTP method.").default("GET"),
    OptionSpec::text("headers", "Headers of the request: `'name:value','name:value'`."),
    OptionSpec::text("last.event.id", "Id behind which a source that never ran begins."),
    OptionSpec::flag(
        "event.id.numeric",
        "false",
        "Whether the server's ids are whole numbers that do not decrease; then the last one is stored with the events, \
         and the source continues behind it also after a restart.",
    ),
    OptionSpec::duration(
        "reconnect.interval",
        "How long to wait when the stream has ended, unless the server says another time.",
    )
    .default("1 sec"),
    OptionSpec::duration(
        "socket.idle.timeout",
        "How long the server may send nothing, comments included, before the source connects again; 0: forever.",
    )
    .default("0"),
    OptionSpec::integer("worker.count", 1, 10_000, "Accepted without effect; events keep their order."),
];

const OPTIONS: [OptionSpec; SSE_OPTIONS.len() + CLIENT_OPTIONS.len()] =
    joined(&[SSE_OPTIONS, CLIENT_OPTIONS]);

/// Type of the source.
pub(super) struct SseSourceType;

impl SourceType for SseSourceType {
    fn name(&self) -> &'static str {
        "sse"
    }

    fn summary(&self) -> &'static str {
        "Reads a stream of server-sent events; after a lost connection it continues behind the last id."
    }

    fn options(&self) -> &'static [OptionSpec] {
        &OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtMostOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        let wrong = |option: &'static str| move |message: String| OptionError::option(option, message);
        let first_id = options.get("last.event.id").unwrap_or_default();
        if HeaderValue::from_str(first_id).is_err() {
            return Err(OptionError::option("last.event.id", "an id has no control characters"));
        }
        let is_numeric = options.flag("event.id.numeric");
        if is_numeric && !first_id.is_empty() && first_id.parse::<u64>().is_err() {
            let message = format!("with event.id.numeric='true' the id is a whole number, not `{first_id}`");
            return Err(OptionError::option("last.event.id", message));
        }
        Ok(Box::new(SseSource {
            client: HttpClient::of(options, &context.dir, true)?,
            url: parse_url(options.text("event.source.url")).map_err(wrong("event.source.url"))?,
            method: match options.text("method").trim().eq_ignore_ascii_case("POST") {
                true => Method::POST,
                false => Method::GET,
            },
            headers: parse_headers(options.text("headers")).map_err(wrong("headers"))?,
            split: is_numeric.then(|| SPLIT.into()),
            delay: options.duration("reconnect.interval").unwrap_or(Duration::from_secs(1)),
            last_id: first_id.to_owned(),
        }))
    }
}

struct SseSource {
    client: HttpClient,
    url: Url,
    method: Method,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Split of the positions if ids are numbers.
    split: Option<Arc<str>>,
    /// Delay before connecting again when the stream has ended.
    delay: Duration,
    /// Id of the last event that is durable; empty without one.
    last_id: String,
}

#[async_trait]
impl SourceConnector for SseSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        loop {
            let response = self.connect(output).await?;
            output.report_connected();
            let end = self.read(response, output).await?;
            // streams of many servers end now and then, which does not count as a failure
            let message = format!("the stream of {} {end}; the source connects again", shown_url(&self.url));
            tracing::debug!("{message}");
            output.report_problem(message);
            tokio::time::sleep(self.delay).await;
        }
    }
}

impl SseSource {
    /// Asks for the stream.
    ///
    /// Errors: the server does not give it.
    async fn connect(&mut self, output: &SourceOutput) -> Result<Response> {
        let position = self.split.as_ref().and_then(|split| output.position(split));
        if let Some(last) = position.and_then(|position| position.checked_sub(1)) {
            self.last_id = last.to_string();
        }
        let mut request = self.client.request(self.method.clone(), self.url.clone());
        request =
            request.header(header::ACCEPT, "text/event-stream").header(header::CACHE_CONTROL, "no-store");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Ok(id) = HeaderValue::from_bytes(self.last_id.as_bytes())
            && !id.is_empty()
        {
            request = request.header(LAST_EVENT_ID, id);
        }
        let response = self.client.send(request, &self.url).await?;
        let status = response.status();
        if status == StatusCode::NO_CONTENT {
            let message = format!("{} answered HTTP 204: there is no stream now", shown_url(&self.url));
            return Err(Error::unavailable(message));
        }
        if status != StatusCode::OK {
            let body = read_body(response, &self.url, ERROR_BYTES).await.unwrap_or_default();
            return Err(Error::unavailable(describe_answer(&self.url, status, &body)));
        }
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        match kind.eq_ignore_ascii_case("text/event-stream") {
            true => Ok(response),
            false => Err(Error::unavailable(format!(
                "{} answered with the content type `{kind}`; expected `text/event-stream`",
                shown_url(&self.url)
            ))),
        }
    }

    /// Hands over the events of a stream until it ends. Returns how it ended.
    ///
    /// Errors: events are not known to be durable; the stream has to continue before them.
    async fn read(&mut self, mut response: Response, output: &SourceOutput) -> Result<String> {
        let properties = header_properties(response.headers());
        let mut parser = EventParser::new(self.last_id.clone(), EVENT_BYTES_MAX);
        let mut receipts: Receipts<String> = Receipts::new();
        let mut events = vec![];
        let end = loop {
            tokio::select! {
                durable = receipts.next() => self.last_id = durable?,
                chunk = response.chunk(), if receipts.len() < RECEIPTS_MAX => {
                    let chunk = match chunk {
                        Ok(Some(chunk)) => chunk,
                        Ok(None) => break "ended".to_owned(),
                        Err(e) => break format!("broke off: {}", describe(&e)),
                    };
                    let parsed = parser.push(&chunk, &mut events);
                    self.delay = parser.retry().unwrap_or(self.delay);
                    self.hand_over(std::mem::take(&mut events), &properties, output, &mut receipts).await?;
                    if let Err(e) = parsed {
                        return Err(Error::unavailable(format!("the stream of {}: {e}", shown_url(&self.url))));
                    }
                }
            }
        };
        while receipts.len() > 0 {
            self.last_id = receipts.next().await?;
        }
        Ok(end)
    }

    /// Hands over events. If ids are numbers, those with a new one have a position.
    async fn hand_over(
        &self,
        events: Vec<SseEvent>,
        properties: &[(String, String)],
        output: &SourceOutput,
        receipts: &mut Receipts<String>,
    ) -> Result<()> {
        let mut rest = events.into_iter().peekable();
        while let Some(first) = rest.peek() {
            let Some((split, mut next)) = self.new_position(first, output) else {
                if self.split.is_some() {
                    output.report_problem(format!(
                        "{} sends an event whose id is no whole number above the one before, as event.id.numeric='true' \
                         says",
                        shown_url(&self.url)
                    ));
                }
                let is_alike = |event: &SseEvent| self.new_position(event, output).is_none();
                let alike: Vec<_> = std::iter::from_fn(|| rest.next_if(is_alike)).collect();
                let id = alike.last().map_or(String::new(), |event| event.id.clone());
                let messages = alike.into_iter().map(|event| message(event, properties, 0)).collect();
                receipts.push(output.send(messages).await?, id);
                continue;
            };
            let mut messages = vec![];
            let mut last_id = String::new();
            while let Some((event, number)) = rest.peek().and_then(|event| Some((event, number(event)?)))
                && number >= next
            {
                last_id.clone_from(&event.id);
                next = number + 1;
                messages.extend(rest.next().map(|event| message(event, properties, number)));
            }
            receipts.push(output.send_split(&split, messages, next).await?, last_id);
        }
        Ok(())
    }

    /// Returns the split and its position if ids are numbers and the one of `event` is not below the position.
    fn new_position(&self, event: &SseEvent, output: &SourceOutput) -> Option<(Arc<str>, u64)> {
        let split = self.split.clone()?;
        let position = output.position(&split).unwrap_or_default();
        number(event).filter(|number| *number >= position).map(|_| (split, position))
    }
}

/// Returns the id of an event as a number. The greatest number does not count, because no position is behind
/// it.
fn number(event: &SseEvent) -> Option<u64> {
    event.id.parse().ok().filter(|number| *number < u64::MAX)
}

fn message(event: SseEvent, properties: &[(String, String)], number: u64) -> Message {
    let mut message = Message { number, ..Message::new(event.data) };
    message.properties.extend([("event".to_owned(), event.kind), ("id".to_owned(), event.id)]);
    message.properties.extend_from_slice(properties);
    message
}
