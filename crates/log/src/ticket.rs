//! Offsets that become known after the append.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

use crate::record::Durability;

/// Place of an appended record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendReceipt {
    /// Position in the partition.
    pub offset: Offset,
    /// Time that the log assigned.
    pub time: Timestamp,
    /// Lowest durability that the record is known to have.
    pub durability: Durability,
}

/// Claim to the [`AppendReceipt`] of a record, see [`crate::Log::append`].
#[must_use = "the record is durable once `wait` has returned"]
pub struct Ticket(State);

enum State {
    /// The log has assigned the offset and syncs when the caller waits, so that one `fsync` serves many.
    Assigned {
        partition: PartitionId,
        receipt: AppendReceipt,
        durability: Durability,
        log: Arc<dyn SyncRecords>,
    },
    Pending(Arc<Outcome>),
}

/// A log as a ticket sees it.
pub(crate) trait SyncRecords: Send + Sync {
    /// Implements [`crate::Log::sync`].
    fn sync_records(&self, partition: PartitionId, upto: Offset, durability: Durability) -> Result<()>;
}

#[derive(Default)]
struct Outcome {
    result: Mutex<Option<Result<AppendReceipt>>>,
    changed: Condvar,
}

/// The log's end of a pending [`Ticket`]. Dropping it fails the ticket with `Unavailable`.
pub struct TicketCompletion(Arc<Outcome>);

impl Ticket {
    /// Returns a ticket and its completion, for a log that learns the offset later.
    pub fn pending() -> (TicketCompletion, Self) {
        let outcome = Arc::<Outcome>::default();
        (TicketCompletion(Arc::clone(&outcome)), Self(State::Pending(outcome)))
    }

    pub(crate) fn assigned_by(
        log: Arc<dyn SyncRecords>,
        partition: PartitionId,
        receipt: AppendReceipt,
        durability: Durability,
    ) -> Self {
        Self(State::Assigned { partition, receipt, durability, log })
    }

    /// Returns the receipt if the log has assigned the offset, without waiting for the requested durability.
    pub fn assigned(&self) -> Option<AppendReceipt> {
        match &self.0 {
            State::Assigned { receipt, .. } => Some(*receipt),
            State::Pending(outcome) => outcome.result.lock().as_ref()?.as_ref().ok().copied(),
        }
    }

    /// Waits until the log has assigned the offset, but not for the requested durability where the log assigns it before.
    ///
    /// Errors: those of [`Ticket::wait`].
    pub fn wait_assigned(self) -> Result<AppendReceipt> {
        match self.0 {
            State::Assigned { receipt, .. } => Ok(receipt),
            State::Pending(_) => self.wait(),
        }
    }

    /// Waits until the record has the requested durability.
    ///
    /// Errors: `Unavailable` when it is not known to have it. The record may be in the log all the same; an owner that
    /// consumes the log sees whether it is.
    pub fn wait(self) -> Result<AppendReceipt> {
        match self.0 {
            State::Assigned { partition, receipt, durability, log } => {
                if durability > receipt.durability {
                    log.sync_records(partition, receipt.offset, durability)?;
                }
                Ok(AppendReceipt { durability, ..receipt })
            }
            State::Pending(outcome) => {
                let mut result = outcome.result.lock();
                loop {
                    if let Some(result) = result.take() {
                        return result;
                    }
                    outcome.changed.wait(&mut result);
                }
            }
        }
    }
}

impl TicketCompletion {
    /// Gives the ticket its result.
    pub fn complete(self, result: Result<AppendReceipt>) {
        self.0.result.lock().get_or_insert(result);
    }
}

impl Drop for TicketCompletion {
    fn drop(&mut self) {
        self.0.result.lock().get_or_insert_with(|| {
            Err(Error::unavailable(
                "the log ended before it acknowledged the record; it may or may not be there",
            ))
        });
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_ticket_gets_the_result_of_its_completion() {
        let (completion, ticket) = Ticket::pending();
        assert_eq!(ticket.assigned(), None);
        let receipt = AppendReceipt { offset: Offset(7), time: Timestamp(1), durability: Durability::Fsync };
        let waiter = std::thread::spawn(move || ticket.wait());
        completion.complete(Ok(receipt));
        assert_eq!(waiter.join().expect("no panic").expect("a receipt"), receipt);
    }

    #[test]
    fn ticket_fails_when_its_completion_is_dropped() {
        let (completion, ticket) = Ticket::pending();
        drop(completion);
        assert_eq!(ticket.assigned(), None);
        let error = ticket.wait().expect_err("nobody completes it");
        assert!(error.message().contains("may or may not be there"), "{error}");
    }
}
