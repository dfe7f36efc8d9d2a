//! Calls to another node.

mod connect;
mod failure;
mod keeper;
mod stream;
mod tls;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use parking_lot::Mutex;
use tidemill_types::{Error, ErrorKind, Result};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, timeout_at};
use tonic_prost::ProstCodec;

use crate::call::{CallError, CallRequest, Reply};
use crate::message::{CALL_PATH, CallMessage, MESSAGE_OVERHEAD_BYTES, Outcome, ReplyMessage, STREAM_PATH};
use crate::node::NodeSettings;
use connect::{CONNECT_TIMEOUT, Connection};
use keeper::{Keeper, LinkState};
pub use stream::ReplyStream;

/// Time for which a call waits for a connection to a node that was away at the last attempt.
const AWAY_TIMEOUT: Duration = Duration::from_millis(100);
/// Longest time of a call.
const CALL_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Other nodes, by name: one [`PeerClient`] and so one connection for each.
#[derive(Debug)]
pub struct Peers {
    settings: Arc<NodeSettings>,
    runtime: Handle,
    clients: Mutex<HashMap<String, Arc<PeerClient>>>,
}

impl Peers {
    /// Creates the table. Connections work on the threads of `runtime`, a runtime of several threads with time and I/O enabled.
    ///
    /// Errors: `Invalid` for settings that cannot work.
    pub fn new(settings: Arc<NodeSettings>, runtime: Handle) -> Result<Self> {
        settings.check()?;
        Ok(Self { settings, runtime, clients: Mutex::default() })
    }

    /// Returns the client of a node at an address, `HOST:PORT`. A node whose address has changed gets another connection; calls under
    /// way finish on the former one.
    ///
    /// Errors: `Invalid` for a name that no node can have.
    pub fn client(&self, node: &str, address: &str) -> Result<Arc<PeerClient>> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(node).filter(|client| client.link.address == address) {
            return Ok(client.clone());
        }
        let client = Arc::new(PeerClient::new(self.settings.clone(), node, address, self.runtime.clone())?);
        clients.insert(node.to_owned(), client.clone());
        Ok(client)
    }

    /// Removes the nodes for which `stays` returns false, such as those that have left the cluster.
    pub fn retain(&self, mut stays: impl FnMut(&str) -> bool) {
        self.clients.lock().retain(|node, _| stays(node));
    }
}

/// Calls to another node, from any number of threads and tasks over one connection.
///
/// The first call opens the connection. From then on it is kept: when it breaks, it is opened again at once, and then after growing
/// delays, which a call cuts short. A call that finds no connection waits for the attempt that is under way: up to two seconds, and
/// no more than 100 ms once an attempt has failed. While one of the nodes refuses the other one, calls fail at once and hurry nothing:
/// more handshakes would only cost both. The connection is closed when the client and all its streams are dropped.
#[derive(Debug)]
pub struct PeerClient {
    link: Arc<Link>,
    runtime: Handle,
    keeper: Arc<Keeper>,
}

/// State that calls share with the task that keeps the connection.
#[derive(Debug)]
struct Link {
    settings: Arc<NodeSettings>,
    node: String,
    address: String,
    state: watch::Sender<LinkState>,
    /// A call needs a connection.
    wanted: Notify,
    calls: Semaphore,
    streams: Arc<Semaphore>,
    request_bytes: Semaphore,
}

impl PeerClient {
    /// Creates a client of the node of this name at an address, `HOST:PORT`.
    ///
    /// Errors: `Invalid` for settings or a name that cannot work.
    pub fn new(settings: Arc<NodeSettings>, node: &str, address: &str, runtime: Handle) -> Result<Self> {
        settings.check()?;
        settings.check_name(node)?;
        let limits = settings.limits.clone();
        let link = Arc::new(Link {
            settings,
            node: node.to_owned(),
            address: address.to_owned(),
            state: watch::Sender::default(),
            wanted: Notify::new(),
            calls: Semaphore::new(limits.calls_max as usize),
            streams: Arc::new(Semaphore::new(limits.streams_max as usize)),
            request_bytes: Semaphore::new(limits.request_bytes_max),
        });
        let keeper = Arc::new(Keeper::start(link.clone(), &runtime));
        Ok(Self { link, runtime, keeper })
    }

