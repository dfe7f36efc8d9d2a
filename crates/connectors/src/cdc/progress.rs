//! How far a source is, as positions of splits.
//!
//! A transaction that is small enough is handed over at once, with the position behind it as that of the split `log`. One
//! that is not is handed over in parts: `transaction` says which it is, and the rows of all such transactions are counted in
//! `rows`, whose count before this one is in `rows before`. Each is stored before the first part.

use std::sync::Arc;

use tidemill_connect::{Message, PendingReceipt, SourceOutput};
use tidemill_types::Result;

/// Names of the splits.
#[derive(Clone)]
pub(super) struct Splits {
    /// Position behind the last transaction.
    pub(super) log: Arc<str>,
    /// Transaction that is handed over in parts.
    pub(super) transaction: Arc<str>,
    /// Rows in parts of all transactions.
    pub(super) rows: Arc<str>,
    /// The same before `transaction`.
    pub(super) rows_before: Arc<str>,
    /// 1 if a replication slot may have been created.
    pub(super) prepared: Arc<str>,
    /// Position of the log at which the first snapshot is.
    pub(super) snapshot_log: Arc<str>,
    /// Keys, or rows, of the snapshot.
    pub(super) snapshot: Arc<str>,
    /// Polled values.
    pub(super) polled: Arc<str>,
}

impl Default for Splits {
    fn default() -> Self {
        Self {
            log: "log".into(),
            transaction: "transaction".into(),
            rows: "rows".into(),
            rows_before: "rows before".into(),
            prepared: "prepared".into(),
            snapshot_log: "snapshot log".into(),
            snapshot: "snapshot".into(),
            polled: "polled".into(),
        }
    }
}

/// Returns a number that orders like `value`.
pub(super) fn encoded(value: i64) -> u64 {
    value as u64 ^ (1 << 63)
}

/// Returns the value before a position, which is the number of a value plus 1; `None` at the beginning.
pub(super) fn decoded(position: u64) -> Option<i64> {
    position.checked_sub(1).map(|number| (number ^ (1 << 63)) as i64)
}

/// Stores a position and waits until it is durable.
pub(super) async fn store(output: &SourceOutput, split: &Arc<str>, position: u64) -> Result<()> {
    output.send_split(split, vec![], position).await?.wait().await.map(drop)
}

/// Hands over messages. Returns the receipt, which need not be waited for.
pub(super) async fn send(
    output: &SourceOutput,
    split: &Arc<str>,
    messages: Vec<Message>,
    position: u64,
) -> Result<PendingReceipt> {
    output.send_split(split, messages, position).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_order() {
        let values = [i64::MIN, -1, 0, 1, i64::MAX - 1];
        assert!(values.is_sorted_by_key(|value| encoded(*value)));
        for value in values {
            assert_eq!(decoded(encoded(value) + 1), Some(value));
        }
        assert_eq!(decoded(0), None);
    }
}
