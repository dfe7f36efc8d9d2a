//! SNMP against the agent of net-snmp, and against sockets that answer wrongly or not at all.

use std::net::UdpSocket;

use tidemill_connect::{ConnectorConfig, ConnectorSink, MapperConfig, NamedText};

use crate::helpers::{TestSource, catalog, context, deliver, sink_error, source_error, wait_until};
use crate::servers;

const LOCATION: &str = "1.3.6.1.2.1.1.6.0";
const CONTACT: &str = "1.3.6.1.2.1.1.4.0";
const SERVICES: &str = "1.3.6.1.2.1.1.7.0";

fn named(name: &str, text: &str) -> NamedText {
    NamedText { name: Some(name.into()), text: text.into() }
}

fn config(options: &[(&str, &str)], attributes: &[NamedText], payload: &[NamedText]) -> ConnectorConfig {
    let mapper = MapperConfig {
        kind: "keyvalue".into(),
        attributes: attributes.to_vec(),
        payload: payload.to_vec(),
        ..MapperConfig::default()
    };
    ConnectorConfig {
        kind: "snmp".into(),
        options: options.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        mapper: Some(mapper),
    }
}

/// A source that reads a text and the number of services.
fn source(options: &[(&str, &str)], text: &str) -> TestSource {
    let oids = format!("{text}, {SERVICES}");
    let options = [options, &[("oids", &*oids), ("request.interval", "20")]].concat();
    let config = config(&options, &[named("text", text), named("n", SERVICES)], &[]);
    TestSource::start_in(&context("app", "S"), &config)
}

/// A sink that sets values.
fn sink(options: &[(&str, &str)], payload: &[NamedText]) -> ConnectorSink {
    catalog()
        .open_sink(&config(options, &[], payload), &context("app", "S"))
        .unwrap_or_else(|e| panic!("{e}"))
}

fn login<'o>(host: &'o str, port: &'o str, more: &[(&'o str, &'o str)]) -> Vec<(&'o str, &'o str)> {
    let mut all = vec![("host", host), ("agent.port", port), ("timeout", "5000")];
    all.extend(more);
    all
}

#[test]
fn values_are_set_and_read_by_all_versions() {
    let Some(server) = servers::own("snmp") else { return };
    let (host, port) = server.address("SERVERS_SNMP").rsplit_once(':').unwrap();
    let versions: [&[(&str, &str)]; 6] = [
        &[("version", "v1"), ("community", "tidemill")],
        &[("version", "V2C"), ("community", "tidemill")],
        &[
            ("version", "v3"),
            ("user.name", "md5des"),
            ("auth.protocol", "AUTHMD5"),
            ("auth.password", "tidemill-auth"),
            ("priv.protocol", "PRIVDES"),
            ("priv.password", "tidemill-priv"),
        ],
        &[
            ("version", "v3"),
            ("user.name", "shaaes"),
            ("security.lvl", "AUTH_PRIVE"),
            ("auth.protocol", "AUTHSHA"),
            ("auth.password", "tidemill-auth"),
            ("priv.protocol", "PRIVAES128"),
            ("priv.password", "tidemill-priv"),
        ],
        &[
            ("version", "v3"),
            ("user.name", "sha256"),
            ("auth.protocol", "AUTHHMAC192SHA256"),
            ("auth.password", "tidemill-auth"),
        ],
        &[("version", "v3"), ("user.name", "plain")],
    ];
    for (at, options) in versions.iter().enumerate() {
        let options = login(host, port, options);
        let text = format!("room {at}, 'left' \"row\": 5");
        let mut sink = sink(&options, &[named(LOCATION, "text"), named(CONTACT, "row {{n}}")]);
        let (progress, delivered) = deliver(&mut sink, &[("nowhere", 1), (&text, 2)]);
        delivered.unwrap_or_else(|e| panic!("version {at}: {e}"));
        assert_eq!((progress.delivered, progress.refused.len()), (2, 0), "version {at}: {progress:?}");
        assert_eq!(
            source(&options, LOCATION).poll_rows(2)[..2],
            [format!("{text} 72"), format!("{text} 72")]
        );
        assert_eq!(source(&options, CONTACT).poll_rows(1)[0], "row 2 72");
    }
}

#[test]
fn values_that_an_agent_refuses_are_left_out() {
    let Some(server) = servers::shared("snmp") else { return };
    let (host, port) = server.address("SERVERS_SNMP").rsplit_once(':').unwrap();
    for (version, reasons) in [("v1", ["noSuchName", "badValue"]), ("v2c", ["notWritable", "wrongType"])] {
        let options = login(host, port, &[("version", version), ("community", "tidemill")]);
        for (payload, reason) in [named(SERVICES, "n"), named(LOCATION, "n")].iter().zip(reasons) {
            let mut sink = sink(&options, std::slice::from_ref(payload));
            let (progress, delivered) = deliver(&mut sink, &[("a", 1)]);
            delivered.unwrap();
            let (found, name) = (&progress.refused[0].reason, payload.name.as_deref().unwrap());
            assert!(
                found.contains(&format!("does not take the value of {name}: {reason}")),
                "{version}: {found}"
            );
        }
    }
    // a value that is not there is null, which the mapper does not take
    let options = login(host, port, &[("version", "v2c")]);
    let mut missing = source(&options, "1.3.6.1.2.1.1.99.0");
    missing.poll_until("the event is rejected", |source| !source.rejected.is_empty());
    assert!(missing.rejected[0].contains("text"), "{:?}", missing.rejected);
    // in version 1 a missing value makes the whole request fail
    let options = login(host, port, &[("version", "v1")]);
    let missing = source(&options, "1.3.6.1.2.1.1.99.0");
    wait_until("it is told", || missing.health().contains("1.3.6.1.2.1.1.99.0: noSuchName"));
}

