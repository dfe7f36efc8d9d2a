//! HTTP as a protocol of the gateway, and a server with one listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures::future::BoxFuture;
use tidemill_database::Database;
use tidemill_gateway::{Connection, FrontEnd, Gateway, ListenOptions, Listener, Metrics};
use tidemill_types::Result;

use crate::app::AppState;
use crate::grpc::GrpcService;
use crate::metrics::PROTOCOL;
use crate::mounted::MountedService;
use crate::options::ServerOptions;
use crate::router::{describe, grpc_router, router};
use crate::{Engine, connection, mounted};

/// Area of the problems of users and tokens.
const ACCESS_AREA: &str = "users and tokens";

/// HTTP over an engine and a database. Its listeners share all limits but that of connections.
pub struct HttpFrontEnd {
    app: Arc<AppState>,
    router: Router,
    grpc: Option<Arc<dyn GrpcService>>,
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
        Ok(Self { app, router, grpc: None })
    }

    /// Serves a protocol beside the routes.
    #[must_use]
    pub fn with_mounted(self, service: Arc<dyn MountedService>) -> Self {
        let router = self.router.merge(mounted::router(self.app.clone(), service));
        Self { router, ..self }
    }

    /// Serves calls of gRPC on the same connections, if they speak HTTP/2.
    pub fn with_grpc(self, service: Arc<dyn GrpcService>) -> Self {
        let router = self.router.merge(grpc_router(self.app.clone(), service.clone()));
        Self { router, grpc: Some(service), ..self }
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
        &[b"h2", b"http/1.1"]
    }

    fn serve(self: Arc<Self>, connection: Connection) -> BoxFuture<'static, ()> {
        Box::pin(connection::serve(connection, self.router.clone()))
    }

    fn tick(&self) {
        self.app.pages.tick();
        if let Some(grpc) = &self.grpc {
            grpc.tick();
        }
    }

    fn drain(&self) {
        self.app.stop();
        if let Some(grpc) = &self.grpc {
            grpc.drain();
        }
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
