//! Topics as a sink.

use std::collections::{HashMap, VecDeque};

use async_trait::async_trait;
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    Payload, SinkBatch, SinkConnector, SinkType, Template,
};
use tidemill_types::{Error, Result};

use super::client::{MqttConnection, MqttEvent};
use super::options::{MqttSettings, mqtt_options, topic_problem};
use crate::shortened::shortened;

/// Room that headers take in a packet, besides topic and content.
const HEADER_BYTES: usize = 32;

/// Type of the sink `mqtt`.
pub(crate) struct MqttSinkType;

const OPTIONS: &[OptionSpec] = mqtt_options![
    OptionSpec::text("topic", "Topic.").required().dynamic(),
    OptionSpec::one_of("quality.of.service", &["0", "1", "2"], "Quality of service of the message.")
        .default("1")
        .dynamic(),
    OptionSpec::flag(
        "message.retain",
        "false",
        "Whether the broker keeps the message for later subscribers."
    )
    .dynamic(),
    OptionSpec::flag("clean.session", "true", "Accepted; a sink has nothing that a session would keep."),
];

impl SinkType for MqttSinkType {
    fn name(&self) -> &'static str {
        "mqtt"
    }

    fn summary(&self) -> &'static str {
        "Publishes messages to topics of an MQTT broker; at least once with quality of service 1 or 2."
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
        let template = |name: &str| context.template(options, name);
        let client_id = || format!("tidemill-{}", uuid::Uuid::new_v4().simple());
        let mut settings = MqttSettings::new(options, context, client_id)?;
        settings.clean_session = true;
        let topic = template("topic")?;
        if let Some((topic, problem)) =
            topic.constant().and_then(|topic| Some((topic, topic_problem(topic, false)?)))
        {
            return Err(OptionError::option("topic", format!("`{topic}` is no topic: {problem}")));
        }
        Ok(Box::new(MqttSink {
            settings,
            topic,
            qos: template("quality.of.service")?,
            retain: template("message.retain")?,
            connection: None,
        }))
    }
}

struct MqttSink {
    settings: MqttSettings,
    topic: Template,
    qos: Template,
    retain: Template,
    connection: Option<MqttConnection>,
}

#[async_trait]
impl SinkConnector for MqttSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.connection = None;
        self.connection = Some(MqttConnection::open(&self.settings).await?);
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        let Some(mut connection) = self.connection.take() else {
            return Err(Error::unavailable("the sink is not connected"));
        };
        let mut window = UncountedMessages::default();
        let messages = batch.messages_from(progress).to_vec();
        for message in messages {
            while window.waiting.len() >= usize::from(self.settings.inflight_max) {
                window.note(connection.next().await?);
                window.count(progress);
            }
            match self.render(batch, &message, connection.packet_bytes_max) {
                Err(reason) => window.refuse(message, reason),
                Ok((topic, qos, retain)) => {
                    window.add(message.clone());
                    connection.publish(topic, message.bytes, qos, retain).await?;
                }
            }
            window.count(progress);
        }
        while !window.waiting.is_empty() {
            window.note(connection.next().await?);
            window.count(progress);
        }
        self.connection = Some(connection);
        Ok(())
    }

    async fn close(&mut self) {
        self.connection = None;
    }
}

impl MqttSink {
    /// Returns topic, quality of service, and whether the message is retained, or why it cannot be sent.
    fn render(
        &self,
        batch: &SinkBatch,
        message: &Payload,
        bytes_max: usize,
    ) -> Result<(String, u8, bool), String> {
        let of = |template: &Template| template.render(&batch.rows, message.row);
        let topic = of(&self.topic);
        if let Some(problem) = topic_problem(&topic, false) {
            return Err(format!("`{}` is no topic: {problem}", shortened(&topic)));
        }
        let bytes = message.bytes.len() + topic.len() + HEADER_BYTES;
        if bytes > bytes_max {
            return Err(format!("the message has {bytes} bytes; the broker takes {bytes_max}"));
        }
        let qos = of(&self.qos);
        let qos = match qos.trim() {
            "0" => 0,
            "1" => 1,
            "2" => 2,
            _ => return Err(format!("`quality.of.service` is `{qos}`; expected 0, 1 or 2")),
        };
        let retain = of(&self.retain);
        match retain.trim().to_ascii_lowercase().as_str() {
            "true" => Ok((topic, qos, true)),
            "false" => Ok((topic, qos, false)),
            _ => Err(format!("`message.retain` is `{retain}`; expected true or false")),
        }
    }
}

/// Messages whose fate is not counted, in order.
#[derive(Default)]
struct UncountedMessages {
    waiting: VecDeque<(Payload, PublishOutcome)>,
    /// Number of the first of them.
    first: usize,
    /// Numbers of those that have not left, in order.
    unsent: VecDeque<usize>,
    /// Numbers of those that left and are not acknowledged, by packet id.
    unacknowledged: HashMap<u16, usize>,
}

enum PublishOutcome {
    Waiting,
    Delivered,
    Refused(String),
}

impl UncountedMessages {
    fn add(&mut self, message: Payload) {
        self.unsent.push_back(self.first + self.waiting.len());
        self.waiting.push_back((message, PublishOutcome::Waiting));
    }

    fn refuse(&mut self, message: Payload, reason: String) {
        self.waiting.push_back((message, PublishOutcome::Refused(reason)));
    }

    fn note(&mut self, event: MqttEvent) {
        match event {
            MqttEvent::Sent(packet_id) => {
                let Some(number) = self.unsent.pop_front() else { return };
                match packet_id {
                    0 => self.decide(number, PublishOutcome::Delivered),
                    id => drop(self.unacknowledged.insert(id, number)),
                }
            }
            MqttEvent::Acknowledged(packet_id, outcome) => {
                let Some(number) = self.unacknowledged.remove(&packet_id) else { return };
                self.decide(
                    number,
                    outcome.map_or_else(PublishOutcome::Refused, |()| PublishOutcome::Delivered),
                );
            }
            MqttEvent::Subscribed(_) | MqttEvent::Message(_) => {}
        }
    }

    fn decide(&mut self, number: usize, fate: PublishOutcome) {
        if let Some((_, waiting)) = number.checked_sub(self.first).and_then(|n| self.waiting.get_mut(n)) {
            *waiting = fate;
        }
    }

    /// Counts the messages at the front whose fate is known.
    fn count(&mut self, progress: &mut DeliveryProgress) {
        while let Some((_, PublishOutcome::Delivered | PublishOutcome::Refused(_))) = self.waiting.front() {
            let Some((message, fate)) = self.waiting.pop_front() else { return };
            self.first += 1;
            match fate {
                PublishOutcome::Refused(reason) => progress.refused(&message, &reason),
                _ => progress.took(&message),
            }
        }
    }
}
