//! Reading from JetStream.
//!
//! One source alone reads the stream in order, from the sequence number that the log has, so each message becomes
//! events exactly once. Several sources that share messages, and streams that drop messages when they are
//! acknowledged, need a consumer at the server, which knows what was acknowledged: at least once.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::stream::{RetentionPolicy, Stream};
use async_nats::jetstream::{self, Message as JetStreamMessage};
use futures::{FutureExt, StreamExt};
use tidemill_connect::{Message, SourceOutput};
use tidemill_types::{Error, Result, Timestamp};

use super::client::NatsConnection;
use super::source::{BATCH_MESSAGES, properties};
use crate::receipts::Receipts;

/// Batches that may wait until they are durable.
const WAITING_MAX: usize = 64;

/// Settings of a reader of JetStream.
pub(super) struct JetStreamReader {
    pub subject: String,
    /// Name of the stream from the options.
    pub stream: Option<String>,
    /// True if several sources share the messages.
    pub is_shared: bool,
    /// Name of the consumer from the options.
    pub consumer: Option<String>,
    /// Name of the consumer where the options have none.
    pub own_consumer: String,
    /// Sequence number at which the first start begins.
    pub first_sequence: Option<u64>,
    /// Time for which the server waits for an acknowledgement.
    pub ack_wait: Duration,
}

impl JetStreamReader {
    /// Reads until something fails.
    pub(super) async fn read(&self, connection: &NatsConnection, output: &SourceOutput) -> Result<()> {
        let context = jetstream::new(connection.client.clone());
        let name = connection.stream_name(&context, self.stream.as_deref(), &self.subject).await?;
        let stream = context.get_stream(&name).await;
        let stream =
            stream.map_err(|e| connection.unavailable(&format!("the stream `{name}` cannot be had: {e}")))?;
        match self.is_shared || stream.cached_info().config.retention != RetentionPolicy::Limits {
            true => self.read_shared(connection, &stream, output).await,
            false => self.read_ordered(connection, &stream, output).await,
        }
    }

