//! Server-sent events over loopback: the source against a server of axum, the sink against plain sockets and the source.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use parking_lot::Mutex;
use tidemill_connect::runtime;
use tidemill_types::FieldType;
use tokio::task::JoinHandle;

use crate::helpers::{PATIENCE, TestSource, deliver, free_port, sink, sink_error, source_error, wait_until};
use crate::positioned::{PositionedSource, mapped};

/// Server that sends events 1, 2, 3 and so on, behind the id that a client names, and ends each stream after two.
struct Numbered {
    port: u16,
    last_ids: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Numbered {
    fn start(count: u64) -> Self {
        async fn stream(
            State((count, last_ids)): State<(u64, Arc<Mutex<Vec<String>>>)>,
            headers: HeaderMap,
        ) -> Response {
            assert_eq!(headers["accept"], "text/event-stream");
            let last = headers.get("last-event-id").map_or("", |value| value.to_str().unwrap());
            last_ids.lock().push(last.to_owned());
            let from = last.parse().unwrap_or(0) + 1;
            let sent = (from..=count.min(from + 1)).map(|n| {
                let data = format!("{{\"event\":{{\"text\":\"e\",\"n\":{n}}}}}");
                let event = Event::default().event("tick").retry(Duration::from_millis(10));
                Ok::<_, Infallible>(event.id(n.to_string()).data(data))
            });
            let sent = futures::stream::iter(sent);
            match from > count {
                // everything is sent: the stream stays open
                true => Sse::new(sent.chain(futures::stream::pending())).into_response(),
                false => Sse::new(sent).into_response(),
            }
        }
        let last_ids = Arc::<Mutex<Vec<String>>>::default();
        let app = Router::new().fallback(stream).with_state((count, last_ids.clone()));
        let listener = runtime().block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = runtime().spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { port, last_ids, task }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/stream", self.port)
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[test]
fn a_source_continues_behind_the_last_id() {
    let server = Numbered::start(5);
    let mut source = TestSource::start("sse", &[("event.source.url", &server.url())]);
    assert_eq!(source.poll_rows(5), ["e 1", "e 2", "e 3", "e 4", "e 5"]);
    wait_until("the source has asked for more", || server.last_ids.lock().len() >= 4);
    assert_eq!(server.last_ids.lock()[..4], ["", "2", "4", "5"]);
    source.wait_working();
}

#[test]
fn events_that_are_not_durable_are_asked_for_again() {
    let server = Numbered::start(2);
    let mut source = TestSource::start("sse", &[("event.source.url", &server.url())]);
    source.acknowledges = false;
    source.poll_rows(2);
    source.drop_receipts();
    source.acknowledges = true;
    assert_eq!(source.poll_rows(4), ["e 1", "e 2", "e 1", "e 2"]);
    wait_until("the source has asked for more", || server.last_ids.lock().len() >= 3);
    assert_eq!(server.last_ids.lock()[..3], ["", "", "2"]);
}

#[test]
fn ids_that_are_numbers_are_positions() {
    let server = Numbered::start(3);
    let url = server.url();
    let config = mapped(
        "sse",
        &[("event.source.url", &url), ("event.id.numeric", "true"), ("last.event.id", "1")],
        "json",
        &["$.event.n", "trp:id", "trp:event"],
    );
    let fields = [("n", FieldType::Int), ("id", FieldType::Int), ("kind", FieldType::String)];
    let mut source = PositionedSource::open(&fields, config, ".".as_ref());
    assert_eq!(source.poll_rows(2), ["2|2|tick", "3|3|tick"]);
    assert_eq!(source.positions["events"], 4);
    let asked = server.last_ids.lock().len();
    source.restart();
    wait_until("the source has asked again", || server.last_ids.lock().len() > asked);
    assert_eq!(server.last_ids.lock()[0], "1");
    assert!(server.last_ids.lock()[1..].iter().all(|id| id == "3"), "{:?}", server.last_ids);
}

#[test]
fn ids_that_are_no_rising_numbers_lose_no_events() {
    async fn stream() -> impl IntoResponse {
        let events = ["5", "4", "x", "6"].map(|id| {
            let data = format!("{{\"event\":{{\"text\":\"{id}\",\"n\":0}}}}");
            Ok::<_, Infallible>(Event::default().id(id).data(data))
        });
        Sse::new(futures::stream::iter(events).chain(futures::stream::pending()))
    }
    let listener = runtime().block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = runtime().spawn(async move { axum::serve(listener, Router::new().fallback(stream)).await });
    let options = [("event.source.url", url.as_str()), ("event.id.numeric", "true")];
    let config = mapped("sse", &options, "json", &["$.event.text"]);
    let mut source = PositionedSource::open(&[("text", FieldType::String)], config, ".".as_ref());
    assert_eq!(source.poll_rows(4), ["5", "4", "x", "6"]);
    assert_eq!(source.positions["events"], 7);
    let problem = source.wait_problem();
    assert!(problem.contains("no whole number above the one before"), "{problem}");
    server.abort();
}

#[test]
fn servers_without_a_stream_are_reported() {
    async fn answer(uri: axum::http::Uri) -> Response {
        match uri.path() {
            "/204" => StatusCode::NO_CONTENT.into_response(),
            "/401" => (StatusCode::UNAUTHORIZED, "who are you").into_response(),
            _ => "no stream".into_response(),
        }
    }
    let listener = runtime().block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let server = runtime().spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    for (path, expected) in [
        ("204", "answered HTTP 204: there is no stream now"),
        ("401", "answered HTTP 401: who are you"),
        ("text", "answered with the content type `text/plain`; expected `text/event-stream`"),
    ] {
        let source = TestSource::start("sse", &[("event.source.url", &format!("http://{address}/{path}"))]);
        wait_until(expected, || source.health().contains(expected));
    }
    server.abort();
}

/// Client of a stream that is a plain socket.
struct Client(BufReader<TcpStream>);

impl Client {
    /// Sends a request, and returns the client behind the head of the answer, with the head.
    fn connect(port: u16, path: &str, headers: &str) -> (Self, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").unwrap();
        let mut client = Self(BufReader::new(stream));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head += &client.line();
        }
        (client, head)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    /// Returns the lines of the next chunk that is not a comment, without its length.
    fn event(&mut self) -> String {
        loop {
            let length = self.line();
            let length = usize::from_str_radix(length.trim(), 16).unwrap_or_else(|_| panic!("{length:?}"));
            let mut chunk = vec![0; length + 2];
            std::io::Read::read_exact(&mut self.0, &mut chunk).unwrap();
            let chunk = String::from_utf8(chunk).unwrap();
            if !chunk.starts_with(':') {
                return chunk.trim_end().to_owned();
            }
        }
    }
}

#[test]
fn a_sink_serves_its_clients() {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/events");
    let mut sse = sink(
        "sse-server",
        &[
            ("server.url", &url),
            ("headers", "'Access-Control-Allow-Origin:*'"),
            ("event.type", "{{text}}"),
            ("keep.alive.interval", "50"),
        ],
    );
    deliver(&mut sse, &[("early", 0)]).1.unwrap();
    let (mut first, head) = Client::connect(port, "/events", "");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    for line in
        ["content-type: text/event-stream", "access-control-allow-origin: *", "cache-control: no-store"]
    {
        assert!(head.contains(line), "{head}");
    }
    deliver(&mut sse, &[("a", 1), ("b", 2)]).1.unwrap();
    assert_eq!(first.event(), "id: 0-0-0\nevent: a\ndata: {\"event\":{\"text\":\"a\",\"n\":1}}");
    assert_eq!(first.event(), "id: 0-0-1\nevent: b\ndata: {\"event\":{\"text\":\"b\",\"n\":2}}");
    // a client that comes back gets what it missed, and one with an unknown id all that is kept
    let (mut back, _) = Client::connect(port, "/events", "Last-Event-ID: 0-0-0\r\n");
    assert!(back.event().contains("event: b"));
    let (mut unknown, _) = Client::connect(port, "/events", "Last-Event-ID: 9\r\n");
    assert!(unknown.event().contains("event: early"));
    let (_, head) = Client::connect(port, "/other", "");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    sse.close();
    // the last chunk is empty
    assert_eq!(first.line(), "0\r\n");
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/events");
    let options = [("server.url", url.as_str()), ("history.size", "2"), ("slow.client.timeout", "50")];
    let mut sse = sink("sse", &options);
    deliver(&mut sse, &[]).1.unwrap();
    let (stuck, _) = Client::connect(port, "/events", "");
    let (mut reading, _) = Client::connect(port, "/events", "");
    let long = "x".repeat(1 << 20);
    let reader = std::thread::spawn(move || (0..50).map(|_| reading.event().len()).collect::<Vec<_>>());
    for n in 0..50 {
        deliver(&mut sse, &[(&long, n)]).1.unwrap();
    }
    let lengths = reader.join().unwrap();
    assert!(lengths.iter().all(|length| *length > 1 << 20), "{lengths:?}");
    drop(stuck);
}

#[test]
fn a_source_reads_a_sink_over_tls_with_a_password() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let (certificate, both) = (dir.path().join("server.pem"), dir.path().join("both.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&both, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
    let url = format!("https://localhost:{}/events", free_port());
    let login = [("basic.auth.username", "ann"), ("basic.auth.password", "hunter2")];
    let mut sse = sink(
        "sse",
        &[
            &login[..],
            &[
                ("server.url", url.as_str()),
                ("basic.auth.enabled", "true"),
                ("https.keystore.file", both.to_str().unwrap()),
            ],
        ]
        .concat(),
    );
    deliver(&mut sse, &[]).1.unwrap();
    let trust =
        [("event.source.url", url.as_str()), ("https.truststore.file", certificate.to_str().unwrap())];
    let stranger = TestSource::start("sse", &trust);
    wait_until("the password is missed", || stranger.health().contains("answered HTTP 401"));
    drop(stranger);
    let mut source = TestSource::start("sse", &[&login[..], &trust].concat());
    source.wait_working();
    deliver(&mut sse, &[("a\nb", 1), ("c", 2)]).1.unwrap();
    assert_eq!(source.poll_rows(2), ["a\nb 1", "c 2"]);
}

#[test]
fn wrong_options_are_explained() {
    let url = ("event.source.url", "http://localhost/x");
    for (options, expected) in [
        (&[("event.source.url", "ftp://a")][..], "option `event.source.url`: unknown scheme `ftp`"),
        (&[url, ("last.event.id", "x"), ("event.id.numeric", "true")], "the id is a whole number, not `x`"),
        (&[url, ("method", "PUT")], "expected one of GET, POST, found `PUT`"),
        (&[url, ("headers", "x")], "option `headers`: entry 1 has no colon"),
    ] {
        let found = source_error("sse", options);
        assert!(found.contains(expected), "{found}");
    }
    for (options, expected) in [
        (&[("event.type", "{{kind}}")][..], "option `event.type`: the stream has no attribute `kind`"),
        (&[("history.size", "0")], "option `history.size`: expected an integer from 1"),
        (&[("keep.alive.interval", "0")], "option `keep.alive.interval`: it must be longer than 0"),
        (&[("server.url", "https://localhost/x")], "an `https` server needs a certificate and a key"),
        (&[("basic.auth.enabled", "true")], "which are missing"),
    ] {
        let found = sink_error("sse", options);
        assert!(found.contains(expected), "{found}");
    }
}
