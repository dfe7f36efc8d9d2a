//! The end of a node.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tidemill_rpc::{CallError, PROTOCOL};
use tidemill_types::ErrorKind;

use crate::nodes::{ECHO, Node, PATIENCE, WAIT, payload, request, settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_calls_finish_and_further_ones_are_refused() {
    let node = Node::start(settings("b")).await;
    let peer = Arc::new(node.peer());
    let call = {
        let peer = peer.clone();
        tokio::spawn(async move { peer.call(request(WAIT, "done")).await })
    };
    let mut stream = peer.stream(request(WAIT, "")).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), payload("first"));
    node.wait_for_work(2).await;
    let (handler, metrics) = (node.handler.clone(), node.metrics.clone());
    let stopping = tokio::spawn(node.gateway.shutdown(PATIENCE));
    // streams are told at once, because they may last for ever
    let error = stream.next().await.unwrap().unwrap_err();
    assert!(matches!(error, CallError::Answered(_)), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("node `b` is shutting down and ends the stream"), "{error}");
    for _ in 0..3 {
        let error = peer.call(request(ECHO, "")).await.unwrap_err();
        assert!(matches!(error, CallError::NotSent(_)), "{error:?}");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("node `b` is shutting down and takes no more calls"), "{error}");
    }
    assert!(!peer.stream(request(WAIT, "")).await.unwrap_err().was_sent());
    assert!(!stopping.is_finished() && !call.is_finished());
    handler.release.add_permits(1);
    assert_eq!(call.await.unwrap().unwrap(), payload("done"));
    assert_eq!(stopping.await.unwrap(), 0);
    assert_eq!(metrics.of(PROTOCOL).open, 0);
    assert_eq!(handler.begun(), 2);
    let error = peer.call(request(ECHO, "")).await.unwrap_err();
    assert!(!error.was_sent() && error.to_string().contains("it cannot be reached"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_race_with_the_end_and_none_is_left_in_doubt() {
    let node = Node::start(settings("b")).await;
    let peer = Arc::new(node.peer());
    assert!(peer.call(request(ECHO, "")).await.is_ok());
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let peer = peer.clone();
            tokio::spawn(async move {
                let mut answered = 1;
                loop {
                    match peer.call(request(ECHO, "x")).await {
                        Ok(_) => answered += 1,
                        Err(error) => return (answered, error),
                    }
                }
            })
        })
        .collect();
    node.wait_for_work(100).await;
    let handler = node.handler.clone();
    assert_eq!(node.gateway.shutdown(PATIENCE).await, 0);
    let mut answered = 1;
    for caller in callers {
        let (calls, error) = caller.await.unwrap();
        assert!(matches!(error, CallError::NotSent(_)), "a drain leaves no call in doubt: {error:?}");
        answered += calls - 1;
    }
    assert_eq!(answered, handler.begun(), "each call that was executed was answered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_take_longer_than_the_grace_period_are_cut() {
    let node = Node::start(settings("b")).await;
    let peer = node.peer();
    let call = tokio::spawn(async move { peer.call(request(WAIT, "")).await });
    node.wait_for_work(1).await;
    let (handler, metrics) = (node.handler.clone(), node.metrics.clone());
    assert_eq!(node.gateway.shutdown(Duration::from_millis(20)).await, 1);
    assert!(matches!(call.await.unwrap().unwrap_err(), CallError::Unanswered(_)));
    crate::nodes::until(|| handler.dropped() == 1).await;
    assert_eq!(metrics.of(PROTOCOL).cut, 1);
}
