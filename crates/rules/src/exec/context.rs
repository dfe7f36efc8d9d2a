//! What a turn may touch besides its own memory.

use tidemill_docs::Store;
use tidemill_types::PartitionId;
use tidemill_types::decode::FieldValue;

use crate::expr::RuleValue;
use crate::expr::row::cell_value;

/// The partition in which rules run, as they see it.
pub trait ExecutionContext {
    /// The documents of the partition, to change them.
    fn store(&mut self) -> &mut Store;

    /// The documents of the partition.
    fn store_ref(&self) -> &Store;

    /// Where an emitted event belongs. `key`: its key as text, see [`key_text`]; `None` when the stream has no key.
    fn route(&self, stream: usize, key: Option<&str>) -> Route;

    /// Whether an emitted event that belongs here is the first with these `id` values. `id` is never empty.
    fn admit(&mut self, stream: usize, id: &[FieldValue]) -> bool;
}

/// Where an event belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// In this partition: it is applied in the same turn.
    Local,
    /// In another one: it goes there through the log.
    Remote(PartitionId),
}

/// The text of a key, which is what is hashed: text as it is, numbers in decimal, times as RFC 3339, and nothing
/// for a missing key.
pub fn key_text(cell: &FieldValue) -> String {
    match cell_value(cell) {
        RuleValue::Missing | RuleValue::Null => String::new(),
        RuleValue::Str(s) => s.into_owned(),
        other => other.to_string(),
    }
}
