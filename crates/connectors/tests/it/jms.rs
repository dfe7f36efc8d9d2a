//! Brokers of JMS by AMQP 1.0: round trips through Artemis, a broker that is killed, crashes of this side, durable
//! subscriptions, bodies and properties of other clients, refusals, TLS.

use fe2o3_amqp::types::messaging::{
    AmqpSequence, AmqpValue, ApplicationProperties, Batch, Body, Data, Message, Properties, Target,
};
use fe2o3_amqp::types::primitives::{Array, Binary, OrderedMap, Symbol, Value};
use fe2o3_amqp::{Connection, Sender, Session};
use tidemill_connect::{NamedText, runtime};

use crate::helpers::{config, free_port};
use crate::servers;
use crate::stored::{StoredSink, StoredSource};

fn name() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

fn all(end: i64) -> Vec<i64> {
    (0..end).collect()
}

fn broker() -> Option<servers::SharedServer> {
    servers::shared("artemis")
}

/// Sends messages to a queue as another client does.
fn send(url: &str, queue: &str, messages: Vec<Message<Body<Value>>>) {
    runtime().block_on(async {
        let mut connection = Connection::open("other", url).await.unwrap();
        let mut session = Session::begin(&mut connection).await.unwrap();
        let target =
            Target::builder().address(queue).capabilities(Array::from(vec![Symbol::from("queue")])).build();
        let mut sender = Sender::builder().name(name()).target(target).attach(&mut session).await.unwrap();
        for message in messages {
            assert!(sender.send(message).await.unwrap().is_accepted());
        }
        sender.close().await.unwrap();
        session.end().await.unwrap();
        connection.close().await.unwrap();
    });
}

fn text(text: &str) -> Message<Body<Value>> {
    Message::builder().body(Body::Value(AmqpValue(Value::String(text.into())))).build()
}

#[test]
fn events_go_through_queues_and_topics_in_order() {
    let Some(broker) = broker() else { return };
    let url = broker.address("SERVERS_ARTEMIS");
    for kind in ["queue", "topic"] {
        let name = name();
        let options = [("provider.url", url), ("destination", &name), ("connection.factory.type", kind)];
        let mut source = StoredSource::start(&name, "jms", &options);
        source.wait_working();
        let mut sink = StoredSink::new(&name, "jms", &options);
        sink.deliver(5000, 1500, &|n| format!("t{}", n % 3));
        source.poll_rows(5000);
        source.assert_ordered();
        assert_eq!(source.sorted(), all(5000), "{kind}");
        assert_eq!(sink.refused, []);
    }
}

#[test]
fn readers_of_a_queue_share_and_those_of_a_topic_do_not() {
    let Some(broker) = broker() else { return };
    let url = broker.address("SERVERS_ARTEMIS");
    for (kind, copies) in [("queue", 1), ("topic", 2)] {
        let name = name();
        let options = [("provider.url", url), ("destination", &name), ("connection.factory.type", kind)];
        let mut one = StoredSource::start(&format!("{name}-1"), "jms", &options);
        let mut two = StoredSource::start(&format!("{name}-2"), "jms", &options);
        one.wait_working();
        two.wait_working();
        StoredSink::new(&name, "jms", &options).deliver(100, 100, &|_| "a".into());
        one.poll_until("all events came", |one| {
            two.poll();
            one.rows.len() + two.rows.len() >= 100 * copies
        });
        let mut found = [one.sorted(), two.sorted()].concat();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, all(100), "{kind}");
        assert_eq!(one.rows.len() + two.rows.len(), 100 * copies, "{kind}");
    }
}

