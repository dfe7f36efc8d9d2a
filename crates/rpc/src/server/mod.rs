//! Calls of other nodes, as a protocol of the gateway.

mod body;
mod handshake;
mod refusals;
mod run;
mod session;
mod tasks;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tidemill_gateway::{Connection, FrontEnd, ListenOptions, Listener, Socket};
use tidemill_types::Result;
use tokio::sync::watch;

use crate::call::CallHandler;
use crate::limits::STREAM_WINDOW_BYTES;
use crate::node::{NodeSettings, is_loopback};
use crate::security::{ALPN, Security};
use refusals::Refusals;
use session::Session;
use tasks::ConnectionTasks;

/// Name of the protocol in metrics, logs and errors.
pub const PROTOCOL: &str = "rpc";

/// Time in which a node has to prove who it is.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of the headers of a call, which are about 200.
const HEADER_BYTES_MAX: u32 = 8 << 10;

/// Calls of other nodes. All listeners share the handler.
pub struct RpcFrontEnd {
    settings: Arc<NodeSettings>,
    handler: Arc<dyn CallHandler>,
    draining: watch::Sender<bool>,
    refusals: Refusals,
}

impl RpcFrontEnd {
    /// Creates the protocol.
    ///
    /// Errors: `Invalid` for settings that cannot work.
    pub fn new(settings: Arc<NodeSettings>, handler: Arc<dyn CallHandler>) -> Result<Arc<Self>> {
        settings.check()?;
        Ok(Arc::new(Self {
            settings,
            handler,
            draining: watch::channel(false).0,
            refusals: Refusals::default(),
        }))
    }

    /// Binds an address at which other nodes call this one, with the certificate of the settings; port 0 selects a free one. Must be
    /// called inside a tokio runtime with time and I/O enabled.
    ///
    /// Errors: those of [`Listener::bind`]; `Invalid` for an address that other machines can reach, if nodes share a secret.
    pub async fn listen(self: Arc<Self>, address: SocketAddr) -> Result<Listener> {
        self.settings.security.check_address(address)?;
        let tls = match &self.settings.security {
            Security::Certificates(files) => Some(files.listener_files()),
            Security::Secret(_) => None,
        };
        let options = ListenOptions { tls, ..ListenOptions::new(address) };
        Listener::bind(self, options).await
    }

    /// Returns why nothing that comes by a connection can be trusted.
    fn distrust(&self, socket: &Socket, peer: SocketAddr) -> Option<&'static str> {
        match &self.settings.security {
            Security::Certificates(_) if socket.client_certificate().is_none() => Some(
                "the listener asks for no certificate of the cluster's authority; bind it by `RpcFrontEnd::listen`",
            ),
            Security::Secret(_) if !is_loopback(peer.ip()) => Some(
                "it comes from another machine, and nodes with a shared secret do not encrypt what they send",
            ),
            _ => None,
        }
    }
}

impl FrontEnd for RpcFrontEnd {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn requires_login(&self) -> bool {
        true
    }

    fn alpn(&self) -> &'static [&'static [u8]] {
        &[ALPN]
    }

    fn serve(self: Arc<Self>, connection: Connection) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Connection { socket, peer, handle, .. } = connection;
            if let Some(reason) = self.distrust(&socket, peer) {
                self.refusals.report(peer, reason);
                return;
            }
            let certificate = socket.client_certificate();
            let limits = self.settings.limits.clone();
            let session = Session::new(self.clone(), handle.clone(), peer, certificate);
            let answering = session.clone();
            let service = hyper::service::service_fn(move |request| {
                let session = answering.clone();
                async move { Ok::<_, std::convert::Infallible>(session.answer(request).await) }
            });
            let tasks = ConnectionTasks::default();
            let requests_max = limits.requests_max();
            let served = http2::Builder::new(tasks.executor())
                .timer(TokioTimer::new())
                .max_header_list_size(HEADER_BYTES_MAX)
                .max_concurrent_streams(requests_max)
                // callers may give up all their calls at once
                .max_pending_accept_reset_streams(requests_max as usize)
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(limits.server_window_bytes())
                .keep_alive_interval(limits.keep_alive_interval)
                .keep_alive_timeout(limits.keep_alive_timeout)
                .serve_connection(TokioIo::new(socket), service);
            let mut served = pin!(served);
            let proven = async {
                if tokio::time::timeout(HANDSHAKE_TIMEOUT, session.known()).await.is_ok() {
                    std::future::pending::<()>().await;
                }
            };
            let drained = async {
                handle.draining().await;
                session.idle().await;
            };
            let ended = tokio::select! {
                ended = served.as_mut() => ended,
                () = proven => {
                    self.refusals.report(peer, "it did not prove in time which node it is");
                    return;
                }
                () = drained => {
                    // the client learns that calls on their way are not executed
                    served.as_mut().graceful_shutdown();
                    served.await
                }
            };
            let Err(error) = ended else { return };
            match session.peer() {
                Some(peer) => {
                    tracing::debug!(node = %peer.node, %error, "a connection of a node ended with an error")
                }
                None => {
                    self.refusals.report(peer, &format!("it does not speak HTTP/2 as nodes do ({error})"))
                }
            }
        })
    }

    fn drain(&self) {
        self.draining.send_replace(true);
    }
}
