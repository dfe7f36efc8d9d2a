//! HL7 over loopback: acknowledgements, refusals, lost answers, bytes that are not a frame.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use tidemill_connect::{ConnectorConfig, MapperConfig, NamedText};

use crate::helpers::{
    TestSource, catalog, config, context, deliver, free_port, sink_error, source_error, wait_until,
};

/// Returns a message with the control id `n` and a name.
fn message(name: &str, n: &str) -> String {
    format!("MSH|^~\\&|ADT1|MCM|LAB|HOSP|20260101||ADT^A01|{n}|P|2.4\rPID|||{name}\r")
}

fn framed(message: &str) -> Vec<u8> {
    [b"\x0b", message.as_bytes(), b"\x1c\r"].concat()
}

fn source(port: u16) -> TestSource {
    let attribute = |name: &str, text: &str| NamedText { name: Some(name.into()), text: text.into() };
    let mapper = MapperConfig {
        kind: "text".into(),
        options: vec![("regex.A".into(), r"PID\|\|\|([^|\r]+)".into())],
        attributes: vec![attribute("text", "A[1]"), attribute("n", "trp:message.control.id")],
        ..MapperConfig::default()
    };
    let port = port.to_string();
    let options = [("host", "127.0.0.1"), ("port", port.as_str()), ("hl7.encoding", "er7")];
    let config = ConnectorConfig { mapper: Some(mapper), ..config("hl7", &options) };
    let source = TestSource::start_in(&context("app", "S"), &config);
    source.wait_working();
    source
}

/// Reads an acknowledgement; empty if the connection ends.
fn answer(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\x1c\r") && stream.read(&mut byte).unwrap() == 1 {
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

fn client(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

#[test]
fn messages_are_acknowledged_when_their_events_are_durable() {
    let port = free_port();
    let mut source = source(port);
    let mut stream = client(port);
    stream.write_all(&[framed(&message("Eve", "7")), framed(&message("Bob", "8"))].concat()).unwrap();
    assert_eq!(source.poll_rows(2), ["Eve 7", "Bob 8"]);
    for n in [7, 8] {
        let answer = answer(&mut stream);
        assert!(answer.starts_with("\x0bMSH|^~\\&|LAB|HOSP|ADT1|MCM|"), "{answer:?}");
        assert!(answer.contains(&format!("||ACK^A01^ACK|{n}|P|2.4\rMSA|AA|{n}\r")), "{answer:?}");
    }
    // a message that does not make an event, and text that is not a message
    stream.write_all(&framed(&message("", "9"))).unwrap();
    source.poll_until("the message is rejected", |source| source.rejected.len() == 1);
    let refused = answer(&mut stream);
    assert!(refused.contains("MSA|AE|9|attribute `text` is missing"), "{refused:?}");
    stream.write_all(&framed("hello")).unwrap();
    let refused = answer(&mut stream);
    assert!(refused.contains("MSA|AR||expected a message that begins with the segment `MSH`"), "{refused:?}");
    // the engine gives up: no answer comes, and the message comes again
    source.acknowledges = false;
    stream.write_all(&framed(&message("Ann", "10"))).unwrap();
    source.poll_rows(3);
    source.drop_receipts();
    assert_eq!(answer(&mut stream), "");
    let mut stream = client(port);
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(answer(&mut stream), "");
    wait_until("the problem is reported", || source.health().contains("expected the byte 0x0b"));
}

fn sink(port: u16, timeout: &str) -> tidemill_connect::ConnectorSink {
    let uri = format!("127.0.0.1:{port}");
    let payload = "MSH|^~\\&|A|B|C|D|20260101||ADT^A01|{{n}}|P|2.4\nPID|||{{text}}\n";
    let mapper = MapperConfig {
        kind: "text".into(),
        payload: vec![NamedText { name: None, text: payload.into() }],
        ..MapperConfig::default()
    };
    let options = [("uri", uri.as_str()), ("hl7.encoding", "er7"), ("hl7.timeout", timeout)];
    let config = ConnectorConfig { mapper: Some(mapper), ..config("hl7", &options) };
    catalog().open_sink(&config, &context("app", "S")).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_sink_waits_for_acknowledgements() {
    let port = free_port();
    let mut source = source(port);
    let mut hl7 = sink(port, "30000");
    let delivery = std::thread::spawn(move || {
        let (progress, result) = deliver(&mut hl7, &[("Eve", 1), ("", 2), ("Bob", 3)]);
        result.unwrap();
        progress
    });
    source.poll_until("all is delivered", |_| delivery.is_finished());
    let progress = delivery.join().unwrap();
    assert_eq!(source.rows, ["Eve 1", "Bob 3"]);
    assert_eq!((progress.delivered, progress.refused.len(), progress.refused[0].row), (3, 1, 1));
    let reason = &progress.refused[0].reason;
    assert!(reason.contains("the receiver answered AE: attribute `text` is missing"), "{reason}");
}

#[test]
fn an_event_without_an_acknowledgement_waits() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answers = ["", "MSH|^~\\&|\rMSA|AA|99\r", "MSH|^~\\&|\rMSA|CA|1\r"];
    let server = std::thread::spawn(move || {
        for text in answers {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(answer(&mut stream).contains("|1|P|2.4\rPID|||Eve\r\x1c"));
            if !text.is_empty() {
                stream.write_all(&framed(text)).unwrap();
                // the other side closes first
                let _ = stream.read(&mut [0]);
            }
        }
    });
    let mut hl7 = sink(port, "30000");
    let mut failure = || deliver(&mut hl7, &[("Eve", 1)]).1.unwrap_err().to_string();
    assert!(failure().contains("the connection was closed before the acknowledgement"));
    assert!(failure().contains("the acknowledgement is for `99`, the message was `1`"));
    deliver(&mut hl7, &[("Eve", 1)]).1.unwrap();
    drop(hl7);
    server.join().unwrap();
}

#[test]
fn wrong_options_of_hl7_are_explained() {
    let wrong = sink_error("hl7", &[("uri", "localhost"), ("hl7.encoding", "er7")]);
    assert!(wrong.contains("`uri`: expected `host:port`"), "{wrong}");
    let options = [("port", "4000"), ("hl7.encoding", "er7")];
    for (option, value, expected) in [
        ("tls.enabled", "true", "TLS is not possible"),
        ("charset", "latin1", "only UTF-8 is possible"),
        ("hl7.conformance.profile.used", "true", "profiles are not checked"),
    ] {
        let wrong = source_error("hl7", &[&options[..], &[(option, value)]].concat());
        assert!(wrong.contains(expected), "{wrong}");
    }
}
