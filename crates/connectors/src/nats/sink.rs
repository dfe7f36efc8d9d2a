//! Subjects as a sink.

use std::error::Error as _;

use async_nats::client::PublishErrorKind as CorePublishErrorKind;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, ErrorCode};
use async_trait::async_trait;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    Payload, SinkBatch, SinkConnector, SinkType, Template,
};
use tidemill_types::{Error, Result};

use super::client::NatsConnection;
use super::options::{NatsSettings, is_jetstream, nats_options, subject_problem};
use crate::shortened::shortened;

/// Messages that may wait for their acknowledgement.
const WINDOW: usize = 1024;

/// Type of the sink `nats`.
pub(crate) struct NatsSinkType;

const OPTIONS: &[OptionSpec] =
    nats_options![OptionSpec::text("destination", "Subject.").required().dynamic()];

impl SinkType for NatsSinkType {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn summary(&self) -> &'static str {
        "Publishes messages to NATS subjects; at least once with JetStream, which drops doubled ones, at most once without it."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtMostOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        let subject = context.parse_template("destination", options.text("destination").trim())?;
        if let Some((subject, problem)) =
            subject.constant().and_then(|subject| Some((subject, subject_problem(subject, false)?)))
        {
            return Err(OptionError::option("destination", format!("`{subject}` is no subject: {problem}")));
        }
        Ok(Box::new(NatsSink {
            settings: NatsSettings::new(options, context)?,
            name: context.writer.clone(),
            subject,
            is_jetstream: is_jetstream(options),
            connection: None,
        }))
    }
}

struct NatsSink {
    settings: NatsSettings,
    /// Name of the sink, which begins the ids of its messages.
    name: String,
    subject: Template,
    is_jetstream: bool,
    connection: Option<NatsConnection>,
}

#[async_trait]
impl SinkConnector for NatsSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.connection = None;
        let connection = NatsConnection::open(&self.settings).await?;
        if let (true, Some(subject)) = (self.is_jetstream, self.subject.constant()) {
            let context = jetstream::new(connection.client.clone());
            let named = self.settings.stream.as_deref();
            connection.with(connection.stream_name(&context, named, subject)).await?;
        }
        self.connection = Some(connection);
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        let Some(connection) = self.connection.take() else {
            return Err(Error::unavailable("the sink is not connected"));
        };
        let delivery = NatsDelivery { sink: self, connection: &connection, batch };
        match self.is_jetstream {
            true => connection.with(delivery.publish_acknowledged(progress)).await?,
            false => connection.with(delivery.publish(progress)).await?,
        }
        self.connection = Some(connection);
        Ok(())
    }

    async fn close(&mut self) {
        self.connection = None;
    }
}

/// Outcome of a message; an error if the connection failed.
type Fate = Result<Result<(), String>>;

struct NatsDelivery<'d> {
    sink: &'d NatsSink,
    connection: &'d NatsConnection,
    batch: &'d SinkBatch,
}

