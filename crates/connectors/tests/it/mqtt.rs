//! MQTT 3.1.1 and 5: round trips, a broker that restarts, crashes of this side, logins, refusals.

use tidemill_types::ErrorKind;

use crate::helpers::{free_port, sink_error, source_error};
use crate::servers;
use crate::stored::{StoredSink, StoredSource};

const VERSIONS: [&str; 2] = ["3.1.1", "5"];

fn name() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

#[test]
fn events_go_through_topics_in_order() {
    let Some(broker) = servers::shared("mosquitto") else { return };
    let url = broker.address("SERVERS_MOSQUITTO");
    for version in VERSIONS {
        for qos in ["0", "1", "2"] {
            let name = name();
            let filter = format!("{name}/+/x,{name}/all/#");
            let options = [
                ("url", url),
                ("topic", &*filter),
                ("quality.of.service", qos),
                ("protocol.version", version),
            ];
            let mut source = StoredSource::start(&name, "mqtt", &options);
            source.wait_working();
            let topic = format!("{name}/{{{{text}}}}/x");
            let options = [
                ("url", url),
                ("topic", &*topic),
                ("quality.of.service", qos),
                ("protocol.version", version),
                ("message.retain", "false"),
            ];
            let mut sink = StoredSink::new(&name, "mqtt", &options);
            sink.deliver(2000, 700, &|n| format!("t{}", n % 3));
            source.poll_rows(2000);
            source.assert_ordered();
            assert_eq!(source.sorted(), (0..2000).collect::<Vec<_>>(), "{version}, {qos}");
        }
    }
}

/// The broker restarts while events go through it. It is stopped in order, because it does not write each message to
/// the disk before it acknowledges it.
#[test]
fn nothing_is_lost_when_the_broker_restarts() {
    let Some(broker) = servers::own("mosquitto") else { return };
    let url = broker.address("SERVERS_MOSQUITTO").to_owned();
    for (version, qos) in VERSIONS.into_iter().zip(["1", "2"]) {
        let name = name();
        let options =
            [("url", &*url), ("topic", &*name), ("quality.of.service", qos), ("protocol.version", version)];
        let mut source = StoredSource::start(&name, "mqtt", &options);
        source.wait_working();
        let mut sink = StoredSink::new(&name, "mqtt", &options);
        sink.deliver(500, 100, &|_| "a".into());
        let sender = std::thread::spawn(move || sink.deliver(2000, 100, &|_| "a".into()));
        source.poll_rows(300);
        broker.stop();
        source.poll();
        broker.start_again();
        sender.join().unwrap();
        let all: Vec<i64> = (0..2000).collect();
        source.poll_until("all events came", |source| {
            let mut found = source.sorted();
            found.dedup();
            found == all
        });
    }
}

#[test]
fn messages_come_again_until_they_are_acknowledged() {
    let Some(broker) = servers::shared("mosquitto") else { return };
    let url = broker.address("SERVERS_MOSQUITTO");
    for (version, qos) in VERSIONS.into_iter().zip(["2", "1"]) {
        let name = name();
        let options =
            [("url", url), ("topic", &*name), ("quality.of.service", qos), ("protocol.version", version)];
        let mut source = StoredSource::start(&name, "mqtt", &options);
        source.wait_working();
        source.acknowledges = false;
        let mut sink = StoredSink::new(&name, "mqtt", &options);
        sink.deliver(10, 10, &|_| "a".into());
        source.poll_rows(10);
        source.rows.clear();
        source.restart();
        source.poll_rows(10);
        source.acknowledge();
        sink.deliver(11, 1, &|_| "a".into());
        source.poll_rows(11);
        assert_eq!(source.sorted(), (0..11).collect::<Vec<_>>());
        // what is acknowledged does not come again, once the acknowledgements have arrived
        source.acknowledges = true;
        let mut last = 11;
        loop {
            source.rows.clear();
            source.restart();
            source.wait_working();
            sink.deliver(last + 1, 1, &|_| "a".into());
            source.poll_until("the last event came", |source| source.rows.iter().any(|(_, n)| *n == last));
            if source.sorted() == [last] {
                break;
            }
            last += 1;
            assert!(last < 50, "everything comes again: {:?}", source.rows);
        }
    }
}

