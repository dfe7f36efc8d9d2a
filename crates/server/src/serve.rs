//! HTTP as a protocol of the gateway, and a server with one listener.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tidemill_database::Database;
use tidemill_gateway::{Connection, FrontEnd, Gateway, ListenOptions, Listener, Metrics};
use tidemill_types::Result;
use tower::ServiceExt;

use crate::Engine;
use crate::app::AppState;
use crate::guard::host::ListenerAddress;
use crate::metrics::PROTOCOL;
use crate::options::ServerOptions;
use crate::reply_body::ReplyBody;
use crate::router::{describe, resolve_alias, router};

/// Area of the problems of users and tokens.
const ACCESS_AREA: &str = "users and tokens";
/// Time limit for a request's head to arrive, and for an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// HTTP over an engine and a database. Its listeners share all limits but that of connections.
pub struct HttpFrontEnd {
    app: Arc<AppState>,
    router: Router,
}

impl HttpFrontEnd {
    /// Creates the protocol. `/metrics` shows `metrics`, which should be those of the gateway that gets its listeners.
    ///
    /// Errors: `Invalid` for settings that cannot work.
    pub fn new(
        engine: Arc<Engine>,
        database: Arc<dyn Database>,
        options: ServerOptions,
        metrics: Arc<Metrics>,
    ) -> Result<Self> {
        options.check()?;
        if let Some(access) = options.access.clone() {
            engine.watch_problems(ACCESS_AREA, move || access.problem().into_iter().collect());
        }
        let app = Arc::new(AppState::new(engine, database, options, describe(), metrics));
        let router = router(app.clone());
        Ok(Self { app, router })
    }
}

impl FrontEnd for HttpFrontEnd {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn requires_login(&self) -> bool {
        !self.app.options.is_open()
    }

    fn alpn(&self) -> &'static [&'static [u8]] {
        &[b"http/1.1"]
    }

    fn serve(self: Arc<Self>, connection: Connection) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Connection { socket, peer, listener, handle, .. } = connection;
            let requests = handle.clone();
            let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
                let active = requests.begin();
                let mut request = request.map(Body::new);
                resolve_alias(&mut request);
                request.extensions_mut().insert(ConnectInfo(peer));
                request.extensions_mut().insert(ListenerAddress(listener));
                request.extensions_mut().insert(requests.clone());
                let reply = self.router.clone().oneshot(request);
                async move {
                    let Some(active) = active else {
                        return Err(std::io::Error::other("the connection was closed to make room"));
                    };
                    let Ok(reply) = reply.await;
                    Ok(reply.map(|body| ReplyBody::new(body, active)))
                }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(socket), service);
            let mut served = pin!(served);
            let mut ended = tokio::select! {
                ended = served.as_mut() => Some(ended),
                () = handle.draining() => None,
            };
            if ended.is_none() {
                served.as_mut().graceful_shutdown();
                ended = Some(served.await);
            }
            if let Some(Err(error)) = ended {
                tracing::debug!(%peer, %error, "a connection ended with an error");
            }
        })
    }

    fn drain(&self) {
        self.app.stop();
    }
}

/// Running server with one listener. Dropping it without [`Server::shutdown`] closes all connections at once.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    gateway: Gateway,
}

/// Starts serving `engine` and `database` at `address`; port 0 selects a free one ([`Server::addr`]).
///
/// Must be called inside a tokio runtime with time and I/O enabled. A process with several listeners has them in one [`Gateway`].
/// Errors: `Invalid` for settings that cannot work, or for an address that other machines can reach without a
/// token; `Conflict` when the port is taken; `Unavailable` when the address cannot be bound for another
/// reason.
pub async fn serve(
    address: SocketAddr,
    engine: Arc<Engine>,
    database: Arc<dyn Database>,
    options: ServerOptions,
) -> Result<Server> {
    let connections_max = options.connections_max;
    let metrics = Arc::new(Metrics::default());
    let front_end = HttpFrontEnd::new(engine, database, options, metrics.clone())?;
    let options = ListenOptions { connections_max, ..ListenOptions::new(address) };
    let listener = Listener::bind(Arc::new(front_end), options).await?;
    let address = listener.address();
    Ok(Server { address, gateway: Gateway::start(vec![listener], metrics) })
}

impl Server {
    /// Returns the address on which the server listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops in order: accepts no new connections and requests, then waits at most `grace` for requests in
    /// progress, then closes the rest. Returns the number of connections that were cut off.
    pub async fn shutdown(self, grace: Duration) -> usize {
        self.gateway.shutdown(grace).await
    }
}
