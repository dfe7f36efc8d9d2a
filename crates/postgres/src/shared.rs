//! State that all connections share.

use std::sync::Arc;

use tidemill_database::Database;
use tidemill_gateway::MessageMemory;
use tokio::sync::watch;

use crate::cancel::CancelKeys;
use crate::login::Credentials;
use crate::options::PostgresOptions;
use crate::pending::EventMemory;

/// Name of the protocol in settings, metrics and `system.statements`.
pub(crate) const PROTOCOL: &str = "postgres";

/// State that all connections share.
pub(crate) struct ServerState {
    pub database: Arc<dyn Database>,
    pub options: PostgresOptions,
    /// `None` if no login is required.
    pub credentials: Option<Credentials>,
    pub keys: Arc<CancelKeys>,
    pub memory: Arc<MessageMemory>,
    pub events: Arc<EventMemory>,
    /// Number of the content of the file of users, for connections that wait. It changes at a tick.
    access_generation: watch::Sender<u64>,
}

impl ServerState {
    pub fn new(database: Arc<dyn Database>, options: PostgresOptions) -> Self {
        Self {
            database,
            credentials: Credentials::new(options.password.as_deref(), options.access.clone()),
            keys: Arc::default(),
            memory: MessageMemory::new(options.message_memory_max),
            events: EventMemory::new(options.transactions_memory_max),
            access_generation: watch::channel(0).0,
            options,
        }
    }

    /// Looks for changed users and tells the connections, about once a second.
    pub fn tick(&self) {
        if let Some(access) = &self.options.access {
            let generation = access.generation();
            self.access_generation
                .send_if_modified(|known| std::mem::replace(known, generation) != generation);
        }
    }

    /// Returns a receiver that hears when users, passwords or grants have changed.
    pub fn access_changes(&self) -> watch::Receiver<u64> {
        self.access_generation.subscribe()
    }
}
