//! PostgreSQL's protocol for the gateway.

use std::sync::Arc;

use futures::future::BoxFuture;
use tidemill_database::Database;
use tidemill_gateway::{Connection, Encryption, FrontEnd, MessageMemory};
use tokio::sync::watch;

use crate::cancel::CancelKeys;
use crate::login::Credentials;
use crate::options::PostgresOptions;
use crate::{connection, handshake};

/// Name of the protocol in settings, metrics and `system.statements`.
pub(crate) const PROTOCOL: &str = "postgres";

/// PostgreSQL's protocol over a database.
pub struct PostgresFrontEnd {
    shared: Arc<ServerState>,
}

/// State that all connections share.
pub(crate) struct ServerState {
    pub database: Arc<dyn Database>,
    pub options: PostgresOptions,
    /// `None` if no login is required.
    pub credentials: Option<Credentials>,
    pub keys: Arc<CancelKeys>,
    pub memory: Arc<MessageMemory>,
    /// Number of the content of the file of users, for connections that wait. It changes at a tick.
    access_generation: watch::Sender<u64>,
}

impl ServerState {
    /// Returns a receiver that hears when users, passwords or grants have changed.
    pub fn access_changes(&self) -> watch::Receiver<u64> {
        self.access_generation.subscribe()
    }
}

impl PostgresFrontEnd {
    /// Creates the protocol.
    pub fn new(database: Arc<dyn Database>, options: PostgresOptions) -> Self {
        let shared = ServerState {
            database,
            credentials: Credentials::new(options.password.as_deref(), options.access.clone()),
            keys: Arc::default(),
            memory: MessageMemory::new(options.message_memory_max),
            access_generation: watch::channel(0).0,
            options,
        };
        Self { shared: Arc::new(shared) }
    }
}

impl FrontEnd for PostgresFrontEnd {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn requires_login(&self) -> bool {
        self.shared.credentials.is_some()
    }

    fn encryption(&self) -> Encryption {
        Encryption::OnRequest
    }

    fn alpn(&self) -> &'static [&'static [u8]] {
        &[b"postgresql"]
    }

    fn serve(self: Arc<Self>, connection: Connection) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let Some(started) = handshake::start(connection, &self.shared).await {
                connection::serve(started, self.shared.clone()).await;
            }
        })
    }

    fn tick(&self) {
        if let Some(access) = &self.shared.options.access {
            let generation = access.generation();
            self.shared
                .access_generation
                .send_if_modified(|known| std::mem::replace(known, generation) != generation);
        }
    }
}
