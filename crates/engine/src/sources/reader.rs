//! The reader of the sources: a process that is alone, or one node of a cluster after the other.
//!
//! ```text
//! log of each partition   … rows of A (epoch 7) │ claim of B (epoch 9) │ rows of B │ rows of A that were late: do not count
//! ```
//!
//! The node that owns the first partition reads all sources. It *claims* them by a record in each log, and begins where its replicas are after that
//! record. So a former reader that does not know yet that it is one doubles nothing: what it appends behind the claim does not count, and the
//! new reader has read those rows itself. It loses nothing either: it acknowledges rows to the other side only when they have counted.

use std::sync::Arc;
use std::time::Duration;

use tidemill_log::Durability;
use tidemill_types::{Error, Offset, PartitionId, Result};

use super::append::append_with_retry;
use crate::entry::Entry;
use crate::node::Node;

/// Interval at which a node looks whether it is its turn to read.
const TURN_POLL: Duration = Duration::from_millis(50);
/// Area of the problems of a node that cannot claim the sources.
const AREA: &str = "sources";

/// The right to read the sources of the app, as long as it lasts.
pub(super) struct SourceReader {
    node: Arc<Node>,
    /// Epoch in which the node owns the partition whose owner reads; `None` for a process that is alone.
    epoch: Option<u64>,
}

impl SourceReader {
    /// Returns the reader of a process that is alone, and that of sources that a caller brings.
    pub fn alone(node: &Arc<Node>) -> Self {
        Self { node: node.clone(), epoch: None }
    }

    /// Claims the sources for this node.
    ///
    /// Errors: `Unavailable` if the logs cannot be written to, or the replicas here do not apply the claim.
    fn claim(node: &Arc<Node>, epoch: u64) -> Result<Self> {
        let mut replies = Vec::new();
        for partition in node.clients()? {
            let (ticket, reply) = partition.append(Entry::ClaimSources { epoch }, Durability::Fsync)?;
            replies.push((ticket.wait_assigned()?.offset, reply));
        }
        for (offset, reply) in replies {
            reply.wait(offset)?;
        }
        Ok(Self { node: node.clone(), epoch: Some(epoch) })
    }

    /// Returns the node.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Returns the epoch that records of the sources have.
    pub fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// Returns whether reading has to end: the engine stops, or another node reads.
    pub fn is_stopping(&self) -> bool {
        self.node.app.sources_stopping() || self.epoch.is_some_and(|own| turn(&self.node) != Some(own))
    }

    /// Appends an entry, as [`append_with_retry`] does, and returns its offset.
    ///
    /// Errors: why the log never takes the entry, or reading has to end.
    pub fn append(&self, p: usize, entry: impl Fn() -> Entry) -> Result<Offset> {
        Ok(append_with_retry(&self.node, p, || self.is_stopping(), entry)?.offset)
    }

    /// Checks that records of this reader have counted.
    ///
    /// Errors: `Unavailable` if another node may have claimed the sources before them, which reads their rows again.
    pub fn check_counted(&self, records: &[(PartitionId, Offset)]) -> Result<()> {
        let Some(epoch) = self.epoch else { return Ok(()) };
        for (partition, offset) in records {
            let client = self.node.client(*partition)?;
            client.wait_applied(offset.next())?;
            let reads = match self.node.with_view(*partition, |view| view.source_epoch) {
                Some(epoch) => epoch,
                None => client.progress()?.source_epoch,
            };
            if reads > epoch {
                return Err(Error::unavailable("another node of the cluster reads the sources now"));
            }
        }
        Ok(())
    }

    /// Reports why a source is not read. One that ended because another node reads has no problem.
    pub fn report(&self, source: &str, error: &Error) {
        if !self.is_stopping() {
            self.node.host.health.report_source_problem(source, error);
        }
    }
}

/// Returns the epoch in which this node may read; `None` while it is not its turn.
fn turn(node: &Node) -> Option<u64> {
    node.cluster.get()?.owned_epoch(PartitionId::FIRST, &*node.host.clock)
}

/// Calls `read` whenever it is the turn of this node, until the engine stops.
pub(super) fn take_turns(node: &Arc<Node>, read: impl Fn(&SourceReader)) {
    let mut done = None;
    while !node.app.sources_stopping() {
        // those that have come to their end are not read again in the same epoch
        if let Some(epoch) = turn(node).filter(|epoch| done != Some(*epoch)) {
            match SourceReader::claim(node, epoch) {
                Ok(reader) => {
                    node.host.health.clear_problem(AREA);
                    tracing::info!(epoch, "this node reads the sources");
                    read(&reader);
                    done = Some(epoch);
                }
                Err(e) => node.host.health.report_problem(AREA, format!("the sources are not read: {e}")),
            }
        }
        node.host.clock.sleep(TURN_POLL);
    }
}
