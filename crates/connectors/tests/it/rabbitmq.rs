//! RabbitMQ: round trips, a broker that is killed, crashes of this side, poison messages, logins, refusals.

use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeDeleteOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Connection, ConnectionProperties};
use tidemill_connect::runtime;

use crate::helpers::{config, free_port, sink_error, source_error};
use crate::servers;
use crate::stored::{StoredSink, StoredSource};

fn name() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

fn all(end: i64) -> Vec<i64> {
    (0..end).collect()
}

/// Runs `work` on a channel of another client.
fn with_channel<T>(url: &str, work: impl AsyncFnOnce(lapin::Channel) -> T) -> T {
    runtime().block_on(async {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let done = work(connection.create_channel().await.unwrap()).await;
        // the channel, which ends too, may be faster
        let _ = connection.close(200, "done".into()).await;
        done
    })
}

fn publish(url: &str, queue: &str, payloads: &[&[u8]]) {
    with_channel(url, async |channel| {
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        for payload in payloads {
            let (options, properties) = (BasicPublishOptions::default(), BasicProperties::default());
            let sent = channel.basic_publish("".into(), queue.into(), options, payload, properties).await;
            assert!(sent.unwrap().await.unwrap().is_ack());
        }
    });
}

#[test]
fn events_go_through_exchanges_in_order() {
    let Some(broker) = servers::shared("rabbitmq") else { return };
    let url = broker.address("SERVERS_RABBITMQ");
    for (kind, binding, key) in [
        ("direct", "k", "k"),
        ("topic", "a.#", "a.{{text}}.b"),
        ("fanout", "", "{{text}}"),
        ("headers", "", ""),
    ] {
        let name = name();
        let options = [
            ("uri", url),
            ("exchange.name", &*name),
            ("exchange.type", kind),
            ("routing.key", binding),
            ("headers", "'x-match:all','site:north'"),
            ("queue.name", &*name),
            ("queue.durable.enabled", "true"),
        ];
        let mut source = StoredSource::start(&name, "rabbitmq", &options);
        source.wait_working();
        let options = [
            ("uri", url),
            ("exchange.name", &*name),
            ("exchange.type", kind),
            ("routing.key", key),
            ("headers", "'site:north','text:{{text}}'"),
        ];
        let mut sink = StoredSink::new(&name, "rabbitmq", &options);
        sink.deliver(5000, 1500, &|n| format!("t{}", n % 3));
        source.poll_rows(5000);
        source.assert_ordered();
        assert_eq!(source.sorted(), all(5000), "{kind}");
    }
}

#[test]
fn properties_and_headers_arrive() {
    let Some(broker) = servers::shared("rabbitmq") else { return };
    let url = broker.address("SERVERS_RABBITMQ");
    let name = name();
    let mut source = config("rabbitmq", &[("uri", url), ("exchange.name", ""), ("queue.name", &name)]);
    let mapper = source.mapper.as_mut().unwrap();
    mapper.attributes =
        [("text", "trp:SITE"), ("n", "$.event.n")].map(|(name, text)| named(name, text)).into();
    let mut source = StoredSource::start_with(&name, source);
    source.wait_working();
    let options = [
        ("uri", url),
        ("exchange.name", ""),
        ("routing.key", &*name),
        ("headers", "site:{{text}}"),
        ("content.type", "application/json"),
        ("priority", "{{n}}"),
        ("correlation.id", "c{{n}}"),
        ("expiration", "60000"),
        ("timestamp", "24/12/2025"),
        ("mandatory", "true"),
    ];
    let mut sink = StoredSink::new(&name, "rabbitmq", &options);
    sink.deliver(12, 12, &|n| format!("north {n}"));
    // numbers above 9 are not priorities
    assert_eq!(sink.refused.iter().map(|refused| refused.row).collect::<Vec<_>>(), [10, 11]);
    assert!(sink.refused[0].reason.contains("`priority` is `10`"), "{:?}", sink.refused);
    source.poll_until("all events came", |source| source.rows.len() + source.rejected.len() >= 10);
    let found: Vec<_> = source.rows.iter().map(|(text, _)| text.clone()).collect();
    assert_eq!(found, (0..10).map(|n| format!("north {n}")).collect::<Vec<_>>(), "{:?}", source.rejected);
}

