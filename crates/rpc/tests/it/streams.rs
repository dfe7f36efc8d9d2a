//! Calls with many replies.

use std::sync::atomic::Ordering;

use futures::StreamExt;
use tidemill_rpc::{CallError, Reply, ReplyStream};
use tidemill_types::ErrorKind;

use crate::nodes::{
    BREAKS, CHUNK_BYTES, COUNT, ECHO, ENDLESS, MOVES, Node, PANIC, WAIT, full_error, payload, request,
    settings, until,
};

async fn next(stream: &mut ReplyStream) -> Option<Result<Reply, CallError>> {
    tokio::time::timeout(crate::nodes::PATIENCE, stream.next()).await.expect("no reply")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_come_in_order_up_to_the_end() {
    let node = Node::start(settings("b")).await;
    let peer = node.peer();
    let mut stream = peer.stream(request(COUNT, "10000")).await.unwrap();
    for number in 0..10_000 {
        assert_eq!(next(&mut stream).await.unwrap().unwrap(), payload(number.to_string()));
    }
    assert!(next(&mut stream).await.is_none());
    assert!(next(&mut stream).await.is_none());
    let mut empty = peer.stream(request(COUNT, "0")).await.unwrap();
    assert!(next(&mut empty).await.is_none());
    assert_eq!(node.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_owner_and_errors_end_a_stream() {
    let node = Node::start(settings("b")).await;
    let peer = node.peer();
    for kind in [MOVES, BREAKS] {
        let mut stream = peer.stream(request(kind, "")).await.unwrap();
        for number in ["0", "1"] {
            assert_eq!(next(&mut stream).await.unwrap().unwrap(), payload(number));
        }
        match next(&mut stream).await.unwrap() {
            Ok(reply) => assert_eq!((kind, reply), (MOVES, Reply::NotOwner { epoch: 42, owner: None })),
            Err(CallError::Answered(error)) => {
                assert_eq!((kind, error.to_string()), (BREAKS, full_error().to_string()));
            }
            Err(error) => panic!("{error:?}"),
        }
        assert!(next(&mut stream).await.is_none());
    }
    let mut stream = peer.stream(request(PANIC, "")).await.unwrap();
    let error = next(&mut stream).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(next(&mut stream).await.is_none());
    assert_eq!(peer.call(request(ECHO, "x")).await.unwrap(), payload("x"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_the_reader_drops_ends_at_the_other_node() {
    let node = Node::start(settings("b")).await;
    let peer = node.peer();
    let mut waiting = peer.stream(request(WAIT, "")).await.unwrap();
    assert_eq!(next(&mut waiting).await.unwrap().unwrap(), payload("first"));
    let mut endless = peer.stream(request(ENDLESS, "")).await.unwrap();
    assert!(next(&mut endless).await.unwrap().is_ok());
    assert_eq!(node.handler.dropped(), 0);
    drop(waiting);
    until(|| node.handler.dropped() == 1).await;
    drop(endless);
    until(|| node.handler.dropped() == 2).await;
    assert_eq!(peer.call(request(ECHO, "x")).await.unwrap(), payload("x"));
    assert_eq!(node.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_not_read_waits_and_holds_up_no_calls() {
    const STREAMS: usize = 100;
    let node = Node::start(settings("b")).await;
    let peer = node.peer();
    let mut streams = vec![];
    for _ in 0..STREAMS {
        streams.push(peer.stream(request(ENDLESS, "")).await.unwrap());
    }
    // all of them are full: a window of 256 KiB each, more than the window of the connection if it did not count them
    until(|| node.handler.chunks.load(Ordering::SeqCst) >= STREAMS * 4).await;
    for _ in 0..200 {
        assert_eq!(peer.call(request(ECHO, vec![1; 10_000])).await.unwrap(), payload(vec![1; 10_000]));
    }
    // beside the window, HTTP/2 buffers about 400 KiB of a stream
    let bytes = node.handler.chunks.load(Ordering::SeqCst) * CHUNK_BYTES;
    assert!(bytes <= STREAMS * (1 << 20), "{bytes} bytes for {STREAMS} streams that are not read");
    // they continue where they were
    for stream in &mut streams {
        for _ in 0..20 {
            assert_eq!(next(stream).await.unwrap().unwrap(), payload(vec![1; CHUNK_BYTES]));
        }
    }
}

#[test]
fn threads_read_streams_without_async_code() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let node = runtime.block_on(Node::start(settings("b")));
    let peer = {
        let _context = runtime.enter();
        node.peer()
    };
    let mut stream = peer.stream_blocking(request(COUNT, "3000")).unwrap();
    // the stream keeps the connection
    drop(peer);
    for number in 0..3000 {
        assert_eq!(stream.next_blocking().unwrap().unwrap(), payload(number.to_string()));
    }
    assert!(stream.next_blocking().is_none());
}
