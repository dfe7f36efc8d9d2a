//! Partitions of other nodes, where a node has replicas of some partitions only.
//!
//! ```text
//! node A: owns 0, follows 1                               node B: owns 1 and 2
//!   client(2).append(command)   ── the record ──▶ log of 2 ──▶ applies it
//!             reply.wait(120)   ── what became of 120? ──▶      `answer` ── `Outcomes`
//!   client(2).documents(end)    ── keep a moment ────────▶      `kept_moments`
//!             fetch(filter)     ── documents of it ──────▶
//! ```
//!
//! A node appends to the log of any partition, and asks the owner for what follows from it. All calls may be repeated: those that change
//! something are records, and a call names the record. So a caller asks again, the next owner as well, until its time is over, and a
//! take-over is latency rather than an error.
//!
//! `fragments` carries parts of statements of SQL, which any node may execute. `message` has the calls, `answer` the side of the owner, `partition` and `documents` the side of the caller. `docs/rfcs/0033-replicas.md` has
//! the reasons.

mod answer;
mod documents;
mod fragments;
mod kept_moments;
mod message;
mod partition;
mod votes;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::Receiver;
use parking_lot::Mutex;
use tidemill_gateway::{Gateway, Metrics};
use tidemill_rpc::{
    CallError, CallLimits, CallRequest, NodeIdentity, NodeSettings, Peers, Reply, RpcFrontEnd, Security,
};
use tidemill_types::{Error, ErrorKind, Offset, PartitionId, Result};
use tokio::time::Instant;

use crate::cluster::{ClusterNode, OwnerAddress};
use crate::commit::TransactionId;
use crate::document_parts::part::DocumentsPart;
use crate::entry::ArrivalKind;
use crate::lifecycle::ownership;
use crate::node::Node;
use crate::partition::{ArrivedCauses, PartitionClient, PartitionPeers};
use crate::process::store_runtime::StoreRuntime;
use answer::{AnswerHandler, Answers};
pub use fragments::FragmentRunner;
use message::{ArrivedHead, CallKind, decode, encode};
use partition::PeerPartition;

/// Time for a question, also while a partition gets another owner.
const ASK_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which owners are asked what has arrived.
const ARRIVALS_INTERVAL: Duration = Duration::from_millis(200);
/// Threads that carry calls.
const THREADS: usize = 2;
/// Threads that answer calls at the same time.
const ANSWERS_MAX: usize = 256;
/// Bytes that one call may return in all.
const STREAM_BYTES_MAX: usize = 256 << 20;

/// Options of a node that calls others.
#[derive(Debug)]
pub struct PeerOptions {
    /// Address at which other nodes call this one; port 0 selects a free one.
    pub listen: SocketAddr,
    /// The same as other nodes see it, `HOST:PORT`; the address of the listener if `None`.
    pub advertise: Option<String>,
    /// Proof by which nodes know each other.
    pub security: Security,
}

/// A listener for the calls of other nodes, before the node joins them.
pub struct PeerListener {
    runtime: StoreRuntime,
    settings: Arc<NodeSettings>,
    answers: Arc<Answers>,
    gateway: Gateway,
    /// Address for others.
    pub address: String,
}

impl PeerListener {
    /// Listens.
    ///
    /// Errors: `Invalid` for options that cannot work; `Unavailable` if the address is taken.
    pub fn bind(node: &Arc<Node>, identity: NodeIdentity, options: PeerOptions) -> Result<Self> {
        let PeerOptions { listen, advertise, security } = options;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(ANSWERS_MAX)
            .thread_name("peers")
            .enable_all()
            .build()
            .map_err(|e| {
                Error::unavailable("cannot start the threads of calls between nodes").with_source(e)
            })?;
        let runtime = StoreRuntime::new(runtime);
        let settings =
            Arc::new(NodeSettings { identity, protocols: 1..=1, security, limits: CallLimits::default() });
        let answers = Arc::new(Answers::new(node));
        let front_end = RpcFrontEnd::new(settings.clone(), Arc::new(AnswerHandler(answers.clone())))?;
        let listener = runtime.run(async move { front_end.listen(listen).await })?;
        let address = advertise.unwrap_or_else(|| listener.address().to_string());
        let gateway = {
            let _context = runtime.enter();
            Gateway::start(vec![listener], Arc::new(Metrics::default()))
        };
        Ok(Self { runtime, settings, answers, gateway, address })
    }

