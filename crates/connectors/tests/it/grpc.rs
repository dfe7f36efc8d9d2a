//! gRPC over loopback: against clients and servers of Python's grpcio, and our sinks against our sources.

use std::thread::JoinHandle;

use tidemill_connect::{ConnectorSink, MapperConfig, NamedText};
use tidemill_types::FieldType;

use crate::helpers::{
    TestSource, catalog, config, context, deliver, deliver_all, free_port, sink, sink_error, source_error,
    wait_until,
};
use crate::positioned::{PositionedSource, mapped};
use crate::python::{Running, output, python};

const SERVICE: &str = "org.wso2.grpc.EventService";
const HEADER: &str = "header:Name=ann";
const METADATA: &str = "metadata:x-tenant=7";

fn event(text: &str, n: i64) -> String {
    format!("{{\"event\":{{\"text\":\"{text}\",\"n\":{n}}}}}")
}

/// Calls a method from Python on a thread of its own. Returns what the client prints.
fn call(python: &'static std::path::Path, port: u16, arguments: &[&str]) -> JoinHandle<String> {
    let mut all = vec![format!("127.0.0.1:{port}")];
    all.extend(arguments.iter().map(|text| (*text).to_owned()));
    std::thread::spawn(move || {
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        output(python, "grpc_client.py", &all)
    })
}

#[test]
fn a_source_answers_calls_of_python_when_events_are_durable() {
    let Some(python) = python() else { return };
    let port = free_port();
    let url = format!("grpc://127.0.0.1:{port}/{SERVICE}/consume");
    let options = [("receiver.url", url.as_str()), ("max.inbound.message.size", "2000")];
    let config = mapped("grpc", &options, "json", &["$.event.text", "$.event.n", "trp:Name", "trp:x-tenant"]);
    let fields = [
        ("text", FieldType::String),
        ("n", FieldType::Int),
        ("name", FieldType::String),
        ("tenant", FieldType::String),
    ];
    let mut source = PositionedSource::open(&fields, config, ".".as_ref());
    let mut exchange = |arguments: &[&str]| {
        let called = call(python, port, arguments);
        source.poll_until("the call is answered", |_| called.is_finished());
        (called.join().unwrap(), source.rows.clone())
    };
    let method = format!("/{SERVICE}/consume");
    let (answer, rows) = exchange(&[&method, &event("a", 1), HEADER, METADATA]);
    assert_eq!(answer, "{\"payload\": \"\", \"headers\": {}}");
    assert_eq!(rows, ["a|1|ann|7"]);
    // the names that versions of SiddhiQL's connectors have on the wire
    for service in ["org.wso2.grpc.eventservice.EventService", "eventservice.EventService"] {
        let (answer, _) = exchange(&[&format!("/{service}/consume"), &event("b", 2), HEADER, METADATA]);
        assert!(answer.contains("payload"), "{answer}");
    }
    for (method, payload, expected) in [
        (&*method, "{", "INVALID_ARGUMENT"),
        (&method, &"x".repeat(3000), "OUT_OF_RANGE"),
        ("/other.Service/consume", "{}", "UNIMPLEMENTED"),
    ] {
        let (answer, _) = exchange(&[method, payload]);
        assert!(answer.contains(&format!("\"code\": \"{expected}\"")), "{answer}");
    }
    let long = format!("metadata:x-long={}", "y".repeat(9000));
    let (answer, rows) = exchange(&[&method, &event("c", 3), &long]);
    assert!(answer.contains("RESOURCE_EXHAUSTED"), "{answer}");
    assert_eq!(rows.len(), 3);
}

#[test]
fn a_call_whose_events_are_not_durable_is_to_be_repeated() {
    let Some(python) = python() else { return };
    let port = free_port();
    let url = format!("grpc://127.0.0.1:{port}/EventService/consume");
    let mut source = TestSource::start("grpc", &[("receiver.url", &url)]);
    source.wait_working();
    source.acknowledges = false;
    let called = call(python, port, &[&format!("/{SERVICE}/consume"), &event("a", 1)]);
    source.poll_rows(1);
    assert!(!called.is_finished());
    source.drop_receipts();
    let answer = called.join().unwrap();
    assert!(answer.contains("\"UNAVAILABLE\"") && answer.contains("send them again"), "{answer}");
}

