//! HTTP clients over loopback: sinks, calls with answers, polling.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tidemill_connect::{MapperConfig, NamedText};

use crate::helpers::{
    TestSource, config, context, deliver, deliver_all, free_port, sink, sink_error, source_error, wait_until,
};
use crate::http_server::{Answer, TestServer};

fn ok(body: &str) -> Answer {
    (200, vec![], body.into())
}

fn attributes(texts: &[&str]) -> MapperConfig {
    let attribute = |text: &&str| NamedText { name: None, text: (*text).into() };
    MapperConfig {
        kind: "json".into(),
        attributes: texts.iter().map(attribute).collect(),
        ..MapperConfig::default()
    }
}

#[test]
fn a_sink_makes_requests_of_events() {
    let port = free_port();
    let server = TestServer::start(port, |_| ok(""));
    let url = format!("http://127.0.0.1:{port}/things/{{{{text}}}}?n={{{{n}}}}");
    let mut http = sink(
        "http",
        &[
            ("publisher.url", &url),
            ("method", "put"),
            ("headers", "'X-Text: {{text}}','x-two:a:b'"),
            ("basic.auth.username", "admin"),
            ("basic.auth.password", "admin"),
        ],
    );
    deliver(&mut http, &[("a b", 1), ("c", 2)]).1.unwrap();
    let mut plain = sink("http", &[("publisher.url", &format!("http://127.0.0.1:{port}/"))]);
    deliver(&mut plain, &[("d", 3)]).1.unwrap();
    let mut get =
        sink("http", &[("publisher.url", &format!("http://127.0.0.1:{port}/g")), ("method", "`GET`")]);
    deliver(&mut get, &[("e", 4)]).1.unwrap();
    let received = server.received();
    let lines: Vec<String> =
        received.iter().map(|r| format!("{} {} {}", r.method, r.target, r.body)).collect();
    assert_eq!(
        lines,
        [
            "PUT /things/a%20b?n=1 {\"event\":{\"text\":\"a b\",\"n\":1}}",
            "PUT /things/c?n=2 {\"event\":{\"text\":\"c\",\"n\":2}}",
            "POST / {\"event\":{\"text\":\"d\",\"n\":3}}",
            "GET /g ",
        ]
    );
    let first = &received[0];
    assert_eq!((first.header("x-text"), first.header("x-two")), ("a b", "a:b"));
    assert_eq!(first.header("authorization"), "Basic YWRtaW46YWRtaW4=");
    assert_eq!((first.header("content-type"), first.header("content-length")), ("application/json", "30"));
    assert_eq!((first.header("idempotency-key"), received[1].header("idempotency-key")), ("0-0-0", "0-0-1"));
}

#[test]
fn answers_decide_what_becomes_of_events() {
    let port = free_port();
    let _server = TestServer::start(port, |request| {
        let path = request.target.split('?').next().unwrap().trim_start_matches('/');
        let status = path.parse().unwrap();
        (status, vec![("location", "/200".into())], format!("because {}\nsecond line", "y".repeat(500)))
    });
    let url = format!("http://user:hunter2@127.0.0.1:{port}/{{{{n}}}}?key=hunter2");
    let mut sink = sink("http", &[("publisher.url", &url)]);
    for status in [200, 201, 202, 204] {
        let (progress, delivered) = deliver(&mut sink, &[("a", status)]);
        delivered.unwrap();
        assert!(progress.refused.is_empty());
    }
    for status in [301, 400, 401, 403, 404, 409, 410, 413, 422] {
        let (progress, delivered) = deliver(&mut sink, &[("a", status), ("b", 200)]);
        delivered.unwrap();
        assert_eq!(progress.delivered, 2);
        let reason = &progress.refused[0].reason;
        let expected = format!("http://127.0.0.1:{port}/{status} answered HTTP {status}: because yyy");
        assert!(reason.starts_with(&expected) && reason.len() < 400, "{reason}");
    }
    for status in [408, 425, 429, 500, 502, 503, 504] {
        let (progress, delivered) = deliver(&mut sink, &[("a", 200), ("b", status), ("c", 200)]);
        let error = delivered.unwrap_err();
        assert_eq!((progress.delivered, progress.refused.len()), (1, 0), "{status}");
        assert!(
            error.kind().is_retryable() && error.message().contains(&format!("HTTP {status}")),
            "{error}"
        );
        assert!(!error.message().contains("hunter2"));
    }
}