    /// Makes the nodes known to each other, and their partitions where each has some only.
    ///
    /// Errors: `Invalid` for settings that cannot work.
    pub fn join(
        self,
        node: &Arc<Node>,
        cluster: &Arc<ClusterNode>,
        has_some_partitions: bool,
    ) -> Result<Arc<PeerNodes>> {
        let Self { runtime, settings, answers, gateway, address: _ } = self;
        let peers = Peers::new(settings, runtime.handle().clone())?;
        answers.join(cluster.clone());
        let peers = Arc::new_cyclic(|this| PeerNodes {
            this: this.clone(),
            peers,
            answers,
            cluster: cluster.clone(),
            node: Arc::downgrade(node),
            released: Mutex::default(),
            asking: Mutex::default(),
            _gateway: gateway,
            runtime,
        });
        if has_some_partitions {
            node.host.outcomes.keep();
            _ = node.host.votes_elsewhere.set(peers.clone());
            node.join(peers.clone());
        }
        Ok(peers)
    }
}

/// The other nodes of a cluster, as owners of partitions.
pub struct PeerNodes {
    this: Weak<Self>,
    peers: Peers,
    /// Answers of this node, for partitions that have come here since.
    answers: Arc<Answers>,
    cluster: Arc<ClusterNode>,
    node: Weak<Node>,
    /// Moments that readers here do not need any more, by the node that keeps them.
    released: Mutex<HashMap<String, Vec<u64>>>,
    /// Votes that are being asked for.
    asking: Mutex<HashSet<(TransactionId, PartitionId)>>,
    _gateway: Gateway,
    runtime: StoreRuntime,
}

impl PartitionPeers for PeerNodes {
    fn client(&self, id: PartitionId) -> Result<Arc<dyn PartitionClient>> {
        Ok(Arc::new(PeerPartition::new(self.this()?, id)))
    }

    fn documents(&self, wanted: &[(PartitionId, Offset)]) -> Result<Vec<DocumentsPart>> {
        let this = self.this()?;
        let asked = wanted.iter().map(|(id, end)| documents::begin_keep(&this, *id, *end));
        let asked: Vec<_> = asked.collect::<Result<_>>()?;
        asked.into_iter().zip(wanted).map(|(kept, (id, _))| documents::end_keep(&this, *id, kept)).collect()
    }
}

/// A reply, and the node that gave it.
type Answer = (OwnerAddress, Bytes);

impl PeerNodes {
    fn this(&self) -> Result<Arc<Self>> {
        self.this.upgrade().ok_or_else(stopping)
    }

    fn node(&self) -> Result<Arc<Node>> {
        self.node.upgrade().ok_or_else(stopping)
    }

    /// Asks the owner of a partition, the next one as well, and waits for the reply.
    ///
    /// Errors: that of the owner; `Unavailable` if none answers in time.
    fn ask(&self, partition: PartitionId, kind: CallKind, payload: Bytes) -> Result<Bytes> {
        Ok(self.runtime.run(self.this()?.ask_owner(partition, kind, payload, ASK_TIMEOUT))?.1)
    }

    /// Begins to ask as [`Self::ask`] does.
    fn begin_ask(
        &self,
        partition: PartitionId,
        kind: CallKind,
        payload: Bytes,
    ) -> Result<Receiver<Result<Answer>>> {
        let this = self.this()?;
        let (sender, receiver) = crossbeam_channel::bounded(1);
        self.runtime.spawn(async move {
            _ = sender.send(this.ask_owner(partition, kind, payload, ASK_TIMEOUT).await);
        });
        Ok(receiver)
    }

