//! Brokers, login and destinations, which the types of connectors read from their options.

use std::sync::Arc;

use tidemill_connect::{ConnectorContext, OptionError, Options};
use tokio_rustls::rustls::ClientConfig;

use super::address::BrokerAddress;
use super::jndi::JndiFile;
use crate::client_tls::client_config;

/// Connection settings.
#[derive(Clone)]
pub(super) struct AmqpSettings {
    /// Name of the broker in messages.
    pub product: &'static str,
    /// Brokers in the order in which they are tried.
    pub brokers: Vec<BrokerAddress>,
    pub login: Option<(String, String)>,
    pub tls: Option<Arc<ClientConfig>>,
    /// Name of this client at the broker.
    pub client_id: String,
    /// Hint for the case that something other than AMQP answers.
    pub port_help: &'static str,
}

/// Queue or topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum DestinationKind {
    Queue,
    Topic,
}

/// Names of destinations as apps write them.
#[derive(Debug, Clone)]
pub(super) struct Destinations {
    pub kind: DestinationKind,
    /// File in which they are looked up.
    pub jndi: Option<Arc<JndiFile>>,
}

/// Queue or topic at the broker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Destination {
    pub name: String,
    pub kind: DestinationKind,
}

impl DestinationKind {
    /// Capability of a terminus by which brokers of JMS tell queues from topics.
    pub(super) fn capability(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Topic => "topic",
        }
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the {} `{}`", self.kind.capability(), self.name)
    }
}

impl Destinations {
    /// Returns the destination of this name.
    ///
    /// Errors: the name is empty.
    pub(super) fn find(&self, name: &str) -> Result<Destination, String> {
        // names with which the clients of ActiveMQ and Artemis reach destinations that no file lists
        let (name, kind) = match (name.strip_prefix("dynamicQueues/"), name.strip_prefix("dynamicTopics/")) {
            (Some(name), _) => (name, DestinationKind::Queue),
            (_, Some(name)) => (name, DestinationKind::Topic),
            _ => (name, self.kind),
        };
        let name = self.jndi.as_ref().map_or(name, |file| file.destination(name));
        match name.is_empty() {
            true => Err("the name of the destination is empty".into()),
            false => Ok(Destination { name: name.to_owned(), kind }),
        }
    }
}

/// Returns the TLS of brokers, if one needs it.
pub(super) fn tls_of(
    brokers: &[BrokerAddress],
    options: &Options,
    context: &ConnectorContext,
) -> Result<Option<Arc<ClientConfig>>, OptionError> {
    let is_needed = brokers.iter().any(|broker| broker.is_tls);
    is_needed.then(|| client_config(options, &context.dir)).transpose()
}
