//! Queues and topics as a source.

use std::time::Duration;

use async_trait::async_trait;
use fe2o3_amqp::link::delivery::{Delivery, DeliveryInfo};
use fe2o3_amqp::link::{CreditMode, Receiver, RecvError};
use fe2o3_amqp::types::definitions::{AmqpError, Error as AmqpErrorText};
use fe2o3_amqp::types::messaging::{Body, Source as AmqpTerminus, TerminusDurability, TerminusExpiryPolicy};
use fe2o3_amqp::types::primitives::Value;
use futures::FutureExt;
use tidemill_connect::{SourceConnector, SourceOutput, runtime};
use tidemill_types::Result;

use super::client::{AmqpConnection, capability, receiver_attach_reason, recv_reason};
use super::message::message;
use super::settings::{AmqpSettings, Destination};
use crate::receipts::Receipts;

/// Messages that are taken at once, if so many are there.
const BATCH_MESSAGES: usize = 1024;
/// Timeout for leaving a durable subscription.
const DETACH_TIMEOUT: Duration = Duration::from_secs(5);

/// Subscription of a topic, or link to a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subscription {
    /// It ends with the connection.
    OfConnection,
    /// The broker keeps it, under this name.
    Durable(String),
}

/// Source of the messages of one destination.
pub(super) struct AmqpSource {
    settings: AmqpSettings,
    destination: Destination,
    subscription: Subscription,
    /// Messages that may wait for their acknowledgement.
    prefetch: u32,
}

impl AmqpSource {
    pub(super) fn new(
        settings: AmqpSettings,
        destination: Destination,
        subscription: Subscription,
        prefetch: u32,
    ) -> Self {
        Self { settings, destination, subscription, prefetch }
    }

    async fn attach(&self) -> Result<OpenLink> {
        let mut connection = AmqpConnection::open(&self.settings).await?;
        let builder = AmqpTerminus::builder()
            .address(self.destination.name.clone())
            .capabilities(capability(self.destination.kind));
        let (name, source) = match &self.subscription {
            Subscription::Durable(name) => {
                let kept = builder.durable(TerminusDurability::UnsettledState);
                (name.clone(), kept.expiry_policy(TerminusExpiryPolicy::Never).build())
            }
            Subscription::OfConnection => (uuid::Uuid::new_v4().to_string(), builder.build()),
        };
        let attached = Receiver::builder()
            .name(name)
            .source(source)
            .credit_mode(CreditMode::Auto(self.prefetch))
            .attach(&mut connection.session)
            .await;
        match attached {
            Ok(receiver) => Ok(OpenLink {
                is_durable: self.subscription != Subscription::OfConnection,
                open: Some((receiver, connection)),
            }),
            Err(e) => {
                let what = format!("{} cannot be read", self.destination);
                Err(connection.failed(&what, &receiver_attach_reason(&e)))
            }
        }
    }
}

/// Link that is open. A durable subscription stays at the broker when the link is dropped: it is left, not closed.
struct OpenLink {
    open: Option<(Receiver, AmqpConnection)>,
    is_durable: bool,
}

impl Drop for OpenLink {
    fn drop(&mut self) {
        if let Some((receiver, connection)) = self.open.take()
            && self.is_durable
        {
            runtime().spawn(async move {
                // if the connection is lost already, the broker keeps the subscription by itself
                let _ = tokio::time::timeout(DETACH_TIMEOUT, receiver.detach()).await;
                drop(connection);
            });
        }
    }
}

#[async_trait]
impl SourceConnector for AmqpSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let mut link = self.attach().await?;
        let Some((receiver, connection)) = &mut link.open else { return Ok(()) };
        output.report_connected();
        let what = format!("{} cannot be read", self.destination);
        let mut receipts: Receipts<Vec<DeliveryInfo>> = Receipts::new();
        loop {
            tokio::select! {
                durable = receipts.next() => {
                    let accepted = receiver.accept_all(durable?).await;
                    accepted.map_err(|e| connection.failed(&what, &e.to_string()))?;
                }
                first = receiver.recv::<Body<Value>>() => {
                    let (batch, failure) = take(first, receiver);
                    if !batch.is_empty() {
                        let infos = batch.iter().map(DeliveryInfo::from).collect();
                        let receipt = output.send(batch.into_iter().map(message).collect()).await?;
                        receipts.push(receipt, infos);
                    }
                    match failure {
                        None => {}
                        Some(RecvError::MessageDecode(e)) => {
                            tracing::warn!(destination = self.destination.name, error = %e.source, "a message that is no AMQP is rejected");
                            let error = AmqpErrorText::new(AmqpError::DecodeError, Some("the message cannot be decoded".into()), None);
                            let rejected = receiver.reject(e.info, error).await;
                            rejected.map_err(|e| connection.failed(&what, &e.to_string()))?;
                        }
                        Some(e) => return Err(connection.failed(&what, &recv_reason(&e))),
                    }
                }
            }
        }
    }
}

type Received = Result<Delivery<Body<Value>>, RecvError>;

/// Returns a message and those that are there already, and what failed behind them.
fn take(first: Received, receiver: &mut Receiver) -> (Vec<Delivery<Body<Value>>>, Option<RecvError>) {
    let mut batch = vec![];
    let mut next = Some(first);
    while let Some(delivery) = next.take() {
        match delivery {
            Ok(delivery) => batch.push(delivery),
            Err(e) => return (batch, Some(e)),
        }
        if batch.len() < BATCH_MESSAGES {
            next = receiver.recv().now_or_never();
        }
    }
    (batch, None)
}
