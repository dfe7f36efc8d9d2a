//! Connections, and what they declare at the broker.

use std::time::Duration;

use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::protocol::AMQPErrorKind;
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Connection, ConnectionBuilder, ConnectionProperties, ErrorKind, ExchangeKind};
use tidemill_types::{Error, Result};

use super::options::RabbitSettings;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Connection to a broker; ends when it is dropped.
pub(super) struct RabbitConnection {
    connection: Connection,
    address: String,
}

/// Exchange, with the properties that it gets when it is created.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Exchange {
    pub name: ShortString,
    pub kind: String,
    pub is_durable: bool,
    pub is_auto_delete: bool,
}

/// Queue, with the properties that it gets when it is created.
#[derive(Debug, Clone)]
pub(super) struct QueueDefinition {
    /// Its name; empty for one that the broker names.
    pub name: ShortString,
    pub is_durable: bool,
    pub is_exclusive: bool,
    pub is_auto_delete: bool,
}

impl RabbitConnection {
    /// Connects.
    pub(super) async fn open(settings: &RabbitSettings) -> Result<Self> {
        let address = settings.address();
        let properties = ConnectionProperties::default().with_connection_name(settings.name.clone().into());
        let builder = ConnectionBuilder::new().map_err(|e| unavailable(&address, "no connection", &e))?;
        let builder = builder
            .with_uri(settings.uri.clone())
            .with_properties(properties)
            .with_tls_config(settings.tls.clone());
        match tokio::time::timeout(CONNECT_TIMEOUT, builder.connect()).await {
            Ok(Ok(connection)) => Ok(Self { connection, address }),
            Ok(Err(e)) => Err(unavailable(&address, "no connection", &e)),
            Err(_) => Err(Error::unavailable(format!(
                "RabbitMQ at {address}: no answer within {} s",
                CONNECT_TIMEOUT.as_secs()
            ))),
        }
    }

    /// Returns an error that says where.
    pub(super) fn failed(&self, what: &str, error: &lapin::Error) -> Error {
        unavailable(&self.address, what, error)
    }

    /// Opens a channel.
    pub(super) async fn channel(&self) -> Result<Channel> {
        self.connection.create_channel().await.map_err(|e| self.failed("no channel", &e))
    }

    /// Declares an exchange if no exchange has this name. Each attempt has a channel of its own, because a
    /// refusal closes it. The exchange without a name is always there.
    pub(super) async fn declare_exchange(&self, exchange: &Exchange) -> Result<(), lapin::Error> {
        if exchange.name.as_str().is_empty() {
            return Ok(());
        }
        for is_passive in [true, false] {
            let channel = self.connection.create_channel().await?;
            let options = ExchangeDeclareOptions {
                passive: is_passive,
                durable: exchange.is_durable,
                auto_delete: exchange.is_auto_delete,
                ..ExchangeDeclareOptions::default()
            };
            let kind = exchange_kind(&exchange.kind);
            match channel.exchange_declare(exchange.name.clone(), kind, options, FieldTable::default()).await
            {
                Ok(()) => return channel.close(200, "done".into()).await,
                Err(e) if is_passive && is_refusal(&e) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Declares a queue if no queue has this name, and returns its name.
    pub(super) async fn declare_queue(&self, queue: &QueueDefinition) -> Result<ShortString> {
        for is_passive in [true, false] {
            if is_passive && queue.name.as_str().is_empty() {
                continue;
            }
            let channel = self.channel().await?;
            let is_named = !queue.name.as_str().is_empty();
            let options = QueueDeclareOptions {
                passive: is_passive,
                durable: is_named && queue.is_durable,
                exclusive: !is_named || queue.is_exclusive,
                auto_delete: !is_named || queue.is_auto_delete,
                nowait: false,
            };
            match channel.queue_declare(queue.name.clone(), options, FieldTable::default()).await {
                Ok(declared) => return Ok(declared.name().clone()),
                Err(e) if is_passive && is_refusal(&e) => {}
                Err(e) => return Err(self.failed(&format!("the queue `{}` cannot be had", queue.name), &e)),
            }
        }
        Err(Error::internal("a queue is either there or declared"))
    }
}

/// Returns whether the broker refuses a request for good, and has closed the channel.
pub(super) fn is_refusal(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ProtocolError(e) if matches!(e.kind(), AMQPErrorKind::Soft(_)))
}

/// Returns what the broker says, without words of the client.
pub(super) fn reason(error: &lapin::Error) -> String {
    match error.kind() {
        ErrorKind::ProtocolError(e) => e.get_message().to_string(),
        _ => error.to_string(),
    }
}

fn exchange_kind(kind: &str) -> ExchangeKind {
    match kind {
        "fanout" => ExchangeKind::Fanout,
        "topic" => ExchangeKind::Topic,
        "headers" => ExchangeKind::Headers,
        _ => ExchangeKind::Direct,
    }
}

fn unavailable(address: &str, what: &str, error: &lapin::Error) -> Error {
    Error::unavailable(format!("RabbitMQ at {address}: {what}: {}", reason(error)))
}
