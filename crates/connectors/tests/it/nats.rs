//! NATS with and without JetStream: round trips, a server that is killed, crashes of this side, shared consumers, poison
//! messages, logins, refusals.

use tidemill_connect::runtime;

use crate::helpers::{free_port, sink_error, source_error, wait_until};
use crate::servers;
use crate::stored::{StoredSink, StoredSource};

fn name() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

fn publish(url: &str, subject: &str, payloads: &[&str]) {
    runtime().block_on(async {
        let client = async_nats::connect(url).await.unwrap();
        for payload in payloads {
            client.publish(subject.to_owned(), (*payload).to_owned().into()).await.unwrap();
        }
        client.flush().await.unwrap();
    });
}

fn all(end: i64) -> Vec<i64> {
    (0..end).collect()
}

#[test]
fn events_go_through_subjects_in_order() {
    let Some(server) = servers::shared("nats") else { return };
    let url = server.address("SERVERS_NATS");
    for extra in [None, Some(("cluster.id", "test-cluster"))] {
        let name = name();
        let (pattern, subject) = (format!("{name}.>"), format!("{name}.{{{{text}}}}.x"));
        let mut options = vec![("bootstrap.servers", url), ("destination", &*pattern)];
        options.extend(extra);
        let mut source = StoredSource::start(&name, "nats", &options);
        source.wait_working();
        let mut options = vec![("server.urls", url), ("destination", &*subject)];
        options.extend(extra);
        let mut sink = StoredSink::new(&name, "nats", &options);
        sink.deliver(3000, 700, &|n| format!("t{}", n % 3));
        source.poll_rows(3000);
        source.assert_ordered();
        assert_eq!(source.sorted(), all(3000), "{extra:?}");
    }
}

/// The server is killed, and both sides of this program crash, while events go through JetStream.
#[test]
fn jetstream_neither_loses_nor_doubles() {
    let Some(server) = servers::own("nats") else { return };
    let url = server.address("SERVERS_NATS").to_owned();
    let name = name();
    let options = [("bootstrap.servers", &*url), ("destination", &*name), ("cluster.id", "c")];
    let mut source = StoredSource::start(&name, "nats", &options);
    source.wait_working();
    let mut sink = StoredSink::new(&name, "nats", &options);
    sink.deliver(500, 100, &|_| "a".into());
    // sent again, as after a crash that forgot what was delivered
    sink.forget_progress(&name, "nats", &options);
    let sender = std::thread::spawn(move || sink.deliver(4000, 100, &|_| "a".into()));
    source.poll_rows(300);
    source.restart();
    source.poll_rows(600);
    server.kill();
    source.poll();
    source.restart();
    server.start_again();
    sender.join().unwrap();
    source.poll_rows(4000);
    source.assert_ordered();
    assert_eq!(source.sorted(), all(4000));
}

#[test]
fn the_first_start_is_chosen() {
    let Some(server) = servers::shared("nats") else { return };
    let url = server.address("SERVERS_NATS");
    let name = name();
    let options = [("bootstrap.servers", url), ("destination", &*name), ("cluster.id", "c")];
    let mut sink = StoredSink::new(&name, "nats", &options);
    sink.deliver(10, 10, &|_| "a".into());
    let first = [("bootstrap.servers", url), ("destination", &*name), ("subscription.sequence", "8")];
    let mut source = StoredSource::start("first", "nats", &first);
    source.poll_rows(3);
    assert_eq!(source.sorted(), [7, 8, 9]);
    // later starts continue where the log says
    source.rows.clear();
    source.restart();
    sink.deliver(11, 1, &|_| "a".into());
    source.poll_rows(1);
    assert_eq!(source.sorted(), [10]);
    // a durable consumer that another program used
    runtime().block_on(async {
        use async_nats::jetstream::consumer::pull::Config;
        use futures::StreamExt;
        let context = async_nats::jetstream::new(async_nats::connect(url).await.unwrap());
        let stream = context.get_stream(&name).await.unwrap();
        let config = Config { durable_name: Some("old".into()), ..Config::default() };
        let consumer = stream.create_consumer(config).await.unwrap();
        let mut messages = consumer.fetch().max_messages(5).messages().await.unwrap();
        while let Some(message) = messages.next().await {
            message.unwrap().double_ack().await.unwrap();
        }
    });
    let durable = [("bootstrap.servers", url), ("destination", &*name), ("durable.name", "old")];
    let mut source = StoredSource::start("durable", "nats", &durable);
    source.poll_rows(6);
    assert_eq!(source.sorted(), [5, 6, 7, 8, 9, 10]);
}

