//! Settings of the log on Kafka, and the URL that holds them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rdkafka::ClientConfig;
use tidemill_types::{Error, Result, did_you_mean};

use crate::requirements::TopicRequirements;

const SCHEME: &str = "kafka://";
const EXPECTED: &str = "expected kafka://HOST:PORT[,HOST:PORT…]/TOPIC[?OPTION=VALUE&…]";
/// Prefix of options that are passed to librdkafka as they are.
const CLIENT_PREFIX: &str = "client.";
pub(crate) const TOPIC_BYTES_MAX: usize = 249;
/// Leaves room for as many records.
const BASE_MAX: u64 = 1 << 62;
/// Below the 100 MiB that a broker takes as one request by default.
pub(crate) const MESSAGE_BYTES_LIMIT: usize = 96 << 20;

/// Brokers, topic and limits of a log on Kafka. Parsed from
/// `kafka://host:port,host:port/topic?partitions=4&client.security.protocol=ssl`.
#[derive(Clone)]
pub struct KafkaConfig {
    /// Addresses of brokers, `host:port` with commas.
    pub brokers: String,
    /// Name of the topic.
    pub topic: String,
    /// Number of partitions that the topic must have; `None` for the number that the log is opened with.
    pub partitions: Option<u32>,
    /// Copies of each partition of a topic that is created; `None` for the brokers' default.
    pub replication: Option<u16>,
    /// Offset at which each partition of a log begins that is created, and which a log that exists must have; `None` for what it has,
    /// and for 0 in a new one.
    pub base_offsets: Option<Vec<u64>>,
    /// Copies that the topic must have.
    pub requirements: TopicRequirements,
    /// Maximum size of a record, in bytes.
    pub message_bytes_max: usize,
    /// Maximum number of bytes that wait for an acknowledgement.
    pub pending_bytes_max: usize,
    /// Maximum number of bytes that are fetched ahead, in all partitions together.
    pub fetch_bytes_max: usize,
    /// Maximum time an append blocks while `pending_bytes_max` is exceeded.
    pub append_wait: Duration,
    /// Maximum time until a record is acknowledged, including all retries.
    pub delivery_timeout: Duration,
    /// Maximum time of a read or of a request about the topic, including all retries.
    pub request_timeout: Duration,
    /// Further properties of the client, by their names in librdkafka.
    pub client: Vec<(String, String)>,
}

impl KafkaConfig {
    fn new(brokers: &str, topic: &str) -> Self {
        Self {
            brokers: brokers.to_owned(),
            topic: topic.to_owned(),
            partitions: None,
            replication: None,
            base_offsets: None,
            requirements: TopicRequirements::default(),
            message_bytes_max: 64 << 20,
            pending_bytes_max: 128 << 20,
            fetch_bytes_max: 128 << 20,
            append_wait: Duration::from_secs(10),
            delivery_timeout: Duration::from_secs(120),
            request_timeout: Duration::from_secs(30),
            client: Vec::new(),
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let number = |least: u64, most: u64| -> Result<u64> {
            let number = value.parse().ok().filter(|n| (least..=most).contains(n));
            number.ok_or_else(|| {
                Error::invalid(format!(
                    "option {name} = `{value}`: expected a whole number from {least} to {most}"
                ))
            })
        };
        let millis = || number(1, 86_400_000).map(Duration::from_millis);
        match name {
            "partitions" => self.partitions = Some(number(1, 65_536)? as u32),
            "replication" => self.replication = Some(number(1, 100)? as u16),
            "base_offsets" => {
                let bases: Option<Vec<u64>> = value.split(',').map(|base| base.parse().ok()).collect();
                let bases = bases.filter(|bases| bases.iter().all(|base| *base <= BASE_MAX));
                self.base_offsets = Some(bases.ok_or_else(|| {
                    Error::invalid(format!(
                        "option base_offsets = `{value}`: expected whole numbers from 0 to {BASE_MAX} with commas between them, one \
                         for each partition"
                    ))
                })?);
            }
            "requirements" => self.requirements = value.parse()?,
            "message_bytes_max" => {
                self.message_bytes_max = number(1 << 20, MESSAGE_BYTES_LIMIT as u64)? as usize;
            }
            "pending_bytes_max" => self.pending_bytes_max = number(1 << 20, 1 << 30)? as usize,
            "fetch_bytes_max" => self.fetch_bytes_max = number(4 << 20, 1 << 30)? as usize,
            "append_wait_ms" => self.append_wait = millis()?,
            "delivery_timeout_ms" => self.delivery_timeout = millis()?,
            "request_timeout_ms" => self.request_timeout = millis()?,
            _ => match name.strip_prefix(CLIENT_PREFIX) {
                Some(property) => self.client.push((property.to_owned(), value.to_owned())),
                None => return Err(unknown_option(name)),
            },
        }
        Ok(())
    }

    /// Returns the configuration that all clients share.
    pub(crate) fn client_config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in &self.client {
            config.set(name, value);
        }
        config
            .set("bootstrap.servers", &self.brokers)
            .set("reconnect.backoff.ms", "50")
            .set("reconnect.backoff.max.ms", "2000")
            .set("socket.nagle.disable", "true")
            .set("socket.keepalive.enable", "true");
        config
    }
}

