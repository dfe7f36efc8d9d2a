//! Kafka: round trips, crashes of the broker and of this side, logins, refusals.

use std::sync::mpsc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tidemill_connect::{MapperConfig, NamedText};
use tidemill_types::ErrorKind;

use crate::helpers::{config, free_port, sink_error, source_error, wait_until};
use crate::servers;
use crate::stored::{StoredSink, StoredSource, check_former_owner};

/// Creates a topic, and returns its name.
fn topic(brokers: &str, partitions: i32) -> String {
    let name = format!("test-{}", uuid::Uuid::new_v4());
    let admin: AdminClient<_> = ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap();
    let topic =
        NewTopic::new(&name, partitions, TopicReplication::Fixed(1)).set("max.message.bytes", "10000");
    let created = tidemill_connect::runtime().block_on(admin.create_topics([&topic], &AdminOptions::new()));
    created.unwrap().into_iter().for_each(|topic| drop(topic.unwrap()));
    name
}

fn key(n: i64) -> String {
    format!("k{}", n % 7)
}

#[test]
fn events_go_through_topics_in_order() {
    let Some(kafka) = servers::shared("kafka") else { return };
    let brokers = kafka.address("SERVERS_KAFKA");
    let topic = topic(brokers, 3);
    let options = [
        ("bootstrap.servers", brokers),
        ("topic", "{{text}}"),
        ("key", "{{n}}"),
        ("headers", "site:x{{n}}"),
        ("optional.configuration", "compression.type:zstd"),
    ];
    // one batch of them is larger than the topic allows, and a dynamic topic does not tell
    let mut sink = StoredSink::new("keys", "kafka", &options);
    sink.deliver(300, 300, &|_| topic.clone());
    assert_eq!(sink.refused, []);
    let options = [("bootstrap.servers", brokers), ("topic", &*topic), ("key", "{{text}}")];
    let mut sink = StoredSink::new("round", "kafka", &options);
    sink.deliver(20_000, 5000, &key);

    let mut source =
        StoredSource::start("round", "kafka", &[("bootstrap.servers", brokers), ("topic.list", &topic)]);
    source.poll_rows(20_300);
    source.rows.retain(|(text, _)| *text != topic);
    source.assert_ordered();
    assert_eq!(source.sorted(), (0..20_000).collect::<Vec<_>>());
    assert_eq!(source.positions.len(), 3);
    assert_eq!(source.positions.values().sum::<u64>(), 20_300);

    // transport properties: the key and a header of a message
    let mut properties = config("kafka", &[("bootstrap.servers", brokers), ("topic.list", &topic)]);
    let attribute = |name: &str, text: &str| NamedText { name: Some(name.into()), text: text.into() };
    properties.mapper = Some(MapperConfig {
        kind: "json".into(),
        attributes: vec![attribute("text", "trp:site"), attribute("n", "trp:key")],
        ..MapperConfig::default()
    });
    let mut source = StoredSource::start_with("properties", properties);
    source.poll_until("the first message came", |source| source.rows.iter().any(|(text, _)| text == "x0"));
}

/// Both sides crash, and the broker is killed, while events go from an exactly-once sink through two partitions.
#[test]
fn nothing_is_lost_or_doubled_over_crashes() {
    let Some(kafka) = servers::own("kafka") else { return };
    let brokers = kafka.address("SERVERS_KAFKA").to_owned();
    let topic = topic(&brokers, 2);
    let options = [
        ("bootstrap.servers".to_owned(), brokers.clone()),
        ("topic".to_owned(), topic.clone()),
        ("key".to_owned(), "{{text}}".to_owned()),
        ("delivery.guarantee".to_owned(), "exactly.once".to_owned()),
    ];
    const EVENTS: i64 = 6000;
    let (reached, wait_reached) = mpsc::channel();
    let sender = std::thread::spawn(move || {
        let options: Vec<(&str, &str)> = options.iter().map(|(k, v)| (&**k, &**v)).collect();
        let mut sink = StoredSink::new("exact", "kafka", &options);
        for part in 1..=6 {
            sink.deliver(EVENTS / 6 * part, 50, &key);
            // what was delivered is forgotten: the brokers remember it
            sink.forget_progress("exact", "kafka", &options);
            reached.send(part).unwrap();
        }
    });
    let mut source =
        StoredSource::start("exact", "kafka", &[("bootstrap.servers", &brokers), ("topic.list", &topic)]);
    source.acknowledges = false;
    source.poll_rows(500);
    source.restart();
    while wait_reached.recv().unwrap() < 2 {}
    kafka.kill();
    source.poll();
    kafka.start_again();
    source.poll_rows(3000);
    source.restart();
    source.poll_rows(EVENTS as usize);
    sender.join().unwrap();
    assert_eq!(source.sorted(), (0..EVENTS).collect::<Vec<_>>());
    source.assert_ordered();
}

