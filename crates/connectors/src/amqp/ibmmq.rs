//! Options of the type `ibmmq`: those of IBM's client for Java. The queue manager is reached by its AMQP channel.

use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, OptionError, OptionSpec, Options, SinkConnector, SinkType,
    SourceConnector, SourceType,
};

use super::address::BrokerAddress;
use super::settings::{AmqpSettings, DestinationKind, Destinations, tls_of};
use super::sink::AmqpSink;
use super::source::{AmqpSource, Subscription};
use crate::client_tls::tls_options;
use crate::logins::login_of;

/// Options of both directions.
macro_rules! ibmmq_options {
    ($($own:expr),* $(,)?) => {
        tls_options![
            $($own,)*
            OptionSpec::text("host", "Host of the queue manager.").required(),
            OptionSpec::integer("amqp.port", 1, 65535, "Port of the queue manager's AMQP channel.").default("5672"),
            OptionSpec::flag("tls.enabled", "false", "Whether the AMQP channel uses TLS."),
            OptionSpec::integer("port", 1, 65535, "Accepted without effect: the port of IBM's own protocol; see `amqp.port`.").default("1414"),
            OptionSpec::text("channel", "Accepted without effect: the channel of IBM's own protocol."),
            OptionSpec::text("queue.manager", "Accepted without effect: `host` and `amqp.port` belong to one queue manager."),
            OptionSpec::text("username", "User."),
            OptionSpec::text("password", "Password.").secret(),
            OptionSpec::text("batch.properties", "Accepted without effect: properties of IBM's client.").alias("properties"),
            OptionSpec::text("client.id", "Name of this client at the queue manager; default: one of the app and the stream."),
        ]
    };
}

/// Type of the source `ibmmq`.
pub(super) struct IbmMqSourceType;

const SOURCE_OPTIONS: &[OptionSpec] = ibmmq_options![
    OptionSpec::text("destination.name", "Queue.").required(),
    OptionSpec::integer("prefetch.count", 1, 65535, "Messages that may wait for their acknowledgement.")
        .default("1000"),
    OptionSpec::integer("worker.count", 1, 10_000, "Accepted without effect."),
];

impl SourceType for IbmMqSourceType {
    fn name(&self) -> &'static str {
        "ibmmq"
    }

    fn summary(&self) -> &'static str {
        "Messages of a queue of IBM MQ by AMQP 1.0, acknowledged when their events are stored."
    }

    fn options(&self) -> &'static [OptionSpec] {
        SOURCE_OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        let (settings, destinations) = settings(options, context)?;
        let destination = destinations
            .find(options.text("destination.name"))
            .map_err(|e| OptionError::option("destination.name", e))?;
        let prefetch = options.integer("prefetch.count").map_or(1000, |n| n as u32);
        Ok(Box::new(AmqpSource::new(settings, destination, Subscription::OfConnection, prefetch)))
    }
}

/// Type of the sink `ibmmq`.
pub(super) struct IbmMqSinkType;

const SINK_OPTIONS: &[OptionSpec] = ibmmq_options![
    OptionSpec::text("destination.name", "Queue.").required().dynamic(),
    OptionSpec::flag("persistent", "true", "Whether the queue manager keeps the messages over a restart."),
    OptionSpec::one_of(
        "message.type",
        &["text", "bytes"],
        "Body of the messages; default: `bytes` for the mappers `avro`, `protobuf` and `binary`, otherwise `text`."
    ),
];

impl SinkType for IbmMqSinkType {
    fn name(&self) -> &'static str {
        "ibmmq"
    }

    fn summary(&self) -> &'static str {
        "Sends messages to queues of IBM MQ by AMQP 1.0, and waits until the queue manager has them."
    }

    fn options(&self) -> &'static [OptionSpec] {
        SINK_OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        let sink = AmqpSink::new("destination.name", settings(options, context)?, options, context)?;
        Ok(Box::new(sink))
    }
}

fn settings(
    options: &Options,
    context: &ConnectorContext,
) -> Result<(AmqpSettings, Destinations), OptionError> {
    let host = options.text("host").trim();
    if host.is_empty() || host.contains(['/', '@']) {
        return Err(OptionError::option("host", "expected the name of a host, without a scheme"));
    }
    let broker = BrokerAddress {
        host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
        port: options.integer("amqp.port").map_or(super::address::AMQP_PORT, |port| port as u16),
        is_tls: options.flag("tls.enabled"),
    };
    let brokers = vec![broker];
    let settings = AmqpSettings {
        product: "IBM MQ",
        tls: tls_of(&brokers, options, context)?,
        brokers,
        login: login_of(options, "username", "password")?,
        client_id: options.get("client.id").unwrap_or(&context.writer).to_owned(),
        port_help: "start the queue manager's AMQP channel and name its port by `amqp.port`",
    };
    Ok((settings, Destinations { kind: DestinationKind::Queue, jndi: None }))
}
