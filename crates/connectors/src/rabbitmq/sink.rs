//! Exchanges as a sink.

use std::collections::HashSet;

use async_trait::async_trait;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use lapin::message::BasicReturnMessage;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
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
        let mut waiting: FuturesOrdered<BoxFuture<'static, Confirmed>> = FuturesOrdered::new();
        for message in batch.messages_from(progress).to_vec() {
            // what the broker returns is known only when the whole window is confirmed, see `attribute_returns`
            if waiting.len() >= WINDOW && self.is_mandatory {
                self.count_all(&session, waiting.by_ref().collect().await, progress)?;
            }
            while waiting.len() >= WINDOW
                && let Some(confirmed) = waiting.next().await
            {
                self.count(&session, confirmed, progress)?;
            }
            waiting.push_back(self.send(&mut session, batch, message).await?);
        }
        self.count_all(&session, waiting.collect().await, progress)?;
        self.session = Some(session);
        Ok(())
    }

    async fn close(&mut self) {
        self.session = None;
    }
}

/// A message, and what became of it.
struct Confirmed {
    message: Payload,
    /// Exchange, routing key and id, if it was sent.
    address: Option<Address>,
    /// Errors: the connection failed.
    fate: Result<ConfirmOutcome, lapin::Error>,
}

/// Outcome of a message: the answer of the broker, or a refusal by this sink before it sends.
enum ConfirmOutcome {
    Taken,
    /// A message came back with this confirmation; not necessarily this one.
    TakenAndReturned(Box<BasicReturnMessage>),
    Refused(String),
    /// The broker took it and could not store it, such as when a queue with a limit is full.
    NotStored,
}

/// Identity of a message that comes back, besides its content.
#[derive(PartialEq)]
struct Address {
    exchange: ShortString,
    routing_key: ShortString,
    id: Option<ShortString>,
}

impl Confirmed {
    fn refused(message: Payload, why: String) -> Self {
        Self { message, address: None, fate: Ok(ConfirmOutcome::Refused(why)) }
    }

    /// Returns whether this is the message that came back.
    fn is(&self, returned: &BasicReturnMessage) -> bool {
        let address = Address {
            exchange: returned.exchange.clone(),
            routing_key: returned.routing_key.clone(),
            id: returned.properties.message_id().clone(),
        };
        self.address.as_ref() == Some(&address) && self.message.bytes[..] == returned.data[..]
    }
}

/// Gives what came back to the messages that it is.
///
/// The broker sends a message back before it confirms it, and may confirm several at once. The client hands what came back to the
/// first confirmation after that, which may be that of another message.
fn attribute_returns(confirmed: &mut [Confirmed]) {
    let mut returned = Vec::new();
    for one in confirmed.iter_mut() {
        if let Ok(fate @ ConfirmOutcome::TakenAndReturned(_)) = &mut one.fate
            && let ConfirmOutcome::TakenAndReturned(message) = std::mem::replace(fate, ConfirmOutcome::Taken)
        {
            returned.push(message);
        }
    }
    for message in returned {
        let mut others = confirmed.iter_mut();
        match others.find(|one| matches!(one.fate, Ok(ConfirmOutcome::Taken)) && one.is(&message)) {
            Some(one) => {
                one.fate = Ok(ConfirmOutcome::Refused(format!(
                    "the message reached no queue: {}",
                    message.reply_text
                )));
            }
            None => tracing::warn!("RabbitMQ returned a message that this sink did not send"),
        }
    }
}

impl RabbitSink {
    /// Sends a message and returns what waits for its confirmation.
    async fn send(
        &mut self,
        session: &mut Session,
        batch: &SinkBatch,
        message: Payload,
    ) -> Result<BoxFuture<'static, Confirmed>> {
        let refused = |message, why| -> BoxFuture<'static, Confirmed> {
            Box::pin(std::future::ready(Confirmed::refused(message, why)))
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
        let address = Address {
            exchange: name.clone(),
            routing_key: routing_key.clone(),
            id: properties.message_id().clone(),
        };
        let sent =
            session.channel.basic_publish(name, routing_key, options, &message.bytes, properties).await;
        Ok(Box::pin(async move {
            let confirmed = match sent {
                Ok(confirmation) => confirmation.await,
                Err(e) => Err(e),
            };
            let fate = confirmed.map(|confirmation| match confirmation {
                Confirmation::Ack(Some(returned)) => ConfirmOutcome::TakenAndReturned(Box::new(returned)),
                Confirmation::Ack(None) | Confirmation::NotRequested => ConfirmOutcome::Taken,
                Confirmation::Nack(_) => ConfirmOutcome::NotStored,
            });
            Confirmed { message, address: Some(address), fate }
        }))
    }

    /// Counts messages that belong to one window, in their order.
    ///
    /// Errors: as [`Self::count`].
    fn count_all(
        &mut self,
        session: &Session,
        mut confirmed: Vec<Confirmed>,
        progress: &mut DeliveryProgress,
    ) -> Result<()> {
        attribute_returns(&mut confirmed);
        confirmed.into_iter().try_for_each(|one| self.count(session, one, progress))
    }

    /// Counts a message. Errors: the connection failed, or the broker could not store the message.
    fn count(
        &mut self,
        session: &Session,
        confirmed: Confirmed,
        progress: &mut DeliveryProgress,
    ) -> Result<()> {
        let Confirmed { message, fate, .. } = confirmed;
        match fate {
            Ok(ConfirmOutcome::Taken | ConfirmOutcome::TakenAndReturned(_)) => progress.took(&message),
            Ok(ConfirmOutcome::Refused(why)) => progress.refused(&message, &why),
            Ok(ConfirmOutcome::NotStored) => {
                let address = self.settings.address();
                let what = "the broker cannot store the message; a queue may be full";
                return Err(Error::unavailable(format!("RabbitMQ at {address}: {what}")));
            }
            Err(e) => {
                // the next attempt refuses the message that has ended this one
                self.bytes_max = largest_message(&reason(&e)).unwrap_or(self.bytes_max);
                return Err(session.connection.failed("messages cannot be sent", &e));
            }
        }
        Ok(())
    }
}

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
