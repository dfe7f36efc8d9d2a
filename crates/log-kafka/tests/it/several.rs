//! Several processes with one topic: as two logs on one broker, and on three brokers of which one is killed.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;

use bytes::Bytes;
use futures::executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use tidemill_log::{Content, Durability, Log};
use tidemill_log_kafka::{KafkaConfig, KafkaLog};
use tidemill_types::{ErrorKind, Offset, PartitionId};

use crate::fresh_topic;

const PARTITIONS: [PartitionId; 2] = [PartitionId(0), PartitionId(1)];
const APPENDERS: [&str; 2] = ["a", "b"];
/// Records of an appender in a partition.
const RECORDS: usize = 300;
const ALL: usize = APPENDERS.len() * RECORDS;
/// Records of an appender that wait for an acknowledgement.
const IN_FLIGHT: usize = 8;

/// Appends records to a partition. Returns the offset and text of each, and tells `acknowledged` of each.
fn append(
    log: &KafkaLog,
    partition: PartitionId,
    who: &str,
    acknowledged: &mpsc::Sender<()>,
) -> Vec<(u64, String)> {
    let texts: Vec<String> = (0..RECORDS).map(|n| format!("{who} {n}")).collect();
    let mut offsets = Vec::new();
    for chunk in texts.chunks(IN_FLIGHT) {
        let append = |text: &String| {
            log.append(partition, Bytes::from(text.clone()).into(), Durability::Fsync).expect("a ticket")
        };
        let tickets: Vec<_> = chunk.iter().map(append).collect();
        for ticket in tickets {
            offsets.push(ticket.wait().expect("an acknowledged record").offset.0);
            acknowledged.send(()).expect("a test that listens");
        }
    }
    offsets.into_iter().zip(texts).collect()
}

/// Consumes the records of all appenders.
fn consume(log: &KafkaLog, partition: PartitionId) -> Vec<(u64, String)> {
    let subscription = log.subscribe(partition, Offset(0)).expect("a subscription");
    let mut consumed = Vec::new();
    while consumed.len() < ALL {
        let records = match subscription.next(50) {
            Ok(records) => records.expect("an open subscription"),
            // as while a partition has no leader
            Err(e) if e.kind().is_retryable() => continue,
            Err(e) => panic!("{e}"),
        };
        for record in records {
            let Content::Payload(payload) = record.content else { panic!("a record without attachment") };
            consumed.push((record.offset.0, String::from_utf8_lossy(&payload).into_owned()));
        }
    }
    consumed
}

/// Appends with two logs and consumes with both. `disturb` is called with the number of acknowledged records after each of them.
fn check_two_logs(config: &KafkaConfig, mut disturb: impl FnMut(usize)) {
    let open = |_| KafkaLog::open(config, PARTITIONS.len() as u32).expect("the topic");
    let logs = APPENDERS.map(open);
    let (acknowledged, acknowledgements) = mpsc::channel();
    std::thread::scope(|scope| {
        let consumers: Vec<_> = PARTITIONS
            .iter()
            .map(|partition| logs.each_ref().map(|log| scope.spawn(move || consume(log, *partition))))
            .collect();
        let appenders: Vec<_> = PARTITIONS
            .iter()
            .map(|partition| {
                let acknowledged = acknowledged.clone();
                let appender = |(log, who): (_, &'static str)| {
                    let acknowledged = acknowledged.clone();
                    scope.spawn(move || append(log, *partition, who, &acknowledged))
                };
                logs.iter().zip(APPENDERS).map(appender).collect::<Vec<_>>()
            })
            .collect();
        drop(acknowledged);
        for (n, ()) in acknowledgements.iter().enumerate() {
            disturb(n + 1);
        }
        for (appenders, consumers) in appenders.into_iter().zip(consumers) {
            let mut appended: Vec<(u64, String)> =
                appenders.into_iter().flat_map(|thread| thread.join().expect("an appender")).collect();
            let [of_first, of_second] = consumers.map(|thread| thread.join().expect("a consumer"));
            assert_eq!(of_first, of_second, "both logs have one order");
            for who in APPENDERS {
                let own =
                    appended.iter().filter(|(_, text)| text.starts_with(who)).map(|(offset, _)| *offset);
                assert!(own.is_sorted(), "an appender's records keep their order");
            }
            appended.sort();
            assert_eq!(
                of_first, appended,
                "every record is there once, at the offset that its appender was told"
            );
            assert_eq!(of_first.last().map(|(offset, _)| *offset), Some(ALL as u64 - 1));
        }
    });
}

