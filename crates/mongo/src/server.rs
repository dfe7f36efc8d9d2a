//! The listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::Engine;
use tidemill_types::{Error, Result, open_files};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::connection;
use crate::options::MongoOptions;
use crate::shared::ServerState;
use crate::socket::{Socket, tls_acceptor};

/// Pause after accept fails, such as when no file handles are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Interval between checks for idle cursors.
const CURSOR_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Running listener. Dropping it without [`MongoServer::shutdown`] closes all connections at once.
#[derive(Debug)]
pub struct MongoServer {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Starts serving the documents of `engine` at `address`; port 0 selects a free one ([`MongoServer::addr`]).
///
/// Must be called inside a multi-threaded tokio runtime with time and I/O enabled.
/// Errors: `Invalid` for an address that other machines can reach without a password, and for a bad certificate; `Conflict` when the port is taken;
/// `Unavailable` when the address cannot be bound for another reason.
pub async fn serve(address: SocketAddr, engine: Arc<Engine>, options: MongoOptions) -> Result<MongoServer> {
    if options.password.is_none() && options.access.is_none() && !address.ip().to_canonical().is_loopback() {
        return Err(Error::invalid(format!(
            "address {address} can be reached from other machines, but there is no password"
        )));
    }
    let tls = options.tls_file.as_deref().map(tls_acceptor).transpose()?;
    let cannot_bind = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AddrInUse => Error::conflict(format!(
            "port {} of {} is taken by another process",
            address.port(),
            address.ip()
        )),
        _ => Error::unavailable(format!("cannot listen on {address}")).with_source(e),
    };
    let listener = TcpListener::bind(address).await.map_err(cannot_bind)?;
    let address = listener.local_addr().map_err(cannot_bind)?;
    let shared = Arc::new(ServerState::new(engine, options));
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(run(listener, shared, tls, stopped));
    tracing::info!(%address, "MongoDB drivers can connect");
    Ok(MongoServer { address, stop, task })
}

impl MongoServer {
    /// Returns the address on which the server listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more connections, waits at most `grace` for commands in progress, and closes all connections.
    pub async fn shutdown(self, grace: Duration) {
        // sending fails only if the task has ended, and then there is nothing to stop
        let _ = self.stop.send(());
        let _ = tokio::time::timeout(grace, self.task).await;
    }
}

/// Prepares a connection, and begins its encryption if there is one. Returns it with its local address; nothing if the client does not
/// speak TLS.
async fn open(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    timeout: Duration,
) -> Option<(Socket, SocketAddr)> {
    // replies are small, and the client waits for each
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "TCP_NODELAY");
    }
    let local = stream.local_addr().ok()?;
    let Some(tls) = tls else { return Some((Socket::Plain(stream), local)) };
    match tokio::time::timeout(timeout, tls.accept(stream)).await {
        Ok(Ok(stream)) => Some((Socket::Tls(Box::new(stream)), local)),
        Ok(Err(error)) => {
            tracing::warn!(%peer, %error, "a client that does not speak TLS, or does not trust the certificate, was refused");
            None
        }
        Err(_) => None,
    }
}

async fn run(
    listener: TcpListener,
    shared: Arc<ServerState>,
    tls: Option<TlsAcceptor>,
    mut stopped: oneshot::Receiver<()>,
) {
    let connections_max = open_files::connections_max(shared.options.connections_max, 2);
    let places = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
    let mut tasks = JoinSet::new();
    let mut cursor_check = tokio::time::interval(CURSOR_CHECK_INTERVAL);
    let (stop, stopping) = watch::channel(false);
    let mut full = false;
    loop {
        if places.available_permits() == 0 && !full {
            tracing::warn!(
                limit = connections_max,
                "all connections are taken (setting connections_max, and a quarter of the open files of the process): further clients wait"
            );
        }
        full = places.available_permits() == 0;
        let place = tokio::select! {
            _ = &mut stopped => break,
            Some(_) = tasks.join_next() => continue,
            _ = cursor_check.tick() => {
                shared.close_idle();
                continue;
            }
            place = places.clone().acquire_owned() => place.expect("the semaphore is never closed"),
        };
        let accepted = tokio::select! {
            _ = &mut stopped => break,
            accepted = listener.accept() => accepted,
            _ = cursor_check.tick() => {
                shared.close_idle();
                continue;
            }
        };
        match accepted {
            Ok((stream, peer)) => {
                let shared = shared.clone();
                let stopping = stopping.clone();
                let id = shared.open_connection();
                let tls = tls.clone();
                tasks.spawn(async move {
                    if let Some((stream, local)) = open(stream, peer, tls, shared.options.login_timeout).await
                    {
                        connection::serve(stream, (local, peer), id, &shared, stopping).await;
                    }
                    shared.close_connection();
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // connections end after the command in progress: one that reads at its next step, one that writes when its record is durable
    shared.operations.stop();
    let _ = stop.send(true);
    while tasks.join_next().await.is_some() {}
}
