//! Events of a transaction, which are appended when it ends.
//!
//! A transaction is what stands between `BEGIN` and `COMMIT`. Without them it is a message `Query`, or the messages up to `Sync`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidemill_database::CheckedEvents;

use crate::error::{PgError, Result, code};

/// Memory of the events of all transactions.
#[derive(Debug)]
pub(crate) struct EventMemory {
    used: AtomicUsize,
    most: usize,
}

/// Memory of one transaction, which is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct HeldEvents {
    memory: Arc<EventMemory>,
    bytes: usize,
}

/// Events of a transaction, by statement.
pub(crate) struct PendingEvents {
    list: Vec<CheckedEvents>,
    /// Bytes of all of them.
    bytes: usize,
    held: HeldEvents,
    /// Maximum bytes of one transaction.
    bytes_max: usize,
}

impl EventMemory {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), most })
    }

    /// Begins with no bytes.
    pub fn hold(self: &Arc<Self>) -> HeldEvents {
        HeldEvents { memory: self.clone(), bytes: 0 }
    }
}

impl HeldEvents {
    /// Holds this many bytes instead of those before.
    ///
    /// Errors: the transactions of all connections need more than there is.
    pub fn resize(&mut self, bytes: usize) -> Result<()> {
        let EventMemory { used, most } = &*self.memory;
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            let fits = |now: usize| now.checked_add(more).filter(|sum| sum <= most);
            used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|_| {
                PgError::new(
                    code::MEMORY,
                    format!("the events of open transactions need more than {most} bytes of memory"),
                )
                .with_hint("Commit more often, or try again when others have committed.")
            })?;
        } else {
            used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for HeldEvents {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl PendingEvents {
    pub fn new(memory: &Arc<EventMemory>, bytes_max: usize) -> Self {
        Self { list: Vec::new(), bytes: 0, held: memory.hold(), bytes_max }
    }

    /// Returns whether there is nothing to append.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the number of statements that have events.
    pub fn statements(&self) -> usize {
        self.list.len()
    }

    /// Makes room for `more` bytes of a statement that is not at its end.
    ///
    /// Errors: the transaction, or those of all connections, have too many.
    pub fn reserve(&mut self, more: usize) -> Result<()> {
        let bytes = self.bytes.saturating_add(more);
        if bytes > self.bytes_max {
            return Err(PgError::new(
                code::CONFIGURED_LIMIT,
                format!("a transaction may have events of {} bytes until they are stored", self.bytes_max),
            )
            .with_hint(
                "Commit more often. A COPY outside of a transaction may be stored in parts: SET tidemill.copy_atomic = off.",
            ));
        }
        self.held.resize(bytes)
    }

    /// Adds the events of a statement.
    ///
    /// Errors: as [`Self::reserve`].
    pub fn push(&mut self, events: CheckedEvents) -> Result<()> {
        if !events.is_empty() {
            self.reserve(events.bytes())?;
            self.bytes += events.bytes();
            self.list.push(events);
        }
        Ok(())
    }

    /// Drops the events of all statements but the first ones.
    pub fn truncate(&mut self, statements: usize) {
        self.list.truncate(statements);
        self.bytes = self.list.iter().map(CheckedEvents::bytes).sum();
        // it becomes less
        let _ = self.held.resize(self.bytes);
    }

    /// Takes the events out to append them. Their memory is held until [`Self::truncate`] is called.
    pub fn take(&mut self) -> CheckedEvents {
        let mut all = CheckedEvents::default();
        self.list.drain(..).for_each(|events| all.append(events));
        all
    }
}

#[cfg(test)]
mod tests {
    use tidemill_types::{BadRow, RowOrigin};

    use super::*;

    fn events(bytes: usize) -> CheckedEvents {
        let mut events = CheckedEvents::default();
        events.reject(vec![BadRow::new(RowOrigin::of_row(0), None, "", &vec![b'x'; bytes])]);
        events
    }

    #[test]
    fn transactions_share_memory_and_give_it_back() {
        let memory = EventMemory::new(10_000);
        let (mut first, mut second) =
            (PendingEvents::new(&memory, 8_000), PendingEvents::new(&memory, 8_000));
        first.push(events(5_000)).unwrap();
        assert_eq!(first.push(events(5_000)).unwrap_err().code, code::CONFIGURED_LIMIT);
        second.push(events(1_000)).unwrap();
        assert_eq!(second.push(events(5_000)).unwrap_err().code, code::MEMORY);
        assert_eq!((first.statements(), second.statements()), (1, 1));
        assert!(!first.take().is_empty() && first.is_empty());
        assert!(second.push(events(5_000)).is_err(), "until they are appended");
        first.truncate(0);
        second.push(events(5_000)).unwrap();
        second.truncate(1);
        drop(first);
        assert_eq!(memory.used.load(Ordering::Relaxed), second.bytes);
        drop(second);
        assert_eq!(memory.used.load(Ordering::Relaxed), 0);
    }
}