    /// Asks owners of a partition until one answers.
    async fn ask_owner(
        self: Arc<Self>,
        partition: PartitionId,
        kind: CallKind,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Answer> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now()).min(ATTEMPT_TIMEOUT);
            let failed = match self.cluster.owner_of(partition) {
                None => Error::unavailable("no node owns it"),
                Some(owner) => match self.call(&owner, partition, kind, payload.clone(), left).await {
                    Ok(Reply::Payload(reply)) => return Ok((owner, reply)),
                    Ok(Reply::NotOwner { .. }) => {
                        Error::unavailable(format!("node {} does not answer for it yet", owner.node))
                    }
                    Err(CallError::Answered(e)) => return Err(e),
                    // each call may be repeated
                    Err(e) => e.into(),
                },
            };
            if Instant::now() + RETRY_INTERVAL >= deadline {
                return Err(failed.context(format!("partition {partition} cannot be asked")));
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Calls a node, which may be this one.
    async fn call(
        &self,
        address: &OwnerAddress,
        partition: PartitionId,
        kind: CallKind,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Reply, CallError> {
        if address.node == self.cluster.name() {
            let answers = self.answers.clone();
            let answer = move || answers.answer(kind, partition, &payload, timeout);
            let answered = tokio::task::spawn_blocking(answer).await;
            return answered.unwrap_or_else(|_| Err(stopping())).map_err(CallError::Answered);
        }
        let client = self.peers.client(&address.node, &address.calls).map_err(CallError::Answered)?;
        let request = CallRequest { kind: kind as u16, partition, epoch: address.epoch, timeout, payload };
        client.call(request).await
    }

    /// Returns all replies of a call that has many.
    ///
    /// Errors: that of the node; `Unavailable` if it does not answer or is not the owner; `LimitReached` for too many bytes.
    fn read(
        &self,
        address: &OwnerAddress,
        partition: PartitionId,
        kind: CallKind,
        payload: Bytes,
    ) -> Result<Vec<Bytes>> {
        if address.node == self.cluster.name() {
            let mut replies = Replies::default();
            let mut last = Ok(());
            self.answers.answer_stream(kind, partition, &payload, &mut |reply| {
                last = replies.push(reply, address);
                last.is_ok()
            })?;
            return last.map(|()| replies.all);
        }
        let client = self.peers.client(&address.node, &address.calls)?;
        let address = address.clone();
        self.runtime.run(async move {
            let epoch = address.epoch;
            let request =
                CallRequest { kind: kind as u16, partition, epoch, timeout: ATTEMPT_TIMEOUT, payload };
            let mut stream = client.stream(request).await?;
            let mut replies = Replies::default();
            while let Some(reply) = futures::StreamExt::next(&mut stream).await {
                replies.push(reply?, &address)?;
            }
            Ok(replies.all)
        })
    }

    /// Returns all replies of the owner of a partition, of the next one as well, to a call that has many.
    ///
    /// Errors: as [`Self::read`]; `Unavailable` if none answers in time.
    fn read_of_owner(&self, partition: PartitionId, kind: CallKind, payload: &Bytes) -> Result<Vec<Bytes>> {
        let deadline = Instant::now() + ASK_TIMEOUT;
        loop {
            let replies = match self.cluster.owner_of(partition) {
                None => Err(Error::unavailable("no node owns it")),
                // the caller gets all replies or an error
                Some(owner) => self.read(&owner, partition, kind, payload.clone()),
            };
            match replies {
                Err(e) if e.kind() == ErrorKind::Unavailable => {
                    let node = self.node()?;
                    if Instant::now() + RETRY_INTERVAL >= deadline || node.host.is_stopping() {
                        return Err(e.context(format!("partition {partition} cannot be asked")));
                    }
                    node.host.clock.sleep(RETRY_INTERVAL);
                }
                replies => return replies,
            }
        }
    }

    /// Returns, for each kind of arrival, the last record of the partitions `from` whose emissions the owner of `partition` has applied.
    ///
    /// Errors: those of [`Self::ask`].
    pub fn arrived(
        &self,
        partition: PartitionId,
        from: &[PartitionId],
    ) -> Result<BTreeMap<ArrivalKind, BTreeMap<u32, Offset>>> {
        let from: Vec<u32> = from.iter().map(|id| id.0).collect();
        let reply = self.ask(partition, CallKind::Arrived, encode(&from, &[])?)?;
        let (mut arrived, _) = decode::<ArrivedHead>(&reply)?;
        let of_kind = |kind: ArrivalKind| (kind, arrived.remove(&(kind as u8)).unwrap_or_default());
        Ok(ArrivalKind::ALL.into_iter().map(of_kind).collect())
    }
}

/// Drops what standbys here keep and has arrived in partitions of other nodes, until the engine stops.
pub fn run_arrivals(node: &Node, peers: &PeerNodes) {
    while !node.host.is_stopping() {
        ownership::drop_arrived_elsewhere(node, |target, from| {
            peers.arrived(target, from).map(ArrivedCauses::new)
        });
        node.host.clock.sleep(ARRIVALS_INTERVAL);
    }
}

/// Replies of a stream, bounded in bytes.
#[derive(Default)]
struct Replies {
    all: Vec<Bytes>,
    bytes: usize,
}

impl Replies {
    fn push(&mut self, reply: Reply, from: &OwnerAddress) -> Result<()> {
        let Reply::Payload(payload) = reply else {
            return Err(Error::unavailable(format!(
                "node {} does not own the partition any more",
                from.node
            )));
        };
        self.bytes += payload.len();
        if self.bytes > STREAM_BYTES_MAX {
            return Err(Error::limit(format!(
                "the query reads more than {STREAM_BYTES_MAX} bytes of a partition of node {}: read less at once, as by a filter without \
                 scripts and variables, or ask a node that has the partition",
                from.node
            )));
        }
        self.all.push(payload);
        Ok(())
    }
}

fn stopping() -> Error {
    Error::unavailable("the node stops")
}
