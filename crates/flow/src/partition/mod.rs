//! Partitions: queries whose state is apart for each key.
//!
//! The queries are compiled once ([`PartitionPlan`]). Each key has an instance of them, which begins at the key's first
//! event and shares their plans; a query of it is made when the first event reaches it, unless it has to wait for
//! something from the beginning. Timers of all keys lie ordered by scheduler: what is due next is known without looking
//! at the keys.

mod instances;
mod keys;
mod plan;
mod rewrite;
mod snapshot;
mod why;

pub use instances::{KeyId, Partition};
pub use keys::{KeyRun, Route};
pub use plan::{IdleKeyPurge, KeyPart, PartitionPlan, StreamKeys};
pub(crate) use rewrite::{rewrite_as_group_by, split_by_key};

#[cfg(test)]
mod tests;
