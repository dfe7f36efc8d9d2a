//! Limits of what is under way.

use std::sync::Arc;
use std::time::Duration;

use tidemill_rpc::{CallError, CallLimits, CallRequest, NodeSettings};
use tidemill_types::ErrorKind;

use crate::nodes::{BIG, COUNT, ECHO, Node, WAIT, payload, request, settings, until};

fn limited(node: &str, limits: CallLimits) -> NodeSettings {
    NodeSettings { limits, ..settings(node) }
}

/// A call that waits only shortly for its turn.
fn short(kind: u16, content: impl Into<bytes::Bytes>) -> CallRequest {
    CallRequest { timeout: Duration::from_millis(50), ..request(kind, content) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_large_messages_are_refused_on_either_side() {
    let small = || CallLimits { message_bytes_max: 1000, ..CallLimits::default() };
    let node = Node::start(limited("b", small())).await;
    // by the node that calls
    let peer = node.client(limited("a", small()));
    assert_eq!(peer.call(request(ECHO, vec![1; 1000])).await.unwrap(), payload(vec![1; 1000]));
    let error = peer.call(request(ECHO, vec![1; 1001])).await.unwrap_err();
    assert_eq!((error.kind(), error.was_sent()), (ErrorKind::LimitReached, false));
    assert!(error.to_string().contains("the call has 1001 bytes, and a message at most 1000"), "{error}");
    // by the node that is called
    let peer = node.client(settings("a"));
    let begun = node.handler.begun();
    for length in [1100, 10_000_000] {
        let error = peer.call(request(ECHO, vec![1; length])).await.unwrap_err();
        assert_eq!((error.kind(), error.was_sent()), (ErrorKind::LimitReached, false), "{error}");
        assert!(error.to_string().contains("(message_bytes_max): send less at once"), "{error}");
    }
    assert_eq!(node.handler.begun(), begun);
    // a reply: the call has had its effect, and the caller learns why there is none
    let error = peer.call(request(BIG, "1001")).await.unwrap_err();
    assert!(matches!(error, CallError::Answered(_)), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::LimitReached);
    assert!(error.to_string().contains("the reply has 1001 bytes, and a message at most 1000"), "{error}");
    // a reply that is too large for the node that calls
    let large = Node::start(settings("b")).await;
    let error = large.client(limited("a", small())).call(request(BIG, "2000")).await.unwrap_err();
    assert!(matches!(error, CallError::Unanswered(_)), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::LimitReached, "{error}");
    assert_eq!((node.connections(), large.connections()), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_beyond_the_limit_wait_for_their_turn() {
    let node = Node::start(settings("b")).await;
    let limits = CallLimits { calls_max: 2, streams_max: 1, ..CallLimits::default() };
    let peer = Arc::new(node.client(limited("a", limits)));
    let call = |text: &'static str| {
        let peer = peer.clone();
        tokio::spawn(async move { peer.call(request(WAIT, text)).await })
    };
    let running = [call("1"), call("2")];
    node.wait_for_work(2).await;
    let error = peer.call(short(ECHO, "")).await.unwrap_err();
    assert_eq!((error.kind(), error.was_sent()), (ErrorKind::LimitReached, false));
    assert!(error.to_string().contains("under way for 50 ms as may be at once (calls_max)"), "{error}");
    let waiting = call("3");
    // streams have a limit of their own
    let stream = peer.stream(request(WAIT, "")).await.unwrap();
    let error = peer.stream(short(COUNT, "1")).await.unwrap_err();
    assert!(error.to_string().contains("(streams_max)"), "{error}");
    drop(stream);
    peer.stream(request(COUNT, "1")).await.unwrap();
    node.handler.release.add_permits(3);
    for call in running.into_iter().chain([waiting]) {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_of_calls_under_way_are_limited() {
    let limits =
        || CallLimits { message_bytes_max: 100_000, request_bytes_max: 250_000, ..CallLimits::default() };
    let node = Node::start(limited("b", limits())).await;
    let wait = |peer: &Arc<tidemill_rpc::PeerClient>| {
        let peer = peer.clone();
        tokio::spawn(async move { peer.call(request(WAIT, vec![1; 100_000])).await })
    };
    let peer = Arc::new(node.client(limited("a", limits())));
    let running = [wait(&peer), wait(&peer)];
    node.wait_for_work(2).await;
    let error = peer.call(short(ECHO, vec![1; 60_000])).await.unwrap_err();
    assert_eq!((error.kind(), error.was_sent()), (ErrorKind::LimitReached, false));
    assert!(error.to_string().contains("(request_bytes_max)"), "{error}");
    assert_eq!(peer.call(request(ECHO, vec![1; 40_000])).await.unwrap(), payload(vec![1; 40_000]));
    // a node with higher limits is refused by the one that is called, call by call
    let greedy = Arc::new(node.client(settings("greedy")));
    let more = [wait(&greedy), wait(&greedy)];
    node.wait_for_work(5).await;
    let error = greedy.call(request(ECHO, vec![1; 60_000])).await.unwrap_err();
    assert_eq!((error.kind(), error.was_sent()), (ErrorKind::LimitReached, false), "{error}");
    assert!(error.to_string().contains("have too many bytes (request_bytes_max)"), "{error}");
    node.handler.release.add_permits(4);
    for call in running.into_iter().chain(more) {
        call.await.unwrap().unwrap();
    }
    // room that was taken is free again
    assert_eq!(greedy.call(request(ECHO, vec![1; 100_000])).await.unwrap(), payload(vec![1; 100_000]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_ends_the_work_at_the_other_node() {
    let node = Node::start(settings("b")).await;
    let peer = node.peer();
    assert!(peer.call(request(ECHO, "")).await.is_ok());
    let error = peer.call(short(WAIT, "")).await.unwrap_err();
    assert!(matches!(error, CallError::Unanswered(_)), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().ends_with("the call may have been executed"), "{error}");
    until(|| node.handler.dropped() == 1).await;
    assert_eq!(node.handler.begun(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_gives_up_ends_the_work_at_the_other_node() {
    let node = Node::start(settings("b")).await;
    let peer = Arc::new(node.peer());
    let call = {
        let peer = peer.clone();
        tokio::spawn(async move { peer.call(request(WAIT, "")).await })
    };
    node.wait_for_work(1).await;
    assert_eq!(node.handler.dropped(), 0);
    call.abort();
    until(|| node.handler.dropped() == 1).await;
    // all at once, as when a front end ends: the connection stays
    let calls: Vec<_> = (0..1000)
        .map(|_| {
            let peer = peer.clone();
            tokio::spawn(async move { peer.call(request(WAIT, "")).await })
        })
        .collect();
    node.wait_for_work(1001).await;
    for call in &calls {
        call.abort();
    }
    until(|| node.handler.dropped() == 1001).await;
    // also those that are given up before the other node has looked at them
    for _ in 0..500 {
        let call = peer.call(request(WAIT, ""));
        assert!(futures::FutureExt::now_or_never(call).is_none());
    }
    assert_eq!(peer.call(request(ECHO, "x")).await.unwrap(), payload("x"));
    assert_eq!(node.connections(), 1);
}
