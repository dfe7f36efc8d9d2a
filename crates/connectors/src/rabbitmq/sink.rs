//! Exchanges as a sink.

use std::collections::HashSet;

use async_trait::async_trait;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{Channel, Confirmation};
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    Payload, SinkBatch, SinkConnector, SinkType,
};
use tidemill_types::{Error, Result};

use super::client::{Exchange, RabbitConnection, is_refusal, reason};
use super::options::{EXCHANGE_TYPES, RabbitSettings, rabbit_options};
use super::rendering::{Rendered, Renderer};

/// Messages that may wait for their confirmation.
const WINDOW: usize = 1024;
/// Exchanges that are known to exist before they are asked for again.
const EXCHANGES_MAX: usize = 10_000;
/// Words of the broker before the size of a message that is too large, and before the largest size.
const SIZE_WORDS: [&str; 2] = ["message size ", "max size "];

/// Type of the sink `rabbitmq`.
pub(crate) struct RabbitSinkType;

const OPTIONS: &[OptionSpec] = rabbit_options![
    OptionSpec::text("exchange.name", "Exchange; empty for the one that sends to the queue `routing.key`.")
        .required()
        .dynamic(),
    OptionSpec::one_of("exchange.type", EXCHANGE_TYPES, "Type of an exchange that does not exist yet.")
        .default("direct")
        .dynamic(),
    OptionSpec::flag(
        "exchange.durable.enabled",
        "false",
        "Whether an exchange that does not exist yet outlives a restart of the broker."
    )
    .dynamic(),
    OptionSpec::flag(
        "exchange.autodelete.enabled",
        "false",
        "Whether an exchange that does not exist yet is deleted when nothing is bound to it."
    )
    .dynamic(),
    OptionSpec::text("routing.key", "Routing key of the message.").default("").dynamic(),
    OptionSpec::text("headers", "Headers of the message: `'name:value','name:value'`.").default("").dynamic(),
    OptionSpec::one_of(
        "delivery.mode",
        &["1", "2"],
        "Whether messages in durable queues outlive a restart of the broker: 1 no, 2 yes."
    )
    .default("2"),
    OptionSpec::flag(
        "mandatory",
        "false",
        "Whether an event that reaches no queue is refused, instead of dropped by the broker."
    ),
    OptionSpec::text("content.type", "MIME type of the message."),
    OptionSpec::text("content.encoding", "MIME encoding of the message."),
    OptionSpec::integer("priority", 0, 9, "Priority of the message.").default("0").dynamic(),
    OptionSpec::text("correlation.id", "Id of the message to which this one belongs.").dynamic(),
    OptionSpec::text("reply.to", "Queue for an answer."),
    OptionSpec::integer("expiration", 0, i64::MAX, "Milliseconds after which the broker drops the message."),
    OptionSpec::text(
        "message.id",
        "Id of the message; default: one that stays the same when it is sent again."
    )
    .dynamic(),
    OptionSpec::text("timestamp", "Day of the message, as `dd/MM/yyyy`; default: the current time."),
    OptionSpec::text("user.id", "User, which must be the one of the connection."),
    OptionSpec::text("app.id", "Name of the application."),
];

impl SinkType for RabbitSinkType {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    fn summary(&self) -> &'static str {
        "Publishes messages to an exchange of RabbitMQ, and waits until the broker confirms them."
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
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        Ok(Box::new(RabbitSink {
            settings: RabbitSettings::new(options, context)?,
            renderer: Renderer::new(options, context)?,
            is_mandatory: options.flag("mandatory"),
            bytes_max: usize::MAX,
            session: None,
        }))
    }
}

struct RabbitSink {
    settings: RabbitSettings,
    renderer: Renderer,
    is_mandatory: bool,
    /// Largest message that the broker takes, as far as known.
    bytes_max: usize,
    session: Option<Session>,
}

/// One connection.
struct Session {
    connection: RabbitConnection,
    channel: Channel,
    /// Exchanges that exist.
    exchanges: HashSet<Exchange>,
}