fn unknown_option(name: &str) -> Error {
    let known = [
        "append_wait_ms",
        "base_offsets",
        "delivery_timeout_ms",
        "fetch_bytes_max",
        "message_bytes_max",
        "partitions",
        "pending_bytes_max",
        "replication",
        "request_timeout_ms",
        "requirements",
    ];
    Error::invalid(format!(
        "`{name}` is no option of a log on Kafka{} (known: {}, and {CLIENT_PREFIX}PROPERTY for properties of librdkafka)",
        did_you_mean(name, known),
        known.join(", ")
    ))
}

impl FromStr for KafkaConfig {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        // the URL is not repeated in errors, because options may hold passwords
        let rest =
            url.strip_prefix(SCHEME).ok_or_else(|| Error::invalid(format!("no URL of a log: {EXPECTED}")))?;
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (brokers, topic) = place
            .split_once('/')
            .ok_or_else(|| Error::invalid(format!("the URL of the log names no topic: {EXPECTED}")))?;
        for broker in brokers.split(',') {
            let port = broker.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
            if port.and_then(|port| port.parse::<u16>().ok()).is_none() {
                return Err(Error::invalid(format!("`{broker}` is no address of a broker: {EXPECTED}")));
            }
        }
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if topic.is_empty()
            || topic.len() > TOPIC_BYTES_MAX
            || !topic.chars().all(valid)
            || matches!(topic, "." | "..")
        {
            return Err(Error::invalid(format!(
                "`{topic}` is no name of a topic: expected 1 to {TOPIC_BYTES_MAX} letters, digits, `.`, `_` and `-`"
            )));
        }
        let mut config = Self::new(brokers, topic);
        for (name, value) in url::form_urlencoded::parse(options.as_bytes()) {
            config.set(&name, &value)?;
        }
        Ok(config)
    }
}

impl fmt::Display for KafkaConfig {
    /// Writes brokers and topic, without options: these may hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.brokers, self.topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(url: &str) -> String {
        url.parse::<KafkaConfig>().err().map(|e| e.message().to_owned()).unwrap_or_default()
    }

    #[test]
    fn url_with_options() {
        let url = "kafka://a:9092,b:9093/flights?partitions=4&replication=3&delivery_timeout_ms=5000&client.ssl.ca.location=%2Fca.pem";
        let config: KafkaConfig = url.parse().expect("a valid URL");
        assert_eq!((config.brokers.as_str(), config.topic.as_str()), ("a:9092,b:9093", "flights"));
        assert_eq!((config.partitions, config.replication), (Some(4), Some(3)));
        assert_eq!(config.delivery_timeout, Duration::from_secs(5));
        assert_eq!(config.client, [("ssl.ca.location".to_owned(), "/ca.pem".to_owned())]);
        assert_eq!(config.to_string(), "kafka://a:9092,b:9093/flights");
    }

    #[test]
    fn errors_say_what_to_type() {
        assert!(error("http://a:1/t").contains(EXPECTED));
        assert!(error("kafka://a:1").contains("names no topic"));
        assert!(error("kafka://a/t").contains("`a` is no address of a broker"));
        assert!(error("kafka://a:1/t/u").contains("`t/u` is no name of a topic"));
        assert!(error("kafka://a:1/t?partition=3").contains("Did you mean `partitions`?"));
        assert!(
            error("kafka://a:1/t?partitions=0")
                .contains("partitions = `0`: expected a whole number from 1 to 65536")
        );
        for bases in ["", "1,", "-1", "9223372036854775807"] {
            let error = error(&format!("kafka://a:1/t?base_offsets={bases}"));
            assert!(error.contains("expected whole numbers from 0 to"), "{error}");
        }
    }
}
