//! The source `http-service`, whose requests wait for an event of the sink `http-service-response`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    SinkBatch, SinkConnector, SinkType, SourceConnector, SourceOutput, SourceType, Template,
};
use tidemill_types::Result;
use tokio::time::timeout;

use super::auth::AUTH_OPTIONS;
use super::options::{joined, parse_headers};
use super::receiver::{DEFAULT_PORT, RECEIVER_OPTIONS, RequestReader, hand_over};
use super::server::{Endpoint, Place, SERVER_OPTIONS, problem};
use super::sink::content_type;
use crate::waiting::WaitingRequests;

/// Requests that wait for their response.
static WAITING: WaitingRequests<ServiceResponse> = WaitingRequests::new();

/// Response that an event of the sink gives to a request.
struct ServiceResponse {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

const SERVICE_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("source.id", "Id that the sinks `http-service-response` name.").required(),
    OptionSpec::duration("connection.timeout", "How long a request waits for its response.")
        .default("120000"),
];

const SOURCE_OPTIONS: [OptionSpec;
    SERVICE_OPTIONS.len() + RECEIVER_OPTIONS.len() + AUTH_OPTIONS.len() + SERVER_OPTIONS.len()] =
    joined(&[SERVICE_OPTIONS, RECEIVER_OPTIONS, AUTH_OPTIONS, SERVER_OPTIONS]);

/// Type of the source.
pub(crate) struct HttpServiceSourceType;

impl SourceType for HttpServiceSourceType {
    fn name(&self) -> &'static str {
        "http-service"
    }

    fn summary(&self) -> &'static str {
        "Listens for HTTP requests that events of the sink `http-service-response` answer."
    }

    fn options(&self) -> &'static [OptionSpec] {
        &SOURCE_OPTIONS
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
        Ok(Box::new(HttpServiceSource {
            place,
            reader,
            app: context.app.clone(),
            source_id: options.text("source.id").to_owned(),
            response_timeout: options.duration("connection.timeout").unwrap_or(Duration::from_secs(120)),
        }))
    }
}

struct HttpServiceSource {
    place: Place,
    reader: RequestReader,
    app: String,
    source_id: String,
    response_timeout: Duration,
}

#[async_trait]
impl SourceConnector for HttpServiceSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let endpoint = Service {
            reader: self.reader.clone(),
            output: output.clone(),
            app: self.app.clone(),
            source_id: self.source_id.clone(),
            response_timeout: self.response_timeout,
        };
        let _claim = self.place.serve(Arc::new(endpoint)).await?;
        output.report_connected();
        std::future::pending().await
    }
}

struct Service {
    reader: RequestReader,
    output: SourceOutput,
    app: String,
    source_id: String,
    response_timeout: Duration,
}

#[async_trait]
impl Endpoint for Service {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let mut message = match self.reader.read(request).await {
            Ok(message) => message,
            Err(answer) => return *answer,
        };
        let (waiting, response) = WAITING.add(&self.app, &self.source_id);
        message.properties.push(("messageId".into(), waiting.message_id().into()));
        if let Err(answer) = hand_over(&self.output, message).await {
            return *answer;
        }
        match timeout(self.response_timeout, response).await {
            Ok(Ok(response)) => response.into_answer(),
            _ => {
                let message = "the events are stored, but no response came in time (connection.timeout)";
                problem(StatusCode::GATEWAY_TIMEOUT, message)
            }
        }
    }
}

impl ServiceResponse {
    fn into_answer(self) -> Response<Body> {
        let mut answer = Response::new(Body::from(self.body));
        *answer.status_mut() = self.status;
        for (name, value) in self.headers {
            answer.headers_mut().append(name, value);
        }
        answer
    }
}

const SINK_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("source.id", "Id of the source `http-service` whose requests are answered.").required(),
    OptionSpec::text("message.id", "Id of the request: what the source gave as `trp:messageId`.")
        .required()
        .dynamic(),
    OptionSpec::text("headers", "Headers of the response: `'name:value','name:value'`.").dynamic(),
    OptionSpec::integer("http.status.code", 200, 599, "Status of the response.").default("200").dynamic(),
];

/// Type of the sink.
pub(crate) struct HttpServiceResponseSinkType;

impl SinkType for HttpServiceResponseSinkType {
    fn name(&self) -> &'static str {
        "http-service-response"
    }

    fn summary(&self) -> &'static str {
        "Answers the requests that a source `http-service` received."
    }

    fn options(&self) -> &'static [OptionSpec] {
        SINK_OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtMostOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        let template = |name: &str| context.template(options, name);
        let headers = template("headers")?;
        if let Some(text) = headers.constant() {
            parse_headers(text).map_err(|e| OptionError::option("headers", e))?;
        }
        Ok(Box::new(HttpServiceResponseSink {
            app: context.app.clone(),
            source_id: options.text("source.id").to_owned(),
            message_id: template("message.id")?,
            headers,
            status: template("http.status.code")?,
        }))
    }
}

struct HttpServiceResponseSink {
    app: String,
    source_id: String,
    message_id: Template,
    headers: Template,
    status: Template,
}

#[async_trait]
impl SinkConnector for HttpServiceResponseSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        for message in batch.messages_from(progress) {
            let row = message.row;
            let message_id = self.message_id.render(&batch.rows, row);
            let response = self.response(batch, row, message.bytes.clone());
            let answered = response
                .and_then(|response| WAITING.respond(&self.app, &self.source_id, &message_id, response));
            match answered {
                Ok(()) => progress.took(message),
                Err(reason) => progress.refused(message, &reason),
            }
        }
        Ok(())
    }
}

impl HttpServiceResponseSink {
    fn response(&self, batch: &SinkBatch, row: usize, body: Bytes) -> Result<ServiceResponse, String> {
        let status = self.status.render(&batch.rows, row);
        let status = status.trim().parse().ok().and_then(|code: u16| StatusCode::from_u16(code).ok());
        let status =
            status.filter(|status| status.as_u16() >= 200).ok_or("the status is not from 200 to 599")?;
        let mut headers = parse_headers(&self.headers.render(&batch.rows, row))?;
        if !headers.iter().any(|(name, _)| *name == header::CONTENT_TYPE) {
            headers.push((header::CONTENT_TYPE, content_type(&body)));
        }
        Ok(ServiceResponse { status, headers, body })
    }
}
