//! What sources and sinks share: connection options, and errors of the client in our words.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use tidemill_connect::{OptionError, Options};
use tidemill_types::{Error, Result};

use crate::pairs::parse_pairs;

/// Timeout of a request to the brokers.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of both directions.
macro_rules! connection_options {
    ($($own:expr),* $(,)?) => {
        &[
            OptionSpec::text("bootstrap.servers", "Addresses of brokers, `host:port` with commas.").required(),
            OptionSpec::flag("is.binary.message", "false", "Whether messages with sequence numbers are binary; other messages are bytes in any case."),
            OptionSpec::text("optional.configuration", "Further properties of the client, `name:value,name:value`, by their names in librdkafka.").secret(),
            OptionSpec::one_of("security.protocol", &["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"], "Protocol to the brokers; `ssl` needs a build with the feature `kafka-tls`."),
            OptionSpec::one_of("sasl.mechanism", &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], "How the client logs in; SCRAM needs a build with the feature `kafka-tls`."),
            OptionSpec::text("sasl.username", "User."),
            OptionSpec::text("sasl.password", "Password.").secret(),
            OptionSpec::text("ssl.ca.location", "File with the certificates of authorities that are trusted, as PEM."),
            OptionSpec::text("ssl.certificate.location", "File with the certificate of the client, as PEM."),
            OptionSpec::text("ssl.key.location", "File with the key of the client, as PEM."),
            OptionSpec::text("ssl.key.password", "Password of the key.").secret(),
            $($own),*
        ]
    };
}
pub(super) use connection_options;

/// Options that the client has under the same name.
const CLIENT_OPTIONS: &[&str] = &[
    "bootstrap.servers",
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
];

/// Properties of the Java client that mean nothing here, or that are set by other means.
const IGNORED_PROPERTIES: &[&str] = &[
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
    "producer.type",
    "max.poll.records",
    "enable.auto.commit",
    "auto.commit.interval.ms",
    "ssl.truststore.type",
    "ssl.keystore.type",
];

/// Properties of the Java client that have another name here.
const RENAMED_PROPERTIES: &[(&str, &str)] = &[
    ("ssl.truststore.location", "ssl.ca.location (a PEM file)"),
    ("buffer.memory", "queue.buffering.max.kbytes"),
    ("sasl.login.callback.handler.class", "sasl.oauthbearer.config"),
];

/// Returns the configuration of the client, checked, without the properties of sources or sinks.
///
/// Errors: an unknown property or a wrong value; confidential values are not repeated.
pub(super) fn client_config(options: &Options) -> Result<ClientConfig, OptionError> {
    let mut config = ClientConfig::new();
    config
        .set("client.id", "tidemill")
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "2000")
        .set("socket.keepalive.enable", "true")
        .set_log_level(RDKafkaLogLevel::Warning);
    for name in CLIENT_OPTIONS {
        if let Some(value) = options.get(name) {
            config.set(*name, value);
        }
    }
    for (name, value) in properties(options)? {
        config.set(name, value);
    }
    check_config(&config)?;
    Ok(config)
}

/// Returns the further properties that the user wrote.
fn properties(options: &Options) -> Result<Vec<(String, String)>, OptionError> {
    let refused = |message: String| OptionError::option("optional.configuration", message);
    let written = parse_pairs(options.text("optional.configuration")).map_err(refused)?;
    let mut properties = vec![];
    for (name, value) in written {
        if let Some((_, instead)) = RENAMED_PROPERTIES.iter().find(|(known, _)| *known == name) {
            return Err(refused(format!("the property `{name}` is called `{instead}` here")));
        }
        match name.as_str() {
            "sasl.jaas.config" => properties.extend(parse_jaas(&value).map_err(refused)?),
            name if IGNORED_PROPERTIES.contains(&name) => {}
            _ => properties.push((name, value)),
        }
    }
    Ok(properties)
}

/// Reads user and password from `…LoginModule required username="a" password="b";`.
fn parse_jaas(text: &str) -> Result<[(String, String); 2], String> {
    let value = |key: &str| {
        let (_, behind) = text.split_once(&format!("{key}="))?;
        let quote = behind.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        Some(behind[1..].split_once(quote)?.0.to_owned())
    };
    match (value("username"), value("password")) {
        (Some(user), Some(password)) => {
            Ok([("sasl.username".to_owned(), user), ("sasl.password".to_owned(), password)])
        }
        _ => Err("`sasl.jaas.config` has no username=\"…\" and password=\"…\"; write the options `sasl.username` and \
                  `sasl.password` instead"
            .into()),
    }
}

/// Checks the properties as far as this works without a connection.
pub(super) fn check_config(config: &ClientConfig) -> Result<(), OptionError> {
    let Err(KafkaError::ClientConfig(_, reason, name, _)) = config.create_native_config() else {
        return Ok(());
    };
    let place = match CLIENT_OPTIONS.contains(&name.as_str()) {
        true => name.as_str(),
        false => "optional.configuration",
    };
    // the reason repeats the value
    let reason = match name.contains("password") || name.contains("key.pem") || name.contains("secret") {
        true => format!("the value of `{name}` is not valid"),
        false => reason,
    };
    let hint = match reason.contains("not available at build time") {
        true => "; build with the feature `kafka-tls`",
        false => "",
    };
    Err(OptionError::option(place, format!("{reason}{hint}")))
}

/// Remembers why the brokers cannot be reached: most errors of requests only report that they timed out. Clones
/// belong to the same client.
#[derive(Clone, Default)]
pub(super) struct ConnectionContext {
    problem: Arc<Mutex<Option<String>>>,
}

impl ConnectionContext {
    /// Returns an error of the brokers with what is known about its reason.
    pub(super) fn failed(&self, brokers: &str, what: &str, error: &KafkaError) -> Error {
        let reason = self.problem.lock().clone();
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        Error::unavailable(format!("Kafka at {brokers}: {what}: {error}{reason}"))
    }
}

impl ClientContext for ConnectionContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(?level, facility, "kafka: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, "kafka: {reason}");
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            *self.problem.lock() = Some(reason.to_owned());
        }
    }
}

impl ConsumerContext for ConnectionContext {}

/// Returns the number of partitions of a topic. `or` ends the error message with an alternative to creating
/// the topic.
///
/// Errors: the topic does not exist.
pub(super) fn partition_count(metadata: &Metadata, topic: &str, brokers: &str, or: &str) -> Result<i32> {
    match i32::try_from(known_partitions(metadata, topic)) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(Error::unavailable(format!(
            "Kafka at {brokers} has no topic `{topic}`, or does not allow this client to see it; create the topic{or}"
        ))),
    }
}

/// Returns the number of partitions of a topic; 0 if the topic does not exist or this client may not see it.
pub(super) fn known_partitions(metadata: &Metadata, topic: &str) -> usize {
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    found.filter(|found| found.error().is_none()).map_or(0, |found| found.partitions().len())
}

/// Runs a call of the client that blocks.
pub(super) async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(call)
        .await
        .map_err(|e| Error::internal("a call of the Kafka client did not end").with_source(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jaas() {
        let text = r#"org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b:c";"#;
        let found = parse_jaas(text).unwrap();
        assert_eq!(found[0], ("sasl.username".to_owned(), "a".to_owned()));
        assert_eq!(found[1], ("sasl.password".to_owned(), "b:c".to_owned()));
        assert!(parse_jaas("x required;").is_err());
    }
}