#[test]
fn methods_of_users_take_streams_of_messages() {
    let Some(python) = python() else { return };
    let port = free_port();
    let url = format!("grpc://127.0.0.1:{port}/shop.Orders/Add");
    let config = mapped("grpc", &[("receiver.url", &url)], "json", &["$.n"]);
    let mut source = PositionedSource::open(&[("n", FieldType::Int)], config, ".".as_ref());
    let called = call(python, port, &["/shop.Orders/Add", "{\"n\":1},{\"n\":2},{\"n\":3}", "raw"]);
    source.poll_until("the call is answered", |_| called.is_finished());
    assert_eq!(called.join().unwrap(), "{\"bytes\": []}");
    assert_eq!(source.rows, ["1", "2", "3"]);
}

/// Opens the sink that answers the calls of the source `id`, with the message id in the attribute `text`.
fn response_sink(id: &str) -> ConnectorSink {
    let options = [("source.id", id), ("message.id", "{{text}}"), ("headers", "'n:{{n}}'")];
    sink("grpc-service-response", &options)
}

#[test]
fn a_service_answers_calls_by_events() {
    let Some(python) = python() else { return };
    let port = free_port();
    let url = format!("grpc://127.0.0.1:{port}/{SERVICE}/process");
    let options = [("receiver.url", url.as_str()), ("source.id", "grpc-a"), ("service.timeout", "300")];
    let attributes = ["trp:messageId", "$.event.n"];
    let attributes = attributes.map(|text| NamedText { name: None, text: text.into() }).to_vec();
    let mapper = MapperConfig { kind: "json".into(), attributes, ..MapperConfig::default() };
    let config =
        tidemill_connect::ConnectorConfig { mapper: Some(mapper), ..config("grpc-service", &options) };
    let mut source = TestSource::start_in(&context("app", "S"), &config);
    source.wait_working();
    let method = format!("/{SERVICE}/process");
    let called = call(python, port, &[&method, &event("a", 7)]);
    let row = source.poll_rows(1)[0].clone();
    let message_id = row.strip_suffix(" 7").unwrap();
    let mut sink = response_sink("grpc-a");
    deliver(&mut sink, &[(message_id, 8)]).1.unwrap();
    let answer = called.join().unwrap();
    assert!(answer.contains(message_id) && answer.ends_with("\"headers\": {\"n\": \"8\"}}"), "{answer}");
    // it is answered
    let (progress, _) = deliver(&mut sink, &[(message_id, 9)]);
    assert!(
        progress.refused[0].reason.contains("no request of the source.id `grpc-a` waits"),
        "{progress:?}"
    );
    // and an answer that does not come
    let called = call(python, port, &[&method, &event("a", 9)]);
    source.poll_until("the call is answered", |_| called.is_finished());
    let answer = called.join().unwrap();
    assert!(answer.contains("DEADLINE_EXCEEDED") && answer.contains("service.timeout"), "{answer}");
}

#[test]
fn a_sink_calls_a_server_of_python() {
    let Some(python) = python() else { return };
    let mut server = Running::start(python, "grpc_server.py", &[SERVICE]);
    let url = format!("grpc://127.0.0.1:{}/{SERVICE}/consume/rating", server.line());
    let mut grpc = sink(
        "grpc",
        &[("publisher.url", &url), ("headers", "'N:{{n}}'"), ("metadata", "'X-Text:{{text}}','x-two:2'")],
    );
    let (progress, delivered) = deliver(&mut grpc, &[("a", 1), ("refuse", 2), ("later", 3), ("b", 4)]);
    let error = delivered.unwrap_err();
    assert!(error.message().contains("answered Unavailable: come back"), "{error}");
    assert_eq!(progress.delivered, 2);
    assert!(progress.refused[0].reason.contains("answered InvalidArgument: no such thing"), "{progress:?}");
    deliver(&mut grpc, &[("later", 3), ("b", 4)]).1.unwrap();
    for (text, n) in [("a", 1), ("later", 3), ("b", 4)] {
        let taken: serde_json::Value = serde_json::from_str(&server.line()).unwrap();
        assert_eq!(taken[0], event(text, n));
        assert_eq!(taken[1], serde_json::json!({"N": n.to_string(), "sequence": "rating"}));
        assert_eq!(taken[2], serde_json::json!({"x-text": text, "x-two": "2"}));
    }
}

