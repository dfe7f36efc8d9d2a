//! A node: one process at work.

use std::sync::Arc;

use crate::api::LedgerCounts;
use crate::host::Host;
use crate::partition::OwnedPartitions;
use crate::running_app::RunningApp;

/// The parts of a running engine, by lifetime.
pub struct Node {
    /// Devices and services of the process.
    pub host: Arc<Host>,
    /// The app that it runs.
    pub app: Arc<RunningApp>,
    /// Partitions that it owns.
    pub owned: OwnedPartitions,
}

impl Node {
    /// Creates a node that owns no partition yet.
    pub fn new(host: Host, app: RunningApp) -> Self {
        Self { host: Arc::new(host), app: Arc::new(app), owned: OwnedPartitions::default() }
    }

    /// Asks loops and retries to end, those in stores of the app's tables as well.
    pub fn set_stopping(&self) {
        self.host.set_stopping();
        self.app.deployment.queries.stores.stop();
    }

    /// Returns the ledger of `stream` over the partitions of this node.
    pub fn ledger(&self, stream: &str) -> LedgerCounts {
        let mut total = LedgerCounts::default();
        for partition in &self.owned.all() {
            if let Some(counts) = partition.view().ledger.get(stream) {
                total.add(counts);
            }
        }
        total
    }
}