#[async_trait]
impl SinkConnector for RabbitSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.session = None;
        let connection = RabbitConnection::open(&self.settings).await?;
        let channel = connection.channel().await?;
        let confirms = channel.confirm_select(ConfirmSelectOptions::default()).await;
        confirms.map_err(|e| connection.failed("no confirmations", &e))?;
        let mut session = Session { connection, channel, exchanges: HashSet::new() };
        if let Some(exchange) = self.renderer.constant_exchange() {
            session.connection.declare_exchange(&exchange).await.map_err(|e| {
                session.connection.failed(&format!("the exchange `{}` cannot be had", exchange.name), &e)
            })?;
            session.exchanges.insert(exchange);
        }
        self.session = Some(session);
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        let Some(mut session) = self.session.take() else {
            return Err(Error::unavailable("the sink is not connected"));
        };
        let mut waiting: FuturesOrdered<BoxFuture<'static, (Payload, Fate)>> = FuturesOrdered::new();
        for message in batch.messages_from(progress).to_vec() {
            while waiting.len() >= WINDOW
                && let Some((message, fate)) = waiting.next().await
            {
                self.count(&session, &message, fate, progress)?;
            }
            waiting.push_back(self.send(&mut session, batch, message).await?);
        }
        while let Some((message, fate)) = waiting.next().await {
            self.count(&session, &message, fate, progress)?;
        }
        self.session = Some(session);
        Ok(())
    }

    async fn close(&mut self) {
        self.session = None;
    }
}

/// What became of a message: confirmed, refused, or the connection failed.
type Fate = Result<Result<(), String>, lapin::Error>;

impl RabbitSink {
    /// Sends a message and returns what waits for its confirmation.
    async fn send(
        &mut self,
        session: &mut Session,
        batch: &SinkBatch,
        message: Payload,
    ) -> Result<BoxFuture<'static, (Payload, Fate)>> {
        let refused = |message, why: String| -> BoxFuture<'static, (Payload, Fate)> {
            Box::pin(std::future::ready((message, Ok(Err(why)))))
        };
        if message.bytes.len() > self.bytes_max {
            let why =
                format!("the message has {} bytes; the broker takes {}", message.bytes.len(), self.bytes_max);
            return Ok(refused(message, why));
        }
        let Rendered { exchange, routing_key, properties } = match self.renderer.render(batch, &message) {
            Ok(rendered) => rendered,
            Err(why) => return Ok(refused(message, why)),
        };
        let name = exchange.name.clone();
        if !session.exchanges.contains(&exchange) {
            match session.connection.declare_exchange(&exchange).await {
                Ok(()) => {}
                Err(e) if is_refusal(&e) => {
                    return Ok(refused(
                        message,
                        format!("the exchange `{name}` cannot be had: {}", reason(&e)),
                    ));
                }
                Err(e) => return Err(session.connection.failed("the exchange cannot be declared", &e)),
            }
            if session.exchanges.len() >= EXCHANGES_MAX {
                session.exchanges.clear();
            }
            session.exchanges.insert(exchange);
        }
        let options = BasicPublishOptions { mandatory: self.is_mandatory, ..BasicPublishOptions::default() };
        let sent =
            session.channel.basic_publish(name, routing_key, options, &message.bytes, properties).await;
        Ok(Box::pin(async move {
            let confirmed = match sent {
                Ok(confirmation) => confirmation.await,
                Err(e) => Err(e),
            };
            let fate = confirmed.map(|confirmation| match confirmation {
                Confirmation::Ack(Some(returned)) => {
                    Err(format!("the message reached no queue: {}", returned.reply_text))
                }
                Confirmation::Ack(None) | Confirmation::NotRequested => Ok(()),
                // told apart from a refusal by `count`
                Confirmation::Nack(_) => Err(NOT_STORED.to_owned()),
            });
            (message, fate)
        }))
    }

    /// Counts a message. Errors: the connection failed, or the broker could not store the message.
    fn count(
        &mut self,
        session: &Session,
        message: &Payload,
        fate: Fate,
        progress: &mut DeliveryProgress,
    ) -> Result<()> {
        match fate {
            Ok(Ok(())) => progress.took(message),
            Ok(Err(why)) if why == NOT_STORED => {
                return Err(Error::unavailable(format!("RabbitMQ at {}: {why}", self.settings.address())));
            }
            Ok(Err(why)) => progress.refused(message, &why),
            Err(e) => {
                // the next attempt refuses the message that has ended this one
                self.bytes_max = largest_message(&reason(&e)).unwrap_or(self.bytes_max);
                return Err(session.connection.failed("messages cannot be sent", &e));
            }
        }
        Ok(())
    }
}

/// Reason of a message that the broker took and could not store, such as when a queue with a limit is full.
const NOT_STORED: &str = "the broker cannot store the message; a queue may be full";

/// Returns the largest size of a message from the broker's words about one that is larger.
fn largest_message(text: &str) -> Option<usize> {
    let [size, max] = SIZE_WORDS;
    let behind = text.split_once(size)?.1.split_once(max)?.1;
    let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
    behind.get(..digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_message_is_read_from_the_refusal() {
        let text = "PRECONDITION_FAILED - message size 20971540 is larger than configured max size 16777216";
        assert_eq!(largest_message(text), Some(16_777_216));
        assert_eq!(largest_message("PRECONDITION_FAILED - invalid expiration 'x'"), None);
    }
}