#[test]
fn refused_events_do_not_stop_others() {
    let Some(broker) = servers::shared("mosquitto") else { return };
    let url = broker.address("SERVERS_MOSQUITTO");
    let name = name();
    let filter = format!("{name}/#");
    let mut source = StoredSource::start(&name, "mqtt", &[("url", url), ("topic", &filter)]);
    source.wait_working();
    let topic = format!("{name}/{{{{text}}}}");
    let mut sink = StoredSink::new(&name, "mqtt", &[("url", url), ("topic", &topic)]);
    sink.deliver(6, 6, &|n| if n == 2 { "a/#".into() } else { "a".into() });
    assert_eq!(sink.refused.len(), 1);
    assert!(sink.refused[0].row == 2 && sink.refused[0].reason.contains("wildcard"), "{:?}", sink.refused);
    source.poll_rows(5);
    assert_eq!(source.sorted(), [0, 1, 3, 4, 5]);
}

#[test]
fn logins_work_and_wrong_ones_keep_their_secret() {
    let Some(broker) = servers::shared("mosquitto") else { return };
    let url = broker.address("SERVERS_MOSQUITTO_LOGIN");
    for version in VERSIONS {
        let name = name();
        let with_login = url.replace("tcp://", "tcp://tidemill:tidemill@");
        let options = [("url", &*with_login), ("topic", &*name), ("protocol.version", version)];
        StoredSource::start(&name, "mqtt", &options).wait_working();
        let login = [
            ("url", url),
            ("topic", &*name),
            ("protocol.version", version),
            ("username", "tidemill"),
            ("password", "hunter2"),
        ];
        let problem = StoredSource::start(&name, "mqtt", &login).wait_problem();
        assert!(problem.contains("refused") || problem.contains("NotAuthorized"), "{problem}");
        assert!(!problem.contains("hunter2"), "{problem}");
        let error = StoredSink::new(&name, "mqtt", &login).connect().unwrap_err();
        assert!(error.kind().is_retryable() && !error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn unreachable_brokers_are_reported() {
    let address = format!("127.0.0.1:{}", free_port());
    let url = format!("tcp://user:hunter2@{address}");
    for version in VERSIONS {
        let options = [("url", &*url), ("topic", "t"), ("protocol.version", version)];
        let error = StoredSink::new("away", "mqtt", &options).connect().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(text.contains(&address) && text.contains("refused") && !text.contains("hunter2"), "{text}");
    }
}

#[test]
fn wrong_options_are_refused() {
    for (found, expected) in [
        (source_error("mqtt", &[("url", "tcp://h:1")]), "needs the option `topic`"),
        (
            source_error("mqtt", &[("url", "tcp://h:1"), ("topic", "a/#/b")]),
            "`#` must be the whole last level",
        ),
        (source_error("mqtt", &[("url", "ws://h:1"), ("topic", "a")]), "expected `tcp://host:port`"),
        (source_error("mqtt", &[("url", "h"), ("topic", "a")]), "not a URL"),
        (source_error("mqtt", &[("url", "tcp://h"), ("topic", "a"), ("quality.of.service", "3")]), "0, 1, 2"),
        (sink_error("mqtt", &[("url", "tcp://h"), ("topic", "a/+")]), "cannot be sent to a wildcard"),
        (sink_error("mqtt", &[("url", "tcp://h"), ("topic", "{{x}}")]), "no attribute `x`"),
        (sink_error("mqtt", &[("url", "ssl://h"), ("topic", "a"), ("tls.ca.file", "/none")]), "cannot read"),
    ] {
        assert!(found.contains(expected), "{found}");
    }
}
