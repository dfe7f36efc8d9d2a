//! Listening sockets that several sources of the process share.
//!
//! Sources name a host and a port. The first one opens it, later ones join, and when the last one stops the socket
//! and its connections are closed, so that the port is free again when [`SharedPort`] is dropped.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use backon::{ConstantBuilder, Retryable};
use tidemill_connect::runtime;
use tidemill_types::{Error, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::{AbortHandle, JoinSet};

/// Connections that one port serves at the same time; more wait in the operating system.
const CONNECTIONS_MAX: usize = 4096;
/// Delays between attempts to open a port that a stopping source still has.
const BIND_DELAYS: ConstantBuilder =
    ConstantBuilder::new().with_delay(Duration::from_millis(10)).with_max_times(49);
/// Delay after the operating system could not accept, for example for want of file descriptors.
const ACCEPT_DELAY: Duration = Duration::from_millis(50);

/// Protocol that a port speaks.
pub(crate) trait PortService: Send + Sync + 'static {
    /// Serves a connection until it ends. The future is dropped when the port closes.
    fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr) -> impl Future<Output = ()> + Send;
}

/// Port that is open while this value lives.
pub(crate) struct SharedPort<S> {
    pub(crate) service: Arc<S>,
    acceptor: AbortHandle,
    /// The acceptor has a weak reference only: dropping this one closes the socket at once.
    _listener: Arc<TcpListener>,
}

impl<S> Drop for SharedPort<S> {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

/// Host and port.
type Place = (String, u16);

/// Open ports of one protocol.
pub(crate) struct Ports<S>(Mutex<BTreeMap<Place, Weak<SharedPort<S>>>>);

impl<S: PortService> Ports<S> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::const_new(BTreeMap::new()))
    }

    /// Returns the open port, or opens it with the service that `create` makes.
    ///
    /// Errors: `Unavailable` if the operating system does not give the port.
    pub(crate) async fn open(
        &self,
        host: &str,
        port: u16,
        create: impl FnOnce() -> S,
    ) -> Result<Arc<SharedPort<S>>> {
        let mut ports = self.0.lock().await;
        let key = (host.to_owned(), port);
        if let Some(open) = ports.get(&key).and_then(Weak::upgrade) {
            return Ok(open);
        }
        let listener = Arc::new(bind(host, port).await?);
        let service = Arc::new(create());
        let acceptor = runtime().spawn(accept(Arc::downgrade(&listener), service.clone())).abort_handle();
        let open = Arc::new(SharedPort { service, acceptor, _listener: listener });
        ports.retain(|_, open| open.strong_count() != 0);
        ports.insert(key, Arc::downgrade(&open));
        Ok(open)
    }
}

async fn bind(host: &str, port: u16) -> Result<TcpListener> {
    let failed = |e: io::Error| {
        let hint = match e.kind() {
            io::ErrorKind::AddrInUse => "; another program or a source of another type listens there",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need the right to bind them",
            _ => "",
        };
        Error::unavailable(format!("cannot listen on {host}:{port}: {e}{hint}"))
    };
    (|| TcpListener::bind((host, port)))
        .retry(BIND_DELAYS)
        .when(|e| e.kind() == io::ErrorKind::AddrInUse)
        .await
        .map_err(failed)
}

/// Accepts connections until the listener is dropped or the task aborted, which ends the connections too.
async fn accept<S: PortService>(listener: Weak<TcpListener>, service: Arc<S>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
            continue;
        }
        let accepted = poll_fn(|context| match listener.upgrade() {
            Some(listener) => listener.poll_accept(context).map(Some),
            None => Poll::Ready(None),
        });
        match accepted.await {
            None => return,
            Some(Ok((stream, peer))) => {
                connections.spawn_on(service.clone().serve(stream, peer), runtime().handle());
            }
            Some(Err(e)) => {
                tracing::warn!(error = %e, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_DELAY).await;
            }
        }
    }
}
