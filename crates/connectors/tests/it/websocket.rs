//! WebSocket over loopback: against servers and clients of tungstenite, against plain sockets that send the bytes of
//! RFC 6455, and our clients against our servers.

use std::io::{Read, Write};

use futures::{SinkExt, StreamExt};
use tidemill_connect::runtime;
use tidemill_types::FieldType;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async, client_async};

use crate::helpers::{
    PATIENCE, TestSource, deliver, deliver_all, free_port, sink, sink_error, source_error, wait_until,
};
use crate::positioned::{PositionedSource, mapped};

type Socket = WebSocketStream<TcpStream>;

/// A server that accepts one client at a time.
struct Server {
    listener: TcpListener,
}

impl Server {
    fn start() -> Self {
        Self { listener: runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap() }
    }

    fn url(&self) -> String {
        format!("ws://{}/feed?key=secret", self.listener.local_addr().unwrap())
    }

    /// Waits for a client. Returns its connection, and the path and the headers of its request.
    #[expect(clippy::result_large_err, reason = "the library says which type the closure returns")]
    fn accept(&self) -> (Socket, String) {
        within(async {
            let (stream, _) = self.listener.accept().await.unwrap();
            let mut seen = String::new();
            let socket = accept_hdr_async(stream, |request: &Request, mut response: Response| {
                seen = format!("{} {:?}", request.uri(), request.headers());
                if let Some(offered) = request.headers().get("sec-websocket-protocol") {
                    let last = offered.to_str().unwrap().rsplit(", ").next().unwrap().parse().unwrap();
                    response.headers_mut().insert("sec-websocket-protocol", last);
                }
                Ok(response)
            });
            let socket = socket.await.unwrap();
            (socket, seen)
        })
    }
}

/// Runs a future, but not for longer than a test waits.
fn within<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(async { timeout(PATIENCE, future).await.expect("nothing happens") })
}

fn send(socket: &mut Socket, message: impl Into<Message>) {
    within(socket.send(message.into())).unwrap();
}

/// Returns the next message; pings are answered.
fn next(socket: &mut Socket) -> Option<Result<Message, Error>> {
    within(async {
        loop {
            match socket.next().await {
                Some(Ok(Message::Ping(_))) => socket.flush().await.unwrap(),
                other => return other,
            }
        }
    })
}

fn next_text(socket: &mut Socket) -> String {
    match next(socket) {
        Some(Ok(Message::Text(text))) => text.to_string(),
        other => panic!("expected a text: {other:?}"),
    }
}

/// Returns the code of the close frame that comes next.
fn next_close(socket: &mut Socket) -> u16 {
    match next(socket) {
        Some(Ok(Message::Close(Some(frame)))) => frame.code.into(),
        other => panic!("expected a close frame: {other:?}"),
    }
}

fn event(text: &str, n: i64) -> String {
    format!("{{\"event\":{{\"text\":\"{text}\",\"n\":{n}}}}}")
}

fn connect(port: u16, path: &str, protocols: &str) -> Result<Socket, Error> {
    within(async {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut request = format!("ws://127.0.0.1:{port}{path}").into_client_request().unwrap();
        if !protocols.is_empty() {
            request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
        }
        client_async(request, stream).await.map(|(socket, _)| socket)
    })
}