fn named(name: &str, text: &str) -> tidemill_connect::NamedText {
    tidemill_connect::NamedText { name: Some(name.into()), text: text.into() }
}

/// The broker is killed, and the source crashes, while events go through a durable queue.
#[test]
fn nothing_is_lost_when_the_broker_is_killed() {
    let Some(broker) = servers::own("rabbitmq") else { return };
    let url = broker.address("SERVERS_RABBITMQ").to_owned();
    let name = name();
    let options = [
        ("uri", &*url),
        ("exchange.name", &*name),
        ("exchange.durable.enabled", "true"),
        ("queue.name", &*name),
        ("queue.durable.enabled", "true"),
    ];
    let mut source = StoredSource::start(&name, "rabbitmq", &options);
    source.wait_working();
    let mut sink = StoredSink::new(&name, "rabbitmq", &options[..3]);
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
    let Some(broker) = servers::shared("rabbitmq") else { return };
    let url = broker.address("SERVERS_RABBITMQ");
    let name = name();
    let options = [("uri", url), ("exchange.name", ""), ("queue.name", &*name), ("prefetch.count", "4")];
    let mut source = StoredSource::start(&name, "rabbitmq", &options);
    source.wait_working();
    source.acknowledges = false;
    let options = [("uri", url), ("exchange.name", ""), ("routing.key", &*name)];
    let mut sink = StoredSink::new(&name, "rabbitmq", &options);
    sink.deliver(10, 10, &|_| "a".into());
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
fn poison_messages_are_rejected_and_others_taken() {
    let Some(broker) = servers::shared("rabbitmq") else { return };
    let url = broker.address("SERVERS_RABBITMQ");
    let name = name();
    let options = [("uri", url), ("exchange.name", ""), ("queue.name", &*name)];
    let mut source = StoredSource::start(&name, "rabbitmq", &options);
    source.wait_working();
    let good = br#"{"event": {"text": "a", "n": 1}}"#;
    publish(url, &name, &[good, b"\x00\xff{{{", b"", br#"{"event": {"text": "a", "n": "x"}}"#, good]);
    source.poll_until("all messages came", |source| source.rows.len() == 2 && source.rejected.len() == 3);
    // they do not come again
    let mut last = 3;
    loop {
        source.restart();
        source.wait_working();
        publish(url, &name, &[good]);
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
fn of_many_messages_those_without_a_queue_are_refused() {
    let Some(broker) = servers::shared("rabbitmq") else { return };
    let url = broker.address("SERVERS_RABBITMQ");
    let name = name();
    let mut source = StoredSource::start(
        &name,
        "rabbitmq",
        &[("uri", url), ("exchange.name", ""), ("queue.name", &*name)],
    );
    source.wait_working();
    let options = [("uri", url), ("exchange.name", ""), ("routing.key", "{{text}}"), ("mandatory", "true")];
    let mut sink = StoredSink::new(&name, "rabbitmq", &options);
    // more than wait for their confirmation at once, which the broker gives for several messages together
    let is_lost = |n: i64| n % 7 == 3;
    sink.deliver(3000, 3000, &|n| if is_lost(n) { format!("nowhere-{name}") } else { name.clone() });
    let refused: Vec<i64> = sink.refused.iter().map(|refused| refused.row as i64).collect();
    let (lost, taken): (Vec<i64>, Vec<i64>) = (0..3000).partition(|n| is_lost(*n));
    assert_eq!(refused, lost);
    source.poll_rows(taken.len());
    assert_eq!(source.sorted(), taken);
}

#[test]
fn refused_events_do_not_stop_others() {
    let Some(broker) = servers::shared("rabbitmq") else { return };
    let url = broker.address("SERVERS_RABBITMQ");
    let name = name();
    let options = [("uri", url), ("exchange.name", ""), ("queue.name", &*name)];
    let mut source = StoredSource::start(&name, "rabbitmq", &options);
    source.wait_working();
    // no queue, and a key that is too long
    let options = [("uri", url), ("exchange.name", ""), ("routing.key", "{{text}}"), ("mandatory", "true")];
    let mut sink = StoredSink::new(&name, "rabbitmq", &options);
    sink.deliver(6, 6, &|n| match n {
        2 => "nowhere".to_owned(),
        3 => "k".repeat(256),
        _ => name.clone(),
    });
    assert_eq!(
        sink.refused.iter().map(|refused| refused.row).collect::<Vec<_>>(),
        [2, 3],
        "{:?}",
        sink.refused
    );
    assert!(sink.refused[0].reason.contains("reached no queue: NO_ROUTE"), "{:?}", sink.refused);
    assert!(sink.refused[1].reason.contains("AMQP takes 255"), "{:?}", sink.refused);
    source.poll_rows(4);
    assert_eq!(source.sorted(), [0, 1, 4, 5]);
    // an exchange that the broker keeps for itself
    let options = [("uri", url), ("exchange.name", "{{text}}"), ("routing.key", "k")];
    let mut sink = StoredSink::new(&name, "rabbitmq", &options);
    sink.deliver(2, 2, &|n| if n == 0 { "amq.mine".into() } else { "amq.direct".into() });
    assert_eq!(sink.refused.len(), 1, "{:?}", sink.refused);
    assert!(sink.refused[0].reason.contains("ACCESS_REFUSED"), "{:?}", sink.refused);
    // a message that is larger than the broker takes, which closes the channel
    let options = [("uri", url), ("exchange.name", ""), ("routing.key", &*name)];
    let mut sink = StoredSink::new(&name, "rabbitmq", &options);
    sink.deliver(8, 8, &|n| if n == 6 { "x".repeat(17 << 20) } else { "a".into() });
    assert_eq!(sink.refused.len(), 1, "{:?}", sink.refused);
    assert!(sink.refused[0].reason.contains("the broker takes 16777216"), "{:?}", sink.refused);
    source.poll_until("the event behind it came", |source| source.rows.iter().any(|(_, n)| *n == 7));
}

#[test]
fn full_queues_push_back() {
    let Some(broker) = servers::shared("rabbitmq") else { return };
    let url = broker.address("SERVERS_RABBITMQ");
    let name = name();
    with_channel(url, async |channel| {
        let mut arguments = FieldTable::default();
        arguments.insert("x-max-length".into(), AMQPValue::LongInt(10));
        arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
        channel.queue_declare(name.as_str().into(), QueueDeclareOptions::durable(), arguments).await.unwrap();
    });
    let mut sink =
        StoredSink::new(&name, "rabbitmq", &[("uri", url), ("exchange.name", ""), ("routing.key", &name)]);
    let error = sink.try_deliver(50, &|_| "a".into()).unwrap_err();
    assert!(error.kind().is_retryable() && error.to_string().contains("a queue may be full"), "{error}");
    let mut source =
        StoredSource::start(&name, "rabbitmq", &[("uri", url), ("exchange.name", ""), ("queue.name", &name)]);
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
fn tls_works_and_unknown_authorities_are_refused() {
    let Some(broker) = servers::shared("rabbitmq") else { return };
    let (url, authority) = (broker.address("SERVERS_RABBITMQ_TLS"), broker.address("SERVERS_RABBITMQ_CA"));
    let (name, plain) = (name(), url.replace("amqps://", "amqp://"));
    let options = [
        ("uri", &*plain),
        ("exchange.name", &*name),
        ("exchange.type", "fanout"),
        ("tls.truststore.path", authority),
        ("tls.enabled", "true"),
    ];
    let mut source = StoredSource::start(&name, "rabbitmq", &options);
    source.wait_working();
    let options = [("uri", url), ("exchange.name", &*name), ("tls.truststore.path", authority)];
    StoredSink::new(&name, "rabbitmq", &options).deliver(10, 10, &|_| "a".into());
    source.poll_rows(10);
    let error = StoredSink::new(&name, "rabbitmq", &options[..2]).connect().unwrap_err().to_string();
    assert!(error.contains("certificate") && !error.contains(":tidemill"), "{error}");
}

#[test]
fn what_is_deleted_at_the_broker_is_declared_again() {
    let Some(broker) = servers::shared("rabbitmq") else { return };
    let url = broker.address("SERVERS_RABBITMQ");
    let name = name();
    let options = [("uri", url), ("exchange.name", &*name), ("queue.name", &*name), ("routing.key", "k")];
    let mut source = StoredSource::start(&name, "rabbitmq", &options);
    source.wait_working();
    let options = [("uri", url), ("exchange.name", &*name), ("routing.key", "k"), ("mandatory", "true")];
    let mut sink = StoredSink::new(&name, "rabbitmq", &options);
    sink.deliver(10, 10, &|_| "a".into());
    source.poll_rows(10);
    with_channel(url, async |channel| {
        channel.exchange_delete(name.as_str().into(), ExchangeDeleteOptions::default()).await.unwrap();
        channel.queue_delete(name.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    });
    // the problem is over as soon as the queue is there again
    let is_declared = || {
        with_channel(url, async |channel| {
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(name.as_str().into(), passive, FieldTable::default()).await.is_ok()
        })
    };
    let mut problem = None;
    source.poll_until("the queue is declared again", |source| {
        problem = problem.take().or_else(|| source.problem());
        is_declared()
    });
    assert!(problem.is_none_or(|problem| problem.contains("was deleted")));
    source.wait_working();
    sink.deliver(20, 10, &|_| "a".into());
    source.poll_rows(20);
    assert_eq!((source.sorted(), sink.refused), (all(20), vec![]));
}

#[test]
fn wrong_logins_and_unreachable_brokers_keep_their_secret() {
    let Some(broker) = servers::shared("rabbitmq") else { return };
    let url = broker.address("SERVERS_RABBITMQ").replace(":tidemill@", ":hunter2@");
    let name = name();
    let options = [("uri", &*url), ("exchange.name", &*name)];
    let problem = StoredSource::start(&name, "rabbitmq", &options).wait_problem();
    assert!(problem.contains("ACCESS_REFUSED") && !problem.contains("hunter2"), "{problem}");
    let error = StoredSink::new(&name, "rabbitmq", &options).connect().unwrap_err();
    assert!(error.kind().is_retryable() && !error.to_string().contains("hunter2"), "{error}");
    let address = format!("127.0.0.1:{}", free_port());
    let url = format!("amqp://user:hunter2@{address}");
    let options = [("uri", &*url), ("exchange.name", "e")];
    let text = StoredSink::new("away", "rabbitmq", &options).connect().unwrap_err().to_string();
    assert!(text.contains(&address) && text.contains("refused") && !text.contains("hunter2"), "{text}");
}

#[test]
fn wrong_options_are_refused() {
    let source = |options: &[(&str, &str)]| source_error("rabbitmq", options);
    let sink = |options: &[(&str, &str)]| sink_error("rabbitmq", options);
    let uri = ("uri", "amqp://u:hunter2@h");
    for (found, expected) in [
        (source(&[("exchange.name", "e")]), "needs the option `uri`"),
        (source(&[uri]), "needs the option `exchange.name`"),
        (source(&[("uri", "http://u:hunter2@h"), ("exchange.name", "e")]), "no URL of AMQP"),
        (source(&[uri, ("exchange.name", "")]), "without an exchange the source needs `queue.name`"),
        (source(&[uri, ("exchange.name", "e"), ("exchange.type", "x")]), "direct, fanout, topic, headers"),
        (source(&[uri, ("exchange.name", "e"), ("headers", "x")]), "expected `name:value"),
        (source(&[uri, ("exchange.name", "e"), ("prefetch.count", "0")]), "from 1 to 65535"),
        (source(&[uri, ("exchange.name", "e"), ("queue.nam", "q")]), "Did you mean `queue.name`"),
        (sink(&[uri, ("exchange.name", "{{x}}")]), "no attribute `x`"),
        (sink(&[uri, ("exchange.name", "e"), ("delivery.mode", "3")]), "expected one of 1, 2"),
        (sink(&[uri, ("exchange.name", "e"), ("timestamp", "2025-01-01")]), "expected a day `dd/MM/yyyy`"),
        (sink(&[uri, ("exchange.name", "e"), ("priority", "10")]), "from 0 to 9"),
        (sink(&[uri, ("exchange.name", "e"), ("expiration", "x")]), "expected an integer"),
        (sink(&[uri, ("exchange.name", "e"), ("tls.truststore.path", "a.jks")]), "is a Java key store"),
        (sink(&[uri, ("exchange.name", "e"), ("tls.truststore.path", "/none")]), "cannot read"),
        (
            sink(&[uri, ("exchange.name", "e"), ("tls.key.file", "Cargo.toml")]),
            "needs `tls.certificate.file`",
        ),
    ] {
        assert!(found.contains(expected) && !found.contains("hunter2"), "{found}\nexpected {expected}");
    }
}
