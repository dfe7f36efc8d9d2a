//! Topics as a source.

use async_trait::async_trait;
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, SourceConnector,
    SourceOutput, SourceType,
};
use tidemill_types::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::client::{Acknowledge, Incoming, MqttConnection, MqttEvent};
use super::options::{MqttSettings, mqtt_options, topic_problem};
use crate::pairs::parse_names;
use crate::receipts::Receipts;

/// Messages that are taken at once, if so many are there.
const BATCH_MESSAGES: usize = 1024;

/// Type of the source `mqtt`.
pub(crate) struct MqttSourceType;

const OPTIONS: &[OptionSpec] = mqtt_options![
    OptionSpec::text("topic", "Filters of topics, with commas: `plant/+/temperature,alarms/#`.").required(),
    OptionSpec::one_of("quality.of.service", &["0", "1", "2"], "Quality of service of the subscription.")
        .default("1"),
    OptionSpec::flag(
        "clean.session",
        "false",
        "Whether the broker forgets the subscription, and messages that were not acknowledged, when the connection ends.",
    ),
];

impl SourceType for MqttSourceType {
    fn name(&self) -> &'static str {
        "mqtt"
    }

    fn summary(&self) -> &'static str {
        "Messages of topics of an MQTT broker, acknowledged when their events are stored."
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
        // the same one after a restart, so that the broker knows the session
        let client_id = || format!("tidemill-{:016x}", xxh3_64(context.name.as_bytes()));
        let mut settings = MqttSettings::new(options, context, client_id)?;
        settings.manual_acks = true;
        let filters = parse_names(options.text("topic"));
        if filters.is_empty() {
            return Err(OptionError::option("topic", "expected topics with commas"));
        }
        for filter in &filters {
            if let Some(problem) = topic_problem(filter, true) {
                return Err(OptionError::option(
                    "topic",
                    format!("`{filter}` is no filter of topics: {problem}"),
                ));
            }
        }
        let qos = options.integer("quality.of.service").unwrap_or(1) as u8;
        Ok(Box::new(MqttSource { settings, filters, qos, is_subscribed: false }))
    }
}

struct MqttSource {
    settings: MqttSettings,
    filters: Vec<String>,
    qos: u8,
    /// True if the session at the broker has these filters.
    is_subscribed: bool,
}

#[async_trait]
impl SourceConnector for MqttSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let mut connection = MqttConnection::open(&self.settings).await?;
        // subscribing again would make the broker send retained messages again
        if self.is_subscribed && connection.session_present {
            output.report_connected();
        } else {
            connection.subscribe(&self.filters, self.qos).await?;
        }
        let mut receipts: Receipts<Vec<Acknowledge>> = Receipts::new();
        let mut held = None;
        loop {
            tokio::select! {
                durable = receipts.next() => {
                    for message in durable? {
                        connection.acknowledge(&message).await?;
                    }
                }
                event = next_event(&mut held, &mut connection) => match event? {
                    MqttEvent::Subscribed(Ok(())) => {
                        self.is_subscribed = true;
                        output.report_connected();
                    }
                    MqttEvent::Subscribed(Err(e)) => {
                        return Err(Error::unavailable(format!("MQTT broker at {}: {e}", self.settings.address())));
                    }
                    MqttEvent::Message(first) => {
                        held = take(*first, &mut connection, output, &mut receipts).await?;
                    }
                    MqttEvent::Sent(_) | MqttEvent::Acknowledged(..) => {}
                },
            }
        }
    }
}

async fn next_event(
    held: &mut Option<Result<MqttEvent>>,
    connection: &mut MqttConnection,
) -> Result<MqttEvent> {
    match held.take() {
        Some(event) => event,
        None => connection.next().await,
    }
}

/// Hands over a message and those that are there already. Returns what is behind them and no message.
async fn take(
    first: Incoming,
    connection: &mut MqttConnection,
    output: &SourceOutput,
    receipts: &mut Receipts<Vec<Acknowledge>>,
) -> Result<Option<Result<MqttEvent>>> {
    let mut messages = vec![];
    let mut acknowledges = vec![];
    let mut next = Some(first);
    let mut behind = None;
    while let Some(incoming) = next.take() {
        let mut message = Message::new(incoming.payload);
        message.properties = incoming.user_properties;
        message.properties.push(("topic".into(), incoming.topic));
        message.properties.push(("qos".into(), incoming.qos.to_string()));
        message.properties.push(("retain".into(), incoming.is_retained.to_string()));
        messages.push(message);
        if incoming.qos > 0 {
            acknowledges.push(incoming.acknowledge);
        }
        if messages.len() < BATCH_MESSAGES {
            match connection.events.try_recv() {
                Ok(Ok(MqttEvent::Message(message))) => next = Some(*message),
                Ok(event) => behind = Some(event),
                Err(_) => {}
            }
        }
    }
    let receipt = output.send(messages).await?;
    receipts.push(receipt, acknowledges);
    Ok(behind)
}