#[test]
fn queue_groups_share_messages() {
    let Some(server) = servers::shared("nats") else { return };
    let url = server.address("SERVERS_NATS");
    for extra in [None, Some(("cluster.id", "c"))] {
        let name = name();
        let mut options = vec![("bootstrap.servers", url), ("destination", &*name)];
        options.extend(extra);
        let mut sink = StoredSink::new(&name, "nats", &options);
        options.extend([("queue.group.name", "workers"), ("ack.wait", "1")]);
        let mut sources = ["a", "b"].map(|name| StoredSource::start(name, "nats", &options));
        for source in &mut sources {
            source.wait_working();
        }
        sink.deliver(2000, 100, &|_| "a".into());
        let [first, second] = &mut sources;
        first.poll_until("all messages came", |first| {
            second.poll();
            first.rows.len() + second.rows.len() >= 2000
        });
        assert!(!first.rows.is_empty() && !second.rows.is_empty());
        let mut found = [first.sorted(), second.sorted()].concat();
        found.sort_unstable();
        assert_eq!(found, all(2000));
    }
}

/// A work queue drops messages when they are acknowledged, and has one consumer only.
#[test]
fn work_queues_are_acknowledged() {
    let Some(server) = servers::shared("nats") else { return };
    let url = server.address("SERVERS_NATS");
    let name = name();
    let with_stream = || async {
        use async_nats::jetstream::stream::{Config, RetentionPolicy};
        let context = async_nats::jetstream::new(async_nats::connect(url).await.unwrap());
        let config = Config {
            name: name.clone(),
            subjects: vec![name.clone()],
            retention: RetentionPolicy::WorkQueue,
            ..Config::default()
        };
        context.get_or_create_stream(config).await.unwrap().get_info().await.unwrap().state.messages
    };
    runtime().block_on(with_stream());
    let options = [("server.urls", url), ("destination", &*name), ("stream.name", &*name), ("ack.wait", "1")];
    let mut source = StoredSource::start(&name, "nats", &options);
    source.wait_working();
    source.acknowledges = false;
    StoredSink::new(&name, "nats", &options).deliver(10, 10, &|_| "a".into());
    source.poll_rows(10);
    assert_eq!(runtime().block_on(with_stream()), 10);
    // what is not acknowledged comes again, also after a crash
    source.rows.clear();
    source.restart();
    source.acknowledges = true;
    source.poll_until("all messages came again", |source| {
        let mut found = source.sorted();
        found.dedup();
        found == all(10)
    });
    wait_until("the stream is empty", || {
        source.poll();
        runtime().block_on(with_stream()) == 0
    });
}

