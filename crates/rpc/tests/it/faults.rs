//! Nodes that die, freeze and come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidemill_rpc::{CallError, CallLimits, NodeSettings};
use tidemill_types::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::nodes::{ECHO, Node, PATIENCE, WAIT, client, payload, request, settings, until};

/// Forwards connections, until it is frozen: then it takes no more bytes and closes nothing, as a process that is stopped. Dropping it
/// closes all sockets without a word, as the end of a process does.
struct Proxy {
    address: String,
    is_frozen: Arc<AtomicBool>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    async fn start(to: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_frozen = Arc::new(AtomicBool::new(false));
        let frozen = is_frozen.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(&to).await.unwrap();
                let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
                for (mut from, mut to) in [(near_read, far_write), (far_read, near_write)] {
                    let frozen = frozen.clone();
                    connections.spawn(async move {
                        let mut buffer = vec![0; 16 << 10];
                        loop {
                            let Ok(length @ 1..) = from.read(&mut buffer).await else { return };
                            if frozen.load(Ordering::SeqCst) {
                                // both ends stay open
                                std::future::pending::<()>().await;
                            }
                            if to.write_all(&buffer[..length]).await.is_err() {
                                return;
                            }
                        }
                    });
                }
            }
        });
        Self { address, is_frozen, _tasks: tasks }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_to_a_node_that_dies_may_have_been_executed() {
    let node = Node::start(settings("b")).await;
    let proxy = Proxy::start(node.address.clone()).await;
    let peer = Arc::new(client(settings("a"), "b", &proxy.address));
    let address = proxy.address.clone();
    let call = {
        let peer = peer.clone();
        tokio::spawn(async move { peer.call(request(WAIT, "")).await })
    };
    let stream = peer.stream(request(WAIT, "")).await.unwrap();
    node.wait_for_work(2).await;
    drop(proxy);
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::Unanswered(_)) && error.was_sent(), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.starts_with(&format!("node `b` at {address}: the connection has ended")), "{text}");
    assert!(text.ends_with("the call may have been executed"), "{text}");
    let ended: Vec<_> = futures::StreamExt::collect(stream).await;
    assert!(matches!(ended.last(), Some(Err(CallError::Unanswered(_)))), "{ended:?}");
    // the work at the node ends with the connection
    until(|| node.handler.dropped() == 2).await;
    // further calls fail without waiting for their time
    for _ in 0..3 {
        let error = peer.call(request(ECHO, "")).await.unwrap_err();
        assert!(matches!(error, CallError::NotSent(_)), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(text.starts_with(&format!("node `b` at {address}: it cannot be reached: ")), "{text}");
        assert!(text.ends_with("the call was not executed"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_back_is_called_again() {
    let first = Node::start(settings("b")).await;
    let (address, peer) = (first.address.clone(), first.peer());
    assert!(peer.call(request(ECHO, "")).await.is_ok());
    drop(first);
    let gone = async { while !matches!(peer.call(request(ECHO, "")).await, Err(CallError::NotSent(_))) {} };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
    let port = address.rsplit(':').next().unwrap().parse().unwrap();
    let second = Node::start_at(settings("b"), port).await;
    // without a call as well
    until(|| second.connections() > 0).await;
    let called = async {
        loop {
            match peer.call(request(ECHO, "x")).await {
                Ok(reply) => return reply,
                Err(error) => assert!(!error.was_sent(), "{error}"),
            }
        }
    };
    assert_eq!(tokio::time::timeout(PATIENCE, called).await.unwrap(), payload("x"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_freezes_is_noticed_and_found_again() {
    let node = Node::start(settings("b")).await;
    let proxy = Proxy::start(node.address.clone()).await;
    let limits = CallLimits {
        keep_alive_interval: Duration::from_millis(100),
        keep_alive_timeout: Duration::from_millis(300),
        ..CallLimits::default()
    };
    let peer = Arc::new(client(NodeSettings { limits, ..settings("a") }, "b", &proxy.address));
    assert!(peer.call(request(ECHO, "")).await.is_ok());
    let call = {
        let peer = peer.clone();
        tokio::spawn(async move { peer.call(request(WAIT, "")).await })
    };
    node.wait_for_work(2).await;
    proxy.is_frozen.store(true, Ordering::SeqCst);
    // nothing closes the connection: the missing sign of life does
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::Unanswered(_)), "{error:?}");
    assert!(error.to_string().contains("keep-alive timed out"), "{error}");
    // a connection through the frozen proxy hangs, and does not take the whole time of the call
    let error = peer.call(request(ECHO, "")).await.unwrap_err();
    assert!(!error.was_sent(), "{error}");
    proxy.is_frozen.store(false, Ordering::SeqCst);
    let called = async {
        while let Err(error) = peer.call(request(ECHO, "x")).await {
            assert!(!error.was_sent(), "{error}");
        }
    };
    tokio::time::timeout(PATIENCE, called).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_freezes_is_given_up() {
    let limits = CallLimits {
        keep_alive_interval: Duration::from_millis(100),
        keep_alive_timeout: Duration::from_millis(300),
        ..CallLimits::default()
    };
    let node = Node::start(NodeSettings { limits, ..settings("b") }).await;
    let proxy = Proxy::start(node.address.clone()).await;
    let limits = CallLimits { keep_alive_interval: Duration::from_secs(3600), ..CallLimits::default() };
    let peer = client(NodeSettings { limits, ..settings("a") }, "b", &proxy.address);
    let call = tokio::spawn(async move { peer.call(request(WAIT, "")).await });
    node.wait_for_work(1).await;
    proxy.is_frozen.store(true, Ordering::SeqCst);
    until(|| node.handler.dropped() == 1).await;
    call.abort();
}
