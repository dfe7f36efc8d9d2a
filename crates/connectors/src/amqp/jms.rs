//! Options of the type `jms`: those of a client of Java, which lead to the AMQP port of the broker.

use std::sync::Arc;

use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, OptionError, OptionSpec, Options, SinkConnector, SinkType,
    SourceConnector, SourceType,
};

use super::address::BrokerUrl;
use super::jndi::JndiFile;
use super::settings::{AmqpSettings, DestinationKind, Destinations, tls_of};
use super::sink::AmqpSink;
use super::source::{AmqpSource, Subscription};
use crate::client_tls::tls_options;
use crate::logins::login_of;

/// Options of both directions.
macro_rules! jms_options {
    ($($own:expr),* $(,)?) => {
        tls_options![
            $($own,)*
            OptionSpec::text("provider.url", "Address of the broker as its Java client has it: `tcp://host:61616`, `ssl://…`, `failover:(…)`, `amqp://host:5672`, `vm://…` for the broker of this machine, or a property file of JNDI.").secret(),
            OptionSpec::text("amqp.url", "Address of the broker's AMQP 1.0 port, `amqp://host:5672` or `amqps://host:5671`, where `provider.url` does not lead to it.").secret(),
            OptionSpec::text("factory.initial", "Accepted without effect, but for clients of brokers that do not speak AMQP 1.0, which are refused."),
            OptionSpec::one_of("connection.factory.type", &["queue", "topic"], "Whether the destination is a queue or a topic.").default("queue"),
            OptionSpec::text("connection.factory.jndi.name", "Connection factory in a property file of JNDI.").default("QueueConnectionFactory"),
            OptionSpec::text("connection.factory.nature", "Accepted without effect: there is one connection for each source and sink."),
            OptionSpec::text("connection.username", "User.").alias("username"),
            OptionSpec::text("connection.password", "Password.").alias("password").secret(),
            OptionSpec::text("client.id", "Name of this client at the broker; default: one of the app and the stream."),
        ]
    };
}

/// Type of the source `jms`.
pub(super) struct JmsSourceType;

const SOURCE_OPTIONS: &[OptionSpec] = jms_options![
    OptionSpec::text("destination", "Queue or topic.").required(),
    OptionSpec::flag(
        "subscription.durable",
        "false",
        "Whether the broker keeps the messages of a topic while the source is away."
    ),
    OptionSpec::text("subscription.name", "Name of a durable subscription; default: that of the source."),
    OptionSpec::integer("prefetch.count", 1, 65535, "Messages that may wait for their acknowledgement.")
        .default("1000"),
    OptionSpec::integer("worker.count", 1, 10_000, "Accepted without effect."),
    OptionSpec::integer(
        "retry.interval",
        0,
        i64::MAX,
        "Accepted without effect: attempts follow each other after 0.1 to 30 seconds."
    ),
    OptionSpec::integer("retry.count", 0, i64::MAX, "Accepted without effect: attempts do not end."),
    OptionSpec::flag("use.receiver", "false", "Accepted without effect."),
];

impl SourceType for JmsSourceType {
    fn name(&self) -> &'static str {
        "jms"
    }

    fn summary(&self) -> &'static str {
        "Messages of a queue or a topic of a JMS broker by AMQP 1.0, acknowledged when their events are stored."
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
            .find(options.text("destination"))
            .map_err(|e| OptionError::option("destination", e))?;
        let is_durable = options.flag("subscription.durable") && destination.kind == DestinationKind::Topic;
        if options.is_written("subscription.name") && !is_durable {
            let message = "a name needs a topic and `subscription.durable='true'`";
            return Err(OptionError::option("subscription.name", message));
        }

        let subscription = match is_durable {
            true => {
                Subscription::Durable(options.get("subscription.name").unwrap_or(&context.name).to_owned())
            }
            false => Subscription::OfConnection,
        };
        let prefetch = options.integer("prefetch.count").map_or(1000, |n| n as u32);
        Ok(Box::new(AmqpSource::new(settings, destination, subscription, prefetch)))
    }
}

