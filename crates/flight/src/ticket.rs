//! Tickets: what a client shows to get the rows of a statement that it has asked for.
//!
//! A ticket has the statement in it, so the server keeps nothing between `GetFlightInfo` and `DoGet`. The server signs it with a secret of
//! its own start. A ticket is of one caller and for some time; its statement runs with the rights that the caller has at `DoGet`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use prost::Message;
use sha2::Sha256;
use tidemill_gateway::Clock;
use tidemill_types::{Error, ErrorKind, Result};

/// Bytes that name a ticket, or a prepared statement.
pub(crate) const ID_BYTES: usize = 16;

/// Name of a ticket.
pub(crate) type TicketId = [u8; ID_BYTES];

/// A statement that a ticket may run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TicketStatement {
    /// The text of a statement without parameters.
    Text(String),
    /// A prepared statement, with the values that were bound to it in this order.
    Prepared { handle: Bytes, binding: u64 },
}

/// A ticket whose signature, time and caller are right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct VerifiedTicket {
    pub id: TicketId,
    pub statement: TicketStatement,
}

/// Content of a ticket.
#[derive(Clone, PartialEq, Message)]
struct TicketContent {
    #[prost(bytes = "bytes", tag = "1")]
    id: Bytes,
    /// End of its time, in milliseconds since the start of the server.
    #[prost(uint64, tag = "2")]
    expires_ms: u64,
    #[prost(string, tag = "3")]
    caller: String,
    /// Text of the statement; empty for a prepared one.
    #[prost(string, tag = "4")]
    text: String,
    #[prost(bytes = "bytes", tag = "5")]
    handle: Bytes,
    #[prost(uint64, tag = "6")]
    binding: u64,
}

#[derive(Clone, PartialEq, Message)]
struct SignedTicket {
    /// A [`TicketContent`].
    #[prost(bytes = "bytes", tag = "1")]
    content: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    signature: Bytes,
}

/// Issuer and judge of tickets.
pub(crate) struct Tickets {
    secret: [u8; 32],
    started: Instant,
    clock: Clock,
    lifetime: Duration,
}

impl Tickets {
    pub fn new(lifetime: Duration, clock: Clock) -> Self {
        Self { secret: rand::random(), started: clock(), clock, lifetime }
    }

    /// Returns a new ticket of a caller.
    pub fn issue(&self, caller: &str, statement: &TicketStatement) -> Bytes {
        let (text, handle, binding) = match statement {
            TicketStatement::Text(text) => (text.clone(), Bytes::new(), 0),
            TicketStatement::Prepared { handle, binding } => (String::new(), handle.clone(), *binding),
        };
        let content = TicketContent {
            id: rand::random::<TicketId>().to_vec().into(),
            expires_ms: self.now_ms().saturating_add(self.lifetime.as_millis() as u64),
            caller: caller.to_owned(),
            text,
            handle,
            binding,
        };
        let content = Bytes::from(content.encode_to_vec());
        let signature = self.mac(&content).finalize().into_bytes().to_vec().into();
        SignedTicket { content, signature }.encode_to_vec().into()
    }

    /// Reads a ticket that a caller shows.
    ///
    /// Errors: `Invalid` for bytes that this start of the server has not signed; `Forbidden` for a ticket of another caller; `NotFound` for one whose
    /// time is over.
    pub fn verify(&self, ticket: &[u8], caller: &str) -> Result<VerifiedTicket> {
        let foreign = || {
            Error::invalid(
                "the ticket is not one of this server since its start: ask for the statement again (GetFlightInfo), and send its ticket as it is",
            )
        };
        let SignedTicket { content, signature } = SignedTicket::decode(ticket).map_err(|_| foreign())?;
        self.mac(&content).verify_slice(&signature).map_err(|_| foreign())?;
        let content = TicketContent::decode(content).map_err(|_| foreign())?;
        if content.caller != caller {
            return Err(Error::new(
                ErrorKind::Forbidden,
                format!(
                    "the ticket is of another caller than `{caller}`: ask for the statement yourself (GetFlightInfo)"
                ),
            ));
        }
        if self.now_ms() >= content.expires_ms {
            return Err(Error::not_found(format!(
                "the ticket was to be used within {:?}, and that time is over: ask for the statement again (GetFlightInfo)",
                self.lifetime
            )));
        }
        let id = content.id.as_ref().try_into().map_err(|_| foreign())?;
        let statement = match content.handle.is_empty() {
            true => TicketStatement::Text(content.text),
            false => TicketStatement::Prepared { handle: content.handle, binding: content.binding },
        };
        Ok(VerifiedTicket { id, statement })
    }

    fn mac(&self, content: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("HMAC takes keys of any length");
        mac.update(content);
        mac
    }

    fn now_ms(&self) -> u64 {
        (self.clock)().saturating_duration_since(self.started).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::*;

    fn tickets() -> (Tickets, Arc<AtomicU64>) {
        let (start, passed) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let clock = {
            let passed = passed.clone();
            Arc::new(move || start + Duration::from_secs(passed.load(Ordering::Relaxed)))
        };
        (Tickets::new(Duration::from_secs(60), clock), passed)
    }

    fn text() -> TicketStatement {
        TicketStatement::Text("SELECT 1".to_owned())
    }

    #[test]
    fn a_ticket_is_of_one_caller_one_server_and_some_time() {
        let (tickets, passed) = tickets();
        let prepared =
            TicketStatement::Prepared { handle: Bytes::from_static(b"0123456789abcdef"), binding: 3 };
        for statement in [text(), prepared, TicketStatement::Text(String::new())] {
            let ticket = tickets.issue("ana", &statement);
            assert_eq!(tickets.verify(&ticket, "ana").unwrap().statement, statement);
        }
        let ticket = tickets.issue("ana", &text());
        assert_ne!(
            tickets.verify(&ticket, "ana").unwrap().id,
            tickets.verify(&tickets.issue("ana", &text()), "ana").unwrap().id
        );
        assert_eq!(tickets.verify(&ticket, "eva").unwrap_err().kind(), ErrorKind::Forbidden);
        let other = Tickets::new(Duration::from_secs(60), Arc::new(Instant::now));
        assert_eq!(other.verify(&ticket, "ana").unwrap_err().kind(), ErrorKind::Invalid);
        passed.store(59, Ordering::Relaxed);
        tickets.verify(&ticket, "ana").unwrap();
        passed.store(60, Ordering::Relaxed);
        assert!(tickets.verify(&ticket, "ana").unwrap_err().to_string().contains("that time is over"));
    }

    proptest! {
        #[test]
        fn changed_and_random_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), bit in 0_u8..8) {
            let (tickets, _) = tickets();
            prop_assert!(tickets.verify(&bytes, "ana").is_err());
            let mut ticket = tickets.issue("ana", &text()).to_vec();
            let at = at.index(ticket.len());
            ticket[at] ^= 1 << bit;
            prop_assert!(tickets.verify(&ticket, "ana").is_err());
            prop_assert!(tickets.verify(&ticket[..at], "ana").is_err());
        }
    }
}
