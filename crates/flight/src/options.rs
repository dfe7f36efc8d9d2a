//! Settings of the protocol.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill_access::Access;
use tidemill_gateway::Clock;

/// Settings of the protocol. [`FlightOptions::default`] has every limit at its default and no token.
#[derive(Clone)]
pub struct FlightOptions {
    /// Token of the first administrator, who is also let in as `admin` with it as the password. Without it and [`Self::access`],
    /// clients need not log in and have all rights, which is refused on an address that other machines can reach.
    pub token: Option<String>,
    /// Users and tokens beside it.
    pub access: Option<Arc<Access>>,
    /// Maximum open connections of a listener that has no other limit.
    pub connections_max: usize,
    /// Maximum bytes of a message of a client.
    pub message_bytes_max: usize,
    /// Bytes that messages larger than 64 KiB of all calls may hold, in both directions.
    pub message_memory_max: usize,
    /// Maximum calls under way.
    pub calls_max: usize,
    /// Maximum prepared statements of a caller.
    pub statements_max: usize,
    /// Bytes of texts and values of the prepared statements of a caller.
    pub statements_memory_max: usize,
    /// Maximum logins of a user by password that are in force; the one that was not used for longest ends.
    pub sessions_max: usize,
    /// Time for which a ticket may be used.
    pub ticket_lifetime: Duration,
    /// Time after its last use for which a prepared statement is kept.
    pub statement_lifetime: Duration,
    /// Time after its last use for which a login by password is in force.
    pub session_lifetime: Duration,
    /// Time in which some bytes of a message that has begun have to arrive, and in which a client has to take some of its rows.
    pub transfer_timeout: Duration,
    /// Time between two messages of a client that sends events.
    pub idle_timeout: Duration,
    /// Clock of the lifetimes.
    pub clock: Clock,
}

impl FlightOptions {
    /// Returns whether clients need not log in.
    pub(crate) fn is_open(&self) -> bool {
        self.token.is_none() && self.access.is_none()
    }
}

impl Default for FlightOptions {
    fn default() -> Self {
        Self {
            token: None,
            access: None,
            connections_max: 1_024,
            message_bytes_max: 64 << 20,
            message_memory_max: 256 << 20,
            calls_max: 1_024,
            statements_max: 4_096,
            statements_memory_max: 64 << 20,
            sessions_max: 256,
            ticket_lifetime: Duration::from_secs(3_600),
            statement_lifetime: Duration::from_secs(3_600),
            session_lifetime: Duration::from_secs(24 * 3_600),
            transfer_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(600),
            clock: Arc::new(Instant::now),
        }
    }
}

impl fmt::Debug for FlightOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlightOptions").field("needs_login", &!self.is_open()).finish_non_exhaustive()
    }
}
