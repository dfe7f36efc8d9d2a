//! Nodes with a handler that does as the test asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tidemill_gateway::{Gateway, Metrics};
use tidemill_rpc::{
    CallHandler, CallLimits, CallRequest, IncomingCall, NodeIdentity, NodeSettings, PROTOCOL, PeerClient,
    Reply, RpcFrontEnd, Secret, Security,
};
use tidemill_types::{Error, PartitionId, Result};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::logs;

/// Time after which a test that waits has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Calls: the reply is the payload.
pub const ECHO: u16 = 1;
/// Calls: the other node does not own the partition.
pub const NOT_OWNER: u16 = 2;
/// Calls: an error with everything that an error has.
pub const FAIL: u16 = 3;
/// Calls and streams: the reply is the payload, when the test releases it.
pub const WAIT: u16 = 4;
/// Calls and streams: the handler has a defect.
pub const PANIC: u16 = 5;
/// Calls: as many bytes as the number in the payload says.
pub const BIG: u16 = 6;
/// Calls: name, incarnation, partition, epoch and protocol, as the handler sees them.
pub const IDENTITY: u16 = 7;
/// Streams: the numbers from 0 up to that of the payload.
pub const COUNT: u16 = 8;
/// Streams: chunks of [`CHUNK_BYTES`] without an end.
pub const ENDLESS: u16 = 9;
/// Streams: two replies, and then another owner.
pub const MOVES: u16 = 10;
/// Streams: two replies, and then an error.
pub const BREAKS: u16 = 11;

pub const CHUNK_BYTES: usize = 64 << 10;

/// Answers calls by their kind.
pub struct TestHandler {
    /// Calls and streams that have begun.
    pub begun: AtomicUsize,
    /// Calls and streams whose work was dropped before its end.
    pub dropped: Arc<AtomicUsize>,
    /// One permit lets one `WAIT` end.
    pub release: Arc<Semaphore>,
    /// Chunks that streams `ENDLESS` have made.
    pub chunks: Arc<AtomicUsize>,
}

impl Default for TestHandler {
    fn default() -> Self {
        Self {
            begun: AtomicUsize::new(0),
            dropped: Arc::default(),
            release: Arc::new(Semaphore::new(0)),
            chunks: Arc::default(),
        }
    }
}

impl TestHandler {
    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    pub fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
}

/// Counts work that is dropped before its end. A thread learns the same from the token, which is checked here, too.
struct Work {
    call: IncomingCall,
    dropped: Arc<AtomicUsize>,
    is_done: bool,
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.is_done {
            let (token, dropped) = (self.call.cancellation.clone(), self.dropped.clone());
            tokio::spawn(async move {
                token.cancelled().await;
                dropped.fetch_add(1, Ordering::SeqCst);
            });
        }
    }
}

impl CallHandler for TestHandler {
    fn call(&self, call: IncomingCall) -> BoxFuture<'static, Result<Reply>> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let payload = call.payload.clone();
        match call.kind {
            ECHO => async { Ok(Reply::Payload(payload)) }.boxed(),
            NOT_OWNER => {
                let owner = (!payload.is_empty()).then(|| String::from_utf8(payload.to_vec()).unwrap());
                async { Ok(Reply::NotOwner { epoch: 42, owner }) }.boxed()
            }
            FAIL => async { Err(full_error()) }.boxed(),
            WAIT => {
                let release = self.release.clone();
                let work = Work { call, dropped: self.dropped.clone(), is_done: false };
                async move {
                    // all of it, not its parts
                    let mut work = work;
                    release.acquire().await.unwrap().forget();
                    work.is_done = true;
                    Ok(Reply::Payload(payload))
                }
                .boxed()
            }
            PANIC => panic!("as the test asked"),
            BIG => async move { Ok(Reply::Payload(vec![7; number(&payload)].into())) }.boxed(),
            IDENTITY => {
                let text = format!(
                    "{} {} {} {} {}",
                    call.peer.node, call.peer.incarnation, call.partition, call.epoch, call.peer.protocol
                );
                async { Ok(Reply::Payload(text.into())) }.boxed()
            }
            other => async move { Err(Error::invalid(format!("kind {other}"))) }.boxed(),
        }
    }

    fn stream(&self, call: IncomingCall) -> BoxStream<'static, Result<Reply>> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let payload = call.payload.clone();
        let text = |text: String| Ok(Reply::Payload(text.into()));
        match call.kind {
            COUNT => {
                futures::stream::iter(0..number(&payload)).map(move |number| text(number.to_string())).boxed()
            }
            ENDLESS => {
                let work = Work { call, dropped: self.dropped.clone(), is_done: false };
                let chunks = self.chunks.clone();
                futures::stream::repeat_with(move || {
                    let _ = &work;
                    chunks.fetch_add(1, Ordering::SeqCst);
                    Ok(Reply::Payload(vec![1; CHUNK_BYTES].into()))
                })
                .boxed()
            }
            WAIT => {
                let work = Work { call, dropped: self.dropped.clone(), is_done: false };
                futures::stream::once(async { Ok(Reply::Payload("first".into())) })
                    .chain(futures::stream::pending())
                    .map(move |reply| {
                        let _ = &work;
                        reply
                    })
                    .boxed()
            }
            PANIC => panic!("as the test asked"),
            MOVES => {
                let moved = Ok(Reply::NotOwner { epoch: 42, owner: None });
                futures::stream::iter([text("0".into()), text("1".into()), moved, text("never".into())])
                    .boxed()
            }
            BREAKS => {
                let replies = [text("0".into()), text("1".into()), Err(full_error()), text("never".into())];
                futures::stream::iter(replies).boxed()
            }
            other => {
                futures::stream::once(async move { Err(Error::invalid(format!("kind {other}"))) }).boxed()
            }
        }
    }
}