#[test]
fn refused_events_do_not_stop_others() {
    let Some(kafka) = servers::shared("kafka") else { return };
    let brokers = kafka.address("SERVERS_KAFKA");
    for guarantee in ["at.least.once", "exactly.once"] {
        let topic = topic(brokers, 1);
        let options = [
            ("bootstrap.servers", brokers),
            ("topic", &topic),
            ("partition.no", "{{text}}"),
            ("delivery.guarantee", guarantee),
        ];
        let mut sink = StoredSink::new(&topic, "kafka", &options);
        // event 3 is larger than the topic allows, event 5 has no number of a partition
        let text = |n| match n {
            3 => format!("0{}", " ".repeat(20_000)),
            5 => "first".to_owned(),
            _ => "0".to_owned(),
        };
        sink.deliver(8, 8, &text);
        let mut refused: Vec<usize> = sink.refused.iter().map(|refused| refused.row).collect();
        refused.sort_unstable();
        assert_eq!(refused, [3, 5], "{guarantee}: {:?}", sink.refused);
        let mut source =
            StoredSource::start(&topic, "kafka", &[("bootstrap.servers", brokers), ("topic.list", &topic)]);
        source.poll_rows(6);
        assert_eq!(source.sorted(), [0, 1, 2, 4, 6, 7], "{guarantee}");
    }
}

#[test]
fn sources_start_where_the_options_or_the_group_say() {
    let Some(kafka) = servers::shared("kafka") else { return };
    let brokers = kafka.address("SERVERS_KAFKA");
    let topic = topic(brokers, 1);
    let mut sink = StoredSink::new("starts", "kafka", &[("bootstrap.servers", brokers), ("topic", &topic)]);
    sink.deliver(100, 100, &key);
    let map = format!("{topic}=89");
    let base = [("bootstrap.servers", brokers), ("topic.list", &topic), ("group.id", &topic)];
    let with = |more: (&'static str, &str)| -> Vec<(String, String)> {
        base.iter().chain([&more]).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    let start = |name: &str, options: Vec<(String, String)>| {
        let options: Vec<(&str, &str)> = options.iter().map(|(k, v)| (&**k, &**v)).collect();
        StoredSource::start(name, "kafka", &options)
    };
    let mut source = start("map", with(("topic.offsets.map", &map)));
    source.poll_rows(10);
    assert_eq!(source.sorted(), (90..100).collect::<Vec<_>>());
    // its offset becomes that of the group, at which another source of the group starts
    let group: BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", brokers).set("group.id", &topic).create().unwrap();
    source.poll_until("the offset is committed", |_| {
        let mut list = TopicPartitionList::new();
        list.add_partition(&topic, 0);
        let committed = group.committed_offsets(list, Duration::from_secs(60)).unwrap();
        committed.elements()[0].offset() == Offset::Offset(100)
    });
    let mut after = start("late", with(("threading.option", "partition.wise")));
    after.poll_until("a start is stored", |source| !source.positions.is_empty());
    assert_eq!(after.positions.values().copied().collect::<Vec<_>>(), [100]);
    let mut latest = start(
        "latest",
        vec![
            ("bootstrap.servers".into(), brokers.into()),
            ("topic.list".into(), topic.clone()),
            ("optional.configuration".into(), "auto.offset.reset:latest".into()),
        ],
    );
    latest.poll_until("a start is stored", |source| !source.positions.is_empty());
    sink.deliver(105, 5, &key);
    after.poll_rows(5);
    assert_eq!(after.sorted(), (100..105).collect::<Vec<_>>());
    latest.restart();
    latest.poll_rows(5);
    assert_eq!(latest.sorted(), (100..105).collect::<Vec<_>>());
}

#[test]
fn messages_that_were_sent_twice_are_dropped() {
    let Some(kafka) = servers::shared("kafka") else { return };
    let brokers = kafka.address("SERVERS_KAFKA");
    for is_binary in ["false", "true"] {
        let topic = topic(brokers, 1);
        let options = [
            ("bootstrap.servers", brokers),
            ("topic", &*topic),
            ("sequence.id", "sink1"),
            ("is.binary.message", is_binary),
        ];
        for end in [10, 15] {
            // the second sink begins again with number 0
            StoredSink::new("sequence", "kafka", &options).deliver(end, end, &key);
        }
        let options = [
            ("bootstrap.servers", brokers),
            ("topic.list", &*topic),
            ("seq.enabled", "true"),
            ("is.binary.message", is_binary),
        ];
        let mut source = StoredSource::start("sequence", "kafka", &options);
        source.poll_rows(15);
        assert_eq!(source.sorted(), (0..15).collect::<Vec<_>>());
        assert_eq!(source.positions.values().sum::<u64>(), 25);
    }
}

#[test]
fn logins_work_and_wrong_ones_keep_their_secret() {
    let Some(kafka) = servers::shared("kafka") else { return };
    let topic = topic(kafka.address("SERVERS_KAFKA"), 1);
    let brokers = kafka.address("SERVERS_KAFKA_SASL");
    let jaas = "sasl.jaas.config:org.apache.kafka.common.security.plain.PlainLoginModule required \
                username=\"tidemill\" password=\"tidemill\";,sasl.mechanism:PLAIN,security.protocol:SASL_PLAINTEXT";
    let options = [("bootstrap.servers", brokers), ("topic", &*topic), ("optional.configuration", jaas)];
    StoredSink::new("login", "kafka", &options).deliver(10, 10, &key);
    let login = |password| {
        [
            ("bootstrap.servers", brokers),
            ("topic.list", &*topic),
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.username", "tidemill"),
            ("sasl.password", password),
        ]
    };
    StoredSource::start("login", "kafka", &login("tidemill")).poll_rows(10);
    let problem = StoredSource::start("login", "kafka", &login("hunter2")).wait_problem();
    assert!(problem.contains("uthentication failed") && !problem.contains("hunter2"), "{problem}");
}

#[test]
fn unreachable_brokers_and_missing_topics_are_reported() {
    let address = format!("127.0.0.1:{}", free_port());
    let error = StoredSink::new("away", "kafka", &[("bootstrap.servers", &address), ("topic", "t")])
        .connect()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains(&address) && error.message().contains("refused"), "{error}");
    let Some(kafka) = servers::shared("kafka") else { return };
    let brokers = kafka.address("SERVERS_KAFKA");
    let options = [("bootstrap.servers", brokers), ("topic.list", "none-such")];
    let problem = StoredSource::start("missing", "kafka", &options).wait_problem();
    assert!(
        problem.contains("has no topic `none-such`") && problem.contains("create the topic"),
        "{problem}"
    );
}