/// Type of the sink `jms`.
pub(super) struct JmsSinkType;

const SINK_OPTIONS: &[OptionSpec] = jms_options![
    OptionSpec::text("destination", "Queue or topic.").required().dynamic(),
    OptionSpec::flag("persistent", "true", "Whether the broker keeps the messages over a restart."),
    OptionSpec::one_of(
        "message.type",
        &["text", "bytes"],
        "Body of the messages; default: `bytes` for the mappers `avro`, `protobuf` and `binary`, otherwise `text`."
    ),
    OptionSpec::flag("subscription.durable", "false", "Accepted without effect: it is the subscriber's."),
];

impl SinkType for JmsSinkType {
    fn name(&self) -> &'static str {
        "jms"
    }

    fn summary(&self) -> &'static str {
        "Sends messages to queues or topics of a JMS broker by AMQP 1.0, and waits until the broker has them."
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
        let sink = AmqpSink::new("destination", settings(options, context)?, options, context)?;
        Ok(Box::new(sink))
    }
}

fn settings(
    options: &Options,
    context: &ConnectorContext,
) -> Result<(AmqpSettings, Destinations), OptionError> {
    let factory = options.get("factory.initial").unwrap_or_default();
    // before its property file is read, which has nothing that helps
    if factory.contains(".andes.") && options.get("amqp.url").is_none() {
        let message = "this broker speaks AMQP 0.9.1, not 1.0; use the type `rabbitmq`";
        return Err(OptionError::option("factory.initial", message));
    }
    let is_topic = options.text("connection.factory.type").trim().eq_ignore_ascii_case("topic");
    let kind = if is_topic { DestinationKind::Topic } else { DestinationKind::Queue };
    let provider = options.get("provider.url").map(str::trim);
    let jndi = match provider {
        Some(file) if file.ends_with(".properties") => {
            let path = file.strip_prefix("file://").or_else(|| file.strip_prefix("file:")).unwrap_or(file);
            let read = JndiFile::read(&context.dir.join(path));
            Some(Arc::new(read.map_err(|e| OptionError::option("provider.url", e))?))
        }
        _ => None,
    };
    let url = broker_url(options, provider, jndi.as_deref())?;
    let login = login_of(options, "connection.username", "connection.password")?.or(url.login);
    let settings = AmqpSettings {
        product: "the JMS broker",
        tls: tls_of(&url.brokers, options, context)?,
        brokers: url.brokers,
        login,
        client_id: options.get("client.id").unwrap_or(&context.writer).to_owned(),
        port_help: "name the broker's AMQP 1.0 port by `amqp.url='amqp://host:5672'`",
    };
    Ok((settings, Destinations { kind, jndi }))
}

fn broker_url(
    options: &Options,
    provider: Option<&str>,
    jndi: Option<&JndiFile>,
) -> Result<BrokerUrl, OptionError> {
    if let Some(url) = options.get("amqp.url") {
        let parsed = BrokerUrl::parse(url).map_err(|e| OptionError::option("amqp.url", e));
        return match url.trim().starts_with("amqp") {
            true => parsed,
            false => {
                Err(OptionError::option("amqp.url", "expected `amqp://host:5672` or `amqps://host:5671`"))
            }
        };
    }
    let Some(provider) = provider else {
        return Err(OptionError::connector("the type `jms` needs the address of a broker")
            .expected(["provider.url='…'", "amqp.url='amqp://host:5672'"]));
    };
    let Some(jndi) = jndi else {
        return BrokerUrl::parse(provider).map_err(|e| OptionError::option("provider.url", e));
    };
    let name = options.text("connection.factory.jndi.name");
    let Some(url) = jndi.factory_url(name) else {
        let known = jndi.factories().join("`, `");
        let message = format!("the property file has no `connectionfactory.{name}`; it has `{known}`");
        return Err(OptionError::option("connection.factory.jndi.name", message));
    };
    BrokerUrl::parse(url).map_err(|e| {
        OptionError::option("provider.url", format!("the URL of `{name}` in the property file: {e}"))
    })
}
