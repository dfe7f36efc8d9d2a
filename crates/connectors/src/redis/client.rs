//! Connections.

use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Cmd, RedisError, Value};
use tidemill_types::{Error, Result};

use super::options::RedisSettings;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for an answer; longer than any request waits for new entries.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

impl RedisSettings {
    /// Connects.
    pub(super) async fn open(&self) -> Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
        let opened = self.client.get_multiplexed_async_connection_with_config(&config).await;
        opened.map_err(|e| self.failed("no connection", &e))
    }

    /// Connects for subscriptions.
    pub(super) async fn open_subscriptions(&self) -> Result<PubSub> {
        match tokio::time::timeout(CONNECT_TIMEOUT, self.client.get_async_pubsub()).await {
            Ok(opened) => opened.map_err(|e| self.failed("no connection", &e)),
            Err(_) => Err(Error::unavailable(format!(
                "Redis at {}: no answer within {} s",
                self.address,
                CONNECT_TIMEOUT.as_secs()
            ))),
        }
    }

    /// Asks the server. `what` fails, in messages.
    pub(super) async fn ask(
        &self,
        connection: &mut MultiplexedConnection,
        command: &Cmd,
        what: &str,
    ) -> Result<Value> {
        command.query_async(connection).await.map_err(|e| self.failed(what, &e))
    }

    /// Returns an error that says where.
    pub(super) fn failed(&self, what: &str, error: &RedisError) -> Error {
        Error::unavailable(format!("Redis at {}: {what}: {error}", self.address))
    }

    /// Returns an error about an answer of an unexpected form.
    pub(super) fn unexpected(&self, what: &str) -> Error {
        Error::unavailable(format!("Redis at {}: {what}: the answer has an unexpected form", self.address))
    }
}
