//! State that all calls share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidemill_access::Principal;
use tidemill_database::Database;
use tidemill_gateway::MessageMemory;
use tokio::sync::Semaphore;

use crate::login::Login;
use crate::options::FlightOptions;
use crate::prepared::PreparedStatements;
use crate::running::RunningStatements;
use crate::ticket::Tickets;

/// Name of the protocol in settings, metrics and `system.statements`.
pub(crate) const PROTOCOL: &str = "flight";

/// State that all calls share.
pub(crate) struct ServerState {
    pub database: Arc<dyn Database>,
    pub login: Login,
    pub tickets: Tickets,
    pub running: Arc<RunningStatements>,
    pub prepared: PreparedStatements,
    pub memory: Arc<MessageMemory>,
    /// Permits of calls under way.
    pub calls: Arc<Semaphore>,
    pub options: FlightOptions,
    is_stopping: AtomicBool,
}

/// Caller of a call.
#[derive(Clone)]
pub(crate) struct Caller {
    pub principal: Principal,
    /// Name by which what the caller has made is known.
    pub name: String,
}

impl Caller {
    pub fn new(principal: Principal) -> Self {
        Self { name: principal.caller(), principal }
    }
}

impl ServerState {
    pub fn new(database: Arc<dyn Database>, options: FlightOptions) -> Self {
        let FlightOptions { ticket_lifetime, statement_lifetime, clock, .. } = &options;
        Self {
            database,
            login: Login::new(&options),
            tickets: Tickets::new(*ticket_lifetime, clock.clone()),
            running: RunningStatements::new(*ticket_lifetime, clock.clone()),
            prepared: PreparedStatements::new(
                options.statements_max,
                options.statements_memory_max,
                *statement_lifetime,
                clock.clone(),
            ),
            memory: MessageMemory::new(options.message_memory_max),
            calls: Arc::new(Semaphore::new(options.calls_max.min(Semaphore::MAX_PERMITS))),
            options,
            is_stopping: AtomicBool::new(false),
        }
    }

    /// Does what is due about once a second.
    pub fn tick(&self) {
        self.login.tick();
        self.running.tick();
        self.prepared.tick();
    }

    /// Refuses calls from now on.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }
}
