//! The sink `grpc`: calls a method for each message.

use async_trait::async_trait;
use futures::FutureExt;
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    SinkBatch, SinkConnector, SinkType,
};
use tidemill_types::Result;

use super::client::{CLIENT_OPTIONS, GrpcClient, number};
use crate::http::sink::{Outcome, deliver_parallel};

/// Type of the sink.
pub(super) struct GrpcSinkType;

impl SinkType for GrpcSinkType {
    fn name(&self) -> &'static str {
        "grpc"
    }

    fn summary(&self) -> &'static str {
        "Calls a gRPC method for each message, by default `consume` of EventService; an answer without error takes it."
    }

    fn options(&self) -> &'static [OptionSpec] {
        CLIENT_OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        let client = GrpcClient::of(options, "consume", context)?;
        Ok(Box::new(GrpcSink { client, parallel: number(options, "max.inflight", 1) }))
    }
}

struct GrpcSink {
    client: GrpcClient,
    parallel: usize,
}

#[async_trait]
impl SinkConnector for GrpcSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.client.connect().await?;
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        let client = &self.client;
        deliver_parallel(batch.messages_from(progress), self.parallel, progress, |message| {
            async move {
                match client.call(batch, message.row, &message.bytes).await? {
                    Ok(_) => Ok(Outcome::Taken),
                    Err(outcome) => Ok(outcome),
                }
            }
            .boxed()
        })
        .await
    }
}
