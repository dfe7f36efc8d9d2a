//! What a topic allows.

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};

use super::client::{ConnectionContext, REQUEST_TIMEOUT};

/// Returns the size of the largest batch of messages that a topic takes, in bytes; `None` if the brokers do not say so,
/// which they may refuse.
pub(super) async fn message_bytes_max(
    config: &ClientConfig,
    context: &ConnectionContext,
    topic: &str,
) -> Option<u64> {
    let mut config = config.clone();
    // an administrative client takes no transactions
    config.remove("transactional.id");
    let admin: AdminClient<ConnectionContext> = config.create_with_context(context.clone()).ok()?;
    let options = AdminOptions::new().request_timeout(Some(REQUEST_TIMEOUT));
    let described = admin.describe_configs(&[ResourceSpecifier::Topic(topic)], &options).await.ok()?;
    let found = described.into_iter().next()?.ok()?;
    found.get("max.message.bytes")?.value.as_ref()?.parse().ok()
}
