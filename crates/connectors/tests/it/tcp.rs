//! TCP over loopback: Siddhi's protocol, lines, lengths; lost connections, bad bytes, back-pressure.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use crate::helpers::{
    TestSource, config, context, deliver, deliver_all, free_port, sink, sink_error, source_error, wait_until,
};

fn source(port: u16, options: &[(&str, &str)]) -> TestSource {
    let port = port.to_string();
    let common = [("host", "127.0.0.1"), ("port", port.as_str())];
    let source = TestSource::start("tcp", &[&common, options].concat());
    source.wait_working();
    source
}

fn client(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream
}

fn event(text: &str, n: i64) -> String {
    format!("{{\"event\":{{\"text\":\"{text}\",\"n\":{n}}}}}")
}

/// Returns a message of Siddhi's protocol.
fn siddhi_frame(channel: &str, payload: &str) -> Vec<u8> {
    let parts = [b"session".as_slice(), channel.as_bytes(), payload.as_bytes()];
    let length: usize = parts.iter().map(|part| part.len() + 4).sum();
    let mut frame = vec![2];
    frame.extend((length as i32).to_be_bytes());
    for part in parts {
        frame.extend((part.len() as i32).to_be_bytes());
        frame.extend(part);
    }
    frame
}

#[test]
fn messages_of_siddhis_protocol_go_to_the_sources_of_their_channels() {
    let port = free_port();
    let mut first = source(port, &[]);
    let mut second = source(port, &[("context", "other")]);
    let mut stream = client(port);
    for n in 0..3 {
        stream.write_all(&siddhi_frame("app/S", &event("a", n))).unwrap();
        stream.write_all(&siddhi_frame("other", &event("b", n))).unwrap();
    }
    // a message that arrives byte by byte
    for byte in siddhi_frame("other", &event("slow", 9)) {
        stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(first.poll_rows(3), ["a 0", "a 1", "a 2"]);
    assert_eq!(second.poll_rows(4), ["b 0", "b 1", "b 2", "slow 9"]);

    // one of them stops: the other keeps the port
    drop(first);
    stream.write_all(&siddhi_frame("other", &event("c", 1))).unwrap();
    assert_eq!(second.poll_rows(5)[4], "c 1");
    stream.write_all(&siddhi_frame("app/S", &event("nobody", 1))).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the connection is closed");
    second.poll_until("the problem is reported", |source| {
        source.health().contains("no source has the channel")
    });
    let expected = "no source has the channel `app/S`; there are: other";
    assert!(second.health().ends_with(expected), "{}", second.health());

    // a port is free again when its last source has stopped
    drop(second);
    let mut again = source(port, &[]);
    client(port).write_all(&siddhi_frame("app/S", &event("again", 1))).unwrap();
    assert_eq!(again.poll_rows(1), ["again 1"]);
}

#[test]
fn events_go_from_a_sink_to_a_source() {
    for framing in ["siddhi", "line", "length"] {
        for acknowledge in ["true", "false"] {
            let port = free_port();
            let options = [("framing", framing), ("acknowledge", acknowledge)];
            let mut source = source(port, &options);
            let url = format!("tcp://127.0.0.1:{port}/app/S");
            let mut sink = sink("tcp", &[&[("url", url.as_str()), ("sync", "true")], &options[..]].concat());
            let receiver = std::thread::spawn(move || {
                source.poll_rows(2000);
                source
            });
            let texts: Vec<String> = (0..1000).map(|n| format!("event {n}")).collect();
            let events: Vec<(&str, i64)> =
                texts.iter().enumerate().map(|(n, t)| (t.as_str(), n as i64)).collect();
            for _ in 0..2 {
                let (progress, delivered) = deliver(&mut sink, &events);
                delivered.unwrap();
                assert_eq!((progress.delivered, progress.refused.len()), (1000, 0));
            }
            let expected: Vec<String> = (0..2000).map(|n| format!("event {0} {0}", n % 1000)).collect();
            assert_eq!(receiver.join().unwrap().rows, expected, "{framing}");
            sink.close();
        }
    }
}

#[test]
fn a_sink_sends_again_what_a_restarted_source_did_not_acknowledge() {
    let port = free_port();
    let options = [("framing", "length"), ("acknowledge", "true")];
    let url = format!("tcp://127.0.0.1:{port}");
    let sender = std::thread::spawn(move || {
        let mut sink = sink("tcp", &[&[("url", url.as_str())], &options[..]].concat());
        let texts: Vec<String> = (0..200).map(|n| format!("e{n}")).collect();
        for (n, text) in texts.iter().enumerate() {
            deliver_all(&mut sink, &[(text, n as i64)]);
        }
    });
    let mut durable: Vec<String> = vec![];
    for _ in 0..4 {
        let mut source = source(port, &options);
        source.poll_until("rows arrived", |source| source.rows.len() >= 30);
        durable.extend(source.rows.iter().cloned());
        // what arrives now is taken, but its source stops before it is durable
        source.acknowledges = false;
        let before = source.rows.len();
        source.poll_until("one more arrived", |source| source.rows.len() > before);
    }
    let mut source = source(port, &options);
    wait_until("the sender is done", || {
        source.poll();
        sender.is_finished()
    });
    sender.join().unwrap();
    durable.extend(source.rows.iter().cloned());
    // an acknowledgement may be lost with its connection, then the event comes twice; none is missing
    durable.dedup();
    let expected: Vec<String> = (0..200).map(|n| format!("e{n} {n}")).collect();
    assert_eq!(durable, expected);
}

#[test]
fn a_sink_notices_that_the_other_side_is_away() {
    let port = free_port();
    let url = format!("tcp://127.0.0.1:{port}/c");
    let mut sink = sink("tcp", &[("url", &url)]);
    let (progress, error) = deliver(&mut sink, &[("a", 1)]);
    let error = error.unwrap_err();
    assert_eq!(progress.delivered, 0);
    assert!(error.kind().is_retryable());
    assert!(error.message().starts_with(&format!("cannot connect to tcp://127.0.0.1:{port}: ")), "{error}");

    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    deliver(&mut sink, &[("a", 1)]).1.unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let mut frame = vec![0; siddhi_frame("c", &event("a", 1)).len()];
    peer.read_exact(&mut frame[..1]).unwrap();
    assert_eq!(frame[0], 2);
    drop(peer);
    let mut lost = None;
    wait_until("the loss is noticed", || {
        lost = deliver(&mut sink, &[("b", 2)]).1.err();
        lost.is_some()
    });
    let lost = lost.unwrap();
    assert!(
        lost.message().starts_with(&format!("the connection is lost to tcp://127.0.0.1:{port}: ")),
        "{lost}"
    );
    deliver(&mut sink, &[("c", 3)]).1.unwrap();
}

#[test]
fn good_messages_before_wrong_bytes_are_kept() {
    let port = free_port();
    let mut source = source(port, &[("max.message.bytes", "200")]);
    let cases: [(&str, Vec<u8>); 3] = [
        ("found the byte 71; for lines write framing='line'", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        (
            "a message of 1073741824 bytes or more is longer than max.message.bytes='200'",
            vec![2, 64, 0, 0, 0],
        ),
        ("a message of 14 bytes has parts of 13 bytes", {
            vec![2, 0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0, 1, b'd', 0, 0, 0, 0, 255]
        }),
    ];
    for (index, (expected, wrong)) in cases.into_iter().enumerate() {
        let mut stream = client(port);
        let mut bytes = siddhi_frame("app/S", &event("good", index as i64));
        bytes.extend(wrong);
        stream.write_all(&bytes).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "the connection is closed");
        source.poll_rows(index + 1);
        wait_until("the problem is reported", || source.health().ends_with(expected));
    }
    assert_eq!(source.rows, ["good 0", "good 1", "good 2"]);
    // a message that the mapper does not understand is rejected, and the connection stays
    let mut stream = client(port);
    stream.write_all(&siddhi_frame("app/S", "no json")).unwrap();
    stream.write_all(&siddhi_frame("app/S", &event("after", 3))).unwrap();
    assert_eq!(source.poll_rows(4)[3], "after 3");
    assert_eq!(source.rejected.len(), 1);
    source.wait_working();
}

#[test]
fn half_open_and_half_sent_connections_disturb_nobody() {
    let port = free_port();
    let mut source = source(port, &[("framing", "line")]);
    let silent: Vec<TcpStream> = (0..50).map(|_| client(port)).collect();
    let mut partial = client(port);
    partial.write_all(b"{\"text\":\"par").unwrap();
    let mut good = client(port);
    writeln!(good, "{}", event("good", 1)).unwrap();
    assert_eq!(source.poll_rows(1), ["good 1"]);
    // the other half comes without a line break, then the end
    partial.write_all(b"tial\",\"n\":2}").unwrap();
    partial.shutdown(Shutdown::Write).unwrap();
    assert_eq!(source.poll_rows(2)[1], "partial 2");
    drop(silent);
}

#[test]
fn a_source_whose_engine_waits_does_not_read() {
    let port = free_port();
    let mut source = source(port, &[("framing", "line")]);
    let mut stream = client(port);
    stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    let filler = "x".repeat(100_000);
    let mut sent = 0;
    // the engine takes nothing: after the bound of waiting bytes, writing blocks
    while sent < 2000 && writeln!(stream, "{}", event(&filler, sent)).is_ok() {
        sent += 1;
    }
    assert!((200..1500).contains(&sent), "{sent} messages of 100 kB were taken without an engine");
    source.poll_rows(sent as usize);
    let in_order = source.rows.iter().enumerate().all(|(n, row)| row.ends_with(&format!(" {n}")));
    assert!(in_order);
}

#[test]
fn sources_that_do_not_fit_together_say_so() {
    let port = free_port();
    let _first = source(port, &[]);
    let port = port.to_string();
    let at = |options: &[(&str, &str)]| {
        let common = [("host", "127.0.0.1"), ("port", port.as_str())];
        let source = TestSource::start_in(&context("app", "S"), &config("tcp", &[&common, options].concat()));
        wait_until("the problem is reported", || source.health() != "it is connecting");
        source.health()
    };
    assert_eq!(
        at(&[]),
        format!(
            "127.0.0.1:{port}: another source has the channel `app/S`; choose another context; the source connects \
             again"
        )
    );
    assert!(at(&[("framing", "line")]).contains("need the same framing"), "{}", at(&[("framing", "line")]));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_port = taken.local_addr().unwrap().port().to_string();
    let source = TestSource::start("tcp", &[("host", "127.0.0.1"), ("port", &taken_port)]);
    wait_until("the problem is reported", || source.health().contains("another program"));
}

#[test]
fn wrong_options_are_explained() {
    for (options, expected) in [
        (&[("url", "http://a:1/b")][..], "option `url`: unknown scheme `http`"),
        (&[("url", "tcp://localhost:1")], "option `url`: the URL has no context"),
        (&[("url", "localhost:1/b")], "option `url`: "),
        (&[], "the sink `tcp` needs the option `url`"),
        (
            &[("url", "tcp://a/b"), ("framing", "xml")],
            "option `framing`: expected one of siddhi, line, length",
        ),
        (&[("url", "tcp://a/b"), ("hosts", "c")], "option `hosts`: the sink `tcp` has no such option"),
        (&[("url", "tcp://a/b"), ("host", "c")], "option `url`: write either `url`, or `host`"),
        (&[("host", "a"), ("port", "1")], "the sink `tcp` needs the option `url`"),
        (&[("context", "c"), ("port", "0")], "option `port`: expected an integer from 1 to 65535"),
    ] {
        let found = sink_error("tcp", options);
        assert!(found.starts_with(expected), "{found}");
    }
    for (options, expected) in [
        (&[("port", "70000")][..], "option `port`: expected an integer from 1 to 65535, found `70000`"),
        (
            &[("framing", "line"), ("context", "c")],
            "option `context`: messages of this framing have no channel",
        ),
    ] {
        let found = source_error("tcp", options);
        assert!(found.starts_with(expected), "{found}");
    }
}
