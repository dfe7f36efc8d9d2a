//! Redis streams and channels: round trips, a server that is killed, crashes of this side, groups, poison messages, logins,
//! refusals.

use redis::Value;
use tidemill_connect::runtime;

use crate::helpers::{config, free_port, sink_error, source_error};
use crate::servers;
use crate::stored::{StoredSink, StoredSource, check_former_owner};

fn name() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

fn all(end: i64) -> Vec<i64> {
    (0..end).collect()
}

/// Runs a command of another client.
fn command(url: &str, words: &[&[u8]]) -> Value {
    runtime().block_on(async {
        let client = redis::Client::open(url).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query_async(&mut connection).await.unwrap()
    })
}

fn event(n: i64) -> Vec<u8> {
    format!(r#"{{"event": {{"text": "a", "n": {n}}}}}"#).into_bytes()
}

#[test]
fn events_go_through_streams_in_order() {
    let Some(server) = servers::shared("redis") else { return };
    let url = server.address("SERVERS_REDIS");
    for extra in [None, Some(("group", "workers"))] {
        let name = name();
        let mut options = vec![("url", url), ("stream", &*name)];
        let mut sink = StoredSink::new(&name, "redis", &options);
        options.extend(extra);
        let mut source = StoredSource::start(&name, "redis", &options);
        source.wait_working();
        sink.deliver(5000, 1500, &|n| format!("t{}", n % 3));
        source.poll_rows(5000);
        source.assert_ordered();
        assert_eq!(source.sorted(), all(5000), "{extra:?}");
    }
}

#[test]
fn events_go_through_channels() {
    let Some(server) = servers::shared("redis") else { return };
    let url = server.address("SERVERS_REDIS");
    let name = name();
    let patterns = format!("{name}.t0,{name}.t[12]");
    let mut source = StoredSource::start(&name, "redis", &[("url", url), ("channel", &patterns)]);
    source.wait_working();
    let channel = format!("{name}.{{{{text}}}}");
    let mut sink = StoredSink::new(&name, "redis", &[("url", url), ("channel", &channel)]);
    sink.deliver(3000, 700, &|n| format!("t{}", n % 4));
    source.poll_rows(2250);
    source.assert_ordered();
    assert_eq!(source.sorted(), all(3000).into_iter().filter(|n| n % 4 < 3).collect::<Vec<_>>());
}

/// The server is killed, and both sides of this program crash, while events go through a stream.
#[test]
fn streams_neither_lose_nor_double() {
    let Some(server) = servers::own("redis") else { return };
    let url = server.address("SERVERS_REDIS").to_owned();
    let name = name();
    let options = [("url", &*url), ("stream", &*name)];
    let mut source = StoredSource::start(&name, "redis", &options);
    source.wait_working();
    let mut sink = StoredSink::new(&name, "redis", &options);
    sink.deliver(500, 100, &|_| "a".into());
    sink.forget_progress(&name, "redis", &options);
    let sender = std::thread::spawn(move || sink.deliver(6000, 50, &|_| "a".into()));
    source.poll_rows(300);
    source.restart();
    source.poll_rows(900);
    server.kill();
    source.poll();
    source.restart();
    server.start_again();
    sender.join().unwrap();
    source.poll_rows(6000);
    source.assert_ordered();
    assert_eq!(source.sorted(), all(6000));
}

#[test]
fn groups_share_entries_and_get_them_again_until_they_are_acknowledged() {
    let Some(server) = servers::shared("redis") else { return };
    let url = server.address("SERVERS_REDIS");
    let name = name();
    let mut sink = StoredSink::new(&name, "redis", &[("url", url), ("stream", &name)]);
    sink.deliver(10, 10, &|_| "a".into());
    let options = [("url", url), ("stream", &*name), ("group", "g"), ("claim.idle", "500 ms")];
    let mut first = StoredSource::start("first", "redis", &options);
    first.acknowledges = false;
    first.poll_rows(10);
    first.rows.clear();
    first.restart();
    first.poll_rows(10);
    // another consumer takes over what a dead one did not acknowledge, in its order
    drop(first);
    let mut second = StoredSource::start("second", "redis", &options);
    second.poll_rows(10);
    assert_eq!(second.sorted(), all(10));
    let mut third = StoredSource::start("third", "redis", &options);
    third.wait_working();
    second.wait_working();
    sink.deliver(2000, 10, &|_| "a".into());
    second.poll_until("all entries came", |second| {
        third.poll();
        let mut found = [second.sorted(), third.sorted()].concat();
        found.sort_unstable();
        found.dedup();
        found.len() == 2000
    });
    second.poll();
    third.poll();
}

#[test]
fn the_first_start_is_chosen() {
    let Some(server) = servers::shared("redis") else { return };
    let url = server.address("SERVERS_REDIS");
    for extra in [None, Some(("group", "g"))] {
        let name = name();
        for n in 1..4 {
            let id = format!("5-{n}");
            command(url, &[b"XADD", name.as_bytes(), id.as_bytes(), b"payload", &event(n)]);
        }
        let mut options = vec![("url", url), ("stream", &*name), ("start", "5-2")];
        options.extend(extra);
        let mut source = StoredSource::start(&name, "redis", &options);
        source.poll_rows(2);
        assert_eq!(source.sorted(), [2, 3]);
        let (end, group) = (format!("{name}-end"), format!("{name}-group"));
        let mut options = vec![("url", url), ("stream", &*name), ("start", "end")];
        options.extend(extra.map(|_| ("group", &*group)));
        let mut source = StoredSource::start(&end, "redis", &options);
        source.wait_working();
        command(url, &[b"XADD", name.as_bytes(), b"6-0", b"payload", &event(4)]);
        source.poll_rows(1);
        assert_eq!(source.sorted(), [4]);
        // later starts continue where the log, or the group, says
        source.restart();
        source.wait_working();
        command(url, &[b"XADD", name.as_bytes(), b"6-1", b"payload", &event(5)]);
        source.poll_until("the last entry came", |source| source.rows.iter().any(|(_, n)| *n == 5));
    }
}

#[test]
fn fields_are_properties() {
    let Some(server) = servers::shared("redis") else { return };
    let url = server.address("SERVERS_REDIS");
    let name = name();
    let mut configured = config("redis", &[("url", url), ("stream", &name), ("payload.field", "body")]);
    let mapper = configured.mapper.as_mut().unwrap();
    mapper.attributes = [("text", "trp:site"), ("n", "$.n")]
        .map(|(name, text)| tidemill_connect::NamedText { name: Some(name.into()), text: text.into() })
        .into();
    let mut source = StoredSource::start_with(&name, configured);
    let words: [&[u8]; 9] = [
        b"XADD",
        name.as_bytes(),
        b"*",
        b"site",
        b"north",
        b"body",
        br#"{"event": {"n": 7}}"#,
        b"\xff",
        b"\x00",
    ];
    command(url, &words);
    let words: [&[u8]; 7] = [b"XADD", name.as_bytes(), b"*", b"site", b"south", b"body", br#"{"n": 8}"#];
    command(url, &words);
    source.poll_until("both entries came", |source| source.rows.len() + source.rejected.len() == 2);
    assert!(source.rows.len() == 1, "{:?} {:?}", source.rows, source.rejected);
}

#[test]
fn poison_entries_are_rejected_and_others_taken() {
    let Some(server) = servers::shared("redis") else { return };
    let url = server.address("SERVERS_REDIS");
    for extra in [None, Some(("group", "g"))] {
        let name = name();
        let mut options = vec![("url", url), ("stream", &*name)];
        options.extend(extra);
        let mut source = StoredSource::start(&name, "redis", &options);
        source.wait_working();
        let good = event(1);
        let bad: [&[u8]; 3] = [b"\x00\xff{{{", b"", br#"{"event": {"text": "a", "n": "x"}}"#];
        for payload in [&good[..], bad[0], bad[1], bad[2], &good[..]] {
            command(url, &[b"XADD", name.as_bytes(), b"*", b"payload", payload]);
        }
        command(url, &[b"XADD", name.as_bytes(), b"*", b"\xfe\xff", b"\x00"]);
        source.poll_until("all entries came", |source| source.rows.len() == 2 && source.rejected.len() == 4);
        if extra.is_none() {
            source.restart();
            source.wait_working();
            command(url, &[b"XADD", name.as_bytes(), b"*", b"payload", &good]);
            source.poll_rows(3);
            assert_eq!(source.rejected.len(), 4);
            // an id that no position holds stops the source with a reason, rather than doubling or losing entries
            command(url, &[b"XADD", name.as_bytes(), b"9999999999999999-1", b"payload", &good]);
            assert!(source.wait_problem().contains("read the stream with `group`"));
        }
    }
}

#[test]
fn refused_events_do_not_stop_others() {
    let Some(server) = servers::shared("redis") else { return };
    let url = server.address("SERVERS_REDIS");
    let name = name();
    let text = format!("{name}-text");
    command(url, &[b"SET", text.as_bytes(), b"x"]);
    let mut sink = StoredSink::new(&name, "redis", &[("url", url), ("stream", "{{text}}")]);
    sink.deliver(6, 6, &|n| if n == 2 { text.clone() } else { name.clone() });
    assert_eq!(sink.refused.iter().map(|refused| refused.row).collect::<Vec<_>>(), [2], "{:?}", sink.refused);
    assert!(sink.refused[0].reason.contains("WRONGTYPE"), "{:?}", sink.refused);
    let mut source = StoredSource::start(&name, "redis", &[("url", url), ("stream", &name)]);
    source.poll_rows(5);
    assert_eq!(source.sorted(), [0, 1, 3, 4, 5]);
    // the limit of a stream is approximate
    let mut sink = StoredSink::new("short", "redis", &[("url", url), ("stream", &name), ("maxlen", "100")]);
    sink.deliver(3000, 1000, &|_| "a".into());
    let Value::Int(length) = command(url, &[b"XLEN", name.as_bytes()]) else { panic!("XLEN is a number") };
    assert!((100..1000).contains(&length), "{length}");
    command(url, &[b"SET", format!("{name}-position").as_bytes(), b"x"]);
    let position = format!("{name}-position");
    let options = [("url", url), ("stream", &*name), ("position.key", &*position)];
    let error = StoredSink::new("wrong", "redis", &options).connect().unwrap_err().to_string();
    assert!(error.contains("the positions in") && error.contains("WRONGTYPE"), "{error}");
}

#[test]
fn tls_works_and_unknown_authorities_are_refused() {
    let Some(server) = servers::shared("redis") else { return };
    let (url, authority) = (server.address("SERVERS_REDIS_TLS"), server.address("SERVERS_REDIS_CA"));
    let name = name();
    for target in ["stream", "channel"] {
        let options = [("url", url), (target, &*name), ("tls.ca.file", authority)];
        let mut source = StoredSource::start(&name, "redis", &options);
        source.wait_working();
        StoredSink::new(&name, "redis", &options).deliver(10, 10, &|_| "a".into());
        source.poll_rows(10);
        let error = StoredSink::new(&name, "redis", &options[..2]).connect().unwrap_err().to_string();
        assert!(error.contains("certificate"), "{error}");
    }
}

#[test]
fn wrong_logins_and_unreachable_servers_keep_their_secret() {
    let Some(server) = servers::shared("redis") else { return };
    let url = server.address("SERVERS_REDIS");
    let name = name();
    let with_login = url.replace("redis://", "redis://tidemill:tidemill@");
    for options in [
        vec![("url", &*with_login), ("stream", &*name)],
        vec![("url", url), ("username", "tidemill"), ("password", "tidemill"), ("channel", "c")],
    ] {
        StoredSource::start(&name, "redis", &options).wait_working();
    }
    let wrong = url.replace("redis://", "redis://tidemill:hunter2@");
    for target in ["stream", "channel"] {
        let options = [("url", &*wrong), (target, &*name)];
        let problem = StoredSource::start(&name, "redis", &options).wait_problem();
        assert!(problem.contains("WRONGPASS") || problem.contains("authentication"), "{problem}");
        assert!(!problem.contains("hunter2"), "{problem}");
        let error = StoredSink::new(&name, "redis", &options).connect().unwrap_err();
        assert!(error.kind().is_retryable() && !error.to_string().contains("hunter2"), "{error}");
    }
    let address = format!("127.0.0.1:{}", free_port());
    let url = format!("redis://user:hunter2@{address}");
    let text = StoredSink::new("away", "redis", &[("url", &*url), ("stream", "s")])
        .connect()
        .unwrap_err()
        .to_string();
    assert!(text.contains(&address) && text.contains("refused") && !text.contains("hunter2"), "{text}");
}

#[test]
fn wrong_options_are_refused() {
    let source = |options: &[(&str, &str)]| source_error("redis", options);
    let sink = |options: &[(&str, &str)]| sink_error("redis", options);
    for (found, expected) in [
        (source(&[]), "write either `stream` or `channel`"),
        (source(&[("stream", "s"), ("channel", "c")]), "write either `stream` or `channel`"),
        (source(&[("channel", ",")]), "expected channels with commas"),
        (source(&[("channel", "c"), ("group", "g")]), "channels have no entries"),
        (source(&[("stream", "s"), ("consumer", "c")]), "it needs `group`"),
        (source(&[("stream", "s"), ("start", "now")]), "or `beginning` or `end`"),
        (source(&[("stream", "s"), ("url", "http://u:hunter2@h")]), "no URL of Redis"),
        (source(&[("stream", "s"), ("url", "redis://u:hunter2@h/x")]), "expected `redis://"),
        (source(&[("stream", "s"), ("username", "u")]), "a user needs a password"),
        (source(&[("stream", "s"), ("url", "rediss://h"), ("tls.ca.file", "/none")]), "cannot read"),
        (source(&[("stream", "s"), ("streem", "s")]), "has no such option"),
        (sink(&[]), "write either `stream` or `channel`"),
        (sink(&[("stream", "{{x}}")]), "no attribute `x`"),
        (sink(&[("channel", "c"), ("maxlen", "5")]), "channels have no entries"),
        (sink(&[("stream", "s"), ("maxlen", "0")]), "expected an integer from 1"),
    ] {
        assert!(found.contains(expected) && !found.contains("hunter2"), "{found}\nexpected {expected}");
    }
}

#[test]
fn a_former_owner_of_a_partition_adds_nothing_after_the_present_one() {
    let Some(server) = servers::shared("redis") else { return };
    let url = server.address("SERVERS_REDIS");
    let name = name();
    let options = [("url", url), ("stream", &*name)];
    check_former_owner("redis", &name, &options, &mut |events| {
        let mut source = StoredSource::start(&name, "redis", &options);
        source.poll_rows(events);
        source.sorted()
    });
}
