//! Subjects as a source.

use async_nats::{HeaderMap, Subscriber};
use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, SourceConnector,
    SourceOutput, SourceType,
};
use tidemill_types::Result;
use xxhash_rust::xxh3::xxh3_64;

use super::client::NatsConnection;
use super::jetstream::JetStreamReader;
use super::options::{NatsSettings, is_jetstream, nats_options, subject_problem};

/// Messages that are taken at once, if so many are there.
pub(super) const BATCH_MESSAGES: usize = 1024;

/// Type of the source `nats`.
pub(crate) struct NatsSourceType;

const OPTIONS: &[OptionSpec] = nats_options![
    OptionSpec::text("destination", "Subject, also with the wildcards `*` and `>`.").required(),
    OptionSpec::text("queue.group.name", "Sources with the same name share the messages."),
    OptionSpec::text("durable.name", "Name of a durable consumer of JetStream, behind which reading begins."),
    OptionSpec::integer(
        "subscription.sequence",
        0,
        i64::MAX,
        "Sequence number in the JetStream stream at which the first start begins."
    ),
];

impl SourceType for NatsSourceType {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn summary(&self) -> &'static str {
        "Messages of NATS subjects; exactly once from JetStream, at least once in its queue groups, at most once without it."
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
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        let settings = NatsSettings::new(options, context)?;
        let subject = options.text("destination").trim().to_owned();
        if let Some(problem) = subject_problem(&subject, true) {
            return Err(OptionError::option("destination", format!("`{subject}` is no subject: {problem}")));
        }
        let queue_group = name_option(options, "queue.group.name")?;
        let durable = name_option(options, "durable.name")?;
        let is_jetstream =
            is_jetstream(options) || durable.is_some() || options.is_written("subscription.sequence");
        let reader = is_jetstream.then(|| JetStreamReader {
            subject: subject.clone(),
            stream: settings.stream.clone(),
            is_shared: queue_group.is_some(),
            consumer: durable.clone().or_else(|| queue_group.clone()),
            own_consumer: format!("tidemill-{:016x}", xxh3_64(context.name.as_bytes())),
            first_sequence: options.integer("subscription.sequence").map(i64::unsigned_abs),
            ack_wait: settings.ack_wait,
        });
        Ok(Box::new(NatsSource { settings, subject, queue_group, reader }))
    }
}

/// Returns the name in an option. Errors: the server would not take it.
fn name_option(options: &Options, name: &str) -> Result<Option<String>, OptionError> {
    let Some(text) = options.get(name) else { return Ok(None) };
    match text.is_empty() || text.contains(['.', '*', '>', '/', '\\']) || text.contains(char::is_whitespace) {
        true => {
            let message = format!("`{text}` is no name; expected no spaces, `.`, `*`, `>` or `/`");
            Err(OptionError::option(name, message))
        }
        false => Ok(Some(text.to_owned())),
    }
}

struct NatsSource {
    settings: NatsSettings,
    subject: String,
    queue_group: Option<String>,
    /// Reader of JetStream; `None` without it.
    reader: Option<JetStreamReader>,
}

#[async_trait]
impl SourceConnector for NatsSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let connection = NatsConnection::open(&self.settings).await?;
        match &self.reader {
            Some(reader) => connection.with(reader.read(&connection, output)).await,
            None => connection.with(self.subscribe(&connection, output)).await,
        }
    }
}

impl NatsSource {
    /// Reads without JetStream: nothing is acknowledged.
    async fn subscribe(&self, connection: &NatsConnection, output: &SourceOutput) -> Result<()> {
        let refused = |e: &dyn std::fmt::Display| connection.unavailable(&format!("no subscription: {e}"));
        let client = &connection.client;
        let subscribed = match &self.queue_group {
            Some(group) => client.queue_subscribe(self.subject.clone(), group.clone()).await,
            None => client.subscribe(self.subject.clone()).await,
        };
        let mut subscriber = subscribed.map_err(|e| refused(&e))?;
        // the server has seen the subscription when it answers
        client.flush().await.map_err(|e| refused(&e))?;
        output.report_connected();
        while let Some(first) = subscriber.next().await {
            output.send(take(first, &mut subscriber)).await?;
            let dropped = connection.take_dropped();
            if dropped > 0 {
                tracing::warn!(
                    subject = self.subject,
                    messages = dropped,
                    "messages came too fast and are lost"
                );
                output.report_problem(format!(
                    "{dropped} messages of `{}` came faster than they were taken and are lost; JetStream keeps them \
                     (`cluster.id` or `stream.name`)",
                    self.subject
                ));
            }
        }
        Err(connection.unavailable("the subscription ended"))
    }
}

/// Returns a message and those that are there already.
fn take(first: async_nats::Message, subscriber: &mut Subscriber) -> Vec<Message> {
    let mut messages = vec![convert(first)];
    while messages.len() < BATCH_MESSAGES
        && let Some(Some(next)) = subscriber.next().now_or_never()
    {
        messages.push(convert(next));
    }
    messages
}

fn convert(message: async_nats::Message) -> Message {
    let properties = properties(message.subject.as_str(), message.headers.as_ref());
    Message { properties, ..Message::new(message.payload) }
}

/// Returns headers and subject as transport properties.
pub(super) fn properties(subject: &str, headers: Option<&HeaderMap>) -> Vec<(String, String)> {
    let mut properties = vec![("subject".to_owned(), subject.to_owned())];
    for (name, values) in headers.into_iter().flat_map(HeaderMap::iter) {
        properties.extend(values.first().map(|value| (name.to_string(), value.as_str().to_owned())));
    }
    properties
}