#[test]
fn a_durable_subscription_keeps_messages_while_the_source_is_away() {
    let Some(broker) = broker() else { return };
    let url = broker.address("SERVERS_ARTEMIS");
    let name = name();
    let topic = [("provider.url", url), ("destination", &*name), ("connection.factory.type", "topic")];
    let mut sink = StoredSink::new(&name, "jms", &topic);
    let durable = [&topic[..], &[("subscription.durable", "true"), ("client.id", &*name)]].concat();
    let mut source = StoredSource::start(&name, "jms", &durable);
    source.wait_working();
    sink.deliver(10, 10, &|_| "a".into());
    source.poll_rows(10);
    drop(source);
    sink.deliver(20, 10, &|_| "a".into());
    let mut source = StoredSource::start(&name, "jms", &durable);
    source.poll_rows(10);
    let found: Vec<_> = source.sorted().into_iter().filter(|n| *n >= 10).collect();
    assert_eq!(found, (10..20).collect::<Vec<_>>());
}

/// The broker is killed, and the source crashes, while events go through a queue.
#[test]
fn nothing_is_lost_when_the_broker_is_killed() {
    let Some(broker) = servers::own("artemis") else { return };
    let url = broker.address("SERVERS_ARTEMIS").to_owned();
    let name = name();
    let options = [("provider.url", &*url), ("destination", &*name)];
    let mut source = StoredSource::start(&name, "jms", &options);
    source.wait_working();
    let mut sink = StoredSink::new(&name, "jms", &options);
    sink.deliver(500, 100, &|_| "a".into());
    let sender = std::thread::spawn(move || sink.deliver(3000, 100, &|_| "a".into()));
    source.poll_rows(300);
    source.restart();
    source.poll_rows(600);
    broker.kill();
    source.poll();
    broker.start_again();
    sender.join().unwrap();
    let all = all(3000);
    source.poll_until("all events came", |source| {
        let mut found = source.sorted();
        found.dedup();
        found == all
    });
}

#[test]
fn messages_come_again_until_they_are_acknowledged() {
    let Some(broker) = broker() else { return };
    let url = broker.address("SERVERS_ARTEMIS");
    let name = name();
    let options = [("provider.url", url), ("destination", &*name), ("prefetch.count", "4")];
    let mut source = StoredSource::start(&name, "jms", &options);
    source.wait_working();
    source.acknowledges = false;
    StoredSink::new(&name, "jms", &options[..2]).deliver(10, 10, &|_| "a".into());
    source.poll_rows(4);
    for _ in 0..3 {
        source.poll();
    }
    assert_eq!(source.sorted(), all(4), "more messages than may be waited for");
    source.rows.clear();
    source.restart();
    source.poll_rows(4);
    source.acknowledge();
    source.acknowledges = true;
    source.poll_rows(10);
    assert_eq!(source.sorted(), all(10));
}