    /// Returns the name of the other node.
    pub fn node(&self) -> &str {
        &self.link.node
    }

    /// Calls the other node, and returns its reply. Dropping the future cancels the call there.
    ///
    /// Errors: [`CallError`] says whether the call may have had an effect. `LimitReached` for too large a payload, and if too much
    /// was under way for the whole time; `Unavailable` if the node cannot be reached, or does not answer in time; `Forbidden` if one
    /// of the nodes refuses the other one.
    pub async fn call(&self, request: CallRequest) -> Result<Reply, CallError> {
        let deadline = Instant::now() + request.timeout.min(CALL_TIMEOUT_MAX);
        let _bytes = self.link.reserve_bytes(&request, deadline).await?;
        let slot = timeout_at(deadline, self.link.calls.acquire());
        let Ok(Ok(_slot)) = slot.await else { return Err(self.link.too_busy("calls_max", &request)) };
        let message = CallMessage::from(&request);
        let mut has_retried = false;
        loop {
            let connection = self.link.connection(deadline).await?;
            let mut call = tonic::Request::new(message.clone());
            call.set_timeout(deadline.saturating_duration_since(Instant::now()));
            let mut grpc = connection.grpc(self.link.message_bytes_max());
            let called = grpc.unary(call, PathAndQuery::from_static(CALL_PATH), codec());
            match timeout_at(deadline, called).await {
                Err(_) => return Err(self.link.unanswered(&request)),
                Ok(Ok(reply)) => return reply_of(reply.into_inner()),
                Ok(Err(status)) => match self.link.failure(&status) {
                    // the connection ended just before: the call can use the next one
                    error @ CallError::NotSent(_) if connection.is_closed() && !has_retried => {
                        tracing::debug!(node = %self.link.node, %error, "a call that was not sent is repeated");
                        has_retried = true;
                    }
                    error => return Err(error),
                },
            }
        }
    }

    /// Does as [`Self::call`], for threads that wait. It must not be called on a thread that runs async tasks: it panics there.
    ///
    /// Errors: those of [`Self::call`].
    pub fn call_blocking(&self, request: CallRequest) -> Result<Reply, CallError> {
        self.runtime.block_on(self.call(request))
    }

    /// Calls the other node, and returns its replies as they come. Dropping the stream cancels the work there. The other node waits
    /// while replies of about 256 KiB are not read.
    ///
    /// Errors: those of [`Self::call`], until the other node has begun the stream.
    pub async fn stream(&self, request: CallRequest) -> Result<ReplyStream, CallError> {
        let deadline = Instant::now() + request.timeout.min(CALL_TIMEOUT_MAX);
        let _bytes = self.link.reserve_bytes(&request, deadline).await?;
        let slot = timeout_at(deadline, self.link.streams.clone().acquire_owned());
        let Ok(Ok(slot)) = slot.await else { return Err(self.link.too_busy("streams_max", &request)) };
        let connection = self.link.connection(deadline).await?;
        let mut grpc = connection.grpc(self.link.message_bytes_max());
        let call = tonic::Request::new(CallMessage::from(&request));
        let called = grpc.server_streaming(call, PathAndQuery::from_static(STREAM_PATH), codec());
        match timeout_at(deadline, called).await {
            Err(_) => Err(self.link.unanswered(&request)),
            Ok(Ok(replies)) => {
                let (link, keeper) = (self.link.clone(), self.keeper.clone());
                Ok(ReplyStream::new(replies.into_inner(), link, keeper, self.runtime.clone(), slot))
            }
            Ok(Err(status)) => Err(self.link.failure(&status)),
        }
    }

    /// Does as [`Self::stream`], for threads that wait, which read by [`ReplyStream::next_blocking`].
    ///
    /// Errors: those of [`Self::stream`].
    pub fn stream_blocking(&self, request: CallRequest) -> Result<ReplyStream, CallError> {
        self.runtime.block_on(self.stream(request))
    }
}

impl Link {
    fn message_bytes_max(&self) -> usize {
        self.settings.limits.message_bytes_max + MESSAGE_OVERHEAD_BYTES
    }

