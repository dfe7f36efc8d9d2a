//! Subscriptions as a source.

use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, SourceConnector,
    SourceOutput, SourceType,
};
use tidemill_types::{Error, Result, Timestamp};

use super::client::{PubSubClient, pubsub_options, resource_id};

/// Interval at which the deadline of waiting messages is extended, and the new deadline in seconds.
const EXTEND_EACH: Duration = Duration::from_secs(5);
const DEADLINE_S: u32 = 30;

/// Type of the source `googlepubsub`.
pub(super) struct PubSubSourceType;

const OPTIONS: &[OptionSpec] = pubsub_options![
    OptionSpec::text("subscription.id", "Subscription of the topic; made if there is none.")
        .alias("subscriptionId")
        .required(),
    OptionSpec::integer("max.messages", 1, 1000, "Messages of one request.").default("1000"),
    OptionSpec::integer("idle.timeout", 0, i64::MAX, "Accepted without effect.").alias("idletimeout"),
];

impl SourceType for PubSubSourceType {
    fn name(&self) -> &'static str {
        "googlepubsub"
    }

    fn summary(&self) -> &'static str {
        "Messages of a subscription of Google Cloud Pub/Sub, acknowledged when their events are stored."
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
        let client = PubSubClient::new(options, context)?;
        let subscription = client.resource("subscriptions", &resource_id(options, "subscription.id")?);
        let max_messages = options.integer("max.messages").unwrap_or(1000);
        Ok(Box::new(PubSubSource { client, subscription, max_messages }))
    }
}

struct PubSubSource {
    client: PubSubClient,
    /// `projects/PROJECT/subscriptions/ID`
    subscription: String,
    max_messages: i64,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Pulled {
    received_messages: Vec<ReceivedMessage>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ReceivedMessage {
    ack_id: String,
    message: PubSubMessage,
    delivery_attempt: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PubSubMessage {
    data: String,
    attributes: BTreeMap<String, String>,
    message_id: String,
    publish_time: String,
    ordering_key: String,
}

#[async_trait]
impl SourceConnector for PubSubSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        loop {
            let pulled = self.pull().await?;
            output.report_connected();
            if pulled.is_empty() {
                continue;
            }
            let ids: Vec<String> = pulled.iter().map(|received| received.ack_id.clone()).collect();
            let messages = pulled.into_iter().map(message).collect();
            let durable = async { output.send(messages).await?.wait().await };
            tokio::pin!(durable);
            loop {
                tokio::select! {
                    stored = &mut durable => {
                        stored?;
                        break;
                    }
                    () = tokio::time::sleep(EXTEND_EACH) => self.extend(&ids).await?,
                }
            }
            self.call("acknowledge", &json!({ "ackIds": ids })).await?;
        }
    }
}

impl PubSubSource {
    /// Returns the next messages, or none after a while.
    async fn pull(&mut self) -> Result<Vec<ReceivedMessage>> {
        let body = json!({ "maxMessages": self.max_messages });
        let resource = format!("{}:pull", self.subscription);
        let answer = match self.client.send(Method::POST, &resource, &body).await? {
            Ok(answer) => answer,
            Err(refused) if refused.status == StatusCode::NOT_FOUND => {
                self.create().await?;
                return Ok(vec![]);
            }
            // no message came in time
            Err(refused) if refused.status == StatusCode::GATEWAY_TIMEOUT => return Ok(vec![]),
            Err(refused) => return Err(self.failed(&refused.reason)),
        };
        let pulled: Pulled = serde_json::from_value(answer)
            .map_err(|_| self.failed("the answer has no messages as Pub/Sub writes them"))?;
        Ok(pulled.received_messages)
    }

    /// Creates the subscription, and the topic if it does not exist.
    async fn create(&mut self) -> Result<()> {
        let topic = self.client.resource("topics", &self.client.topic);
        self.client.create(&topic, &json!({})).await?;
        let body = json!({ "topic": topic, "ackDeadlineSeconds": DEADLINE_S });
        self.client.create(&self.subscription, &body).await
    }

    /// Moves the deadline of messages that wait, so that they do not come again meanwhile.
    async fn extend(&mut self, ids: &[String]) -> Result<()> {
        self.call("modifyAckDeadline", &json!({ "ackIds": ids, "ackDeadlineSeconds": DEADLINE_S })).await
    }

    async fn call(&mut self, what: &str, body: &serde_json::Value) -> Result<()> {
        let resource = format!("{}:{what}", self.subscription);
        let answer = self.client.send(Method::POST, &resource, body).await?;
        answer.map(drop).map_err(|refused| self.failed(&refused.reason))
    }

    fn failed(&self, why: &str) -> Error {
        Error::unavailable(format!("{}: {why}", self.subscription))
    }
}

/// Returns a message that arrived, with its properties.
fn message(received: ReceivedMessage) -> Message {
    let of = received.message;
    let mut properties = vec![("message.id".to_owned(), of.message_id)];
    if !of.publish_time.is_empty() {
        properties.push(("publish.time".to_owned(), of.publish_time.clone()));
    }
    if !of.ordering_key.is_empty() {
        properties.push(("ordering.key".to_owned(), of.ordering_key));
    }
    properties.extend(received.delivery_attempt.map(|n| ("delivery.attempt".to_owned(), n.to_string())));
    properties.extend(of.attributes);
    // text that is not base64 is handed over as it is, so that the mapper rejects it with its text
    let payload = STANDARD.decode(&of.data).unwrap_or_else(|_| of.data.into_bytes());
    Message { properties, time: Timestamp::parse(&of.publish_time).ok(), ..Message::new(payload) }
}
