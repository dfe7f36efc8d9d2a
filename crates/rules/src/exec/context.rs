//! The interface between rule execution and the partition it runs in.

use tidemill_docs::Store;
use tidemill_types::PartitionId;
use tidemill_types::decode::FieldValue;

use crate::expr::RuleValue;
use crate::expr::row::cell_value;

/// The partition in which rules run, as seen by the [`Executor`](super::Executor).
pub trait ExecutionContext {
    /// Returns the documents of the partition for changing them.
    fn store(&mut self) -> &mut Store;

    /// Returns the documents of the partition.
    fn store_ref(&self) -> &Store;

    /// Decides which partition an emitted event belongs to. `key` is its key as a string, see [`key_text`];
    /// `None` when the stream has no key.
    fn route(&self, stream: usize, key: Option<&str>) -> Route;

    /// Returns whether an emitted event that belongs here is the first with these `id` values. `id` is never
    /// empty.
    fn admit(&mut self, stream: usize, id: &[FieldValue]) -> bool;
}

/// The partition that an event belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// This partition: the event is applied in the same run.
    Local,
    /// Another partition: the event is forwarded through the log.
    Remote(PartitionId),
}

/// Returns the string form of a key, which is what gets hashed: strings unchanged, numbers in decimal, times
/// as RFC 3339, and the empty string for a missing key.
pub fn key_text(cell: &FieldValue) -> String {
    match cell_value(cell) {
        RuleValue::Missing | RuleValue::Null => String::new(),
        RuleValue::Str(s) => s.into_owned(),
        other => other.to_string(),
    }
}
