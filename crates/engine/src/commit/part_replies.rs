//! Callers on this node that wait for the parts of their transactions, which another node may append.

use std::collections::HashMap;

use crossbeam_channel::{Receiver, Sender};
use parking_lot::Mutex;
use tidemill_types::PartitionId;

use super::TransactionId;

/// Channels of callers for replies of type `R`, by transaction and partition. One that is dropped tells its caller that no answer comes.
pub struct PartReplies<R>(Mutex<HashMap<(TransactionId, PartitionId), Sender<R>>>);

impl<R> Default for PartReplies<R> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<R> PartReplies<R> {
    /// Expects the parts of a transaction in the logs of these partitions. Returns the channels of their replies, in the same order.
    pub fn expect(&self, id: TransactionId, participants: &[PartitionId]) -> Vec<Receiver<R>> {
        let mut waiting = self.0.lock();
        let expect = |partition: &PartitionId| {
            let (sender, receiver) = crossbeam_channel::bounded(1);
            waiting.insert((id, *partition), sender);
            receiver
        };
        participants.iter().map(expect).collect()
    }

    /// Returns the caller that waits for a part, the first time that the part is consumed.
    pub fn take(&self, id: TransactionId, partition: PartitionId) -> Option<Sender<R>> {
        self.0.lock().remove(&(id, partition))
    }

    /// Gives up the parts of a transaction, because its record is not in the log.
    pub fn forget(&self, id: TransactionId) {
        self.0.lock().retain(|(waiting, _), _| *waiting != id);
    }

    /// Gives up the parts in a partition whose replica here ends.
    pub fn forget_partition(&self, partition: PartitionId) {
        self.0.lock().retain(|(_, waiting), _| *waiting != partition);
    }
}