impl NatsDelivery<'_> {
    /// Returns the subject of a message, or why it cannot be sent.
    fn subject(&self, message: &Payload) -> Result<String, String> {
        let subject = self.sink.subject.render(&self.batch.rows, message.row);
        match subject_problem(&subject, false) {
            Some(problem) => Err(format!("`{}` is no subject: {problem}", shortened(&subject))),
            None => Ok(subject),
        }
    }

    /// Sends messages without JetStream. They count as delivered when the server has taken them.
    async fn publish(&self, progress: &mut DeliveryProgress) -> Result<()> {
        let client = &self.connection.client;
        let failed = |e: &dyn std::fmt::Display| self.connection.unavailable(&e.to_string());
        let messages = self.batch.messages_from(progress).to_vec();
        for messages in messages.chunks(WINDOW) {
            let mut refusals = vec![];
            for message in messages {
                let refusal = match self.subject(message) {
                    Err(reason) => Some(reason),
                    Ok(subject) => match client.publish(subject, message.bytes.clone()).await {
                        Ok(()) => None,
                        Err(e) if e.kind() == CorePublishErrorKind::Send => return Err(failed(&e)),
                        Err(_) => Some(self.too_large(message)),
                    },
                };
                refusals.push(refusal);
            }
            client.flush().await.map_err(|e| failed(&e))?;
            for (message, refusal) in messages.iter().zip(refusals) {
                match refusal {
                    Some(reason) => progress.refused(message, &reason),
                    None => progress.took(message),
                }
            }
        }
        Ok(())
    }

    /// Sends messages to JetStream. They count as delivered, in order, when a stream has stored them.
    async fn publish_acknowledged(&self, progress: &mut DeliveryProgress) -> Result<()> {
        let context = jetstream::ContextBuilder::new()
            .ack_timeout(self.sink.settings.ack_wait)
            .max_ack_inflight(WINDOW + 1)
            .build(self.connection.client.clone());
        let mut waiting: FuturesOrdered<BoxFuture<'_, (Payload, Fate)>> = FuturesOrdered::new();
        for message in self.batch.messages_from(progress).to_vec() {
            while waiting.len() >= WINDOW
                && let Some((message, fate)) = waiting.next().await
            {
                count(&message, fate?, progress);
            }
            let sent = self.send(&context, message).await;
            waiting.push_back(sent);
        }
        while let Some((message, fate)) = waiting.next().await {
            count(&message, fate?, progress);
        }
        Ok(())
    }

    /// Sends a message and returns what waits for its fate.
    async fn send<'w>(
        &'w self,
        context: &'w jetstream::Context,
        message: Payload,
    ) -> BoxFuture<'w, (Payload, Fate)> {
        let subject = match self.subject(&message) {
            Ok(subject) => subject,
            Err(reason) => return Box::pin(std::future::ready((message, Ok(Err(reason))))),
        };
        let publish = PublishMessage::build().payload(message.bytes.clone()).message_id(self.id(&message));
        match context.send_publish(subject.clone(), publish).await {
            Ok(acknowledgement) => Box::pin(async move {
                let fate = match acknowledgement.await {
                    Ok(_) => Ok(Ok(())),
                    Err(e) => self.judge(context, &message, &subject, &e).await,
                };
                (message, fate)
            }),
            Err(e) => Box::pin(async move {
                let fate = self.judge(context, &message, &subject, &e).await;
                (message, fate)
            }),
        }
    }

    /// Returns the id by which the server knows a message that is sent again. A message with the same first event and
    /// more events is another one.
    fn id(&self, message: &Payload) -> String {
        let first = self.batch.ids.get(message.row).map(ToString::to_string).unwrap_or_default();
        format!("{}/{first}/{}", self.sink.name, message.rows)
    }

    /// Tells messages that will never be taken from a connection that fails.
    async fn judge(
        &self,
        context: &jetstream::Context,
        message: &Payload,
        subject: &str,
        error: &PublishError,
    ) -> Fate {
        let code = error
            .source()
            .and_then(|source| source.downcast_ref::<jetstream::Error>())
            .map(|e| e.error_code());
        let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        match (error.kind(), code) {
            (PublishErrorKind::MaxPayloadExceeded, _) => Ok(Err(self.too_large(message))),
            (
                _,
                Some(ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM),
            ) => Ok(Err(format!("the stream refuses the message{source}"))),
            // the server also answers so while it starts
            (PublishErrorKind::StreamNotFound, _)
                if self.connection.find_stream(context, subject).await?.is_none() =>
            {
                Ok(Err(format!("no JetStream stream has the subject `{subject}`")))
            }
            _ => Err(self.connection.unavailable(&format!("{error}"))),
        }
    }

    fn too_large(&self, message: &Payload) -> String {
        let (bytes, max) = (message.bytes.len(), self.connection.client.max_payload());
        format!("the message has {bytes} bytes; the server takes {max}")
    }
}

fn count(message: &Payload, fate: Result<(), String>, progress: &mut DeliveryProgress) {
    match fate {
        Ok(()) => progress.took(message),
        Err(reason) => progress.refused(message, &reason),
    }
}
