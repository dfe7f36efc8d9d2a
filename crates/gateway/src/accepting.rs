//! Accepts connections of a listener, finds places for them, and drains them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::connections::{Connections, OpenConnection};
use crate::front_end::{Encryption, FrontEnd};
use crate::listener::Listener;
use crate::metrics::{ProtocolMetrics, add};
use crate::socket::Socket;
use crate::tls::ServerTls;

/// Pause after accept fails (such as when no file handles are left), to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Interval of [`FrontEnd::tick`].
const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// Accepts connections until `stop` says for how long to wait for them, then waits and closes the rest. Returns the number of
/// connections that were cut.
pub(crate) async fn run(
    listener: Listener,
    connections_max: usize,
    metrics: Arc<ProtocolMetrics>,
    mut stop: watch::Receiver<Option<Duration>>,
) -> usize {
    let (front_end, protocol, address) =
        (listener.front_end.clone(), listener.front_end.protocol(), listener.address);
    let (drain, draining) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let accepted = accept(listener, connections_max, metrics.clone(), draining, &mut tasks);
    let grace = tokio::select! {
        // without a sender, everything ends at once
        grace = stop.wait_for(Option::is_some) => grace.map_or(Duration::ZERO, |grace| grace.unwrap_or_default()),
        () = accepted => Duration::ZERO,
    };
    front_end.drain();
    let _ = drain.send(true);
    tracing::info!(protocol, %address, grace_ms = grace.as_millis() as u64, "no more connections are accepted");
    let finished = async { while tasks.join_next().await.is_some() {} };
    let finished = tokio::time::timeout(grace, finished).await;
    while tasks.try_join_next().is_some() {}
    let cut = if finished.is_ok() { 0 } else { tasks.len() };
    tasks.shutdown().await;
    if cut > 0 {
        add(&metrics.cut, cut as u64);
        tracing::warn!(protocol, %address, connections = cut, "connections were cut off after the grace period");
    }
    cut
}

/// Accepts connections for ever. Dropping the future closes the listener.
async fn accept(
    listener: Listener,
    connections_max: usize,
    metrics: Arc<ProtocolMetrics>,
    draining: watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) {
    let Listener { front_end, listener, address, tls, .. } = listener;
    let protocol = front_end.protocol();
    let connections = Connections::new(connections_max, metrics.clone());
    let mut tick = tokio::time::interval(TICK_INTERVAL);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    // accepted, but without a permit yet
    let mut waiting: Option<(TcpStream, SocketAddr)> = None;
    let mut is_full = false;
    loop {
        let permit = tokio::select! {
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(protocol, %address, %error, "a connection hit a defect");
                }
                continue;
            }
            _ = tick.tick() => {
                front_end.tick();
                continue;
            }
            permit = connections.acquire_permit(), if waiting.is_some() => permit,
            accepted = listener.accept(), if waiting.is_none() => {
                match accepted {
                    Ok(accepted) => waiting = Some(accepted),
                    Err(error) => {
                        tracing::warn!(protocol, %address, %error, "a connection could not be accepted");
                        // all file handles may be in use
                        connections.evict_one();
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
                if connections.is_full_of_requests() && !is_full {
                    tracing::warn!(
                        protocol, %address, limit = connections_max,
                        "all connections have requests in progress: further clients wait (connections_max, and the share of the \
                         process's open files)"
                    );
                    is_full = true;
                }
                continue;
            }
        };
        is_full = connections.is_full_of_requests();
        if let Some((stream, peer)) = waiting.take() {
            let accepted = AcceptedConnection {
                front_end: front_end.clone(),
                tls: tls.clone(),
                metrics: metrics.clone(),
                stream,
                peer,
                listener: address,
            };
            tasks.spawn(accepted.serve(connections.open(permit, draining.clone())));
        }
    }
}

/// A connection that was accepted and has a place.
struct AcceptedConnection {
    front_end: Arc<dyn FrontEnd>,
    tls: Option<Arc<ServerTls>>,
    metrics: Arc<ProtocolMetrics>,
    stream: TcpStream,
    peer: SocketAddr,
    listener: SocketAddr,
}

impl AcceptedConnection {
    /// Serves the connection until it ends, or has to make room while it is idle.
    async fn serve(self, open: OpenConnection) {
        let (protocol, peer) = (self.front_end.protocol(), self.peer);
        let handle = open.handle().clone();
        let served = async move {
            let front_end = self.front_end.clone();
            let draining = handle.clone();
            let connection = tokio::select! {
                () = draining.draining() => return,
                connection = self.prepare(handle) => connection,
            };
            if let Some(connection) = connection {
                front_end.serve(connection).await;
            }
        };
        tokio::select! {
            () = open.evicted() => {
                tracing::debug!(protocol, %peer, "an idle connection was closed to make room for another one");
            }
            () = served => {}
        }
    }

    /// Encrypts the connection if it is to be. Returns nothing if that fails.
    async fn prepare(self, handle: crate::ConnectionHandle) -> Option<Connection> {
        let Self { front_end, tls, metrics, stream, peer, listener } = self;
        // replies are single writes, so waiting to fill a packet would only add latency; a failure costs no more than that
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "TCP_NODELAY");
        }
        let local = stream.local_addr().ok()?;
        let (socket, tls) = match tls {
            Some(tls) if front_end.encryption() == Encryption::FromTheStart => match tls.accept(stream).await
            {
                Ok(socket) => (socket, None),
                Err(error) => {
                    let refused = add(&metrics.refused, 1);
                    let protocol = front_end.protocol();
                    tracing::debug!(protocol, %peer, %error, "a TLS handshake failed");
                    // one client that tries again and again should not fill the log
                    if refused.is_power_of_two() {
                        let kind = match tls.requires_client_certificate() {
                            false => {
                                "a client that does not speak TLS, or does not trust the certificate, was refused"
                            }
                            true => {
                                "a client that does not speak TLS, does not trust the certificate, or has none that an authority of \
                                 clients has signed, was refused"
                            }
                        };
                        tracing::warn!(protocol, %peer, %error, refused, "{kind}");
                    }
                    return None;
                }
            },
            tls => (Socket::plain(stream), tls),
        };
        Some(Connection { socket, peer, local, listener, handle, tls })
    }
}
