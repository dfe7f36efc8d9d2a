//! HTTP over loopback: webhooks and services with real requests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::Duration;

use tidemill_connect::{MapperConfig, NamedText, runtime};

use crate::helpers::{
    TestSource, config, context, deliver, free_port, sink, sink_error, source_error, wait_until,
};

/// Content of a request.
#[derive(Clone, Default)]
pub struct Request {
    pub method: &'static str,
    pub url: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

/// Returns a POST request.
pub fn post(url: &str, body: impl Into<Vec<u8>>) -> Request {
    Request { method: "POST", url: url.into(), headers: vec![], body: body.into() }
}

impl Request {
    /// Sends the request on a thread of its own. Returns status, headers as text, and body.
    pub fn send(self) -> JoinHandle<(u16, String, String)> {
        std::thread::spawn(move || {
            runtime().block_on(async {
                let client = reqwest::Client::builder().no_proxy().build().unwrap();
                let method = reqwest::Method::from_bytes(self.method.as_bytes()).unwrap();
                let mut request = client.request(method, &self.url).body(self.body);
                for (name, value) in &self.headers {
                    request = request.header(*name, value);
                }
                let response = request.send().await.unwrap_or_else(|e| panic!("{e:?}"));
                let headers = format!("{:?}", response.headers());
                (response.status().as_u16(), headers, response.text().await.unwrap())
            })
        })
    }
}

fn event(text: &str, n: i64) -> String {
    format!("{{\"event\":{{\"text\":\"{text}\",\"n\":{n}}}}}")
}

fn source(url: &str, options: &[(&str, &str)]) -> TestSource {
    let source = TestSource::start("http", &[&[("receiver.url", url)], options].concat());
    source.wait_working();
    source
}

/// Sends a request while the source is polled.
fn exchange(source: &mut TestSource, request: Request) -> (u16, String, String) {
    let sent = request.send();
    source.poll_until("the request is answered", |_| sent.is_finished());
    sent.join().unwrap()
}

#[test]
fn a_webhook_answers_when_its_events_are_durable() {
    let url = format!("http://127.0.0.1:{}/hook", free_port());
    let mut source = source(&url, &[]);
    source.acknowledges = false;
    let waiting = post(&url, event("a", 1)).send();
    source.poll_rows(1);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!waiting.is_finished(), "answered before the event is durable");
    // the engine gives up: the client must send again
    source.drop_receipts();
    let (status, headers, body) = waiting.join().unwrap();
    assert_eq!(status, 503, "{body}");
    assert!(headers.contains("\"retry-after\": \"1\""), "{headers}");
    assert!(body.contains("send them again"), "{body}");

    source.acknowledges = true;
    let (status, _, body) = exchange(&mut source, post(&url, event("a", 1)));
    assert_eq!((status, body.as_str()), (200, "{\"accepted\":1}"));
    let batch = format!("[{},{}]", event("b", 2), event("c", 3));
    let (status, _, body) = exchange(&mut source, post(&url, batch));
    assert_eq!((status, body.as_str()), (200, "{\"accepted\":2}"));
    assert_eq!(source.rows, ["a 1", "a 1", "b 2", "c 3"]);

    let batch = format!("[{},{{\"event\":{{\"text\":\"bad\",\"n\":\"x\"}}}}]", event("d", 4));
    let (status, _, body) = exchange(&mut source, post(&url, batch));
    assert_eq!(status, 400);
    assert!(body.starts_with("{\"accepted\":1,\"rejected\":[\"") && body.contains('n'), "{body}");
    assert_eq!(source.rows.last().unwrap(), "d 4");
}