#[test]
fn two_logs_append_without_coordination_and_read_one_order() {
    let Some(config) = fresh_topic("") else { return };
    check_two_logs(&config, |_| {});
}

/// Brokers of this test, which end with it, whatever ends it.
struct Cluster {
    dir: PathBuf,
    port: u16,
}

impl Cluster {
    /// `None`, with a message, where brokers cannot be started.
    fn start() -> Option<(Self, String)> {
        let is_free = |port: &u16| {
            (0..3)
                .flat_map(|n| [port + n, port - 10_000 + n])
                .all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        };
        let port = (42_000..48_000).step_by(10).find(is_free).expect("six free ports");
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kafka-{}", std::process::id()));
        let cluster = Self { dir, port };
        let started = cluster.run(&["start", "3"]);
        if !started.status.success() {
            eprintln!("SKIPPED: no three brokers: {}", String::from_utf8_lossy(&started.stderr).trim());
            return None;
        }
        let wipe = format!(
            "while kill -0 {} 2>/dev/null; do sleep 1; done; '{}' wipe; rm -rf '{}'",
            std::process::id(),
            script().display(),
            cluster.dir.display()
        );
        let mut watcher = Command::new("setsid");
        let watcher = cluster.environment(watcher.args(["sh", "-c", &wipe]));
        let watcher = watcher.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        // it outlives this process, so nothing waits for it
        std::mem::forget(watcher.expect("a process that ends the brokers"));
        Some((cluster, String::from_utf8_lossy(&started.stdout).trim().to_owned()))
    }

    fn environment<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let libs = std::env::temp_dir().join("tidemill-kafka/libs");
        let libs = std::env::var_os("KAFKA_LIBS").map_or(libs, PathBuf::from);
        command.env("KAFKA_DIR", &self.dir).env("KAFKA_PORT", self.port.to_string()).env("KAFKA_LIBS", libs)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.environment(Command::new(script()).args(arguments)).output().expect("the script")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.run(&["wipe"]);
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/kafka.sh")
}

#[test]
fn lost_broker_takes_no_acknowledged_record() {
    let Some((cluster, brokers)) = Cluster::start() else { return };
    let url = format!("kafka://{brokers}/several?requirements=replicated");
    let config: KafkaConfig = url.parse().expect("a valid URL");
    // brokers that have just started hear of each other, and of a new topic, one after the other
    let opens_soon = |e: &str| e.contains("than there are brokers") || e.contains("do not know it yet");
    while let Err(e) = KafkaLog::open(&config, PARTITIONS.len() as u32) {
        assert!(opens_soon(e.message()), "{e}");
    }
    check_two_logs(&config, |acknowledged| match acknowledged {
        400 => assert!(cluster.run(&["kill", "2"]).status.success()),
        800 => assert!(cluster.run(&["resume", "2"]).status.success()),
        _ => {}
    });
    // settings that would lose records are found when the log is opened
    for (name, unsafe_value) in [("min.insync.replicas", "1"), ("unclean.leader.election.enable", "true")] {
        alter(&config, name, unsafe_value);
        let refused = KafkaLog::open(&config, 2).err().expect("a refusal");
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(
            refused.message().contains(&format!("--entity-name several --add-config {name}=")),
            "{refused}"
        );
    }
}

/// Sets one setting of the topic beside those that a log needs.
fn alter(config: &KafkaConfig, name: &str, value: &str) {
    let mut client = rdkafka::ClientConfig::new();
    let admin: AdminClient<DefaultClientContext> =
        client.set("bootstrap.servers", &config.brokers).create().expect("a client");
    let needed = [
        ("cleanup.policy", "delete"),
        ("retention.ms", "-1"),
        ("retention.bytes", "-1"),
        ("message.timestamp.type", "LogAppendTime"),
        ("max.message.bytes", "80000000"),
        ("min.insync.replicas", "2"),
        ("unclean.leader.election.enable", "false"),
    ];
    let mut change = AlterConfig::new(ResourceSpecifier::Topic(&config.topic));
    for (needed, with) in needed.into_iter().filter(|(needed, _)| *needed != name).chain([(name, value)]) {
        change = change.set(needed, with);
    }
    let altered = block_on(admin.alter_configs([&change], &AdminOptions::new())).expect("an answer");
    assert!(altered.iter().all(Result::is_ok), "{altered:?}");
}
