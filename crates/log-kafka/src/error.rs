//! Errors of Kafka as errors of the log.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tidemill_types::{Error, PartitionId};

use crate::config::KafkaConfig;

/// Returns the error for an operation that failed: `LimitReached` for a message that a broker does not take, `NotFound` for
/// truncated records, `Invalid` for what retrying does not help, `Unavailable` otherwise.
pub(crate) fn failed(config: &KafkaConfig, what: &str, error: KafkaError) -> Error {
    let message = format!("{config}: {what}: {error}");
    let kind = match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::MessageSizeTooLarge) => Error::limit(message),
        Some(RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::AutoOffsetReset) => {
            Error::not_found(message)
        }
        Some(
            RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed
            | RDKafkaErrorCode::InvalidTopic
            | RDKafkaErrorCode::InvalidReplicationFactor,
        ) => Error::invalid(message),
        _ => match error {
            KafkaError::ClientConfig(..) => Error::invalid(message),
            _ => Error::unavailable(message),
        },
    };
    kind.with_source(error)
}

/// Returns the error for a partition that the topic does not have.
pub(crate) fn no_partition(id: PartitionId, partitions: u32) -> Error {
    Error::invalid(format!("there is no log partition {id}: expected 0 to {}", partitions.saturating_sub(1)))
}
