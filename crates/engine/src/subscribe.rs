//! Live events for readers: subscribers, which get everything or are cut off, and taps, which skip what they have no time for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use parking_lot::Mutex;
use tokio::sync::mpsc;

/// Batches that a subscriber may be behind before it is cut off.
pub const SUBSCRIBER_BATCHES_MAX: usize = 1024;
/// Batches that wait for a tap.
const TAP_BATCHES_MAX: usize = 64;
/// Rows that a tap gets at once.
const TAP_ROWS_MAX: usize = 1024;

/// Batches of a stream as they are applied. Its reader may be slow: what does not fit is skipped and counted.
pub struct Tap {
    batches: mpsc::Receiver<RecordBatch>,
    skipped: Arc<AtomicU64>,
}

impl Tap {
    /// Returns the next batch, with the columns of the stream's table; `None` when the engine has stopped.
    pub async fn next(&mut self) -> Option<RecordBatch> {
        self.batches.recv().await
    }

    /// Returns whether rows were skipped since the last call. Those that wait are dropped then, so that the next ones are all newer than what
    /// the stream's table has now.
    pub fn restart(&mut self) -> bool {
        let has_skipped = self.take_skipped() > 0;
        if has_skipped {
            while self.batches.try_recv().is_ok() {}
        }
        has_skipped
    }

    /// Returns the number of rows that were skipped since the last call.
    pub fn take_skipped(&self) -> u64 {
        self.skipped.swap(0, Ordering::Relaxed)
    }
}

/// One reader of a stream.
enum Subscriber {
    Complete(Sender<RecordBatch>),
    Tap { batches: mpsc::Sender<RecordBatch>, skipped: Arc<AtomicU64> },
}

/// Subscribers by stream.
#[derive(Default)]
pub struct Subscribers(Mutex<HashMap<String, Vec<Subscriber>>>);

impl Subscribers {
    /// Batches of `stream` applied from now on, with the columns of its table.
    ///
    /// A subscriber more than [`SUBSCRIBER_BATCHES_MAX`] behind is cut off: its channel closes, nothing is skipped in
    /// silence. It reads what it missed with SQL.
    pub fn subscribe(&self, stream: &str) -> Receiver<RecordBatch> {
        let (sender, receiver) = bounded(SUBSCRIBER_BATCHES_MAX);
        self.0.lock().entry(stream.to_owned()).or_default().push(Subscriber::Complete(sender));
        receiver
    }

    /// Returns batches of `stream` that are applied from now on, as far as their reader has time for them.
    pub fn tap(&self, stream: &str) -> Tap {
        let (sender, batches) = mpsc::channel(TAP_BATCHES_MAX);
        let skipped = Arc::new(AtomicU64::new(0));
        let tap = Subscriber::Tap { batches: sender, skipped: skipped.clone() };
        self.0.lock().entry(stream.to_owned()).or_default().push(tap);
        Tap { batches, skipped }
    }

    /// Returns whether `stream` has subscribers.
    pub fn has_subscribers(&self, stream: &str) -> bool {
        self.0.lock().get(stream).is_some_and(|s| !s.is_empty())
    }

    /// Hands `batch` to the subscribers of `stream`.
    pub fn publish(&self, stream: &str, batch: &RecordBatch) {
        let mut all = self.0.lock();
        let Some(subscribers) = all.get_mut(stream) else { return };
        subscribers.retain(|subscriber| match subscriber {
            Subscriber::Complete(sender) => match sender.try_send(batch.clone()) {
                Ok(()) => true,
                Err(TrySendError::Full(_)) => {
                    let behind = SUBSCRIBER_BATCHES_MAX;
                    tracing::warn!(stream, behind, "a subscriber was too slow and is cut off");
                    false
                }
                Err(TrySendError::Disconnected(_)) => false,
            },
            Subscriber::Tap { batches, skipped } => offer(batches, skipped, batch),
        });
    }
}

/// Hands a batch to a tap in parts. Returns whether it is still read.
fn offer(batches: &mpsc::Sender<RecordBatch>, skipped: &AtomicU64, batch: &RecordBatch) -> bool {
    let rows = batch.num_rows();
    for start in (0..rows).step_by(TAP_ROWS_MAX) {
        match batches.try_send(batch.slice(start, TAP_ROWS_MAX.min(rows - start))) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                skipped.fetch_add((rows - start) as u64, Ordering::Relaxed);
                break;
            }
            Err(mpsc::error::TrySendError::Closed(_)) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Int64Array;

    #[test]
    fn a_tap_that_nobody_reads_counts_what_it_skips() {
        let rows = Int64Array::from_iter_values(0..3000);
        let batch = RecordBatch::try_from_iter([("n", Arc::new(rows) as _)]).unwrap();
        let subscribers = Subscribers::default();
        let mut tap = subscribers.tap("S");
        for _ in 0..30 {
            subscribers.publish("S", &batch);
        }
        let (mut read, skipped) = (0, tap.take_skipped());
        while let Ok(part) = tap.batches.try_recv() {
            read += part.num_rows() as u64;
        }
        assert_eq!((read + skipped, tap.take_skipped()), (90_000, 0));
        // 21 batches of 1024, 1024 and 952 rows, and the first part of another
        assert_eq!(read, 21 * 3000 + 1024);
        assert!(subscribers.has_subscribers("S"));
        drop(tap);
        subscribers.publish("S", &batch);
        assert!(!subscribers.has_subscribers("S"));
    }
}
