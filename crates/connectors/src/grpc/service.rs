//! The source `grpc-service`, whose calls wait for an event of the sink `grpc-service-response`.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    SinkBatch, SinkConnector, SinkType, SourceConnector, SourceOutput, SourceType, Template,
};
use tidemill_types::Result;
use tokio::time::timeout;
use tonic::Status;

use super::message::MessageForm;
use super::source::{CallMessages, GrpcServer, SERVER_OPTIONS, hand_over};
use crate::http::options::{joined, parse_pairs};
use crate::waiting::WaitingRequests;

/// Calls that wait for their answer.
static WAITING: WaitingRequests<ServiceAnswer> = WaitingRequests::new();

/// Answer that an event of the sink gives to a call.
struct ServiceAnswer {
    payload: Bytes,
    headers: Vec<(String, String)>,
}

const SERVICE_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("source.id", "Id that the sinks `grpc-service-response` name.").required(),
    OptionSpec::duration("service.timeout", "How long a call waits for its answer.").default("10000"),
    OptionSpec::text("timeout.check.interval", "Accepted without effect."),
];

const SOURCE_OPTIONS: [OptionSpec; SERVICE_OPTIONS.len() + SERVER_OPTIONS.len()] =
    joined(&[SERVICE_OPTIONS, SERVER_OPTIONS]);

/// Type of the source.
pub(super) struct GrpcServiceSourceType;

impl SourceType for GrpcServiceSourceType {
    fn name(&self) -> &'static str {
        "grpc-service"
    }

    fn summary(&self) -> &'static str {
        "Serves a gRPC method, by default `process` of EventService, whose calls events of the sink \
         `grpc-service-response` answer."
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
        let server = GrpcServer::of(options, "process", &context.dir)?;
        Ok(Box::new(GrpcServiceSource {
            service: Service {
                form: server.form,
                app: context.app.clone(),
                source_id: options.text("source.id").to_owned(),
                answer_timeout: options.duration("service.timeout").unwrap_or(Duration::from_secs(10)),
            },
            server,
        }))
    }
}

struct GrpcServiceSource {
    server: GrpcServer,
    service: Service,
}

/// Settings for answering calls.
#[derive(Clone)]
struct Service {
    form: MessageForm,
    app: String,
    source_id: String,
    answer_timeout: Duration,
}

#[async_trait]
impl SourceConnector for GrpcServiceSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let (service, of_calls) = (self.service.clone(), output.clone());
        let answer = move |messages: CallMessages| {
            let (service, output) = (service.clone(), of_calls.clone());
            async move { service.process(messages, &output).await }.boxed()
        };
        let _claims = self.server.serve(answer).await?;
        output.report_connected();
        std::future::pending().await
    }
}

impl Service {
    async fn process(&self, mut messages: CallMessages, output: &SourceOutput) -> Result<Bytes, Status> {
        let message = messages.next().await?;
        let mut message = message.ok_or_else(|| Status::invalid_argument("the call has no message"))?;
        let (waiting, answer) = WAITING.add(&self.app, &self.source_id);
        // in front of headers of the same name
        message.properties.insert(0, ("messageId".into(), waiting.message_id().into()));
        hand_over(output, message).await?;
        match timeout(self.answer_timeout, answer).await {
            Ok(Ok(answer)) => self.form.encode(&answer.payload, answer.headers).map_err(Status::internal),
            _ => Err(Status::deadline_exceeded(
                "the events are stored, but no answer came in time (service.timeout)",
            )),
        }
    }
}

const SINK_OPTIONS: &[OptionSpec] = &[
    OptionSpec::text("source.id", "Id of the source whose calls are answered.").required(),
    OptionSpec::text("message.id", "Id of the call, `trp:messageId` in the source.").required().dynamic(),
    OptionSpec::text("headers", "Headers in the answers of EventService: `'name:value','name:value'`.")
        .dynamic(),
];

/// Type of the sink.
pub(super) struct GrpcServiceResponseSinkType;

impl SinkType for GrpcServiceResponseSinkType {
    fn name(&self) -> &'static str {
        "grpc-service-response"
    }

    fn summary(&self) -> &'static str {
        "Answers the calls that a source `grpc-service` received."
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
        let template = |name| context.template(options, name);
        let headers = template("headers")?;
        if let Some(text) = headers.constant() {
            parse_pairs(text).map_err(|e| OptionError::option("headers", e))?;
        }
        Ok(Box::new(GrpcServiceResponseSink {
            app: context.app.clone(),
            source_id: options.text("source.id").to_owned(),
            message_id: template("message.id")?,
            headers,
        }))
    }
}

struct GrpcServiceResponseSink {
    app: String,
    source_id: String,
    message_id: Template,
    headers: Template,
}

#[async_trait]
impl SinkConnector for GrpcServiceResponseSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        for message in batch.messages_from(progress) {
            let message_id = self.message_id.render(&batch.rows, message.row);
            let answered = parse_pairs(&self.headers.render(&batch.rows, message.row)).and_then(|headers| {
                let answer = ServiceAnswer { payload: message.bytes.clone(), headers };
                WAITING.respond(&self.app, &self.source_id, &message_id, answer)
            });
            match answered {
                Ok(()) => progress.took(message),
                Err(reason) => progress.refused(message, &reason),
            }
        }
        Ok(())
    }
}