#[test]
fn a_request_that_cannot_be_made_is_refused() {
    let port = free_port();
    let server = TestServer::start(port, |_| ok(""));
    let url = format!("http://127.0.0.1:{port}/x/{{{{text}}}}");
    let mut http = sink("http", &[("publisher.url", &url)]);
    let long = "L".repeat(70_000);
    let (progress, result) = deliver(&mut http, &[("one", 1), (&long, 2), ("two", 3)]);
    result.unwrap();
    assert_eq!(progress.delivered, 3);
    let refused: Vec<usize> = progress.refused.iter().map(|refused| refused.row).collect();
    assert_eq!(refused, [1]);
    let reason = &progress.refused[0].reason;
    assert!(reason.contains("no request can have the URL") && reason.len() < 500, "{reason}");
    let targets: Vec<String> = server.received().iter().map(|r| r.target.clone()).collect();
    assert_eq!(targets, ["/x/one", "/x/two"]);
}

#[test]
fn a_sink_waits_for_a_server_that_is_away() {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/in");
    let mut sink = sink("http", &[("publisher.url", &url)]);
    let error = deliver(&mut sink, &[("a", 1)]).1.unwrap_err();
    assert!(error.message().starts_with(&format!("cannot connect to {url}: ")), "{error}");
    let bodies = Arc::new(Mutex::new(vec![]));
    let serve = || {
        let bodies = bodies.clone();
        TestServer::start(port, move |request| {
            bodies.lock().push(request.body.clone());
            ok("")
        })
    };
    let sender = std::thread::spawn(move || {
        for n in 0..300 {
            deliver_all(&mut sink, &[("a", n)]);
        }
    });
    for round in 1..=3 {
        let server = serve();
        wait_until("requests arrived", || bodies.lock().len() > round * 50);
        drop(server);
    }
    let _server = serve();
    wait_until("all are sent", || sender.is_finished());
    sender.join().unwrap();
    let mut found = bodies.lock().clone();
    // an answer that was lost with the server makes its event come twice
    found.dedup();
    let expected: Vec<String> =
        (0..300).map(|n| format!("{{\"event\":{{\"text\":\"a\",\"n\":{n}}}}}")).collect();
    assert_eq!(found, expected);
}