#[test]
fn poison_messages_are_rejected_and_others_taken() {
    let Some(server) = servers::shared("nats") else { return };
    let url = server.address("SERVERS_NATS");
    for extra in [None, Some(("cluster.id", "c"))] {
        let name = name();
        let mut options = vec![("bootstrap.servers", url), ("destination", &*name)];
        options.extend(extra);
        let mut source = StoredSource::start(&name, "nats", &options);
        source.wait_working();
        let good = r#"{"event": {"text": "a", "n": 1}}"#;
        publish(url, &name, &[good, "\u{0}{{{", "", r#"{"event": {"text": "a", "n": "x"}}"#, good]);
        source.poll_until("all messages came", |source| source.rows.len() == 2 && source.rejected.len() == 3);
        source.restart();
        source.wait_working();
        publish(url, &name, &[good]);
        source.poll_rows(3);
        assert_eq!(source.rejected.len(), 3);
    }
}

#[test]
fn refused_events_do_not_stop_others() {
    let Some(server) = servers::shared("nats") else { return };
    let url = server.address("SERVERS_NATS");
    for extra in [None, Some(("cluster.id", "c"))] {
        let name = name();
        let (pattern, subject) = (format!("{name}.>"), format!("{name}.{{{{text}}}}"));
        let mut options = vec![("bootstrap.servers", url), ("destination", &*pattern)];
        options.extend(extra);
        let mut source = StoredSource::start(&name, "nats", &options);
        source.wait_working();
        options[1] = ("destination", &*subject);
        let mut sink = StoredSink::new(&name, "nats", &options);
        let text = |n: i64| match n {
            2 => "a.*".to_owned(),
            3 => "a b".to_owned(),
            _ => "a".to_owned(),
        };
        sink.deliver(6, 6, &text);
        let rows: Vec<usize> = sink.refused.iter().map(|refused| refused.row).collect();
        assert_eq!(rows, [2, 3], "{:?}", sink.refused);
        assert!(sink.refused[0].reason.contains("wildcard"), "{:?}", sink.refused);
        source.poll_rows(4);
        assert_eq!(source.sorted(), [0, 1, 4, 5]);
        // a payload above the limit of the server
        let mut sink =
            StoredSink::new("large", "nats", &[("bootstrap.servers", url), ("destination", &name)]);
        sink.deliver(1, 1, &|_| "x".repeat(2 << 20));
        assert!(sink.refused[0].reason.contains("the server takes 1048576"), "{:?}", sink.refused);
    }
    let options = [("bootstrap.servers", url), ("destination", "nobody.{{text}}"), ("cluster.id", "c")];
    let mut sink = StoredSink::new("nobody", "nats", &options);
    sink.deliver(1, 1, &|_| name());
    assert!(sink.refused[0].reason.contains("no JetStream stream"), "{:?}", sink.refused);
}

#[test]
fn logins_work_and_wrong_ones_keep_their_secret() {
    let Some(server) = servers::shared("nats") else { return };
    let url = server.address("SERVERS_NATS");
    let name = name();
    let with_login = url.replace("nats://", "nats://tidemill:tidemill@");
    let options = [("bootstrap.servers", &*with_login), ("destination", &*name)];
    StoredSource::start(&name, "nats", &options).wait_working();
    let options = [
        ("bootstrap.servers", url),
        ("destination", &*name),
        ("auth.type", "user"),
        ("username", "tidemill"),
        ("password", "tidemill"),
    ];
    StoredSink::new(&name, "nats", &options).connect().unwrap();
    let wrong = url.replace("nats://", "nats://tidemill:hunter2@");
    for options in [
        vec![("bootstrap.servers", &*wrong), ("destination", "a")],
        vec![
            ("bootstrap.servers", url),
            ("destination", "a"),
            ("username", "tidemill"),
            ("password", "hunter2"),
        ],
    ] {
        let problem = StoredSource::start(&name, "nats", &options).wait_problem();
        assert!(problem.contains("refuses the login") && !problem.contains("hunter2"), "{problem}");
        let error = StoredSink::new(&name, "nats", &options).connect().unwrap_err();
        assert!(error.kind().is_retryable() && !error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn tls_works_and_unknown_authorities_are_refused() {
    let Some(server) = servers::shared("nats") else { return };
    let (url, authority) = (server.address("SERVERS_NATS_TLS"), server.address("SERVERS_NATS_CA"));
    let name = name();
    let options = [("server.urls", url), ("destination", &*name), ("truststore.file", authority)];
    let mut source = StoredSource::start(&name, "nats", &options);
    source.wait_working();
    StoredSink::new(&name, "nats", &options).deliver(10, 10, &|_| "a".into());
    source.poll_rows(10);
    let error = StoredSink::new(&name, "nats", &options[..2]).connect().unwrap_err().to_string();
    assert!(error.contains("TLS") || error.contains("certificate"), "{error}");
}

#[test]
fn unreachable_servers_are_reported() {
    let address = format!("127.0.0.1:{}", free_port());
    let url = format!("nats://user:hunter2@{address}");
    let options = [("bootstrap.servers", &*url), ("destination", "a")];
    let text = StoredSink::new("away", "nats", &options).connect().unwrap_err().to_string();
    assert!(text.contains(&address) && text.contains("refused") && !text.contains("hunter2"), "{text}");
    let url = format!("{url},nats://user:hunter2@127.0.0.1:{}", free_port());
    let options = [("bootstrap.servers", &*url), ("destination", "a"), ("cluster.id", "c")];
    let problem = StoredSource::start("away", "nats", &options).wait_problem();
    assert!(problem.contains(&address) && !problem.contains("hunter2"), "{problem}");
}

#[test]
fn wrong_options_are_refused() {
    let source = |options: &[(&str, &str)]| source_error("nats", options);
    let sink = |options: &[(&str, &str)]| sink_error("nats", options);
    for (found, expected) in [
        (source(&[("bootstrap.servers", "nats://h:1")]), "needs the option `destination`"),
        (source(&[("destination", "a..b")]), "empty part"),
        (source(&[("destination", "a.>.b")]), "`>` must be the last part"),
        (sink(&[("destination", "a.*")]), "cannot be sent to a wildcard"),
        (sink(&[("destination", "{{x}}")]), "no attribute `x`"),
        (sink(&[("destination", "a"), ("bootstrap.servers", "http://u:hunter2@h")]), "it is no URL of NATS"),
        (sink(&[("destination", "a"), ("server.urls", "ws://u:hunter2@h")]), "`ws://` is not supported"),
        (sink(&[("destination", "a"), ("server.urls", "nats://u:hunter2@h:x")]), "address 1: it is no URL"),
        (sink(&[("destination", "a"), ("server.urls", ",")]), "expected addresses with commas"),
        (
            sink(&[("destination", "a"), ("server.urls", "nats://h"), ("bootstrap.servers", "nats://h")]),
            "write one of both",
        ),
        (source(&[("destination", "a"), ("durable.name", "a.b")]), "`a.b` is no name"),
        (source(&[("destination", "a"), ("subscription.sequence", "x")]), "expected an integer"),
        (source(&[("destination", "a"), ("auth.type", "user"), ("username", "u")]), "which needs it"),
        (source(&[("destination", "a"), ("token", "hunter2"), ("username", "u")]), "either a token or user"),
        (source(&[("destination", "a"), ("truststore.file", "store.jks")]), "is a Java key store"),
        (source(&[("destination", "a"), ("optional.configuration", "a:b")]), "no property of the client"),
        (source(&[("destination", "a"), ("queue.name", "q")]), "has no such option"),
    ] {
        assert!(found.contains(expected) && !found.contains("hunter2"), "{found}");
    }
}
