//! Calls and their replies.

use std::sync::Arc;

use tidemill_rpc::{CallError, Peers, Reply};
use tidemill_types::ErrorKind;
use tokio::runtime::Handle;

use crate::nodes::{
    ECHO, FAIL, IDENTITY, NOT_OWNER, Node, PANIC, WAIT, client, full_error, payload, request, settings,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_are_those_of_the_handler() {
    let node = Node::start(settings("b")).await;
    let peer = node.peer();
    assert_eq!(peer.call(request(ECHO, "hello")).await.unwrap(), payload("hello"));
    assert_eq!(peer.call(request(ECHO, "")).await.unwrap(), payload(""));
    let large = vec![5; 5 << 20];
    assert_eq!(peer.call(request(ECHO, large.clone())).await.unwrap(), payload(large));
    assert_eq!(peer.call(request(IDENTITY, "")).await.unwrap(), payload("a 7 3 9 3"));
    assert_eq!(
        peer.call(request(NOT_OWNER, "node-2")).await.unwrap(),
        Reply::NotOwner { epoch: 42, owner: Some("node-2".into()) }
    );
    assert_eq!(peer.call(request(NOT_OWNER, "")).await.unwrap(), Reply::NotOwner { epoch: 42, owner: None });
    assert_eq!(node.connections(), 1, "all calls share a connection");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_the_handler_arrive_with_all_they_have() {
    let node = Node::start(settings("b")).await;
    let peer = node.peer();
    let error = peer.call(request(FAIL, "")).await.unwrap_err();
    assert!(matches!(error, CallError::Answered(_)) && error.was_sent(), "{error:?}");
    let expected = full_error();
    let arrived = error.error();
    assert_eq!(arrived.kind(), expected.kind());
    assert_eq!(arrived.message(), expected.message());
    assert_eq!(arrived.document_code(), expected.document_code());
    assert_eq!(error.to_string(), expected.to_string());
    // a defect of a handler ends its call, and neither the connection nor the process
    let defect = peer.call(request(PANIC, "")).await.unwrap_err();
    assert_eq!(defect.kind(), ErrorKind::Internal);
    assert!(defect.to_string().contains("kind 5 hit a defect"), "{defect}");
    assert_eq!(peer.call(request(ECHO, "still here")).await.unwrap(), payload("still here"));
    assert_eq!(node.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_are_under_way_at_once() {
    let node = Node::start(settings("b")).await;
    let peer = Arc::new(node.peer());
    let calls: Vec<_> = (0..1000)
        .map(|number| {
            let peer = peer.clone();
            tokio::spawn(async move { peer.call(request(WAIT, number.to_string())).await.unwrap() })
        })
        .collect();
    node.wait_for_work(1000).await;
    node.handler.release.add_permits(1000);
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), payload(number.to_string()));
    }
    assert_eq!(node.connections(), 1);
    assert_eq!(node.handler.dropped(), 0);
}

#[test]
fn threads_call_without_async_code() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let node = runtime.block_on(Node::start(settings("b")));
    let peer = {
        let _context = runtime.enter();
        node.peer()
    };
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let peer = &peer;
            scope.spawn(move || {
                for call in 0..50 {
                    let text = format!("{thread} {call}");
                    assert_eq!(peer.call_blocking(request(ECHO, text.clone())).unwrap(), payload(text));
                }
            });
        }
    });
    assert_eq!(node.handler.begun(), 800);
    assert_eq!(node.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_has_one_client_for_each_other_node() {
    let [first, second] = [Node::start(settings("b")).await, Node::start(settings("b")).await];
    let peers = Peers::new(Arc::new(settings("a")), Handle::current()).unwrap();
    let one = peers.client("b", &first.address).unwrap();
    assert!(Arc::ptr_eq(&one, &peers.client("b", &first.address).unwrap()));
    assert_eq!(one.call(request(ECHO, "x")).await.unwrap(), payload("x"));
    // the node has moved
    let other = peers.client("b", &second.address).unwrap();
    assert!(!Arc::ptr_eq(&one, &other));
    assert_eq!(other.call(request(ECHO, "y")).await.unwrap(), payload("y"));
    assert_eq!((first.handler.begun(), second.handler.begun()), (1, 1));
    peers.retain(|node| node != "b");
    assert!(!Arc::ptr_eq(&other, &peers.client("b", &second.address).unwrap()));
    assert!(peers.client("", "127.0.0.1:1").unwrap_err().to_string().contains("node name ``"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_is_none_is_named() {
    for address in ["nowhere.invalid:1", "127.0.0.1", "127.0.0.1:x"] {
        let error = client(settings("a"), "b", address).call(request(ECHO, "")).await.unwrap_err();
        assert!(!error.was_sent());
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("node `b` at {address}: ")) && text.contains("HOST:PORT"),
            "{text}"
        );
    }
}
