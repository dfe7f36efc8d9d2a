//! Live events for in-process readers.

use std::collections::HashMap;

use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use parking_lot::Mutex;

/// Batches that a subscriber may be behind before it is cut off.
pub const SUBSCRIBER_BATCHES_MAX: usize = 1024;

/// Who wants to see which stream.
#[derive(Default)]
pub struct Subscribers(Mutex<HashMap<String, Vec<Sender<RecordBatch>>>>);

impl Subscribers {
    /// Batches of `stream` applied from now on, with the columns of its table.
    ///
    /// A subscriber more than [`SUBSCRIBER_BATCHES_MAX`] behind is cut off: its channel closes, nothing is skipped in
    /// silence. It reads what it missed with SQL.
    pub fn subscribe(&self, stream: &str) -> Receiver<RecordBatch> {
        let (sender, receiver) = bounded(SUBSCRIBER_BATCHES_MAX);
        self.0.lock().entry(stream.to_owned()).or_default().push(sender);
        receiver
    }

    /// Whether anybody wants `stream`.
    pub fn has_subscribers(&self, stream: &str) -> bool {
        self.0.lock().get(stream).is_some_and(|s| !s.is_empty())
    }

    /// Hands `batch` to whoever wants it.
    pub fn publish(&self, stream: &str, batch: &RecordBatch) {
        let mut all = self.0.lock();
        let Some(senders) = all.get_mut(stream) else { return };
        senders.retain(|sender| match sender.try_send(batch.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                tracing::warn!(
                    stream,
                    behind = SUBSCRIBER_BATCHES_MAX,
                    "a subscriber was too slow and is cut off"
                );
                false
            }
            Err(TrySendError::Disconnected(_)) => false,
        });
    }
}
