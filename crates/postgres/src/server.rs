//! PostgreSQL's protocol for the gateway.

use std::sync::Arc;

use futures::future::BoxFuture;
use tidemill_database::Database;
use tidemill_gateway::{Connection, Encryption, FrontEnd};

use crate::options::PostgresOptions;
use crate::shared::{PROTOCOL, ServerState};
use crate::{connection, handshake};

/// PostgreSQL's protocol over a database.
pub struct PostgresFrontEnd {
    shared: Arc<ServerState>,
}

impl PostgresFrontEnd {
    /// Creates the protocol.
    pub fn new(database: Arc<dyn Database>, options: PostgresOptions) -> Self {
        Self { shared: Arc::new(ServerState::new(database, options)) }
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
        self.shared.tick();
    }
}
