//! Partitions: queries with a separate state for each key.
//!
//! The queries are compiled once ([`PartitionPlan`]). Each key has an instance of them, which begins with the
//! key's first event and shares the plans. A query of an instance is created when the first event reaches it,
//! unless it has to wait for a timer from the beginning. The timers of all keys are ordered by scheduler, so
//! that the next one is found without visiting the keys.

mod batch;
mod instances;
mod keys;
mod plan;
mod saving;
mod snapshot;
mod why;

pub(crate) use batch::ChunkRun;
pub use instances::{KeyId, PartitionRuntime};
pub use keys::EventDestination;
pub use plan::{IdleKeyPurge, KeyPart, PartitionPlan, StreamKeys};

#[cfg(test)]
mod tests;