#[test]
fn a_sink_finds_the_name_that_a_server_knows() {
    let Some(python) = python() else { return };
    for (service, is_known) in [("eventservice.EventService", true), ("other.Service", false)] {
        let mut server = Running::start(python, "grpc_server.py", &[service]);
        let url = format!("grpc://127.0.0.1:{}/{SERVICE}/consume", server.line());
        let mut grpc = sink("grpc", &[("publisher.url", &url)]);
        let (progress, delivered) = deliver(&mut grpc, &[("a", 1), ("b", 2)]);
        delivered.unwrap();
        match is_known {
            true => {
                assert_eq!([server.line(), server.line()].map(|line| line.contains("event")), [true, true])
            }
            false => assert!(progress.refused[0].reason.contains("Unimplemented"), "{progress:?}"),
        }
    }
}

#[test]
fn answers_to_calls_are_events() {
    let Some(python) = python() else { return };
    let mut server = Running::start(python, "grpc_server.py", &[SERVICE]);
    let url = format!("grpc://127.0.0.1:{}/{SERVICE}/process", server.line());
    let fields = ["text", "n", "kind", "trailer"].map(|name| (name, FieldType::String));
    let attributes = ["$.event.text", "trp:n", "trp:kind", "trp:x-trailer"];
    let config = mapped("grpc-call-response", &[("sink.id", "grpc-b")], "json", &attributes);
    let mut source = PositionedSource::open(&fields, config, ".".as_ref());
    let mut call = sink("grpc-call", &[("publisher.url", &url), ("sink.id", "grpc-b")]);
    let sender = std::thread::spawn(move || deliver_all(&mut call, &[("a", 1), ("later", 2), ("b", 3)]));
    source.poll_until("all calls are answered", |_| sender.is_finished());
    sender.join().unwrap();
    let mut rows = source.rows.clone();
    // calls under way at the same time may be answered again
    rows.sort();
    rows.dedup();
    assert_eq!(rows, ["A|1|answer|t", "B|3|answer|t", "LATER|2|answer|t"]);
}

#[test]
fn sinks_and_sources_of_this_program_fit_together() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let server = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let client = rcgen::generate_simple_self_signed(vec!["client".into()]).unwrap();
    let server_certificate = write("server.pem", server.cert.pem());
    let server_key = write("server.key", server.signing_key.serialize_pem());
    let client_certificate = write("client.pem", client.cert.pem());
    let client_both = write("both.pem", client.cert.pem() + &client.signing_key.serialize_pem());
    let url = format!("grpc://localhost:{}/{SERVICE}/consume", free_port());
    let mut source = TestSource::start(
        "grpc",
        &[
            ("receiver.url", &url),
            ("keystore.file", &server_certificate),
            ("keystore.key.file", &server_key),
            ("truststore.file", &client_certificate),
            ("mutual.auth.enabled", "true"),
        ],
    );
    source.wait_working();
    let trusted = [("publisher.url", url.as_str()), ("truststore.file", &server_certificate)];
    let known = [&trusted[..], &[("keystore.file", &client_both), ("max.inflight", "8")]].concat();
    let attempt = |source: &mut TestSource, options: &[(&str, &str)]| {
        let mut sink = sink("grpc", options);
        let events: Vec<(&str, i64)> = (0..50).map(|n| ("a", n)).collect();
        let sender = std::thread::spawn(move || deliver(&mut sink, &events).1);
        source.poll_until("the calls are answered", |_| sender.is_finished());
        sender.join().unwrap()
    };
    attempt(&mut source, &known).unwrap();
    assert_eq!(source.rows.len(), 50);
    assert!(attempt(&mut source, &trusted).is_err(), "without certificate");
    let error = attempt(&mut source, &[known[0], known[2]]).unwrap_err();
    assert!(error.message().contains("UnknownIssuer"), "{error}");
    let plain = [("publisher.url", url.as_str())];
    assert!(attempt(&mut source, &plain).is_err(), "without TLS");
    assert_eq!(source.rows.len(), 50);
}

#[test]
fn messages_of_users_pass_as_the_mapper_made_them() {
    let url = format!("grpc://127.0.0.1:{}/shop.Orders/Add", free_port());
    let definition = "syntax = \"proto3\"; message Order { string text = 1; int64 n = 2; }";
    let protobuf = |kind: &str, options: &[(&str, &str)]| {
        let mut config = mapped(kind, options, "protobuf", &[]);
        config.mapper.as_mut().unwrap().options.push(("schema.def".to_owned(), definition.to_owned()));
        config
    };
    let mut source = TestSource::start_in(&context("app", "S"), &protobuf("grpc", &[("receiver.url", &url)]));
    source.wait_working();
    let config = protobuf("grpc", &[("publisher.url", &url)]);
    let mut sink = catalog().open_sink(&config, &context("app", "S")).unwrap();
    let sender = std::thread::spawn(move || deliver(&mut sink, &[("ü", 1), ("", 2)]).1);
    source.poll_until("the calls are answered", |_| sender.is_finished());
    sender.join().unwrap().unwrap();
    assert_eq!(source.rows, ["ü 1", " 2"]);
}

