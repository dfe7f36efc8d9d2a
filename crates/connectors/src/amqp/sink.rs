//! Queues and topics as a sink.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use fe2o3_amqp::link::delivery::Sendable;
use fe2o3_amqp::link::{SendError, Sender, SenderAttachError};
use fe2o3_amqp::types::messaging::annotations::OwnedKey;
use fe2o3_amqp::types::messaging::{
    AmqpValue, Batch, Body, Data, Header, Message as AmqpMessage, MessageAnnotations, Outcome, Properties,
    Target,
};
use fe2o3_amqp::types::primitives::{Binary, Symbol, Timestamp, Value};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryProgress, OptionError, Options, Payload, SinkBatch,
    SinkConnector, Template,
};
use tidemill_types::{Error, Result};

use super::client::{
    AmqpConnection, attach_reason, capability, condition_of, is_lasting_refusal, send_reason, text_of,
};
use super::settings::{AmqpSettings, Destination, DestinationKind, Destinations};

/// Messages that may wait for their settlement.
const WINDOW: usize = 1024;
/// Destinations to which links are open at the same time.
const LINKS_MAX: usize = 256;
/// Interval at which a waiting sink checks whether its connection is lost.
const LOST_POLL: Duration = Duration::from_millis(500);
/// Mappers whose messages are binary.
const BINARY_MAPPERS: [&str; 3] = ["avro", "protobuf", "binary"];
/// Condition of a refusal that ends when others have read.
const FULL: &str = "amqp:resource-limit-exceeded";

/// Body of the messages of a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    Text,
    Bytes,
}

impl BodyKind {
    /// Returns the kind that an option says, or the one that fits the mapper.
    fn new(option: Option<&str>, mapper: Option<&str>) -> Self {
        let is_bytes = match option {
            Some(kind) => kind.trim().eq_ignore_ascii_case("bytes"),
            None => mapper.is_some_and(|mapper| BINARY_MAPPERS.contains(&mapper)),
        };
        if is_bytes { Self::Bytes } else { Self::Text }
    }

    /// Number of the type of message by which clients of JMS make their objects.
    fn jms_type(self) -> i8 {
        match self {
            Self::Bytes => 3,
            Self::Text => 5,
        }
    }
}

/// Sink of the messages of a stream.
pub(super) struct AmqpSink {
    settings: AmqpSettings,
    destinations: Destinations,
    destination: Template,
    body: BodyKind,
    is_persistent: bool,
    /// Name that begins the ids of its messages.
    writer: String,
    session: Option<SinkSession>,
}

/// One connection with its links.
struct SinkSession {
    connection: AmqpConnection,
    links: HashMap<Destination, Sender>,
}

/// Messages that wait for their settlement, in order.
type Waiting = FuturesOrdered<BoxFuture<'static, Settled>>;

/// A message, and what became of it.
struct Settled {
    message: Payload,
    fate: Disposition,
}

enum Disposition {
    Taken,
    Refused(String),
    /// It may be taken later, or the connection is lost.
    Failed(String),
}

impl AmqpSink {
    /// Creates a sink from its options. `destination` is the option with its queue or topic.
    ///
    /// Errors: the destination is not a template, or it is the same for all events, and wrong.
    pub(super) fn new(
        destination: &str,
        (settings, destinations): (AmqpSettings, Destinations),
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Self, OptionError> {
        let wrong = |e| OptionError::option(destination, e);
        let template = context.template(options, destination)?;
        if let Some(name) = template.constant() {
            destinations.find(name).map_err(wrong)?;
        }
        Ok(Self {
            settings,
            destinations,
            destination: template,
            body: BodyKind::new(options.get("message.type"), context.mapper.as_deref()),
            is_persistent: options.flag("persistent"),
            writer: context.writer.clone(),
            session: None,
        })
    }

    fn amqp_message(
        &self,
        batch: &SinkBatch,
        message: &Payload,
        kind: DestinationKind,
    ) -> Result<AmqpMessage<Body<Value>>, String> {
        let body = match self.body {
            BodyKind::Text => {
                let text = String::from_utf8(message.bytes.to_vec());
                let text = text.map_err(|_| "the message is no text; write `message.type='bytes'`")?;
                Body::Value(AmqpValue(Value::String(text)))
            }
            BodyKind::Bytes => Body::Data(Batch::new(vec![Data(Binary::from(message.bytes.to_vec()))])),
        };
        let topic = i8::from(kind == DestinationKind::Topic);
        let annotation = |name: &str| OwnedKey::Symbol(Symbol::from(name));
        let annotations = MessageAnnotations::builder()
            .insert(annotation("x-opt-jms-msg-type"), Value::Byte(self.body.jms_type()))
            .insert(annotation("x-opt-jms-dest"), Value::Byte(topic))
            .build();
        let first = batch.ids.get(message.row).map(ToString::to_string).unwrap_or_default();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let properties = Properties::builder()
            .message_id(format!("{}/{first}", self.writer))
            .creation_time(Timestamp::from_milliseconds(now.as_millis() as i64))
            .build();
        Ok(AmqpMessage::builder()
            .header(Header::builder().durable(self.is_persistent).build())
            .message_annotations(annotations)
            .properties(properties)
            .body(body)
            .build())
    }

    /// Sends a message and returns what waits for its settlement.
    ///
    /// Errors: the connection failed.
    async fn send(
        &self,
        session: &mut SinkSession,
        batch: &SinkBatch,
        message: Payload,
        destination: Result<Destination, String>,
    ) -> Result<BoxFuture<'static, Settled>> {
        let ready = |message, why| -> BoxFuture<'static, Settled> {
            Box::pin(std::future::ready(Settled { message, fate: Disposition::Refused(why) }))
        };
        let destination = match destination {
            Ok(destination) => destination,
            Err(why) => return Ok(ready(message, why)),
        };
        let amqp = match self.amqp_message(batch, &message, destination.kind) {
            Ok(amqp) => amqp,
            Err(why) => return Ok(ready(message, why)),
        };
        let link = match session.link(&destination).await {
            Ok(link) => link,
            Err(e) if is_lasting_refusal(&e) => {
                return Ok(ready(message, format!("{destination} takes no messages: {}", attach_reason(&e))));
            }
            Err(e) => {
                let what = format!("{destination} takes no messages");
                return Err(session.connection.failed(&what, &attach_reason(&e)));
            }
        };
        match link.send_batchable(Sendable::builder().message(amqp).settled(false).build()).await {
            Ok(settlement) => {
                Ok(Box::pin(async move { Settled { message, fate: fate_of(settlement.await) } }))
            }
            Err(e) => match fate_of(Err(e)) {
                Disposition::Failed(why) => Err(session.connection.failed("messages cannot be sent", &why)),
                fate => Ok(Box::pin(std::future::ready(Settled { message, fate }))),
            },
        }
    }
}