#[test]
fn requests_that_are_no_events_are_refused() {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/hook/");
    let limits = "'request.size.validation:true','request.size.validation.maximum.value:100'";
    let auth = [
        ("basic.auth.enabled", "true"),
        ("basic.auth.username", "admin"),
        ("basic.auth.password", "hunter2"),
        ("request.size.validation.configurations", limits),
    ];
    let mut source = source(&url, &auth);
    let good = ("authorization", "Basic YWRtaW46aHVudGVyMg==".to_owned());
    let with = |request: Request, header: (&'static str, String)| {
        let mut request = request;
        request.headers.push(header);
        request
    };
    let base = format!("http://127.0.0.1:{port}");
    let authorized = |request: Request| with(request, good.clone());
    let cases = [
        (post(&url, event("a", 1)), 401, "wrong or missing user name and password"),
        (with(post(&url, ""), ("authorization", "Basic eDp5".into())), 401, "wrong or missing"),
        (with(post(&url, ""), ("authorization", "Bearer x".into())), 401, "wrong or missing"),
        (authorized(Request { method: "GET", ..post(&url, "") }), 405, "events are sent by POST, not GET"),
        (authorized(post(&format!("{base}/other"), "")), 404, "nothing is served at the path `/other`"),
        (authorized(post(&url, "x".repeat(101))), 413, "the body has more than 100 bytes"),
        (
            with(authorized(post(&url, "x")), ("content-encoding", "br".into())),
            415,
            "bodies are taken without content encoding",
        ),
        (authorized(post(&url, "no json")), 400, "rejected"),
        (authorized(post(&format!("{base}/hook?a=b"), event("a", 1))), 200, "{\"accepted\":1}"),
        (authorized(Request { method: "PUT", ..post(&url, event("b", 2)) }), 200, "{\"accepted\":1}"),
    ];
    for (request, expected, text) in cases {
        let (status, _, body) = exchange(&mut source, request);
        assert_eq!(status, expected, "{body}");
        assert!(body.contains(text), "{body}");
        assert!(!body.contains("hunter2"));
    }
    assert_eq!(source.rows, ["a 1", "b 2"]);
    // a body without announced length
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = "POST /hook HTTP/1.1\r\nhost: x\r\nauthorization: Basic YWRtaW46aHVudGVyMg==\r\ntransfer-encoding: \
                chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(format!("c8\r\n{}\r\n0\r\n\r\n", "x".repeat(200)).as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

#[test]
fn slow_and_broken_clients_are_given_up() {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/hook");
    let mut source = source(&url, &[("socket.idle.timeout", "300")]);
    let connect = |bytes: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        stream
    };
    let mut half_head = connect("POST /hook HTTP/1.1\r\nhos");
    let mut half_body = connect("POST /hook HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"ev");
    let mut garbage = connect("\x02\0\0\0\x10 this is no HTTP\r\n\r\n");
    let lost_body = connect("POST /hook HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"ev");
    drop(lost_body);
    let (status, ..) = exchange(&mut source, post(&url, event("good", 1)));
    assert_eq!(status, 200);
    let read = |stream: &mut TcpStream| {
        let mut answer = String::new();
        // a reset is as good as an end
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    assert!(read(&mut half_head).is_empty() || read(&mut half_head).contains("408"));
    assert!(read(&mut half_body).starts_with("HTTP/1.1 408"));
    assert!(!read(&mut garbage).contains("200"));
    assert_eq!(source.rows, ["good 1"]);
}

#[test]
fn sources_share_a_port_and_release_it() {
    let port = free_port();
    let (a, b) = (format!("http://127.0.0.1:{port}/a"), format!("http://127.0.0.1:{port}/b"));
    let (mut first, mut second) = (source(&a, &[]), source(&b, &[]));
    assert_eq!(exchange(&mut first, post(&a, event("a", 1))).0, 200);
    assert_eq!(exchange(&mut second, post(&b, event("b", 1))).0, 200);
    let third = TestSource::start("http", &[("receiver.url", &a)]);
    wait_until("the path is refused", || third.health().contains("another connector has the path `/a`"));
    drop((first, third));
    assert_eq!(exchange(&mut second, post(&a, event("a", 2))).0, 404);
    for round in 0..20 {
        drop(second);
        second = source(&b, &[]);
        assert_eq!(exchange(&mut second, post(&b, event("b", round))).0, 200);
    }
}

#[test]
fn headers_are_transport_properties() {
    let url = format!("http://127.0.0.1:{}/hook", free_port());
    let mut config = config("http", &[("receiver.url", &url)]);
    let attribute = |text: &str| NamedText { name: None, text: text.into() };
    config.mapper = Some(MapperConfig {
        kind: "json".into(),
        attributes: vec![attribute("trp:X-Tenant"), attribute("$.value")],
        ..MapperConfig::default()
    });
    let mut source = TestSource::start_in(&context("app", "S"), &config);
    source.wait_working();
    let mut request = post(&url, "{\"value\": 7}");
    request.headers.push(("x-tenant", "blue".into()));
    assert_eq!(exchange(&mut source, request).0, 200);
    assert_eq!(source.rows, ["blue 7"]);
}

#[test]
fn events_answer_the_requests_of_a_service() {
    let url = format!("http://127.0.0.1:{}/service", free_port());
    let mut config = config(
        "http-service",
        &[("receiver.url", &url), ("source.id", "adder"), ("connection.timeout", "5 sec")],
    );
    let attribute = |text: &str| NamedText { name: None, text: text.into() };
    config.mapper = Some(MapperConfig {
        kind: "json".into(),
        attributes: vec![attribute("trp:messageId"), attribute("$.n")],
        ..MapperConfig::default()
    });
    let mut source = TestSource::start_in(&context("app", "S"), &config);
    source.wait_working();
    let first = post(&url, "{\"n\": 1}").send();
    let second = post(&url, "{\"n\": 2}").send();
    source.poll_rows(2);
    let mut sink = sink(
        "http-service-response",
        &[
            ("source.id", "adder"),
            ("message.id", "{{text}}"),
            ("headers", "'x-number:{{n}}','content-type:text/plain'"),
            ("http.status.code", "20{{n}}"),
        ],
    );
    let answers: Vec<(String, i64)> = source
        .rows
        .iter()
        .map(|row| row.split_once(' ').map(|(id, n)| (id.to_owned(), n.parse().unwrap())).unwrap())
        .collect();
    let events: Vec<(&str, i64)> = answers.iter().map(|(id, n)| (id.as_str(), *n)).collect();
    let (progress, delivered) = deliver(&mut sink, &events);
    delivered.unwrap();
    assert!(progress.refused.is_empty(), "{progress:?}");
    for (n, request) in [(1, first), (2, second)] {
        let (status, headers, body) = request.join().unwrap();
        assert_eq!(status, 200 + n);
        assert!(headers.contains(&format!("\"x-number\": \"{n}\"")), "{headers}");
        assert!(body.contains(&format!("\"n\":{n}")), "{body}");
    }
    // the same events again: no request waits any more
    let (progress, delivered) = deliver(&mut sink, &events);
    delivered.unwrap();
    assert_eq!((progress.delivered, progress.refused.len()), (2, 2));
    let reason = &progress.refused[0].reason;
    assert!(
        reason.starts_with("no request of the source.id `adder` waits with the message.id `"),
        "{reason}"
    );
}

#[test]
fn a_service_without_response_gives_up() {
    let url = format!("http://127.0.0.1:{}/service", free_port());
    let options = [("receiver.url", url.as_str()), ("source.id", "silent"), ("connection.timeout", "100")];
    let mut source = TestSource::start("http-service", &options);
    source.wait_working();
    let (status, _, body) = exchange(&mut source, post(&url, event("a", 1)));
    assert_eq!(status, 504, "{body}");
    let (status, ..) = exchange(&mut source, post(&url, "no json"));
    assert_eq!(status, 400);
}

#[test]
fn https_works_with_pem_files() {
    let dir = tempfile::tempdir().unwrap();
    let server = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let pem = dir.path().join("server.pem");
    std::fs::write(&pem, server.cert.pem() + &server.signing_key.serialize_pem()).unwrap();
    let port = free_port();
    let url = format!("https://localhost:{port}/hook");
    let mut source = source(&url, &[("https.keystore.file", pem.to_str().unwrap())]);
    let certificate = reqwest::Certificate::from_pem(server.cert.pem().as_bytes()).unwrap();
    let sent = std::thread::spawn(move || {
        runtime().block_on(async {
            let client = reqwest::Client::builder().no_proxy().add_root_certificate(certificate);
            let sent = client.build().unwrap().post(&url).body(event("secret", 1)).send().await;
            (sent.as_ref().unwrap().status().as_u16(), sent.unwrap().version())
        })
    });
    source.poll_until("the request is answered", |_| sent.is_finished());
    assert_eq!(sent.join().unwrap(), (200, reqwest::Version::HTTP_2));
    assert_eq!(source.rows, ["secret 1"]);
    // plain HTTP on the same port is another server
    let other = TestSource::start("http", &[("receiver.url", &format!("http://localhost:{port}/other"))]);
    wait_until("the scheme is refused", || other.health().contains("need the same scheme"));
    // neither a garbled handshake nor a silent client disturbs the others
    TcpStream::connect(("localhost", port)).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
}

#[test]
fn wrong_options_of_receivers_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let jks = dir.path().join("wso2carbon.jks");
    std::fs::write(&jks, [0xfe, 0xed, 0xfe, 0xed]).unwrap();
    let other_jks = dir.path().join("store");
    std::fs::write(&other_jks, [0xfe, 0xed, 0xfe, 0xed]).unwrap();
    let text = dir.path().join("text.pem");
    std::fs::write(&text, "no certificate").unwrap();
    let path = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let https = ("receiver.url", "https://localhost:8443/a");
    for (options, expected) in [
        (vec![("receiver.url", "ftp://a/b")], "option `receiver.url`: unknown scheme `ftp`"),
        (vec![("receiver.url", "localhost")], "option `receiver.url`: not a URL"),
        (vec![https], "an `https` server needs a certificate and a key; expected https.keystore.file"),
        (vec![https, ("https.keystore.file", &path(&jks))], "wso2carbon.jks is a Java key store; convert it"),
        (vec![https, ("https.keystore.file", &path(&other_jks))], "store is a Java key store; convert it"),
        (vec![https, ("https.keystore.file", &path(&text))], "text.pem: the file has no certificate"),
        (vec![https, ("https.keystore.file", "/nowhere.pem")], "cannot read /nowhere.pem"),
        (vec![("basic.auth.enabled", "true")], "option `basic.auth.enabled`: requests are compared with"),
        (
            vec![("request.size.validation.configurations", "'maximum:1'")],
            "option `request.size.validation.configurations`: there is no setting `maximum`",
        ),
        (
            vec![("request.size.validation.configurations", "'request.size.validation.maximum.value:x'")],
            "expected a whole number",
        ),
    ] {
        let found = source_error("http", &options);
        assert!(found.contains(expected), "{found}");
    }
    let found = source_error("http-service", &[]);
    assert_eq!(found, "the source `http-service` needs the option `source.id`; expected source.id='…'");
    let options = [("source.id", "a"), ("message.id", "{{texd}}")];
    let found = sink_error("http-service-response", &options);
    assert!(found.starts_with("option `message.id`: the stream has no attribute `texd`"), "{found}");
}
