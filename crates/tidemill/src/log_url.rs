//! Which log an engine uses: segment files in its data directory, or the one that a URL names.

use std::path::Path;
use std::sync::Arc;

use tidemill_engine::{Clock, LocalLogProvider, LogProvider, OpenedLog, Settings};
use tidemill_log::disk::OsDisk;
use tidemill_types::Result;

/// Opens the log at a URL, by default that of the setting `log`, by default segment files in the data directory.
#[derive(Debug, Clone, Default)]
pub struct LogAtUrl {
    url: Option<String>,
}

impl LogAtUrl {
    /// Takes precedence over the setting with `url`, `kafka://host:port/topic?option=value`.
    ///
    /// Errors: `Invalid` for a URL that no log has.
    pub fn new(url: Option<String>) -> Result<Self> {
        url.as_deref().map_or(Ok(()), check)?;
        Ok(Self { url })
    }
}

impl LogProvider for LogAtUrl {
    fn open(
        &self,
        data_dir: &Path,
        settings: &Settings,
        partitions: u32,
        clock: &Arc<dyn Clock>,
    ) -> Result<OpenedLog> {
        match self.url.as_ref().or(settings.log.as_ref()) {
            Some(url) => open(url, partitions, clock),
            None => LocalLogProvider { disk: Arc::new(OsDisk) }.open(data_dir, settings, partitions, clock),
        }
    }

    fn id(&self, settings: &Settings) -> Option<String> {
        let url = self.url.as_ref().or(settings.log.as_ref())?;
        // the topic; brokers may move
        url.parse::<url::Url>().ok().map(|url| url.path().trim_matches('/').to_owned())
    }
}

/// Opens the log of the control partition beside the topic of a cluster. Returns the id of the cluster, which is the name of that topic, and
/// the log.
///
/// Errors: `Invalid` for a URL that no log has; those of opening the topic.
#[cfg(feature = "kafka")]
pub fn control_log(url: &str) -> Result<(String, Arc<dyn tidemill_log::Log>)> {
    let config: tidemill_log_kafka::KafkaConfig = url.parse()?;
    Ok((config.topic.clone(), open_control(&config)?))
}

#[cfg(feature = "kafka")]
fn open_control(config: &tidemill_log_kafka::KafkaConfig) -> Result<Arc<dyn tidemill_log::Log>> {
    let mut config = config.clone();
    config.topic = format!("{}.control", config.topic);
    (config.partitions, config.base_offsets) = (Some(1), None);
    Ok(Arc::new(tidemill_log_kafka::KafkaLog::open(&config, 1)?))
}

/// The logs of a cluster that is made, in topics of Kafka.
#[cfg(feature = "kafka")]
struct KafkaClusterLogs(tidemill_log_kafka::KafkaConfig);

#[cfg(feature = "kafka")]
impl KafkaClusterLogs {
    /// Names the logs of the cluster with this URL.
    ///
    /// Errors: `Invalid` for a URL that no log has, and for one with offsets, which are those of the data directory.
    fn new(url: &str) -> Result<Self> {
        let config: tidemill_log_kafka::KafkaConfig = url.parse()?;
        match config.base_offsets {
            None => Ok(Self(config)),
            Some(_) => Err(tidemill_types::Error::invalid(
                "the option base_offsets is not expected: the log begins where that of the data directory ends",
            )),
        }
    }
}

#[cfg(feature = "kafka")]
impl tidemill_engine::ClusterLogs for KafkaClusterLogs {
    fn cluster(&self) -> &str {
        &self.0.topic
    }

    fn open(
        &self,
        partitions: u32,
        bases: Option<&[tidemill_types::Offset]>,
    ) -> Result<Arc<dyn tidemill_log::Log>> {
        let mut config = self.0.clone();
        config.base_offsets = bases.map(|bases| bases.iter().map(|base| base.0).collect());
        Ok(Arc::new(tidemill_log_kafka::KafkaLog::open(&config, partitions)?))
    }

    fn open_control(&self) -> Result<Arc<dyn tidemill_log::Log>> {
        open_control(&self.0)
    }
}

/// Refuses a cluster, whose log is a topic of Kafka.
///
/// Errors: `Invalid`.
#[cfg(not(feature = "kafka"))]
pub fn cluster_logs(url: &str) -> Result<Box<dyn tidemill_engine::ClusterLogs>> {
    check(url).and(Err(tidemill_types::Error::internal("no log has a URL")))
}

/// Names the logs of a cluster that is made.
///
/// Errors: those of [`KafkaClusterLogs::new`].
#[cfg(feature = "kafka")]
pub fn cluster_logs(url: &str) -> Result<Box<dyn tidemill_engine::ClusterLogs>> {
    Ok(Box::new(KafkaClusterLogs::new(url)?))
}

/// Refuses a cluster, whose log is a topic of Kafka.
///
/// Errors: `Invalid`.
#[cfg(not(feature = "kafka"))]
pub fn control_log(url: &str) -> Result<(String, Arc<dyn tidemill_log::Log>)> {
    check(url).and(Err(tidemill_types::Error::internal("no log has a URL")))
}

#[cfg(feature = "kafka")]
fn check(url: &str) -> Result<()> {
    url.parse::<tidemill_log_kafka::KafkaConfig>().map(|_| ())
}

#[cfg(feature = "kafka")]
fn open(url: &str, partitions: u32, clock: &Arc<dyn Clock>) -> Result<OpenedLog> {
    let config: tidemill_log_kafka::KafkaConfig = url.parse()?;
    let clock = Arc::clone(clock);
    let clock = tidemill_log::AppenderClock::new(move || tidemill_log::clock_at(clock.now()));
    let log = tidemill_log_kafka::KafkaLog::open_with_clock(&config, partitions, clock)?;
    Ok(OpenedLog { log: Arc::new(log), warnings: Vec::new() })
}

#[cfg(not(feature = "kafka"))]
fn check(_: &str) -> Result<()> {
    Err(tidemill_types::Error::invalid(
        "this program was built without `kafka`, so it stores its log in the data directory only: build it with `--features kafka`",
    ))
}

#[cfg(not(feature = "kafka"))]
fn open(url: &str, _: u32, _: &Arc<dyn Clock>) -> Result<OpenedLog> {
    check(url).and(Err(tidemill_types::Error::internal("no log has a URL")))
}

#[cfg(all(test, feature = "kafka"))]
mod tests {
    use super::*;

    #[test]
    fn url_of_no_log_is_refused_before_anything_is_opened() {
        assert!(LogAtUrl::new(None).is_ok());
        assert!(LogAtUrl::new(Some("kafka://127.0.0.1:9092/events?partitions=2".to_owned())).is_ok());
        let error = LogAtUrl::new(Some("kafka://127.0.0.1:9092".to_owned())).expect_err("no topic");
        assert!(error.message().contains("kafka://HOST:PORT"), "{error}");
    }
}