fn fate_of(outcome: Result<Outcome, SendError>) -> Disposition {
    match outcome {
        Ok(Outcome::Accepted(_)) => Disposition::Taken,
        Ok(Outcome::Rejected(rejected)) => match rejected.error {
            Some(e) if condition_of(&e) == FULL => Disposition::Failed(text_of(&e)),
            Some(e) => Disposition::Refused(format!("the broker rejects the message: {}", text_of(&e))),
            None => Disposition::Refused("the broker rejects the message".into()),
        },
        Ok(Outcome::Modified(modified)) if modified.undeliverable_here == Some(true) => {
            Disposition::Refused("the broker cannot deliver the message".into())
        }
        Ok(Outcome::Released(_) | Outcome::Modified(_)) => {
            Disposition::Failed("the broker has not taken the message".into())
        }
        Err(e) => match send_reason(&e) {
            (why, true) => Disposition::Refused(why),
            (why, false) => Disposition::Failed(why),
        },
    }
}

impl SinkSession {
    /// Returns the link to a destination.
    async fn link(&mut self, destination: &Destination) -> Result<&mut Sender, SenderAttachError> {
        if !self.links.contains_key(destination) {
            let target = Target::builder()
                .address(destination.name.clone())
                .capabilities(capability(destination.kind))
                .build();
            let link = Sender::builder()
                .name(uuid::Uuid::new_v4().to_string())
                .target(target)
                .attach(&mut self.connection.session)
                .await?;
            self.links.insert(destination.clone(), link);
        }
        self.links.get_mut(destination).ok_or(SenderAttachError::IllegalState)
    }

    /// Waits for the settlement of the next message and counts it.
    ///
    /// Errors: those of [`Self::count`].
    async fn count_next(&self, waiting: &mut Waiting, progress: &mut DeliveryProgress) -> Result<()> {
        loop {
            match tokio::time::timeout(LOST_POLL, waiting.next()).await {
                Ok(settled) => return settled.map_or(Ok(()), |settled| self.count(settled, progress)),
                // a lost connection does not end the settlements that wait on its links
                Err(_) if self.connection.is_lost() => {
                    return Err(self.connection.failed("messages cannot be sent", "the connection was lost"));
                }
                Err(_) => {}
            }
        }
    }

    /// Counts a message.
    ///
    /// Errors: the connection failed, or the broker does not take the message now.
    fn count(&self, settled: Settled, progress: &mut DeliveryProgress) -> Result<()> {
        match settled.fate {
            Disposition::Taken => progress.took(&settled.message),
            Disposition::Refused(why) => progress.refused(&settled.message, &why),
            Disposition::Failed(why) => return Err(self.connection.failed("messages cannot be sent", &why)),
        }
        Ok(())
    }
}

#[async_trait]
impl SinkConnector for AmqpSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.session = None;
        let connection = AmqpConnection::open(&self.settings).await?;
        let mut session = SinkSession { connection, links: HashMap::new() };
        if let Some(destination) =
            self.destination.constant().and_then(|name| self.destinations.find(name).ok())
        {
            let attached = session.link(&destination).await.map(|_| ());
            attached.map_err(|e| {
                session.connection.failed(&format!("{destination} takes no messages"), &attach_reason(&e))
            })?;
        }
        self.session = Some(session);
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        let Some(mut session) = self.session.take() else {
            return Err(Error::unavailable("the sink is not connected"));
        };
        let mut waiting = Waiting::new();
        for message in batch.messages_from(progress).to_vec() {
            let name = self.destination.render(&batch.rows, message.row);
            let destination = self.destinations.find(&name);
            let needs_link = destination.as_ref().is_ok_and(|one| !session.links.contains_key(one));
            let is_full = needs_link && session.links.len() >= LINKS_MAX;
            // a link that is closed fails what waits on it
            let room = if is_full { 0 } else { WINDOW - 1 };
            while waiting.len() > room {
                session.count_next(&mut waiting, progress).await?;
            }
            if is_full {
                session.links.clear();
            }
            waiting.push_back(self.send(&mut session, batch, message, destination).await?);
        }
        while !waiting.is_empty() {
            session.count_next(&mut waiting, progress).await?;
        }
        self.session = Some(session);
        Ok(())
    }

    async fn close(&mut self) {
        self.session = None;
    }
}
