//! A running engine: its services and its partitions.

use std::ops::Deref;
use std::sync::OnceLock;

use crate::api::LedgerCounts;
use crate::partition::Partition;
use crate::services::Services;

/// Services of an engine with the partitions that use them.
///
/// It dereferences to its [`Services`]: most of its users need a partition here and a service there.
pub struct Core {
    services: Services,
    partitions: OnceLock<Vec<Partition>>,
}

impl Deref for Core {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

impl Core {
    /// Creates a core without partitions; [`Self::set_partitions`] follows.
    pub fn new(services: Services) -> Self {
        Self { services, partitions: OnceLock::new() }
    }

    /// Sets the recovered partitions, once.
    pub fn set_partitions(&self, partitions: Vec<Partition>) {
        let first_time = self.partitions.set(partitions).is_ok();
        debug_assert!(first_time, "partitions are recovered once");
    }

    /// Returns all partitions, by id.
    pub fn partitions(&self) -> &[Partition] {
        self.partitions.get().map_or(&[], Vec::as_slice)
    }

    /// Returns the ledger of `stream` over all partitions.
    pub fn ledger(&self, stream: &str) -> LedgerCounts {
        let mut total = LedgerCounts::default();
        for partition in self.partitions() {
            if let Some(counts) = partition.view().ledger.get(stream) {
                total.add(counts);
            }
        }
        total
    }
}