#[test]
fn oauth_tokens_are_requested_and_replaced() {
    let port = free_port();
    let issued = Arc::new(AtomicUsize::new(0));
    let server = {
        let issued = issued.clone();
        TestServer::start(port, move |request| match request.target.as_str() {
            "/token" => {
                let n = issued.fetch_add(1, Ordering::SeqCst) + 1;
                ok(&format!("{{\"access_token\":\"t{n}\",\"refresh_token\":\"r{n}\",\"expires_in\":3600}}"))
            }
            _ if request.header("authorization") == format!("Bearer t{}", issued.load(Ordering::SeqCst)) => {
                ok("")
            }
            _ => (401, vec![], "expired".into()),
        })
    };
    let url = format!("http://127.0.0.1:{port}");
    let mut oauth = sink(
        "http",
        &[
            ("publisher.url", &format!("{url}/in")),
            ("token.url", &format!("{url}/token")),
            ("consumer.key", "key"),
            ("consumer.secret", "secret"),
            ("oauth.scope", "write"),
        ],
    );
    deliver(&mut oauth, &[("a", 1), ("b", 2)]).1.unwrap();
    // the server forgets the token: a new one is requested by the refresh token
    issued.fetch_add(1, Ordering::SeqCst);
    let (progress, delivered) = deliver(&mut oauth, &[("c", 3)]);
    delivered.unwrap();
    assert!(progress.refused.is_empty(), "{progress:?}");
    let tokens: Vec<(String, String)> = server
        .received()
        .iter()
        .filter(|request| request.target == "/token")
        .map(|request| (request.header("authorization").to_owned(), request.body.clone()))
        .collect();
    let basic = "Basic a2V5OnNlY3JldA==".to_owned();
    assert_eq!(
        tokens,
        [
            (basic.clone(), "grant_type=client_credentials&scope=write".to_owned()),
            (basic, "grant_type=refresh_token&refresh_token=r1&scope=write".to_owned()),
        ]
    );
    let mut password = sink(
        "http",
        &[
            ("publisher.url", &format!("{url}/in")),
            ("token.url", &format!("{url}/token")),
            ("body.consumer.key", "key"),
            ("body.consumer.secret", "secret"),
            ("oauth.username", "user"),
            ("oauth.password", "pass"),
        ],
    );
    deliver(&mut password, &[("d", 4)]).1.unwrap();
    let bodies: Vec<String> = server.received().iter().map(|request| request.body.clone()).collect();
    assert!(
        bodies.contains(
            &"grant_type=password&username=user&password=pass&client_id=key&client_secret=secret".to_owned()
        ),
        "{bodies:?}"
    );
}

#[test]
fn answers_to_calls_are_events() {
    for (call, response) in [("http-call", "http-call-response"), ("http-request", "http-response")] {
        let port = free_port();
        let _server = TestServer::start(port, |request| match request.body.contains("bad") {
            true => (404, vec![("x-why", "unknown".into())], "{\"n\": -1}".into()),
            false => (200, vec![], "{\"n\": 42}".into()),
        });
        let mut good = config(response, &[("sink.id", "lookup"), ("http.status.code", "2\\\\d+")]);
        good.mapper = Some(attributes(&["trp:text", "$.n"]));
        let mut bad = config(response, &[("sink.id", "lookup"), ("http.status.code", "4\\d+")]);
        bad.mapper = Some(attributes(&["trp:x-why", "$.n"]));
        let (mut good, mut bad) = (
            TestSource::start_in(&context(call, "S"), &good),
            TestSource::start_in(&context(call, "E"), &bad),
        );
        let url = format!("http://127.0.0.1:{port}/");
        let config = config(call, &[("sink.id", "lookup"), ("publisher.url", &url)]);
        let mut sink = crate::helpers::catalog().open_sink(&config, &context(call, "S")).unwrap();
        let sender = std::thread::spawn(move || deliver(&mut sink, &[("a", 1), ("bad", 2), ("c", 3)]));
        good.poll_until("the answers are delivered", |_| {
            bad.poll();
            sender.is_finished()
        });
        let (progress, delivered) = sender.join().unwrap();
        delivered.unwrap();
        assert_eq!((progress.delivered, progress.refused.len()), (3, 0));
        good.rows.sort();
        assert_eq!(
            (good.rows, bad.rows),
            (vec!["a 42".into(), "c 42".into()], vec!["unknown -1".to_owned()])
        );
    }
}

#[test]
fn answers_that_no_source_takes_are_judged_by_their_status() {
    let port = free_port();
    let _server = TestServer::start(port, |request| match request.target.as_str() {
        "/1" => ok("fine"),
        "/2" => (404, vec![], "no".into()),
        _ => (503, vec![], "later".into()),
    });
    let source = TestSource::start_in(
        &context("judged", "S"),
        &config("http-call-response", &[("sink.id", "x"), ("http.status.code", "299")]),
    );
    source.wait_working();
    let url = format!("http://127.0.0.1:{port}/{{{{n}}}}");
    let config = config("http-call", &[("sink.id", "x"), ("publisher.url", &url)]);
    let mut sink = crate::helpers::catalog().open_sink(&config, &context("judged", "S")).unwrap();
    let (progress, delivered) = deliver(&mut sink, &[("a", 1), ("b", 2), ("c", 3)]);
    assert!(delivered.unwrap_err().message().ends_with("answered HTTP 503: later"));
    assert_eq!((progress.delivered, progress.refused.len()), (2, 1));
}

