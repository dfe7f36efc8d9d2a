//! Listener, connections, and orderly shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tidemill_types::{Error, Result, open_files};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tower::ServiceExt;

use crate::Engine;
use crate::app::AppState;
use crate::connections::{Connections, OpenConnection, ReplyBody};
use crate::options::ServerOptions;
use crate::router::{describe, resolve_alias, router};
use tidemill_database::Database;

/// Time limit for a request's head to arrive, and for an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Pause after accept fails (such as when no file handles are left), to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Running server. Dropping it without [`Server::shutdown`] closes all connections at once.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<Duration>,
    task: JoinHandle<usize>,
}

/// Starts serving `engine` and `database` at `address`; port 0 selects a free one ([`Server::addr`]).
///
/// Must be called inside a tokio runtime with time and I/O enabled.
/// Errors: `Invalid` for settings that cannot work, or for an address that other machines can reach without a
/// token; `Conflict` when the port is taken; `Unavailable` when the address cannot be bound for another
/// reason.
pub async fn serve(
    address: SocketAddr,
    engine: Arc<Engine>,
    database: Arc<dyn Database>,
    options: ServerOptions,
) -> Result<Server> {
    options.check(address)?;
    if let Some(warning) = options.warning(address) {
        tracing::warn!("{warning}");
    }
    let listener = TcpListener::bind(address).await.map_err(|e| cannot_bind(address, e))?;
    let address = listener.local_addr().map_err(|e| cannot_bind(address, e))?;
    let app = Arc::new(AppState::new(
        engine,
        database,
        options,
        describe(),
        address.ip().to_canonical().is_loopback(),
    ));
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(run(listener, app, stopped));
    tracing::info!(%address, "the server is listening");
    Ok(Server { address, stop, task })
}

fn cannot_bind(address: SocketAddr, e: std::io::Error) -> Error {
    if e.kind() == std::io::ErrorKind::AddrInUse {
        return Error::conflict(format!(
            "port {} of {} is taken by another process: choose another port, or 0 for a free one",
            address.port(),
            address.ip()
        ));
    }
    Error::unavailable(format!("cannot listen on {address}")).with_source(e)
}

impl Server {
    /// Returns the address on which the server listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops in order: accepts no new connections and requests, then waits at most `grace` for requests in
    /// progress, then closes the rest. Returns the number of connections that were cut off.
    pub async fn shutdown(self, grace: Duration) -> usize {
        // sending fails only if the task has ended, and then there is nothing to stop
        let _ = self.stop.send(grace);
        self.task.await.unwrap_or(0)
    }
}

async fn run(listener: TcpListener, app: Arc<AppState>, stopped: oneshot::Receiver<Duration>) -> usize {
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let grace = accept(&listener, &app, &graceful, &mut connections, stopped).await;
    app.stop();
    drop(listener);
    tracing::info!(grace_ms = grace.as_millis() as u64, "the server takes no more requests");
    let finished = tokio::time::timeout(grace, graceful.shutdown()).await;
    while connections.try_join_next().is_some() {}
    let cut = if finished.is_ok() { 0 } else { connections.len() };
    connections.shutdown().await;
    if cut > 0 {
        tracing::warn!(connections = cut, "connections were cut off after the grace period");
    }
    tracing::info!("the server has stopped");
    cut
}

/// Accepts connections until `stopped` fires. Returns the grace period.
async fn accept(
    listener: &TcpListener,
    app: &Arc<AppState>,
    graceful: &GracefulShutdown,
    tasks: &mut JoinSet<()>,
    mut stopped: oneshot::Receiver<Duration>,
) -> Duration {
    let connections = Connections::new(open_files::connections_max(app.options.connections_max, 2));
    let router = router(app.clone());
    // accepted, but without a permit yet
    let mut waiting: Option<(TcpStream, SocketAddr)> = None;
    loop {
        let place = tokio::select! {
            grace = &mut stopped => return grace.unwrap_or_default(),
            Some(_) = tasks.join_next() => continue,
            place = connections.acquire_permit(), if waiting.is_some() => place,
            accepted = listener.accept(), if waiting.is_none() => {
                match accepted {
                    Ok(accepted) => waiting = Some(accepted),
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        // all file handles may be in use
                        connections.evict_one();
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
                continue;
            }
        };
        if let Some((stream, peer)) = waiting.take() {
            app.metrics.connections.inc();
            let open = connections.open(place);
            let connection = Connection { app: app.clone(), router: router.clone(), peer, open };
            tasks.spawn(connection.serve(stream, graceful.watcher()));
        }
    }
}

struct Connection {
    app: Arc<AppState>,
    router: Router,
    peer: SocketAddr,
    open: OpenConnection,
}

impl Connection {
    async fn serve(self, stream: TcpStream, watcher: Watcher) {
        // a reply is one write, so waiting to fill a packet would only add latency
        let _ = stream.set_nodelay(true);
        let (router, peer, handle) = (self.router.clone(), self.peer, self.open.handle());
        let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            let working = handle.begin();
            let mut request = request.map(Body::new);
            resolve_alias(&mut request);
            request.extensions_mut().insert(ConnectInfo(peer));
            request.extensions_mut().insert(handle.clone());
            let reply = router.clone().oneshot(request);
            async move {
                let Some(working) = working else {
                    return Err(std::io::Error::other("the connection was closed to make room"));
                };
                let Ok(reply) = reply.await;
                Ok(reply.map(|body| ReplyBody::new(body, working)))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            () = self.open.closed() => {
                tracing::debug!(peer = %self.peer, "an idle connection was closed to make room for another one");
            }
            ended = watcher.watch(connection) => if let Err(error) = ended {
                tracing::debug!(peer = %self.peer, %error, "a connection ended with an error");
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.app.metrics.connections.dec();
    }
}