#[test]
fn a_missing_topic_is_created_if_the_sink_may() {
    let Some(kafka) = servers::shared("kafka") else { return };
    let brokers = kafka.address("SERVERS_KAFKA");
    let topic = format!("created-{}", std::process::id());
    let options = [("bootstrap.servers", brokers), ("topic", &*topic)];
    let error = StoredSink::new("missing", "kafka", &options).connect().unwrap_err().to_string();
    assert!(error.contains(&topic) && error.contains("`create.topic.partitions`"), "{error}");
    let create =
        [&options[..], &[("create.topic.partitions", "3"), ("create.topic.replication", "1")]].concat();
    wait_until("the topic is created", || StoredSink::new("creates", "kafka", &create).connect().is_ok());
    // now it is there for all
    StoredSink::new("finds", "kafka", &options).connect().unwrap();
}

#[test]
fn wrong_options_are_refused() {
    let source = |more: &[(&str, &str)]| {
        let base = [("bootstrap.servers", "localhost:9092"), ("topic.list", "a,b")];
        source_error("kafka", &[&base, more].concat())
    };
    let sink = |more: &[(&str, &str)]| {
        sink_error("kafka", &[&[("bootstrap.servers", "localhost:9092"), ("topic", "a")], more].concat())
    };
    for (found, expected) in [
        (sink(&[("create.topic.replication", "2")]), "needs `create.topic.partitions`"),
        (source(&[("partition.no.list", "0,x")]), "expected numbers with commas, found `0,x`"),
        (source(&[("topic.offsets.map", "c=1")]), "the topic `c` is not in `topic.list`"),
        (source(&[("topic.offsets.map", "a")]), "expected `topic=offset`, found `a`"),
        (source(&[("threading.option", "many")]), "expected one of single.thread"),
        (source(&[("optional.configuration", "no.such:1")]), "No such configuration property"),
        (source(&[("optional.configuration", "ssl.truststore.location:/x")]), "`ssl.ca.location"),
        (source(&[("topic.lists", "a")]), "did you mean"),
        (sink(&[("key", "{{nothing}}")]), "the stream has no attribute `nothing`"),
        (sink(&[("headers", "a")]), "expected `name:value,name:value`"),
        (sink(&[("delivery.guarantee", "always")]), "expected one of at.least.once, exactly.once"),
        (sink_error("kafka", &[("topic", "a")]), "needs the option `bootstrap.servers`"),
    ] {
        assert!(found.to_lowercase().contains(&expected.to_lowercase()), "{found}");
    }
    let secret = source(&[("optional.configuration", "sasl.password:hunter2,hunter3")]);
    assert!(!secret.contains("hunter"), "{secret}");
}

#[test]
fn a_former_owner_of_a_partition_sends_nothing_after_the_present_one() {
    let Some(kafka) = servers::shared("kafka") else { return };
    let brokers = kafka.address("SERVERS_KAFKA");
    let topic = topic(brokers, 1);
    let options = [
        ("bootstrap.servers", brokers),
        ("topic", &*topic),
        ("delivery.guarantee", "exactly.once"),
        ("position.topic", "moved-positions"),
    ];
    check_former_owner("kafka", &topic, &options, &mut |events| {
        let options = [("bootstrap.servers", brokers), ("topic.list", &*topic)];
        let mut source = StoredSource::start("reads-moved", "kafka", &options);
        source.poll_rows(events);
        source.sorted()
    });
}
