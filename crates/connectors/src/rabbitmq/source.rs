//! Queues as a source.

use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use lapin::Consumer;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, QueueBindOptions};
use lapin::types::{FieldTable, ShortString};
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, OptionError, OptionSpec, Options, SourceConnector, SourceOutput,
    SourceType,
};
use tidemill_types::{Error, Result};

use super::client::{Exchange, QueueDefinition, RabbitConnection};
use super::options::{EXCHANGE_TYPES, RabbitSettings, parse_headers, rabbit_options, short_option};
use super::properties::message;
use crate::receipts::Receipts;

/// Messages that are taken at once, if so many are there.
const BATCH_MESSAGES: usize = 1024;

/// Type of the source `rabbitmq`.
pub(crate) struct RabbitSourceType;

const OPTIONS: &[OptionSpec] = rabbit_options![
    OptionSpec::text(
        "exchange.name",
        "Exchange to which the queue is bound; empty for a queue that is read as it is."
    )
    .required(),
    OptionSpec::one_of("exchange.type", EXCHANGE_TYPES, "Type of an exchange that does not exist yet.")
        .default("direct"),
    OptionSpec::flag(
        "exchange.durable.enabled",
        "false",
        "Whether an exchange that does not exist yet outlives a restart of the broker."
    ),
    OptionSpec::flag(
        "exchange.autodelete.enabled",
        "false",
        "Whether an exchange that does not exist yet is deleted when nothing is bound to it."
    ),
    OptionSpec::text("routing.key", "Routing key of the binding.").default(""),
    OptionSpec::text(
        "headers",
        "Headers that messages of an exchange of type `headers` must have: `'name:value','name:value'`."
    ),
    OptionSpec::text(
        "queue.name",
        "Queue; default: one that the broker names and that ends with the connection."
    )
    .default(""),
    OptionSpec::flag(
        "queue.durable.enabled",
        "false",
        "Whether a queue that does not exist yet outlives a restart of the broker."
    ),
    OptionSpec::flag(
        "queue.exclusive.enabled",
        "false",
        "Whether a queue that does not exist yet is for this connection only."
    ),
    OptionSpec::flag(
        "queue.autodelete.enabled",
        "false",
        "Whether a queue that does not exist yet is deleted when nobody reads it."
    ),
    OptionSpec::integer("prefetch.count", 1, 65535, "Messages that may wait for their acknowledgement.")
        .default("2000"),
    OptionSpec::flag(
        "auto.ack",
        "false",
        "Accepted without effect: messages are acknowledged when their events are stored."
    ),
    OptionSpec::integer("consumer.threadpool.size", 1, 10_000, "Accepted without effect."),
];

impl SourceType for RabbitSourceType {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    fn summary(&self) -> &'static str {
        "Messages of a queue of RabbitMQ, acknowledged when their events are stored."
    }

    fn options(&self) -> &'static [OptionSpec] {
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
        let exchange = Exchange {
            name: short_option(options, "exchange.name")?,
            kind: options.text("exchange.type").trim().to_ascii_lowercase(),
            is_durable: options.flag("exchange.durable.enabled"),
            is_auto_delete: options.flag("exchange.autodelete.enabled"),
        };
        let queue = QueueDefinition {
            name: short_option(options, "queue.name")?,
            is_durable: options.flag("queue.durable.enabled"),
            is_exclusive: options.flag("queue.exclusive.enabled"),
            is_auto_delete: options.flag("queue.autodelete.enabled"),
        };
        if exchange.name.as_str().is_empty() && queue.name.as_str().is_empty() {
            return Err(OptionError::option(
                "exchange.name",
                "without an exchange the source needs `queue.name`",
            ));
        }
        let headers =
            parse_headers(options.text("headers")).map_err(|e| OptionError::option("headers", e))?;
        Ok(Box::new(RabbitSource {
            settings: RabbitSettings::new(options, context)?,
            exchange,
            queue,
            routing_key: short_option(options, "routing.key")?,
            headers,
            prefetch: options.integer("prefetch.count").map_or(2000, |n| n as u16),
        }))
    }
}

struct RabbitSource {
    settings: RabbitSettings,
    exchange: Exchange,
    queue: QueueDefinition,
    routing_key: ShortString,
    headers: FieldTable,
    prefetch: u16,
}

#[async_trait]
impl SourceConnector for RabbitSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let connection = RabbitConnection::open(&self.settings).await?;
        let queue = self.bind(&connection).await?;
        let channel = connection.channel().await?;
        let failed = |e: lapin::Error| connection.failed(&format!("the queue `{queue}` cannot be read"), &e);
        channel.basic_qos(self.prefetch, BasicQosOptions::default()).await.map_err(failed)?;
        let options = BasicConsumeOptions::default();
        let consumer = channel.basic_consume(queue.clone(), "".into(), options, FieldTable::default()).await;
        let mut consumer = consumer.map_err(failed)?;
        output.report_connected();
        let mut receipts: Receipts<u64> = Receipts::new();
        loop {
            tokio::select! {
                // in order, so the last one stands for all before it
                durable = receipts.next() => {
                    let acknowledged = channel.basic_ack(durable?, BasicAckOptions { multiple: true }).await;
                    acknowledged.map_err(failed)?;
                }
                next = consumer.next() => {
                    let first = next.ok_or_else(|| {
                        Error::unavailable(format!(
                            "RabbitMQ at {}: the queue `{queue}` was deleted",
                            self.settings.address()
                        ))
                    })?;
                    let (batch, failure) = take(first, &mut consumer);
                    if let Some(last) = batch.last() {
                        let tag = last.delivery_tag;
                        let receipt = output.send(batch.into_iter().map(message).collect()).await?;
                        receipts.push(receipt, tag);
                    }
                    if let Some(e) = failure {
                        return Err(failed(e));
                    }
                }
            }
        }
    }
}

impl RabbitSource {
    /// Declares what does not exist, binds the queue and returns its name.
    async fn bind(&self, connection: &RabbitConnection) -> Result<ShortString> {
        let exchange = &self.exchange;
        connection
            .declare_exchange(exchange)
            .await
            .map_err(|e| connection.failed(&format!("the exchange `{}` cannot be had", exchange.name), &e))?;
        let queue = connection.declare_queue(&self.queue).await?;
        if !exchange.name.as_str().is_empty() {
            let channel = connection.channel().await?;
            let bound = channel
                .queue_bind(
                    queue.clone(),
                    exchange.name.clone(),
                    self.routing_key.clone(),
                    QueueBindOptions::default(),
                    self.headers.clone(),
                )
                .await;
            bound.map_err(|e| {
                connection.failed(&format!("the queue `{queue}` cannot be bound to `{}`", exchange.name), &e)
            })?;
        }
        Ok(queue)
    }
}

/// Returns a message and those that are there already, and what failed behind them.
fn take(
    first: Result<Delivery, lapin::Error>,
    consumer: &mut Consumer,
) -> (Vec<Delivery>, Option<lapin::Error>) {
    let mut batch = vec![];
    let mut next = Some(first);
    while let Some(delivery) = next.take() {
        match delivery {
            Ok(delivery) => batch.push(delivery),
            Err(e) => return (batch, Some(e)),
        }
        if batch.len() < BATCH_MESSAGES {
            next = consumer.next().now_or_never().flatten();
        }
    }
    (batch, None)
}
