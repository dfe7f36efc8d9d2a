//! The partition in which rules run, as they see it.

use tidemill_docs::Store;
use tidemill_rules::{ExecutionContext, Program, Route};
use tidemill_types::decode::FieldValue;
use tidemill_types::{PartitionId, partition_of_key};

use crate::dedupe::{Dedupe, values_key};

/// Returns the route of an event with this key; one without a key stays where it was made.
pub fn route(here: PartitionId, partitions: u32, key: Option<&str>) -> Route {
    match key.map(|key| partition_of_key(key.as_bytes(), partitions)) {
        Some(p) if p != here => Route::Remote(p),
        _ => Route::Local,
    }
}

/// State that rules may access in a turn.
pub struct RuleContext<'s> {
    pub store: &'s mut Store,
    pub dedupe: &'s mut std::collections::BTreeMap<String, Dedupe>,
    pub program: &'s Program,
    pub here: PartitionId,
    pub partitions: u32,
}

impl ExecutionContext for RuleContext<'_> {
    fn store(&mut self) -> &mut Store {
        self.store
    }

    fn store_ref(&self) -> &Store {
        self.store
    }

    fn route(&self, _stream: usize, key: Option<&str>) -> Route {
        route(self.here, self.partitions, key)
    }

    fn admit(&mut self, stream: usize, id: &[FieldValue]) -> bool {
        let schema = &self.program.streams()[stream];
        match (self.dedupe.get_mut(&schema.name), values_key(schema, id)) {
            (Some(seen), Some(key)) => seen.admit(key),
            _ => true,
        }
    }
}
