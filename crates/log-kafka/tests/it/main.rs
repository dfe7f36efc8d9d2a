//! The log on real brokers: `scripts/kafka.sh start`, or the environment variable TIDEMILL_KAFKA with their addresses.
//!
//! Without brokers these tests pass without testing anything, and say so.

mod contract;
mod engine;
mod producers;

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use tidemill_log_kafka::KafkaConfig;

/// Where `scripts/kafka.sh` starts the first broker.
const SCRIPT_BROKER: &str = "127.0.0.1:29091";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns a log in a topic that does not exist yet; `None`, with a message, if there are no brokers.
pub fn fresh_topic(options: &str) -> Option<KafkaConfig> {
    let brokers = match std::env::var("TIDEMILL_KAFKA") {
        Ok(brokers) => brokers,
        Err(_) => {
            let mut addresses = SCRIPT_BROKER.to_socket_addrs().ok()?;
            if !addresses.any(|address| TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok()) {
                eprintln!(
                    "SKIPPED: no Kafka at {SCRIPT_BROKER}; start it with `scripts/kafka.sh start`, or set TIDEMILL_KAFKA"
                );
                return None;
            }
            SCRIPT_BROKER.to_owned()
        }
    };
    let topic = format!("test-{}", uuid::Uuid::new_v4());
    Some(format!("kafka://{brokers}/{topic}?{options}").parse().expect("a valid URL"))
}