#[test]
fn a_sink_waits_for_a_server_that_is_away() {
    let url = format!("grpc://127.0.0.1:{}/{SERVICE}/consume", free_port());
    let mut grpc = sink("grpc", &[("publisher.url", &url)]);
    let error = deliver(&mut grpc, &[("a", 1)]).1.unwrap_err();
    assert!(error.message().starts_with("cannot connect to grpc://127.0.0.1:"), "{error}");
    let sender = std::thread::spawn(move || {
        deliver_all(&mut grpc, &[("a", 1), ("b", 2)]);
        grpc
    });
    let mut source = TestSource::start("grpc", &[("receiver.url", &url)]);
    assert_eq!(source.poll_rows(2), ["a 1", "b 2"]);
    source.poll_until("they are acknowledged", |_| sender.is_finished());
    let mut grpc = sender.join().unwrap();
    // the server comes back after it went
    drop(source);
    let mut source = TestSource::start("grpc", &[("receiver.url", &url)]);
    source.wait_working();
    let sender = std::thread::spawn(move || deliver_all(&mut grpc, &[("c", 3)]));
    source.poll_rows(1);
    source.poll_until("it is acknowledged", |_| sender.is_finished());
    sender.join().unwrap();
}

#[test]
fn a_port_serves_methods_and_webhooks() {
    let port = free_port();
    let grpc_url = format!("grpc://127.0.0.1:{port}/{SERVICE}/consume");
    let http_url = format!("http://127.0.0.1:{port}/hook");
    let grpc = TestSource::start("grpc", &[("receiver.url", &grpc_url)]);
    let mut http = TestSource::start("http", &[("receiver.url", &http_url)]);
    grpc.wait_working();
    http.wait_working();
    let other = TestSource::start("grpc", &[("receiver.url", &grpc_url)]);
    wait_until("the method is taken", || other.health().contains("another connector has the path"));
    let sent = crate::http::post(&http_url, event("a", 1)).send();
    http.poll_until("the request is answered", |_| sent.is_finished());
    assert_eq!(sent.join().unwrap().0, 200);
    let sent = crate::http::post(&http_url.replace("hook", &format!("{SERVICE}/consume")), "x").send();
    let (status, _, body) = sent.join().unwrap();
    assert_eq!((status, body.contains("call the method with a client of gRPC")), (415, true), "{body}");
}

#[test]
fn wrong_options_are_explained() {
    let consume = ("publisher.url", "grpc://a:1/org.wso2.grpc.EventService/consume");
    for (kind, options, expected) in [
        ("grpc", vec![("publisher.url", "http://a:1/b/c")], "option `publisher.url`: unknown scheme `http`"),
        (
            "grpc",
            vec![("publisher.url", "grpc://a:1/EventService/process")],
            "is `consume` here, not `process`",
        ),
        ("grpc-call", vec![consume, ("sink.id", "1")], "is `process` here, not `consume`"),
        ("grpc", vec![consume, ("headers", "x")], "option `headers`: entry 1 has no colon"),
        ("grpc", vec![consume, ("metadata", "'ä:b'")], "`ä` is no name of metadata"),
        (
            "grpc",
            vec![("publisher.url", "grpc://a:1/x.Y/z"), ("headers", "'a:b'")],
            "only events of EventService",
        ),
        ("grpc", vec![consume, ("truststore.file", "/none.pem")], "cannot read /none.pem"),
    ] {
        let found = sink_error(kind, &options);
        assert!(found.contains(expected), "{found}");
    }
    let consume = ("receiver.url", "grpc://a:1/org.wso2.grpc.EventService/consume");
    for (kind, options, expected) in [
        ("grpc", vec![("receiver.url", "grpc://a/b/c")], "the URL has no port"),
        ("grpc-service", vec![consume, ("source.id", "1")], "is `process` here, not `consume`"),
        (
            "grpc",
            vec![consume, ("enable.ssl", "true")],
            "option `enable.ssl`: the server needs a certificate",
        ),
        ("grpc", vec![consume, ("max.inbound.metadata.size", "99999")], "from 1 to 16384"),
        ("grpc-call-response", vec![], "`sink.id`"),
    ] {
        let found = source_error(kind, &options);
        assert!(found.contains(expected), "{found}");
    }
}
