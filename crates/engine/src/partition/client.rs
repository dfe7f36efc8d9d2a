//! Questions to a partition of any owner.
//!
//! ```text
//! let partition = node.client(PartitionId(3))?;     // this process, or a peer
//! partition.catch_up()?;
//! let stored = partition.view()?.ledger.get("Order").map(|counts| counts.stored);
//! ```
//!
//! Callers of documents, rules and queries, sources, and system tables ask through [`PartitionClient`]. Jobs, recovery and the loops of
//! owners work on [`Partition`] itself, because only the owner may.

use std::sync::Arc;

use crossbeam_channel::Sender;
use tidemill_connect::without_waiting;
use tidemill_flow::batch::Batch;
use tidemill_flow::explain::QueryReport;
use tidemill_log::{Durability, Ticket};
use tidemill_rules::why::Selector;
use tidemill_rules::{Counters, Explanation};
use tidemill_types::{ErrorKind, Offset, PartitionId, Result};

use super::Partition;
use crate::apply::ApplyReply;
use crate::entry::Entry;
use crate::queries::UnitName;
use crate::queries::runtime::QueryCountsByFile;
use crate::state::view::PartitionView;

/// Questions that anyone may ask a partition. [`Partition`] answers them in the owner's process.
///
/// Errors of all of them: `Unavailable` when the owner cannot be asked.
pub trait PartitionClient: Send + Sync {
    /// Appends an entry, whose reply comes when it is durable and applied.
    ///
    /// Errors: those of [`tidemill_log::Log::append`]; the entry is then not in the log.
    fn append(
        &self,
        entry: Entry,
        durability: Durability,
        reply: Sender<Result<ApplyReply>>,
    ) -> Result<Ticket>;

    /// Waits until all records below `end` are applied.
    ///
    /// Errors: `Unavailable` when the partition does not get there.
    fn wait_applied(&self, end: Offset) -> Result<()>;

    /// Waits until all records that are in the log now are applied.
    ///
    /// Errors: as [`Self::wait_applied`]; at once if the owner waits for a store of the app.
    fn catch_up(&self) -> Result<()>;

    /// Returns which store of the app the owner waits for, as a sentence; `None` while it waits for none.
    fn waits_for_store(&self) -> Result<Option<String>>;

    /// Returns documents, positions of sources, outcomes of sessions and counts after the last applied batch.
    fn view(&self) -> Result<Arc<PartitionView>>;

    /// Returns the counters of rules and queries after the last applied batch.
    fn counters(&self) -> Result<(Counters, QueryCountsByFile)>;

    /// Returns the rows that an on-demand query finds in the tables, windows and aggregations of a unit.
    ///
    /// Errors: `Invalid` for a query that cannot be run there; `Unavailable` at once if the owner waits for a store of the app.
    fn find_in_unit(&self, unit: &UnitName, query: &str) -> Result<Batch>;

    /// Returns the explanation of a kept event, for one rule or for all; `None` if the event is not among those that are kept.
    ///
    /// Errors: `Invalid` for a rule that does not see the event.
    fn explain_event(&self, selector: &Selector, rule: Option<&str>) -> Result<Option<Explanation>>;

    /// Returns why a query emits nothing; `None` if its unit does not run in the partition.
    ///
    /// Errors: `NotFound` for a key that `partition with` does not have here.
    fn explain_query(&self, unit: &UnitName, query: &str, key: Option<&str>) -> Result<Option<QueryReport>>;
}

/// The processes that own the partitions which this one does not own.
pub trait PartitionPeers: Send + Sync {
    /// Returns the partition as its present owner has it.
    ///
    /// Errors: `Unavailable` when no process is known to own it.
    fn client(&self, id: PartitionId) -> Result<Arc<dyn PartitionClient>>;
}

impl PartitionClient for Partition {
    fn append(
        &self,
        entry: Entry,
        durability: Durability,
        reply: Sender<Result<ApplyReply>>,
    ) -> Result<Ticket> {
        self.host.append(self.id, entry, durability, Some(reply))
    }

    fn wait_applied(&self, end: Offset) -> Result<()> {
        Self::wait_applied(self, end)
    }

    fn catch_up(&self) -> Result<()> {
        Self::catch_up(self)
    }

    fn waits_for_store(&self) -> Result<Option<String>> {
        Ok(Self::waits_for_store(self))
    }

    fn view(&self) -> Result<Arc<PartitionView>> {
        Ok(Self::view(self))
    }

    fn counters(&self) -> Result<(Counters, QueryCountsByFile)> {
        Ok(self.counters.copy())
    }

    fn find_in_unit(&self, unit: &UnitName, query: &str) -> Result<Batch> {
        let unit = self.app.deployment.queries.unit(unit)?;
        let state = self.read_state()?;
        without_waiting(|| state.read_queries(|flow| flow.on_demand(unit, query)))
    }

    fn explain_event(&self, selector: &Selector, rule: Option<&str>) -> Result<Option<Explanation>> {
        match self.read_state()?.trace.explain(&self.app.deployment.program, selector, rule) {
            Ok(explanation) => Ok(Some(explanation)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn explain_query(&self, unit: &UnitName, query: &str, key: Option<&str>) -> Result<Option<QueryReport>> {
        let unit = self.app.deployment.queries.unit(unit)?;
        self.read_state()?.read_queries(|flow| flow.why(unit, query, key)).transpose()
    }
}
