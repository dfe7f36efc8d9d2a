//! MongoDB's protocol for the gateway, and a server with one listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tidemill_engine::Engine;
use tidemill_gateway::{Connection, FrontEnd, Gateway, ListenOptions, Listener, Metrics};
use tidemill_types::Result;

use crate::options::MongoOptions;
use crate::shared::MongoServerState;
use crate::wire::connection;

/// Name of the protocol in settings and metrics.
const PROTOCOL: &str = "mongodb";
/// Area of the problems of users and tokens.
const ACCESS_AREA: &str = "users and tokens";

/// MongoDB's protocol over the documents of an engine. Its listeners share cursors, sessions and all limits but that of connections.
pub struct MongoFrontEnd {
    shared: Arc<MongoServerState>,
}

impl MongoFrontEnd {
    /// Creates the protocol.
    pub fn new(engine: Arc<Engine>, options: MongoOptions) -> Self {
        if let Some(access) = options.access.clone() {
            engine.watch_problems(ACCESS_AREA, move || access.problem().into_iter().collect());
        }
        Self { shared: Arc::new(MongoServerState::new(engine, options)) }
    }
}

impl FrontEnd for MongoFrontEnd {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn requires_login(&self) -> bool {
        self.shared.credentials.is_some()
    }

    fn serve(self: Arc<Self>, connection: Connection) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let opened = self.shared.open_connection();
            connection::serve(connection, opened.id, &self.shared).await;
        })
    }

    fn tick(&self) {
        self.shared.tick();
    }

    fn drain(&self) {
        // commands end at their next step if they read, and when their record is durable if they write
        self.shared.operations.stop();
    }
}

/// Running server with one listener. Dropping it without [`MongoServer::shutdown`] closes all connections at once.
#[derive(Debug)]
pub struct MongoServer {
    address: SocketAddr,
    gateway: Gateway,
}

/// Starts serving the documents of `engine` at `address`; port 0 selects a free one ([`MongoServer::addr`]).
///
/// Must be called inside a multi-threaded tokio runtime with time and I/O enabled. A process with several listeners, or with encrypted
/// ones, has them in one [`Gateway`].
/// Errors: `Invalid` for an address that other machines can reach without a password; `Conflict` when the port is taken;
/// `Unavailable` when the address cannot be bound for another reason.
pub async fn serve(address: SocketAddr, engine: Arc<Engine>, options: MongoOptions) -> Result<MongoServer> {
    let connections_max = options.connections_max;
    let front_end = Arc::new(MongoFrontEnd::new(engine, options));
    let options = ListenOptions { connections_max, ..ListenOptions::new(address) };
    let listener = Listener::bind(front_end, options).await?;
    let address = listener.address();
    Ok(MongoServer { address, gateway: Gateway::start(vec![listener], Arc::new(Metrics::default())) })
}

impl MongoServer {
    /// Returns the address on which the server listens.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more connections, waits at most `grace` for commands in progress, and closes all connections. Returns the number of
    /// connections that were cut off.
    pub async fn shutdown(self, grace: Duration) -> usize {
        self.gateway.shutdown(grace).await
    }
}