#[test]
fn answers_can_be_downloaded() {
    let port = free_port();
    let _server = TestServer::start(port, |_| ok(&"content ".repeat(1000)));
    let dir = tempfile::tempdir().unwrap();
    let path = format!("{}/sub/{{{{text}}}}.txt", dir.path().display());
    let mut source = config("http-call-response", &[("sink.id", "files")]);
    source.mapper = Some(attributes(&["trp:text", "trp:n"]));
    let mut source = TestSource::start_in(&context("downloads", "S"), &source);
    let url = format!("http://127.0.0.1:{port}/");
    let config = config(
        "http-call",
        &[
            ("sink.id", "files"),
            ("publisher.url", &url),
            ("downloading.enabled", "true"),
            ("download.path", &path),
            ("method", "GET"),
        ],
    );
    let mut sink = crate::helpers::catalog().open_sink(&config, &context("downloads", "S")).unwrap();
    let sender = std::thread::spawn(move || deliver(&mut sink, &[("one", 1), ("two", 2)]));
    source.poll_until("the files are there", |_| sender.is_finished());
    sender.join().unwrap().1.unwrap();
    // the message is the path, which is not JSON
    assert_eq!(source.rejected.len(), 2);
    for name in ["one", "two"] {
        let content = std::fs::read_to_string(dir.path().join(format!("sub/{name}.txt"))).unwrap();
        assert_eq!(content, "content ".repeat(1000));
    }
    assert_eq!(std::fs::read_dir(dir.path().join("sub")).unwrap().count(), 2);
}

#[test]
fn polling_takes_what_has_changed() {
    let port = free_port();
    let version = Arc::new(AtomicUsize::new(1));
    let server = {
        let version = version.clone();
        TestServer::start(port, move |request| {
            let n = version.load(Ordering::SeqCst);
            let tag = format!("\"v{n}\"");
            match n {
                3 => (500, vec![], "broken".into()),
                _ if request.header("if-none-match") == tag => (304, vec![("etag", tag)], String::new()),
                _ => (200, vec![("etag", tag)], format!("{{\"text\":\"v\",\"n\":{n}}}")),
            }
        })
    };
    let url = format!("http://127.0.0.1:{port}/state");
    let options = [("url", url.as_str()), ("interval", "20 ms"), ("headers", "'accept:application/json'")];
    let mut source = TestSource::start("http-poll", &options);
    assert_eq!(source.poll_rows(1), ["v 1"]);
    let unchanged = || server.received().iter().filter(|r| r.header("if-none-match") == "\"v1\"").count();
    source.poll_until("the server is asked again", |_| unchanged() >= 3);
    version.store(2, Ordering::SeqCst);
    assert_eq!(source.poll_rows(2), ["v 1", "v 2"]);
    version.store(3, Ordering::SeqCst);
    source.poll_until("the failure is reported", |source| {
        source.health().contains("answered HTTP 500: broken")
    });
    version.store(4, Ordering::SeqCst);
    assert_eq!(source.poll_rows(3)[2], "v 4");
    source.poll_until("it works again", |source| source.health() == "works");
    assert_eq!(server.received()[0].header("accept"), "application/json");
}

#[test]
fn polling_without_validators_compares_bodies() {
    let port = free_port();
    let server = TestServer::start(port, |_| ok("{\"text\":\"same\",\"n\":1}"));
    let url = format!("http://127.0.0.1:{port}/");
    let mut source = TestSource::start("http-poll", &[("url", &url), ("interval", "5")]);
    source.poll_until("it was asked often", |_| server.received().len() >= 5);
    assert_eq!(source.rows, ["same 1"]);
    let mut all =
        TestSource::start("http-poll", &[("url", &url), ("interval", "5"), ("skip.unchanged", "false")]);
    all.poll_rows(3);
}

