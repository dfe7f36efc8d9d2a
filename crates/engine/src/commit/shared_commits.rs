//! The last transactions that a partition has committed together with others.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_types::{Offset, PartitionId};

use super::{Decision, Decisions};

/// By other partition, the offset in *its* log of the last transaction that both have committed. A clone shares them.
///
/// Readers that see this partition after that transaction must see the other one after the record, see
/// [`crate::documents::snapshot`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SharedCommits(Arc<BTreeMap<u32, Offset>>);

impl SharedCommits {
    /// Returns those of a partition with these decisions.
    pub fn of(partition: PartitionId, decisions: &Decisions) -> Self {
        let mut shared = Self::default();
        decisions.values().for_each(|decision| shared.note(partition, decision));
        shared
    }

    /// Notes a decision of the partition `own`.
    pub fn note(&mut self, own: PartitionId, decision: &Decision) {
        if !decision.committed {
            return;
        }
        for (other, offset) in decision.offsets.iter().filter(|(other, _)| **other != own.0) {
            let last = Arc::make_mut(&mut self.0).entry(*other).or_default();
            *last = (*last).max(*offset);
        }
    }

    /// Returns the partitions, and the offset after the last transaction in the log of each.
    pub fn needs(&self) -> impl Iterator<Item = (PartitionId, Offset)> + '_ {
        self.0.iter().map(|(other, offset)| (PartitionId(*other), offset.next()))
    }
}
