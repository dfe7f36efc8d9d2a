//! Creation of topics.

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::types::RDKafkaErrorCode;

use super::client::{ConnectionContext, REQUEST_TIMEOUT};

/// Partitions and replicas of a topic that is created.
#[derive(Debug, Clone, Copy)]
pub(super) struct TopicLayout {
    pub partitions: i32,
    /// `None` leaves it to the brokers.
    pub replication: Option<i32>,
}

/// Creates a topic, unless somebody else did so in the meantime.
///
/// Errors: the reason of the brokers.
pub(super) async fn create(
    config: &ClientConfig,
    context: &ConnectionContext,
    name: &str,
    layout: TopicLayout,
    settings: &[(&str, &str)],
) -> Result<(), String> {
    let mut config = config.clone();
    // an administrative client takes no transactions
    config.remove("transactional.id");
    let admin: AdminClient<ConnectionContext> =
        config.create_with_context(context.clone()).map_err(|e| e.to_string())?;
    let replication = TopicReplication::Fixed(layout.replication.unwrap_or(-1));
    let topic = NewTopic::new(name, layout.partitions, replication);
    let topic = settings.iter().fold(topic, |topic, (name, value)| topic.set(name, value));
    let options = AdminOptions::new().operation_timeout(Some(REQUEST_TIMEOUT));
    let results = admin.create_topics([&topic], &options).await.map_err(|e| e.to_string())?;
    match results.into_iter().next() {
        Some(Err((_, code))) if code != RDKafkaErrorCode::TopicAlreadyExists => Err(code.to_string()),
        _ => Ok(()),
    }
}
