//! Clients that are not nodes.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::logs;
use crate::nodes::{ECHO, Node, payload, request, settings, until};

/// Sends bytes, and returns what comes until the connection is closed.
async fn send(node: &Node, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(&node.address).await.unwrap();
    // it may be closed before all has been sent
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut answer = vec![];
    let _ = tokio::time::timeout(crate::nodes::PATIENCE, stream.read_to_end(&mut answer))
        .await
        .expect("it stays open");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_not_http_2_end_their_connection_only() {
    let node = Node::start(settings("b")).await;
    let peer = node.peer();
    assert!(peer.call(request(ECHO, "")).await.is_ok());
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for round in 0..50 {
        let mut bytes = vec![0; random.random_range(1..5000)];
        random.fill(&mut bytes[..]);
        if round % 2 == 1 {
            bytes.splice(0..0, preface.iter().copied());
        }
        send(&node, &bytes).await;
    }
    send(&node, b"").await;
    send(&node, &preface[..10]).await;
    let answer = send(&node, b"GET / HTTP/1.1\r\nHost: b\r\n\r\n").await;
    assert!(!answer.starts_with(b"HTTP/1.1 2"), "{answer:?}");
    until(|| logs::has_line(&["a client was refused as a node", "it does not speak HTTP/2 as nodes do"]))
        .await;
    assert_eq!(peer.call(request(ECHO, "x")).await.unwrap(), payload("x"));
    assert_eq!(node.handler.begun(), 2);
    until(|| node.metrics.of(tidemill_rpc::PROTOCOL).open == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_answered_before_the_proof() {
    let node = Node::start(settings("b")).await;
    let stream = TcpStream::connect(&node.address).await.unwrap();
    let (mut requests, connection) =
        http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    // a call of kind ECHO, as one after the handshake
    let call: &[u8] = b"\0\0\0\0\x02\x08\x01";
    let proof: &[u8] = b"\0\0\0\0\0";
    for (path, body, code, text) in [
        ("Call", call, "16", "the connection has not proven which node calls"),
        ("Stream", call, "16", "the connection has not proven which node calls"),
        ("Prove", proof, "7", "a proof follows a hello"),
        ("Prove", call, "13", "failed to decode"),
        ("Hello", proof, "7", "a connection begins with one hello"),
        ("Other", call, "12", "/tidemill.Rpc/Other is not a method of nodes"),
        ("Call", call, "16", "the connection has not proven which node calls"),
    ] {
        let request = http::Request::post(format!("http://b/tidemill.Rpc/{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(Bytes::from_static(body)))
            .unwrap();
        let reply = requests.send_request(request).await.unwrap();
        let header = |name| reply.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(header("grpc-status").as_deref(), Some(code), "{path}");
        let message = header("grpc-message").unwrap();
        assert!(message.replace("%20", " ").contains(text), "{path}: {message}");
        assert!(reply.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
    assert_eq!(node.handler.begun(), 0);
}

/// The time of the runtime is advanced whenever all tasks wait, so that ten seconds go by at once.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_prove_itself_is_closed() {
    let node = Node::start(settings("silent")).await;
    let begun = tokio::time::Instant::now();
    let mut stream = TcpStream::connect(&node.address).await.unwrap();
    let mut answer = vec![];
    let _ = stream.read_to_end(&mut answer).await;
    assert!(begun.elapsed() >= Duration::from_secs(10));
    assert!(logs::has_line(&["a client was refused as a node", "it did not prove in time which node it is"]));
}