#[test]
fn a_client_takes_messages() {
    let server = Server::start();
    let options = [("headers", "'X-Token: a:b'"), ("sub.protocol", "v1, v2")];
    let mut source = TestSource::start("websocket", &[&options[..], &[("url", &server.url())]].concat());
    let (mut socket, seen) = server.accept();
    assert!(seen.starts_with("/feed?key=secret ") && seen.contains("\"x-token\": \"a:b\""), "{seen}");
    send(&mut socket, event("a", 1));
    send(&mut socket, Bytes::from(event("b", 2)));
    send(&mut socket, Message::Ping(Bytes::from_static(b"there?")));
    send(&mut socket, event("c", 3));
    assert_eq!(source.poll_rows(3), ["a 1", "b 2", "c 3"]);
    assert_eq!(next(&mut socket).unwrap().unwrap(), Message::Pong(Bytes::from_static(b"there?")));
    source.wait_working();
    // a malformed message is rejected, and the connection continues
    send(&mut socket, "{");
    source.poll_until("it is rejected", |source| !source.rejected.is_empty());
    let frame = CloseFrame { code: CloseCode::Restart, reason: "back soon".into() };
    send(&mut socket, Message::Close(Some(frame)));
    wait_until("the end is reported", || source.health().contains("with the code 1012: back soon"));
    assert!(!source.health().contains("secret"), "{}", source.health());
    let (mut socket, _) = server.accept();
    send(&mut socket, event("d", 4));
    assert_eq!(source.poll_rows(4)[3..], ["d 4"]);
}

#[test]
fn a_client_closes_what_it_cannot_store_and_what_is_idle() {
    let server = Server::start();
    let mut source = TestSource::start("websocket", &[("url", &server.url())]);
    source.acknowledges = false;
    let (mut socket, _) = server.accept();
    send(&mut socket, event("a", 1));
    source.poll_rows(1);
    source.drop_receipts();
    assert_eq!(next_close(&mut socket), 1013);
    source.acknowledges = true;
    let (mut socket, _) = server.accept();
    let long = vec![b' '; (32 << 20) + 1];
    // the client may hang up before it has all of it
    let _ = within(socket.send(Message::Binary(long.into())));
    wait_until("the length is reported", || source.health().contains("a message is too long"));
    drop(source);
    let server = Server::start();
    let source = TestSource::start("websocket", &[("url", &server.url()), ("idle.timeout", "100")]);
    let (mut socket, _) = server.accept();
    assert_eq!(next_close(&mut socket), 1000);
    wait_until("it is reported", || source.health().contains("no message came within idle.timeout"));
}

#[test]
fn servers_that_refuse_are_reported() {
    let port = free_port();
    let _server = crate::http_server::TestServer::start(port, |_| (403, vec![], "not you".into()));
    let source =
        TestSource::start("websocket", &[("url", &format!("ws://127.0.0.1:{port}/x?token=hunter2"))]);
    wait_until("the answer is reported", || {
        source.health().contains("the server answered HTTP 403: not you")
    });
    assert!(!source.health().contains("hunter2"), "{}", source.health());
    let nobody = TestSource::start("websocket", &[("url", &format!("ws://127.0.0.1:{}/x", free_port()))]);
    wait_until("it is reported", || nobody.health().contains("cannot connect"));
}

#[test]
fn a_client_sends_until_messages_have_arrived() {
    let server = Server::start();
    let options = [("url", server.url()), ("sub.protocol", "events".into())];
    let options = options.each_ref().map(|(name, value)| (*name, value.as_str()));
    let mut websocket = sink("websocket", &options);
    let events: Vec<(String, i64)> = (0..1200).map(|n| (format!("e{n}"), n)).collect();
    let sender = std::thread::spawn(move || {
        let events: Vec<(&str, i64)> = events.iter().map(|(text, n)| (text.as_str(), *n)).collect();
        deliver_all(&mut websocket, &events);
        websocket
    });
    // this server reads some messages and goes without a word
    let (mut socket, _) = server.accept();
    assert_eq!(next_text(&mut socket), event("e0", 0));
    drop(socket);
    // this one has more events; the first 500 are confirmed
    let (mut socket, _) = server.accept();
    for n in 0..700 {
        assert_eq!(next_text(&mut socket), event(&format!("e{n}"), n));
    }
    drop(socket);
    let (mut socket, _) = server.accept();
    for n in 500..1200 {
        assert_eq!(next_text(&mut socket), event(&format!("e{n}"), n));
    }
    let reader = std::thread::spawn(move || {
        let end = next(&mut socket);
        (socket, end)
    });
    let mut websocket = sender.join().unwrap();
    websocket.close();
    let (_, end) = reader.join().unwrap();
    assert!(
        matches!(&end, Some(Ok(Message::Close(Some(frame)))) if frame.code == CloseCode::Normal),
        "{end:?}"
    );
}