#[test]
fn bodies_and_properties_of_other_clients_arrive() {
    let Some(broker) = broker() else { return };
    let url = broker.address("SERVERS_ARTEMIS");
    let name = name();
    let mut options = config("jms", &[("provider.url", url), ("destination", &name)]);
    options.mapper.as_mut().unwrap().attributes = [("text", "trp:SITE"), ("n", "$.n")]
        .map(|(name, text)| NamedText { name: Some(name.into()), text: text.into() })
        .into();
    let mut source = StoredSource::start_with(&name, options);
    source.wait_working();
    let with = |body| {
        let properties = ApplicationProperties::builder().insert("site", "north").build();
        Message::builder()
            .properties(Properties::builder().message_id(7u64).build())
            .application_properties(properties)
            .body(body)
            .build()
    };
    let map: OrderedMap<Value, Value> =
        [(Value::String("n".into()), Value::Int(3)), (Value::String("f".into()), Value::Bool(true))]
            .into_iter()
            .collect();
    let data = |text: &str| Data(Binary::from(text.as_bytes().to_vec()));
    let list = AmqpSequence(vec![Value::Map(map.clone())]);
    send(
        url,
        &name,
        vec![
            with(Body::Value(AmqpValue(Value::String(r#"{"n": 1}"#.into())))),
            with(Body::Value(AmqpValue(Value::Binary(br#"{"n": 2}"#.to_vec().into())))),
            with(Body::Value(AmqpValue(Value::Map(map)))),
            with(Body::Data(Batch::new(vec![data(r#"{"n""#), data(": 4}")]))),
            with(Body::Sequence(Batch::new(vec![list]))),
        ],
    );
    source.poll_rows(5);
    let found: Vec<_> = source.rows.iter().map(|(text, n)| format!("{text} {n}")).collect();
    assert_eq!(found, ["north 1", "north 2", "north 3", "north 4", "north 3"], "{:?}", source.rejected);
}

#[test]
fn poison_messages_are_rejected_and_others_taken() {
    let Some(broker) = broker() else { return };
    let url = broker.address("SERVERS_ARTEMIS");
    let name = name();
    let mut source = StoredSource::start(&name, "jms", &[("provider.url", url), ("destination", &name)]);
    source.wait_working();
    let good = r#"{"event": {"text": "a", "n": 1}}"#;
    let bytes = Body::Data(Batch::new(vec![Data(Binary::from(b"\x00\xff{{{".to_vec()))]));
    let bytes = Message::builder().body(bytes).build();
    let bad = r#"{"event": {"text": "a", "n": "x"}}"#;
    send(url, &name, vec![text(good), bytes, text(""), text(bad), text(good)]);
    source.poll_until("all messages came", |source| source.rows.len() == 2 && source.rejected.len() == 3);
    // they do not come again, once the broker has their acknowledgement
    let mut last = 3;
    loop {
        source.restart();
        source.wait_working();
        send(url, &name, vec![text(good)]);
        source.poll_rows(last);
        if source.rejected.len() == 3 {
            break;
        }
        source.rejected.truncate(3);
        last = source.rows.len() + 1;
        assert!(last < 50, "rejected messages come again");
    }
}

#[test]
fn refused_events_do_not_stop_others() {
    let Some(broker) = broker() else { return };
    let url = broker.address("SERVERS_ARTEMIS");
    let name = name();
    let mut source = StoredSource::start(&name, "jms", &[("provider.url", url), ("destination", &name)]);
    source.wait_working();
    let options = [("provider.url", url), ("destination", "{{text}}")];
    let mut sink = StoredSink::new(&name, "jms", &options);
    sink.deliver(6, 6, &|n| match n {
        2 => format!("closed.{name}"),
        3 => String::new(),
        _ => name.clone(),
    });
    let rows: Vec<_> = sink.refused.iter().map(|refused| refused.row).collect();
    assert_eq!(rows, [2, 3], "{:?}", sink.refused);
    assert!(sink.refused[0].reason.contains("takes no messages"), "{:?}", sink.refused);
    assert!(sink.refused[1].reason.contains("is empty"), "{:?}", sink.refused);
    source.poll_rows(4);
    assert_eq!(source.sorted(), [0, 1, 4, 5]);
}

#[test]
fn events_go_to_more_destinations_than_links_stay_open() {
    let Some(broker) = broker() else { return };
    let url = broker.address("SERVERS_ARTEMIS");
    let name = name();
    let mut sink = StoredSink::new(&name, "jms", &[("provider.url", url), ("destination", "{{text}}")]);
    sink.deliver(600, 600, &|n| format!("{name}.{}", n % 300));
    assert_eq!(sink.refused, []);
    for queue in [0, 299] {
        let queue = format!("{name}.{queue}");
        let mut source =
            StoredSource::start(&queue, "jms", &[("provider.url", url), ("destination", &queue)]);
        source.poll_rows(2);
        assert_eq!(source.sorted().len(), 2);
    }
}

#[test]
fn full_queues_push_back() {
    let Some(broker) = broker() else { return };
    let url = broker.address("SERVERS_ARTEMIS");
    let name = format!("full.{}", name());
    let options = [("provider.url", url), ("destination", &*name)];
    let mut sink = StoredSink::new(&name, "jms", &options);
    let error = sink.try_deliver(50, &|_| "a".into()).unwrap_err();
    assert!(error.kind().is_retryable(), "{error}");
    let mut source = StoredSource::start(&name, "jms", &options);
    source.wait_working();
    let sender = std::thread::spawn(move || {
        sink.deliver(50, 5, &|_| "a".into());
        sink
    });
    source.poll_until("all events came", |source| {
        let mut found = source.sorted();
        found.dedup();
        found == all(50)
    });
    assert_eq!(sender.join().unwrap().refused, []);
}

#[test]
fn messages_that_are_no_text_need_bytes() {
    let Some(broker) = broker() else { return };
    let url = broker.address("SERVERS_ARTEMIS");
    for (mapper, is_ordered) in [("binary", true), ("json", true)] {
        let name = name();
        let options = [("provider.url", url), ("destination", &*name)];
        let with = |kind: &str, options: &[(&str, &str)]| {
            let mut config = config(kind, options);
            config.mapper.as_mut().unwrap().kind = mapper.into();
            config
        };
        let mut source = StoredSource::start_with(&name, with("jms", &options));
        source.wait_working();
        let mut sink = StoredSink::with(&name, with("jms", &options));
        sink.deliver(300, 300, &|n| format!("é{n}"));
        source.poll_rows(300);
        assert_eq!((source.sorted(), sink.refused.len()), (all(300), 0), "{mapper} {is_ordered}");
        // with the message type `text`, binary messages of the mapper are refused
        let mut sink =
            StoredSink::with(&name, with("jms", &[&options[..], &[("message.type", "text")]].concat()));
        sink.deliver(300, 300, &|n| format!("é{n}"));
        assert_eq!(sink.refused.is_empty(), mapper == "json", "{:?}", sink.refused.first());
    }
}

#[test]
fn tls_works_and_unknown_authorities_are_refused() {
    let Some(broker) = broker() else { return };
    let (url, authority) = (broker.address("SERVERS_ARTEMIS_TLS"), broker.address("SERVERS_ARTEMIS_CA"));
    let url = &url.replace("amqps://", "amqps://tidemill:tidemill@");
    let name = name();
    let options = [("provider.url", &**url), ("destination", &*name), ("tls.ca.file", authority)];
    let mut source = StoredSource::start(&name, "jms", &options);
    source.wait_working();
    StoredSink::new(&name, "jms", &options).deliver(10, 10, &|_| "a".into());
    source.poll_rows(10);
    let error = StoredSink::new(&name, "jms", &options[..2]).connect().unwrap_err().to_string();
    assert!(error.contains("certificate") && !error.contains(":tidemill"), "{error}");
}

#[test]
fn brokers_are_found_by_property_files_and_lists() {
    let Some(broker) = broker() else { return };
    let url = broker.address("SERVERS_ARTEMIS");
    let name = name();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("jndi.properties");
    let factories = format!("connectionfactory.Queues = {url}\nqueue.orders = {name}\n");
    std::fs::write(&file, factories).unwrap();
    let options = [
        ("provider.url", file.to_str().unwrap()),
        ("factory.initial", "org.apache.qpid.jms.jndi.JmsInitialContextFactory"),
        ("connection.factory.jndi.name", "Queues"),
        ("destination", "orders"),
    ];
    StoredSink::new(&name, "jms", &options).deliver(10, 10, &|_| "a".into());
    let broker = url.replace("amqp://", "tcp://");
    let list = format!("failover:(tcp://127.0.0.1:{},{broker})?randomize=false", free_port());
    let queue = format!("dynamicQueues/{name}");
    let mut source = StoredSource::start(&name, "jms", &[("provider.url", &list), ("destination", &queue)]);
    source.poll_rows(10);
    assert_eq!(source.sorted(), all(10));
}

#[test]
fn ibm_mq_is_reached_by_its_amqp_channel() {
    let Some(broker) = broker() else { return };
    let port = broker.address("SERVERS_ARTEMIS").rsplit(':').next().unwrap();
    let name = name();
    let options = [
        ("destination.name", &*name),
        ("host", "127.0.0.1"),
        ("port", "1414"),
        ("amqp.port", port),
        ("channel", "Channel1"),
        ("queue.manager", "Manager"),
        ("username", "tidemill"),
        ("password", "tidemill"),
    ];
    let mut source = StoredSource::start(&name, "ibmmq", &options);
    source.wait_working();
    StoredSink::new(&name, "ibmmq", &options).deliver(10, 10, &|_| "a".into());
    source.poll_rows(10);
    assert_eq!(source.sorted(), all(10));
}