    /// Waits until there is room for the payload.
    async fn reserve_bytes(
        &self,
        request: &CallRequest,
        deadline: Instant,
    ) -> Result<SemaphorePermit<'_>, CallError> {
        let (length, most) = (request.payload.len(), self.settings.limits.message_bytes_max);
        if length > most {
            return Err(CallError::NotSent(self.error(
                ErrorKind::LimitReached,
                format!("the call has {length} bytes, and a message at most {most} (message_bytes_max): send less at once"),
            )));
        }
        // at most 1 GiB, which `CallLimits::check` asserts
        let permit = timeout_at(deadline, self.request_bytes.acquire_many(length as u32)).await;
        match permit {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(self.too_busy("request_bytes_max", request)),
        }
    }

    /// Returns the connection, waiting for one that has to be opened.
    async fn connection(&self, deadline: Instant) -> Result<Connection, CallError> {
        let (seen, is_away) = {
            let state = self.state.borrow();
            if let Some(connection) = state.open() {
                return Ok(connection.clone());
            }
            if state.is_refused() {
                drop(state);
                return Err(CallError::NotSent(self.no_connection()));
            }
            (state.attempts, state.failure.is_some())
        };
        self.wanted.notify_one();
        let patience = if is_away { AWAY_TIMEOUT } else { CONNECT_TIMEOUT };
        let end = deadline.min(Instant::now() + patience);
        let mut state = self.state.subscribe();
        let attempted = state.wait_for(|state| state.open().is_some() || state.attempts > seen);
        let attempted = timeout_at(end, attempted).await;
        if let Ok(Ok(state)) = &attempted
            && let Some(connection) = state.open()
        {
            return Ok(connection.clone());
        }
        drop(attempted);
        Err(CallError::NotSent(self.no_connection()))
    }

    fn no_connection(&self) -> Error {
        let state = self.state.borrow();
        match (&state.failure, &state.ended) {
            (Some((kind, reason)), _) => Error::new(*kind, reason.clone()),
            (None, Some(reason)) => self.unavailable(format!(
                "the connection has ended ({reason}), and there was no time for another one"
            )),
            (None, None) => self.unavailable("there was no time for a connection"),
        }
    }

    fn too_busy(&self, limit: &str, request: &CallRequest) -> CallError {
        CallError::NotSent(self.error(
            ErrorKind::LimitReached,
            format!(
                "as much was under way for {} ms as may be at once ({limit}): call less often, or raise the limit on all nodes",
                request.timeout.as_millis()
            ),
        ))
    }

    fn unanswered(&self, request: &CallRequest) -> CallError {
        CallError::Unanswered(
            self.unavailable(format!("there was no reply within {} ms", request.timeout.as_millis())),
        )
    }

    fn unavailable(&self, message: impl std::fmt::Display) -> Error {
        self.error(ErrorKind::Unavailable, message)
    }

    /// Creates an error that names the node.
    fn error(&self, kind: ErrorKind, message: impl std::fmt::Display) -> Error {
        Error::new(kind, format!("node `{}` at {}: {message}", self.node, self.address))
    }
}

impl From<&CallRequest> for CallMessage {
    fn from(request: &CallRequest) -> Self {
        Self {
            kind: request.kind.into(),
            partition: request.partition.0,
            epoch: request.epoch,
            payload: request.payload.clone(),
        }
    }
}

fn codec() -> ProstCodec<CallMessage, ReplyMessage> {
    ProstCodec::default()
}

/// Returns the reply of a message.
///
/// Errors: the one that the other node answers, or `Internal` for an outcome that this version does not have.
fn reply_of(message: ReplyMessage) -> Result<Reply, CallError> {
    match message.outcome {
        Some(Outcome::Payload(payload)) => Ok(Reply::Payload(payload)),
        Some(Outcome::NotOwner(not_owner)) => {
            Ok(Reply::NotOwner { epoch: not_owner.epoch, owner: not_owner.owner })
        }
        Some(Outcome::Error(error)) => Err(CallError::Answered(error.into())),
        None => Err(CallError::Answered(Error::internal(
            "the reply has an outcome that this version does not know; upgrade this node first",
        ))),
    }
}