#[test]
fn an_agent_that_is_away_and_wrong_logins_are_told() {
    let Some(server) = servers::own("snmp") else { return };
    let (host, port) = server.address("SERVERS_SNMP").rsplit_once(':').unwrap();
    let wrong: [(&[(&str, &str)], &str); 3] = [
        (&[("version", "v2c"), ("community", "hunter2")], "no answer in 200 ms"),
        (
            &[("version", "v3"), ("user.name", "somebody")],
            "are the user, the protocols and the passwords right?",
        ),
        (
            &[
                ("version", "v3"),
                ("user.name", "sha256"),
                ("auth.protocol", "AUTHHMAC192SHA256"),
                ("auth.password", "hunter2hunter2"),
            ],
            "the agent does not accept the login",
        ),
    ];
    for (options, expected) in wrong {
        let mut options = [&[("host", host), ("agent.port", port), ("retries", "0")], options].concat();
        options.push(("timeout", if expected.contains("200 ms") { "200" } else { "20000" }));
        let mut sink = sink(&options, &[named(LOCATION, "text")]);
        let error = deliver(&mut sink, &[("a", 1)]).1.unwrap_err();
        assert!(error.kind().is_retryable(), "{error}");
        let error = error.to_string();
        assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
    }
    let options = login(host, port, &[("version", "v2c"), ("community", "tidemill"), ("retries", "0")]);
    let mut sink = sink(&options, &[named(LOCATION, "text")]);
    deliver(&mut sink, &[("before", 1)]).1.unwrap();
    let mut source = source(&options, LOCATION);
    source.poll_rows(1);
    server.kill();
    let (progress, delivered) = deliver(&mut sink, &[("meanwhile", 2)]);
    assert_eq!(progress.delivered, 0);
    let error = delivered.unwrap_err().to_string();
    assert!(error.contains("nothing listens there"), "{error}");
    wait_until("it is told", || {
        source.poll();
        source.health().contains("nothing listens there")
    });
    server.start_again();
    deliver(&mut sink, &[("meanwhile", 2)]).1.unwrap();
    source.poll_until("the new value arrives", |source| {
        source.rows.last().is_some_and(|row| row == "meanwhile 72")
    });
}

/// Bytes of a socket that is not an agent do not end a connector, and are not taken for values.
#[test]
fn answers_that_are_none_are_refused() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    let answers: Vec<Vec<u8>> = vec![
        vec![],
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        vec![0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
        [0x30, 0x80].repeat(1000),
        vec![0xff; 65_000],
    ];
    let count = answers.len();
    let thread = std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        for answer in answers {
            let (_, peer) = socket.recv_from(&mut buffer).unwrap();
            socket.send_to(&answer, peer).unwrap();
        }
    });
    for _ in 0..count {
        let options = login("127.0.0.1", &port, &[("version", "v2c"), ("retries", "0")]);
        let mut sink = sink(&options, &[named(LOCATION, "text")]);
        let error = deliver(&mut sink, &[("a", 1)]).1.unwrap_err();
        assert!(error.kind().is_retryable(), "{error}");
        assert!(error.to_string().contains("the answer cannot be used"), "{error}");
    }
    thread.join().unwrap();
}

#[test]
fn wrong_options_are_told() {
    let base = [("host", "h"), ("version", "v3"), ("oids", "1.3.6.1")];
    let with = |more: &[(&'static str, &'static str)]| [&base[..], more].concat();
    for (more, expected) in [
        (&[("request.interval", "0")][..], "it must be longer than 0"),
        (&[("community", "hunter2")], "version 3 has users instead"),
        (&[("security.lvl", "AUTH_NO_PRIVE")], "the level needs `auth.protocol`"),
        (&[("priv.protocol", "PRIVDES")], "encryption needs authentication"),
        (&[("auth.protocol", "AUTHSHA"), ("auth.password", "short")], "at least 8 characters"),
        (&[("auth.protocol", "AUTHSHA"), ("security.lvl", "AUTH_PRIV")], "the level needs `priv.protocol`"),
        (&[("transport.protocol", "tcp")], "expected one of udp"),
    ] {
        let error = source_error("snmp", &with(more));
        assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
    }
    let error = source_error("snmp", &[("host", "h"), ("version", "v1"), ("oids", "sysUpTime.0")]);
    assert!(error.contains("`sysUpTime.0` is no object identifier"), "{error}");
    let error =
        source_error("snmp", &[("host", "h"), ("version", "v1"), ("oids", "1.3"), ("user.name", "u")]);
    assert!(error.contains("it is an option of version 3"), "{error}");
    let error = sink_error("snmp", &[("host", "h"), ("version", "v1")]);
    assert!(error.contains("needs the mapper `keyvalue`"), "{error}");
}