/// An error with everything that an error has.
pub fn full_error() -> Error {
    Error::conflict("key `ä` is taken")
        .with_hint(". Did you mean `a`?")
        .with_document_code(11_000)
        .with_source(Error::corrupt("file").with_source("byte 7"))
}

fn number(payload: &Bytes) -> usize {
    std::str::from_utf8(payload).unwrap().parse().unwrap()
}

/// Settings of a node of cluster `c` with a shared secret.
pub fn settings(node: &str) -> NodeSettings {
    NodeSettings {
        identity: NodeIdentity { cluster_id: "c".into(), node: node.into(), incarnation: 7 },
        protocols: 1..=3,
        security: Security::Secret(Secret::new(*b"0123456789abcdef").unwrap()),
        limits: CallLimits::default(),
    }
}

/// A running node.
pub struct Node {
    pub gateway: Gateway,
    pub metrics: Arc<Metrics>,
    pub handler: Arc<TestHandler>,
    pub address: String,
    pub name: String,
}

impl Node {
    pub async fn start(settings: NodeSettings) -> Self {
        Self::start_at(settings, 0).await
    }

    pub async fn start_at(settings: NodeSettings, port: u16) -> Self {
        logs::keep();
        let handler = Arc::new(TestHandler::default());
        let name = settings.identity.node.clone();
        let front_end = RpcFrontEnd::new(Arc::new(settings), handler.clone()).unwrap();
        let listener = front_end.listen(([127, 0, 0, 1], port).into()).await.unwrap();
        let address = listener.address().to_string();
        let metrics = Arc::new(Metrics::default());
        let gateway = Gateway::start(vec![listener], metrics.clone());
        Self { gateway, metrics, handler, address, name }
    }

    /// Returns a client of this node.
    pub fn client(&self, settings: NodeSettings) -> PeerClient {
        client(settings, &self.name, &self.address)
    }

    /// Returns a client of this node, of a node `a` with the same settings.
    pub fn peer(&self) -> PeerClient {
        self.client(settings("a"))
    }

    pub async fn wait_for_work(&self, begun: usize) {
        until(|| self.handler.begun() >= begun).await;
    }

    pub fn connections(&self) -> u64 {
        self.metrics.of(PROTOCOL).accepted
    }
}

pub fn client(settings: NodeSettings, node: &str, address: &str) -> PeerClient {
    PeerClient::new(Arc::new(settings), node, address, Handle::current()).unwrap()
}

/// A call with much time.
pub fn request(kind: u16, payload: impl Into<Bytes>) -> CallRequest {
    CallRequest { kind, partition: PartitionId(3), epoch: 9, timeout: PATIENCE, payload: payload.into() }
}

/// Waits until something is the case.
pub async fn until(is: impl Fn() -> bool) {
    let wait = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it never came");
}

pub fn payload(text: impl Into<Bytes>) -> Reply {
    Reply::Payload(text.into())
}
