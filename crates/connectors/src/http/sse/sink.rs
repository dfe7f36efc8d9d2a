//! The sink `sse`, also called `sse-server`: serves the events to all clients that read its URL.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    SinkBatch, SinkConnector, SinkType, Template,
};
use tidemill_types::{EventId, Result};
use tokio::time::timeout;

use crate::fanout::{Fanout, FanoutLimits};
use crate::http::auth::{AUTH_OPTIONS, RequiredLogin};
use crate::http::options::{joined, parse_headers};
use crate::http::server::{Claim, Endpoint, Place, SERVER_OPTIONS, problem};

/// Port if the user names none.
const DEFAULT_PORT: u16 = 8280;
/// Bytes of events that are kept for clients.
const KEPT_BYTES_MAX: usize = 16 << 20;
/// A comment, which clients ignore.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");

const SINK_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text(
        "server.url",
        "Where to listen, by default `http://0.0.0.0:8280/<app>/<stream>`; several connectors may share a port.",
    ),
    OptionSpec::text("headers", "Headers of the answers: `'name:value','name:value'`."),
    OptionSpec::text("event.type", "Type of the events; clients call it `message` without.").dynamic(),
    OptionSpec::integer(
        "history.size",
        1,
        1_000_000,
        "Events that are kept, at most 16 MiB of them, for clients that come back and for slow ones.",
    )
    .default("1000"),
    OptionSpec::duration(
        "slow.client.timeout",
        "How long the sink waits for a client that is behind by all that is kept, before it ends its connection.",
    )
    .default("5 sec"),
    OptionSpec::duration("keep.alive.interval", "When to send a comment if there is no event.")
        .default("15 sec"),
    OptionSpec::text("client.bootstrap.configurations", "Accepted without effect; the sink is a server."),
];

const OPTIONS: [OptionSpec; SINK_OPTIONS.len() + AUTH_OPTIONS.len() + SERVER_OPTIONS.len()] =
    joined(&[SINK_OPTIONS, AUTH_OPTIONS, SERVER_OPTIONS]);

/// Type of the sink.
pub(super) struct SseSinkType {
    pub(super) name: &'static str,
}

impl SinkType for SseSinkType {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        match self.name {
            "sse-server" => "Serves the events as server-sent events; another name of the sink `sse`.",
            _ => "Serves the events as server-sent events to all clients that read its URL.",
        }
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
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        let event_type = context.optional_template(options, "event.type")?;
        let headers = parse_headers(options.text("headers"));
        let interval = options.duration("keep.alive.interval").filter(|interval| !interval.is_zero());
        let limits = FanoutLimits {
            messages_max: options
                .integer("history.size")
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(1000),
            bytes_max: KEPT_BYTES_MAX,
            patience: options.duration("slow.client.timeout").unwrap_or(Duration::from_secs(5)),
        };
        Ok(Box::new(SseSink {
            place: Place::of(options, "server.url", DEFAULT_PORT, context)?,
            event_type,
            endpoint: Arc::new(EventStream {
                fanout: Fanout::new(limits),
                login: RequiredLogin::of(options)?,
                headers: headers.map_err(|e| OptionError::option("headers", e))?,
                keep_alive: interval
                    .ok_or_else(|| OptionError::option("keep.alive.interval", "it must be longer than 0"))?,
            }),
            claim: None,
        }))
    }
}

struct SseSink {
    place: Place,
    event_type: Option<Template>,
    endpoint: Arc<EventStream>,
    claim: Option<Claim>,
}

#[async_trait]
impl SinkConnector for SseSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        if self.claim.is_none() {
            self.claim = Some(self.place.serve(self.endpoint.clone()).await?);
        }
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        for message in batch.messages_from(progress) {
            let kind = self.event_type.as_ref().map(|kind| kind.render(&batch.rows, message.row));
            let id = batch.ids.get(message.row + message.rows - 1).copied();
            match frame(&message.bytes, kind.as_deref(), id) {
                Ok(frame) => {
                    let bytes = frame.len();
                    self.endpoint.fanout.push(SentEvent { id, frame }, bytes).await;
                    progress.took(message);
                }
                Err(reason) => progress.refused(message, &reason),
            }
        }
        Ok(())
    }

    async fn close(&mut self) {
        self.endpoint.fanout.close().await;
        self.claim = None;
    }
}

/// Writes an event as clients read it.
///
/// Errors: it cannot be written.
fn frame(data: &[u8], kind: Option<&str>, id: Option<EventId>) -> Result<Bytes, String> {
    let text = std::str::from_utf8(data)
        .map_err(|_| "server-sent events are text, and the message is no UTF-8; use a mapper of text")?;
    let mut frame = String::with_capacity(text.len() + 64);
    if let Some(id) = id {
        frame.push_str(&format!("id: {id}\n"));
    }
    if let Some(kind) = kind {
        if kind.contains(['\n', '\r']) {
            return Err("event.type: the type of an event is one line".into());
        }
        frame.push_str(&format!("event: {kind}\n"));
    }
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    for line in text.split('\n') {
        frame.push_str("data: ");
        frame.push_str(line);
        frame.push('\n');
    }
    frame.push('\n');
    Ok(frame.into())
}

#[derive(Clone)]
struct SentEvent {
    id: Option<EventId>,
    frame: Bytes,
}

/// Endpoint that answers the clients.
struct EventStream {
    fanout: Arc<Fanout<SentEvent>>,
    login: RequiredLogin,
    headers: Vec<(HeaderName, HeaderValue)>,
    keep_alive: Duration,
}

#[async_trait]
impl Endpoint for EventStream {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if let Err(refusal) = self.login.check(request.headers()) {
            return *refusal;
        }
        if request.method() != Method::GET {
            let message = format!("events are read by GET, not {}", request.method());
            let mut answer = problem(StatusCode::METHOD_NOT_ALLOWED, &message);
            answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
            return answer;
        }
        let reader = match request.headers().get("last-event-id").map(HeaderValue::to_str) {
            None => self.fanout.reader(),
            Some(id) => {
                // an id of another server is treated as unknown, like one that has left the buffer
                let id: Option<EventId> = id.ok().and_then(|text| text.parse().ok());
                self.fanout.reader_behind(|event| event.id.is_some() && event.id == id)
            }
        };
        let keep_alive = self.keep_alive;
        // the first comment shows clients and proxies that the stream has begun
        let stream = futures::stream::unfold((reader, true), move |(mut reader, is_first)| async move {
            if is_first {
                return Some((COMMENT, (reader, false)));
            }
            match timeout(keep_alive, reader.next()).await {
                Ok(event) => event.map(|event| (event.frame, (reader, false))),
                Err(_) => Some((COMMENT, (reader, false))),
            }
        });
        let stream = futures::StreamExt::map(stream, Ok::<_, std::convert::Infallible>);
        let mut answer = Response::new(Body::from_stream(stream));
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_framed() {
        for (data, kind, expected) in [
            ("a", None, "data: a\n\n"),
            ("a\nb\r\nc\rd", Some("tick"), "event: tick\ndata: a\ndata: b\ndata: c\ndata: d\n\n"),
            ("", None, "data: \n\n"),
        ] {
            assert_eq!(frame(data.as_bytes(), kind, None).unwrap(), expected);
        }
        let id: EventId = "3-14-1".parse().unwrap();
        assert_eq!(frame(b"x", None, Some(id)).unwrap(), "id: 3-14-1\ndata: x\n\n");
        assert!(frame(b"x", Some("a\nid: 1"), None).is_err());
        assert!(frame(b"\xff", None, None).is_err());
    }
}