#[test]
fn wrong_options_of_clients_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let jks = dir.path().join("client-truststore.jks");
    std::fs::write(&jks, "x").unwrap();
    let jks = jks.to_str().unwrap();
    let url = ("publisher.url", "http://a/b");
    for (options, expected) in [
        (vec![], "the sink `http` needs the option `publisher.url`"),
        (vec![("publisher.url", "ftp://a/b")], "option `publisher.url`: unknown scheme `ftp`"),
        (
            vec![("publisher.url", "http://{{host}}/b")],
            "option `publisher.url`: the stream has no attribute `host`",
        ),
        (
            vec![url, ("headers", "'a'")],
            "option `headers`: entry 1 has no colon; expected `'name:value','name:value'`",
        ),
        (vec![url, ("headers", "'a b:c'")], "option `headers`: `a b` is no name of a header"),
        (vec![url, ("method", "a b")], "option `method`: `A B` is no HTTP method"),
        (vec![url, ("https.truststore.file", jks)], "client-truststore.jks is a Java key store; convert it"),
        (vec![url, ("basic.auth.username", "a")], "the option `basic.auth.password` is missing"),
        (vec![url, ("consumer.key", "a"), ("consumer.secret", "b")], "the option `token.url` is missing"),
        (
            vec![url, ("client.bootstrap.configurations", "'client.bootstrap.timeout:1'")],
            "there is no setting `client.bootstrap.timeout`",
        ),
        (vec![url, ("publisher.uri", "x")], "option `publisher.uri`: the sink `http` has no such option"),
    ] {
        let found = sink_error("http", &options);
        assert!(found.contains(expected), "{found}");
    }
    let options = [("sink.id", "a"), url, ("downloading.enabled", "true")];
    let found = sink_error("http-call", &options);
    assert!(found.contains("the path of the files is missing"), "{found}");
    let found = source_error("http-call-response", &[("sink.id", "a"), ("http.status.code", "2(")]);
    assert!(found.starts_with("option `http.status.code`: not a regular expression"), "{found}");
    let found = source_error("http-poll", &[("url", "http://a"), ("interval", "0")]);
    assert_eq!(found, "option `interval`: it must be longer than 0");
}

#[test]
fn both_sides_can_show_certificates() {
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
    let url = format!("https://localhost:{}/in", free_port());
    let mut source = TestSource::start(
        "http",
        &[
            ("receiver.url", &url),
            ("https.keystore.file", &server_certificate),
            ("https.keystore.key.file", &server_key),
            ("https.truststore.file", &client_certificate),
            ("ssl.verify.client", "require"),
        ],
    );
    source.wait_working();
    let trusted = [("publisher.url", url.as_str()), ("https.truststore.file", &server_certificate)];
    let known = [&trusted[..], &[("https.keystore.file", &client_both)]].concat();
    let attempt = |source: &mut TestSource, options: &[(&str, &str)]| {
        let mut sink = sink("http", options);
        let sender = std::thread::spawn(move || deliver(&mut sink, &[("a", 1)]).1);
        source.poll_until("the request is answered", |_| sender.is_finished());
        sender.join().unwrap()
    };
    attempt(&mut source, &known).unwrap();
    assert_eq!(source.rows, ["a 1"]);
    // without certificate, without trust, and with trust switched off
    assert!(attempt(&mut source, &trusted).is_err());
    let error = attempt(&mut source, &[trusted[0], known[2]]).unwrap_err();
    assert!(error.message().contains("UnknownIssuer"), "{error}");
    attempt(&mut source, &[trusted[0], known[2], ("ssl.verification.disabled", "true")]).unwrap();
    assert_eq!(source.rows, ["a 1", "a 1"]);
}
