//! The sink `grpc-call`, whose answers go to the sources `grpc-call-response`.

use async_trait::async_trait;
use futures::FutureExt;
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, Message, OptionError, OptionSpec,
    Options, Payload, SinkBatch, SinkConnector, SinkType, SourceConnector, SourceType,
};
use tidemill_types::Result;

use super::client::{CLIENT_OPTIONS, GrpcClient, number};
use super::source::metadata_properties;
use crate::http::options::joined;
use crate::http::sink::{Outcome, deliver_parallel};
use crate::routes::{Routes, SinkKey, attributes};

/// Calls under way at the same time if the user says nothing.
const PARALLEL_CALLS: usize = 16;

/// Sources that take the answers of calls.
static ROUTES: Routes<()> = Routes::new();

/// Type of the source.
pub(super) struct GrpcCallResponseSourceType;

impl SourceType for GrpcCallResponseSourceType {
    fn name(&self) -> &'static str {
        "grpc-call-response"
    }

    fn summary(&self) -> &'static str {
        "Takes the answers to the calls of the sink `grpc-call`."
    }

    fn options(&self) -> &'static [OptionSpec] {
        const OPTIONS: &[OptionSpec] = &[
            OptionSpec::text("sink.id", "Id of the sink whose answers are taken.").required(),
            OptionSpec::text("sequence", "Accepted without effect: the URL of the sink names the sequence."),
        ];
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        let key = (context.app.clone(), options.text("sink.id").to_owned());
        Ok(Box::new(ROUTES.register(key, ())))
    }
}

const CALL_OPTIONS: &[OptionSpec] =
    &[OptionSpec::text("sink.id", "Id that the sources of the answers name.").required()];

const SINK_OPTIONS: [OptionSpec; CALL_OPTIONS.len() + CLIENT_OPTIONS.len()] =
    joined(&[CALL_OPTIONS, CLIENT_OPTIONS]);

/// Type of the sink.
pub(super) struct GrpcCallSinkType;

impl SinkType for GrpcCallSinkType {
    fn name(&self) -> &'static str {
        "grpc-call"
    }

    fn summary(&self) -> &'static str {
        "Calls a gRPC method for each message, by default `process` of EventService; the source `grpc-call-response` takes \
         the answer."
    }

    fn options(&self) -> &'static [OptionSpec] {
        &SINK_OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        Ok(Box::new(CallSink {
            client: GrpcClient::of(options, "process", context)?,
            key: (context.app.clone(), options.text("sink.id").to_owned()),
            parallel: number(options, "max.inflight", PARALLEL_CALLS),
            names: context.schema.fields.iter().map(|field| field.name.clone()).collect(),
        }))
    }
}

struct CallSink {
    client: GrpcClient,
    key: SinkKey,
    parallel: usize,
    /// Attributes of the events.
    names: Vec<String>,
}

#[async_trait]
impl SinkConnector for CallSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.client.connect().await?;
        ROUTES.wait_for_sources(&self.key).await?;
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        ROUTES.wait_for_sources(&self.key).await?;
        let messages = batch.messages_from(progress);
        deliver_parallel(messages, self.parallel, progress, |message| self.call(batch, message).boxed()).await
    }
}

impl CallSink {
    async fn call(&self, batch: &SinkBatch, message: &Payload) -> Result<Outcome> {
        let answer = match self.client.call(batch, message.row, &message.bytes).await? {
            Ok(answer) => answer,
            Err(outcome) => return Ok(outcome),
        };
        let (metadata, answer, _) = answer.into_parts();
        let (payload, mut properties) = match self.client.method.form.decode(answer) {
            Ok(decoded) => decoded,
            Err(reason) => {
                return Ok(Outcome::Refused(format!("the answer of {}: {reason}", self.client.method)));
            }
        };
        // the answer comes before the event that made the call
        properties.extend(metadata_properties(&metadata.into_headers()));
        properties.extend(attributes(&self.names, batch, message.row));
        let answer = Message { payload, properties, ..Message::default() };
        for output in ROUTES.outputs(&self.key, |()| true) {
            output.send(vec![answer.clone()]).await?.wait().await?;
        }
        Ok(Outcome::Taken)
    }
}