#[test]
fn a_sink_connects_again_when_the_server_closed_an_idle_connection() {
    let server = Server::start();
    let mut websocket = sink(
        "websocket",
        &[("url", &server.url()), ("message.type", "binary"), ("confirm.by.ping", "false")],
    );
    let sender = std::thread::spawn(move || {
        deliver(&mut websocket, &[("a", 1)]).1.unwrap();
        websocket
    });
    let (mut socket, _) = server.accept();
    assert_eq!(next(&mut socket).unwrap().unwrap(), Message::binary(event("a", 1)));
    let mut websocket = sender.join().unwrap();
    send(&mut socket, Message::Close(None));
    assert!(matches!(next(&mut socket), Some(Ok(Message::Close(_))) | None));
    // no failure: it was idle
    let sender = std::thread::spawn(move || deliver(&mut websocket, &[("b", 2)]).1);
    let (mut socket, _) = server.accept();
    assert_eq!(next(&mut socket).unwrap().unwrap(), Message::binary(event("b", 2)));
    sender.join().unwrap().unwrap();
}

#[test]
fn a_server_speaks_the_bytes_of_the_standard() {
    let port = free_port();
    let config = mapped(
        "websocket-server",
        &[("host", "127.0.0.1"), ("port", &port.to_string()), ("sub.protocol", "chat")],
        "text",
        &["A", "trp:TO", "trp:X-Room"],
    );
    let mut config = config;
    let mapper = config.mapper.as_mut().unwrap();
    mapper.options.extend([("regex.A".to_owned(), "(.*)".to_owned())]);
    mapper.attributes[0].text = "A[1]".into();
    let fields = ["text", "path", "room"].map(|name| (name, FieldType::String));
    let mut source = PositionedSource::open(&fields, config, ".".as_ref());
    let mut stream = loop {
        source.poll();
        if let Ok(stream) = std::net::TcpStream::connect(("127.0.0.1", port)) {
            break stream;
        }
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // the opening handshake of section 1.3
    stream
        .write_all(
            b"GET /chat?x=1 HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://example.com\r\n\
              Sec-WebSocket-Protocol: superchat, chat\r\nSec-WebSocket-Version: 13\r\nX-Room: 7\r\n\r\n",
        )
        .unwrap();
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
    assert!(head.contains("sec-websocket-protocol: chat\r\n"), "{head}");
    // the examples of section 5.7: a masked text, a masked ping, and the text in two frames
    let hello = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    let ping = [0x89, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    let parts = [0x01, 0x83, 0, 0, 0, 0, 0x48, 0x65, 0x6c, 0x80, 0x82, 0, 0, 0, 0, 0x6c, 0x6f];
    stream.write_all(&[&hello[..], &ping, &parts].concat()).unwrap();
    let mut pong = [0; 7];
    stream.read_exact(&mut pong).unwrap();
    assert_eq!(pong, [0x8a, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
    assert_eq!(source.poll_rows(2), ["Hello|/chat|7", "Hello|/chat|7"]);
    // a frame without mask is a violation of the protocol: code 1002
    stream.write_all(&[0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]).unwrap();
    let mut close = [0; 4];
    stream.read_exact(&mut close).unwrap();
    assert_eq!((close[0], &close[2..]), (0x88, &[0x03, 0xea][..]));
}

#[test]
fn a_server_takes_messages_of_its_clients() {
    let port = free_port();
    let options =
        [("host", "127.0.0.1"), ("port", &port.to_string()), ("path", "/in"), ("sub.protocol", "a,b")];
    let mut source = TestSource::start("websocket-server", &options);
    source.wait_working();
    let mut first = connect(port, "/in", "").unwrap();
    let mut second = connect(port, "/in/", "c, b").unwrap();
    send(&mut first, event("a", 1));
    source.poll_rows(1);
    send(&mut second, event("b", 2));
    assert_eq!(source.poll_rows(2), ["a 1", "b 2"]);
    for (path, protocols, status) in [("/other", "", 404), ("/in", "c", 400)] {
        let refused = connect(port, path, protocols);
        assert!(matches!(&refused, Err(Error::Http(answer)) if answer.status() == status), "{refused:?}");
    }
    let plain = crate::http::post(&format!("http://127.0.0.1:{port}/in"), "x").send().join().unwrap();
    assert_eq!(plain.0, 426, "{plain:?}");
    assert!(plain.2.contains("connect with a client of WebSocket"), "{plain:?}");
    // what cannot be stored ends the connection
    source.acknowledges = false;
    send(&mut first, event("c", 3));
    source.poll_rows(3);
    source.drop_receipts();
    assert_eq!(next_close(&mut first), 1013);
    drop(source);
    assert!(!matches!(next(&mut second), Some(Ok(_))), "the connections end with the source");
}

#[test]
fn a_server_sends_to_all_clients() {
    let port = free_port();
    let port_text = port.to_string();
    let options =
        [("host", "127.0.0.1"), ("port", &port_text), ("buffer.size", "2"), ("slow.client.timeout", "100")];
    let mut websocket = sink("websocket-server", &options);
    deliver(&mut websocket, &[("nobody hears", 0)]).1.unwrap();
    let mut first = connect(port, "/any", "").unwrap();
    let mut second = connect(port, "/", "").unwrap();
    send(&mut first, "what clients send is not looked at");
    deliver(&mut websocket, &[("a", 1), ("b", 2), ("c", 3)]).1.unwrap();
    for socket in [&mut first, &mut second] {
        let texts = [next_text(socket), next_text(socket), next_text(socket)];
        assert_eq!(texts, [event("a", 1), event("b", 2), event("c", 3)]);
    }
    // `first` no longer reads, and `second` gets all the same
    let long = "x".repeat(1 << 20);
    let reader = std::thread::spawn(move || {
        let lengths: Vec<usize> = (0..40).map(|_| next_text(&mut second).len()).collect();
        (second, lengths)
    });
    for n in 0..40 {
        deliver(&mut websocket, &[(&long, n)]).1.unwrap();
    }
    let (mut second, lengths) = reader.join().unwrap();
    assert!(lengths.iter().all(|length| *length > 1 << 20), "{lengths:?}");
    let closer = std::thread::spawn(move || websocket.close());
    assert_eq!(next_close(&mut second), 1001);
    closer.join().unwrap();
}

#[test]
fn a_server_closes_idle_connections() {
    let port = free_port();
    let options = [("host", "127.0.0.1"), ("port", &port.to_string()), ("idle.timeout", "100")];
    let mut websocket = sink("websocket-server", &options);
    deliver(&mut websocket, &[]).1.unwrap();
    let mut socket = connect(port, "/", "").unwrap();
    assert_eq!(next_close(&mut socket), 1000);
}

#[test]
fn clients_and_servers_of_this_program_fit_together() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let (certificate, key) = (dir.path().join("server.pem"), dir.path().join("server.key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let ports = [free_port(), free_port()].map(|port| port.to_string());
    let urls = ports.each_ref().map(|port| format!("wss://localhost:{port}/events"));
    let server = |index: usize| {
        [
            ("host", "localhost"),
            ("port", &*ports[index]),
            ("tls.enabled", "true"),
            ("keystore.path", certificate),
            ("keystore.key.path", key),
            ("basic.auth.enabled", "true"),
            ("basic.auth.username", "ann"),
            ("basic.auth.password", "hunter2"),
        ]
    };
    // ann:hunter2
    let login = ("headers", "'Authorization:Basic YW5uOmh1bnRlcjI='");
    let client = |index: usize| [("url", &*urls[index]), ("truststore.path", certificate), login];

    let mut source = TestSource::start("websocket-server", &server(0));
    source.wait_working();
    let mut websocket = sink("websocket", &client(0));
    let sender = std::thread::spawn(move || deliver_all(&mut websocket, &[("a", 1), ("b", 2)]));
    assert_eq!(source.poll_rows(2), ["a 1", "b 2"]);
    sender.join().unwrap();

    let mut websocket = sink("websocket-server", &server(1));
    deliver(&mut websocket, &[]).1.unwrap();
    let stranger = TestSource::start("websocket", &client(1)[..2]);
    wait_until("the password is missed", || {
        stranger.health().contains("HTTP 401: {\"error\":\"wrong or missing")
    });
    let distrustful = TestSource::start("websocket", &client(1)[..1]);
    wait_until("it is not trusted", || distrustful.health().contains("UnknownIssuer"));
    let mut source = TestSource::start("websocket", &client(1));
    source.wait_working();
    deliver(&mut websocket, &[("c", 3)]).1.unwrap();
    assert_eq!(source.poll_rows(1), ["c 3"]);
}

#[test]
fn wrong_options_are_explained() {
    let server = [("host", "localhost"), ("port", "1")];
    for (kind, options, expected) in [
        ("websocket", vec![], "needs the option `url`"),
        ("websocket", vec![("url", "http://a/")], "option `url`: unknown scheme `http`"),
        ("websocket", vec![("url", "ws://u:p@a/")], "a URL has no user name here"),
        ("websocket", vec![("url", "ws://a"), ("idle.timeout", "0")], "it must be longer than 0, or -1"),
        ("websocket", vec![("url", "ws://a"), ("headers", "x")], "option `headers`: entry 1 has no colon"),
        ("websocket", vec![("url", "wss://a"), ("truststore.path", "/none.pem")], "cannot read /none.pem"),
        ("websocket-server", vec![("host", "a")], "needs the option `port`"),
        (
            "websocket-server",
            [&server[..], &[("tls.enabled", "true")]].concat(),
            "needs a certificate and a key",
        ),
        ("websocket-server", [&server[..], &[("url", "ws://a")]].concat(), "`url`"),
    ] {
        for found in [source_error(kind, &options), sink_error(kind, &options)] {
            assert!(found.contains(expected), "{found}");
        }
    }
}

#[test]
fn clients_and_servers_of_python_fit() {
    let Some(python) = crate::python::python() else { return };
    let port = free_port();
    let listen = [("host", "127.0.0.1".to_owned()), ("port", port.to_string())];
    let listen = listen.each_ref().map(|(name, value)| (*name, value.as_str()));
    let url = |path: &str| format!("ws://127.0.0.1:{port}{path}");
    let mut source = TestSource::start("websocket-server", &[&listen[..], &[("path", "/in")]].concat());
    let mut events = sink("websocket-server", &[&listen[..], &[("path", "/out")]].concat());
    source.wait_working();
    deliver(&mut events, &[]).1.unwrap();
    crate::python::output(python, "websocket_client.py", &[&url("/in"), "0", &event("a", 1), &event("ü", 2)]);
    assert_eq!(source.poll_rows(2), ["a 1", "ü 2"]);
    let mut client = crate::python::Running::start(python, "websocket_client.py", &[&url("/out"), "2"]);
    assert_eq!(client.line(), "connected");
    deliver(&mut events, &[("b", 3), ("c", 4)]).1.unwrap();
    assert_eq!([client.line(), client.line()], [event("b", 3), event("c", 4)]);

    let mut server = crate::python::Running::start(python, "websocket_server.py", &[]);
    let url = format!("ws://127.0.0.1:{}/", server.line());
    let mut websocket = sink("websocket", &[("url", &url)]);
    deliver(&mut websocket, &[("d", 5), ("e", 6)]).1.unwrap();
    assert_eq!([server.line(), server.line()], [event("d", 5), event("e", 6)]);
}
