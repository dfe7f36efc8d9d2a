//! Counts and positions of a partition.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidemill_types::Offset;

use super::Partition;
use crate::api::LedgerCounts;
use crate::state::TransferCounts;
use crate::state::view::PartitionView;

/// Counts and positions of a partition after its last applied batch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionProgress {
    /// Offset after the last applied record.
    pub next: Offset,
    /// Next position of each source.
    pub sources: BTreeMap<String, u64>,
    /// Epoch of the node that reads the sources, 0 before one of a cluster has claimed them.
    pub source_epoch: u64,
    /// Rows received and stored, by stream.
    pub ledger: BTreeMap<String, LedgerCounts>,
    /// Rows sent to other partitions and received from them.
    pub transfers: TransferCounts,
    /// Its collections.
    pub collections: Vec<CollectionSize>,
    /// Rows that are in no file yet, by stream.
    pub tail_rows: BTreeMap<String, u64>,
}

/// The documents of a collection in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionSize {
    /// Name.
    pub name: String,
    /// True if every partition has a copy of all documents.
    pub replicated: bool,
    /// Number of documents.
    pub documents: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl PartitionProgress {
    fn of(view: &PartitionView) -> Self {
        let collections = view.documents.collections().map(|collection| CollectionSize {
            name: collection.spec().name.clone(),
            replicated: collection.spec().replicated,
            documents: collection.len() as u64,
            bytes: collection.bytes(),
        });
        Self {
            next: view.next,
            sources: BTreeMap::clone(&view.sources),
            source_epoch: view.source_epoch,
            ledger: view.ledger.iter().map(|(stream, counts)| (stream.to_string(), *counts)).collect(),
            transfers: TransferCounts::clone(&view.transfers),
            collections: collections.collect(),
            tail_rows: BTreeMap::new(),
        }
    }
}

impl Partition {
    /// Returns its counts and positions after the last applied batch.
    pub fn progress(&self) -> PartitionProgress {
        let tables = self.app.tables.writable();
        let tail_rows = tables.map(|(stream, table)| (stream.name.clone(), table.pending_rows_of(self.id)));
        PartitionProgress { tail_rows: tail_rows.collect(), ..self.with_view(PartitionProgress::of) }
    }
}
