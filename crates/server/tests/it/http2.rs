//! HTTP/2 on the port of HTTP/1.1: the routes, and calls of gRPC beside them.

use std::io::{Read, Write};
use std::net::TcpStream as BlockingStream;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, Version};
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{SendRequest, handshake as begin};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidemill_gateway::{ConnectionHandle, Gateway, ListenOptions, Listener, Metrics};
use tidemill_server::{GrpcService, HttpFrontEnd};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::harness::{Mill, ScriptedSql, TOKEN, options};

pub type Sender = SendRequest<Full<Bytes>>;

/// Reply of a request.
pub struct Http2Reply {
    pub status: u16,
    pub text: String,
}

/// Begins a connection. The task ends with it.
pub async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> (Sender, JoinHandle<()>) {
    let (sender, connection) = begin(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let task = tokio::spawn(async move {
        // a server that closes the connection is what some tests look for
        let _ = connection.await;
    });
    (sender, task)
}

async fn send(sender: &mut Sender, request: Request<Full<Bytes>>) -> Http2Reply {
    let reply = sender.send_request(request).await.unwrap();
    let status = reply.status().as_u16();
    let body = reply.into_body().collect().await.unwrap().to_bytes();
    Http2Reply { status, text: String::from_utf8(body.to_vec()).unwrap() }
}

pub async fn get(sender: &mut Sender, url: &str, token: &str) -> Http2Reply {
    let request = Request::get(url).header("authorization", format!("Bearer {token}"));
    send(sender, request.body(Full::default()).unwrap()).await
}

/// Answers calls with the version of their requests.
struct Version2;

impl GrpcService for Version2 {
    fn paths(&self) -> &'static [&'static str] {
        &["/a.b.Calls/Do", "/a.b.Calls/Panic"]
    }

    fn answer(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        async move {
            assert!(request.uri().path().ends_with("Do"), "as the test asked");
            let is_known = request.extensions().get::<ConnectionHandle>().is_some();
            let is_2 = request.version() == Version::HTTP_2;
            Response::new(Body::from(format!("HTTP/2: {is_2}, connection: {is_known}")))
        }
        .boxed()
    }

    fn tick(&self) {}

    fn drain(&self) {}
}

async fn start(mill: &Mill) -> Gateway {
    let metrics = Arc::new(Metrics::default());
    let front_end =
        HttpFrontEnd::new(mill.engine.clone(), Arc::new(ScriptedSql), options(), metrics.clone()).unwrap();
    let front_end = front_end.with_grpc(Arc::new(Version2));
    let listener =
        Listener::bind(Arc::new(front_end), ListenOptions::new(([127, 0, 0, 1], 0).into())).await.unwrap();
    Gateway::start(vec![listener], metrics)
}

#[test]
fn routes_and_calls_are_served_on_one_port() {
    let mill = Mill::start();
    mill.block_on(async {
        let gateway = start(&mill).await;
        let address = gateway.addresses()[0];
        let (mut sender, _task) = handshake(TcpStream::connect(address).await.unwrap()).await;
        assert_eq!(get(&mut sender, "http://localhost/livez", "").await.status, 200);
        assert_eq!(get(&mut sender, "http://localhost/api/v1/streams", "wrong").await.status, 401);
        let streams = get(&mut sender, "http://127.0.0.1/api/v1/streams", TOKEN).await;
        assert!(streams.status == 200 && streams.text.contains("Flight"), "{}", streams.text);
        let foreign = get(&mut sender, "http://evil.example/api/v1/streams", TOKEN).await;
        assert_eq!(foreign.status, 421);
        // many at once
        let mut all: Vec<Sender> = (0..50).map(|_| sender.clone()).collect();
        let sql = all.iter_mut().map(|sender| {
            let request =
                Request::post("http://localhost/api/v1/sql?format=csv").header("content-type", "text/plain");
            let request = request.header("authorization", format!("Bearer {TOKEN}"));
            send(sender, request.body(Full::from("rows 3")).unwrap())
        });
        for reply in futures::future::join_all(sql).await {
            assert_eq!((reply.status, reply.text.as_str()), (200, "0\n1\n2\n"));
        }
        // calls need no token of the routes, and neither their right
        assert_eq!(
            get(&mut sender, "http://localhost/a.b.Calls/Do", "").await.text,
            "HTTP/2: true, connection: true"
        );
        assert_eq!(get(&mut sender, "http://evil.example/a.b.Calls/Do", "").await.status, 421);
        assert_eq!(get(&mut sender, "http://localhost/a.b.Calls/Panic", "").await.status, 500);
        assert_eq!(get(&mut sender, "http://localhost/a.b.Calls/Other", TOKEN).await.status, 404);
        let metrics = get(&mut sender, "http://localhost/metrics", TOKEN).await.text;
        assert!(metrics.contains("/a.b.Calls/Do"), "{metrics}");
        drop((sender, all));
        assert_eq!(gateway.shutdown(Duration::from_secs(60)).await, 0);
    });
}

#[test]
fn the_beginning_of_a_connection_tells_its_version() {
    let mill = Mill::start();
    let gateway = mill.block_on(start(&mill));
    let address = gateway.addresses()[0];
    let reply = |parts: &[&str]| {
        let mut stream = BlockingStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        for part in parts {
            stream.write_all(part.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut reply = vec![];
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes = [0; 1_000];
        let count = stream.read(&mut bytes).unwrap();
        reply.extend(&bytes[..count]);
        reply
    };
    let head = "/livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert!(reply(&["P", "UT ", head]).starts_with(b"HTTP/1.1 405"));
    assert!(reply(&["G", "ET ", head]).starts_with(b"HTTP/1.1 200"));
    assert!(reply(&["PRI", "NT ", head]).starts_with(b"HTTP/1.1 "));
    // settings of HTTP/2: a frame of kind 4
    let settings = reply(&["PR", "I * HTTP/2.0\r\n\r\nSM\r\n", "\r\n\0\0\0\u{4}\0\0\0\0\0"]);
    assert_eq!(settings[3], 4, "{settings:?}");
    assert_eq!(mill.block_on(gateway.shutdown(Duration::from_secs(60))), 0);
}
