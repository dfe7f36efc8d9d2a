//! The log on a real broker, which `scripts/kafka.sh` starts unless one listens already, or the environment variable
//! SERVERS_KAFKA has the addresses of others.
//!
//! Where no broker can be started these tests pass without testing anything, and say why.

mod bases;
mod contract;
mod engine;
mod producers;
mod readers;
mod several;

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use tidemill_log_kafka::KafkaConfig;

/// Address at which `scripts/kafka.sh` starts the first broker.
const SCRIPT_BROKER: ([u8; 4], u16) = ([127, 0, 0, 1], 29091);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Addresses of the brokers, or the reason why they are not available.
static BROKERS: LazyLock<Result<String, String>> = LazyLock::new(|| {
    if let Ok(brokers) = std::env::var("SERVERS_KAFKA") {
        return Ok(brokers);
    }
    let address = SocketAddr::from(SCRIPT_BROKER);
    match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
        Ok(_) => Ok(address.to_string()),
        Err(_) => start_broker(),
    }
});

/// Starts a broker that ends after this process, whatever ends it.
fn start_broker() -> Result<String, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/kafka.sh");
    let started =
        Command::new(&script).arg("start").output().map_err(|e| format!("{}: {e}", script.display()))?;
    let watch = format!(
        "while kill -0 {} 2>/dev/null; do sleep 1; done; exec '{}' stop",
        std::process::id(),
        script.display()
    );
    let quiet = Stdio::null;
    let watcher = Command::new("setsid")
        .args(["sh", "-c", &watch])
        .stdin(quiet())
        .stdout(quiet())
        .stderr(quiet())
        .spawn();
    watcher.map_err(|e| format!("setsid: {e}"))?;
    if started.status.success() {
        Ok(String::from_utf8_lossy(&started.stdout).trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&started.stderr).trim().to_owned())
    }
}

/// Returns a log in a topic that does not exist yet; `None`, with a message, without brokers.
pub fn fresh_topic(options: &str) -> Option<KafkaConfig> {
    let brokers = match &*BROKERS {
        Ok(brokers) => brokers,
        Err(reason) => {
            eprintln!("SKIPPED: no Kafka: {reason}");
            return None;
        }
    };
    let topic = format!("test-{}", uuid::Uuid::new_v4());
    Some(format!("kafka://{brokers}/{topic}?{options}").parse().expect("a valid URL"))
}