    async fn read_ordered(
        &self,
        connection: &NatsConnection,
        stream: &Stream,
        output: &SourceOutput,
    ) -> Result<()> {
        let info = stream.cached_info();
        let split: Arc<str> = format!("{}/{}", info.config.name, self.subject).into();
        let start = self.start(connection, stream, &split, output).await?;
        let config = pull::OrderedConfig {
            filter_subject: self.subject.clone(),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: start },
            ..pull::OrderedConfig::default()
        };
        let failed =
            |e: &dyn std::fmt::Display| connection.unavailable(&format!("{split} cannot be read: {e}"));
        let consumer = stream.create_consumer(config).await.map_err(|e| failed(&e))?;
        let mut messages = consumer.messages().await.map_err(|e| failed(&e))?;
        output.report_connected();
        let mut receipts: Receipts<()> = Receipts::new();
        loop {
            tokio::select! {
                durable = receipts.next() => durable?,
                next = messages.next(), if receipts.len() < WAITING_MAX => {
                    let mut next = next;
                    let mut batch = vec![];
                    let mut failure = None;
                    loop {
                        match next {
                            Some(Ok(message)) => batch.push(convert(&message).map_err(|e| failed(&e))?),
                            Some(Err(e)) => failure = Some(failed(&e)),
                            None => failure = Some(connection.unavailable("the consumer ended")),
                        }
                        if failure.is_some() || batch.len() >= BATCH_MESSAGES {
                            break;
                        }
                        match messages.next().now_or_never() {
                            Some(more) => next = more,
                            None => break,
                        }
                    }
                    if let Some(last) = batch.last() {
                        let position = last.number + 1;
                        receipts.push(output.send_split(&split, batch, position).await?, ());
                    }
                    if let Some(failure) = failure {
                        return Err(failure);
                    }
                }
            }
        }
    }

    /// Returns the sequence number from which to read: where the log says, otherwise where the options say.
    async fn start(
        &self,
        connection: &NatsConnection,
        stream: &Stream,
        split: &Arc<str>,
        output: &SourceOutput,
    ) -> Result<u64> {
        let state = &stream.cached_info().state;
        if let Some(position) = output.position(split) {
            if position > state.last_sequence.saturating_add(1) {
                return Err(Error::invalid(format!(
                    "NATS: {split} ends at sequence number {}, but was read up to {position}: the stream was created \
                     again; give the source another name in the app to read it from its beginning",
                    state.last_sequence
                )));
            }
            if position < state.first_sequence {
                tracing::warn!(
                    split = &**split,
                    numbers = state.first_sequence - position,
                    "the stream may have deleted messages before they were read"
                );
            }
            return Ok(position.max(1));
        }
        let start = match (self.first_sequence, &self.consumer) {
            (Some(first), _) => first.max(1),
            (None, Some(consumer)) => acknowledged(connection, stream, consumer).await? + 1,
            (None, None) => 1,
        };
        // stored without events: a crash before the first message must not choose another start
        output.send_split(split, vec![], start.min(state.last_sequence + 1)).await?;
        Ok(start)
    }

    /// Reads with a consumer at the server, whose messages are acknowledged when they are durable.
    async fn read_shared(
        &self,
        connection: &NatsConnection,
        stream: &Stream,
        output: &SourceOutput,
    ) -> Result<()> {
        let name = self.consumer.as_ref().unwrap_or(&self.own_consumer);
        let failed = |e: &dyn std::fmt::Display| {
            connection.unavailable(&format!("the consumer `{name}` of {} does not work: {e}", self.subject))
        };
        let config = pull::Config {
            durable_name: Some(name.clone()),
            filter_subject: self.subject.clone(),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait,
            deliver_policy: match self.first_sequence {
                Some(first) => DeliverPolicy::ByStartSequence { start_sequence: first.max(1) },
                None => DeliverPolicy::All,
            },
            ..pull::Config::default()
        };
        let consumer = stream.get_or_create_consumer(name, config).await.map_err(|e| failed(&e))?;
        let mut messages = consumer.messages().await.map_err(|e| failed(&e))?;
        output.report_connected();
        let mut receipts: Receipts<Vec<Acker>> = Receipts::new();
        loop {
            tokio::select! {
                durable = receipts.next() => {
                    for acker in durable? {
                        acker.ack().await.map_err(|e| failed(&e))?;
                    }
                }
                next = messages.next(), if receipts.len() < WAITING_MAX => {
                    let mut next = next;
                    let (mut batch, mut ackers) = (vec![], vec![]);
                    loop {
                        let message = next.ok_or_else(|| connection.unavailable("the consumer ended"))?;
                        let message = message.map_err(|e| failed(&e))?;
                        // numbers belong to splits, whose messages come in order and once
                        batch.push(Message { number: 0, ..convert(&message).map_err(|e| failed(&e))? });
                        ackers.push(message.split().1);
                        if batch.len() >= BATCH_MESSAGES {
                            break;
                        }
                        match messages.next().now_or_never() {
                            Some(more) => next = more,
                            None => break,
                        }
                    }
                    receipts.push(output.send(batch).await?, ackers);
                }
            }
        }
    }
}

/// Returns the sequence number up to which a durable consumer has acknowledged; 0 without such a consumer.
async fn acknowledged(connection: &NatsConnection, stream: &Stream, consumer: &str) -> Result<u64> {
    match stream.consumer_info(consumer).await {
        Ok(info) => Ok(info.ack_floor.stream_sequence),
        Err(e) if matches!(e.kind(), jetstream::context::ConsumerInfoErrorKind::JetStream(_)) => Ok(0),
        Err(e) => Err(connection.unavailable(&format!("no answer about the consumer `{consumer}`: {e}"))),
    }
}

fn convert(message: &JetStreamMessage) -> Result<Message, async_nats::Error> {
    let info = message.info()?;
    let mut properties = properties(message.subject.as_str(), message.headers.as_ref());
    properties.push(("sequenceNumber".to_owned(), info.stream_sequence.to_string()));
    let time = i64::try_from(info.published.unix_timestamp_nanos() / 1000).ok().map(Timestamp);
    Ok(Message { properties, time, number: info.stream_sequence, ..Message::new(message.payload.clone()) })
}
