//! Statements that run, by their tickets, so that a client can cancel them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidemill_gateway::Clock;
use tidemill_types::{Error, Result};
use tokio_util::sync::CancellationToken;

use crate::ticket::TicketId;

/// Maximum tickets of changes that are remembered.
const SPENT_MAX: usize = 65_536;

/// Statements that run, and tickets whose statement must not run again.
pub(crate) struct RunningStatements {
    state: Mutex<State>,
    clock: Clock,
    /// Time for which a ticket may be used.
    ticket_lifetime: Duration,
}

#[derive(Default)]
struct State {
    /// By ticket: the cancellation, and how many calls run its statement.
    running: HashMap<TicketId, (CancellationToken, usize)>,
    /// Tickets of changes that have run, with the end of their time.
    spent: HashMap<TicketId, Instant>,
}

/// A statement that runs until this is dropped.
pub(crate) struct RunningStatement {
    all: Arc<RunningStatements>,
    id: TicketId,
    cancellation: CancellationToken,
}

impl RunningStatements {
    pub fn new(ticket_lifetime: Duration, clock: Clock) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), clock, ticket_lifetime })
    }

    /// Notes that the statement of a ticket runs.
    pub fn begin(self: &Arc<Self>, id: TicketId) -> RunningStatement {
        let mut state = self.state.lock();
        let (cancellation, calls) = state.running.entry(id).or_default();
        *calls += 1;
        RunningStatement { all: self.clone(), id, cancellation: cancellation.clone() }
    }

    /// Notes that the ticket of a change of events is used. A client that repeats a call would change them twice.
    ///
    /// Errors: `Conflict` when it was used before; `LimitReached` when there are too many.
    pub fn spend(&self, id: TicketId) -> Result<()> {
        let mut state = self.state.lock();
        if state.spent.contains_key(&id) {
            return Err(Error::conflict(
                "the change of this ticket has been made: ask for it again (GetFlightInfo) to make it once more",
            ));
        }
        if state.spent.len() >= SPENT_MAX {
            return Err(Error::limit(format!(
                "{SPENT_MAX} changes of events were made by tickets within {:?}, which is the limit: use CommandStatementUpdate",
                self.ticket_lifetime
            )));
        }
        state.spent.insert(id, (self.clock)() + self.ticket_lifetime);
        Ok(())
    }

    /// Cancels the statement of a ticket. Returns whether it runs.
    pub fn cancel(&self, id: &TicketId) -> bool {
        let state = self.state.lock();
        let running = state.running.get(id);
        running.inspect(|(cancellation, _)| cancellation.cancel()).is_some()
    }

    /// Forgets tickets whose time is over.
    pub fn tick(&self) {
        let now = (self.clock)();
        self.state.lock().spent.retain(|_, end| *end > now);
    }
}

impl RunningStatement {
    /// Returns what is cancelled with the statement.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }
}

impl Drop for RunningStatement {
    fn drop(&mut self) {
        let mut state = self.all.state.lock();
        let Some((_, calls)) = state.running.get_mut(&self.id) else { return };
        *calls -= 1;
        if *calls == 0 {
            state.running.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use tidemill_types::ErrorKind;

    use super::*;

    #[test]
    fn a_statement_can_be_cancelled_while_it_runs() {
        let all = RunningStatements::new(Duration::from_secs(1), Arc::new(Instant::now));
        let id = [1; 16];
        assert!(!all.cancel(&id));
        let (first, second) = (all.begin(id), all.begin(id));
        drop(first);
        assert!(all.cancel(&id) && second.cancellation().is_cancelled());
        drop(second);
        assert!(!all.cancel(&id) && !all.begin(id).cancellation().is_cancelled());
    }

    #[test]
    fn the_ticket_of_a_change_is_used_once() {
        let (start, passed) = (Instant::now(), Arc::new(Mutex::new(0)));
        let clock = {
            let passed = passed.clone();
            Arc::new(move || start + Duration::from_secs(*passed.lock()))
        };
        let all = RunningStatements::new(Duration::from_secs(10), clock);
        all.spend([1; 16]).unwrap();
        all.spend([2; 16]).unwrap();
        all.tick();
        assert_eq!(all.spend([1; 16]).unwrap_err().kind(), ErrorKind::Conflict);
        *passed.lock() = 10;
        all.tick();
        assert!(all.state.lock().spent.is_empty());
    }
}
