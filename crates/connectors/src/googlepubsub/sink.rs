//! Topics as a sink.

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Method, StatusCode};
use serde_json::{Value as Json, json};
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    Payload, SinkBatch, SinkConnector, SinkType, Template,
};
use tidemill_types::{Error, Result};

use super::client::{PubSubClient, RefusedRequest, pubsub_options};

/// Messages, and bytes of their content, of one request. Pub/Sub takes 1,000 and 10 MB.
const MESSAGES_MAX: usize = 1000;
const BYTES_MAX: usize = 6 << 20;

/// Type of the sink `googlepubsub`.
pub(super) struct PubSubSinkType;

const OPTIONS: &[OptionSpec] = pubsub_options![
    OptionSpec::text(
        "ordering.key",
        "Messages with equal keys keep their order for subscriptions that want it."
    )
    .dynamic(),
];

impl SinkType for PubSubSinkType {
    fn name(&self) -> &'static str {
        "googlepubsub"
    }

    fn summary(&self) -> &'static str {
        "Publishes messages to a topic of Google Cloud Pub/Sub, and waits until it has them."
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
        let client = PubSubClient::new(options, context)?;
        let topic = client.resource("topics", &client.topic);
        let ordering_key = context.optional_template(options, "ordering.key")?;
        Ok(Box::new(PubSubSink { client, topic, ordering_key, writer: context.writer.clone() }))
    }
}

struct PubSubSink {
    client: PubSubClient,
    /// `projects/PROJECT/topics/ID`
    topic: String,
    ordering_key: Option<Template>,
    /// Name that begins the ids of its events.
    writer: String,
}

#[async_trait]
impl SinkConnector for PubSubSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.client.create(&self.topic, &json!({})).await?;
        Ok(None)
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        loop {
            let messages = batch.messages_from(progress);
            if messages.is_empty() {
                return Ok(());
            }
            let mut bytes = 0;
            let fits = |message: &&Payload| {
                bytes += message.bytes.len();
                bytes <= BYTES_MAX
            };
            let count = messages.iter().take(MESSAGES_MAX).take_while(fits).count().max(1);
            let messages = messages[..count].to_vec();
            match self.publish(batch, &messages).await? {
                Ok(()) => messages.iter().for_each(|message| progress.took(message)),
                // one of them is at fault: each is sent alone
                Err(_) if messages.len() > 1 => {
                    for message in messages {
                        match self.publish(batch, std::slice::from_ref(&message)).await? {
                            Ok(()) => progress.took(&message),
                            Err(refused) => progress.refused(&message, &refused.reason),
                        }
                    }
                }
                Err(refused) => {
                    messages.iter().for_each(|message| progress.refused(message, &refused.reason))
                }
            }
        }
    }
}

impl PubSubSink {
    /// Publishes messages in one request. Returns why Pub/Sub refuses them for good.
    ///
    /// Errors: they may be taken later.
    async fn publish(
        &mut self,
        batch: &SinkBatch,
        messages: &[Payload],
    ) -> Result<Result<(), RefusedRequest>> {
        let messages: Vec<Json> = messages.iter().map(|message| self.message(batch, message)).collect();
        let resource = format!("{}:publish", self.topic);
        let body = json!({ "messages": messages });
        match self.client.send(Method::POST, &resource, &body).await? {
            Ok(_) => Ok(Ok(())),
            Err(refused)
                if matches!(refused.status, StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE) =>
            {
                Ok(Err(refused))
            }
            Err(refused) => Err(Error::unavailable(format!("{}: {}", self.topic, refused.reason))),
        }
    }

    fn message(&self, batch: &SinkBatch, message: &Payload) -> Json {
        let first = batch.ids.get(message.row).map(ToString::to_string).unwrap_or_default();
        let mut json = json!({
            "data": STANDARD.encode(&message.bytes),
            "attributes": { "event.id": format!("{}/{first}", self.writer) },
        });
        if let Some(key) = &self.ordering_key {
            json["orderingKey"] = Json::String(key.render(&batch.rows, message.row));
        }
        json
    }
}
