//! Records that are set aside, for callers.

use tidemill_log::Durability;
use tidemill_types::{Error, PartitionId, Result};

use super::Engine;
use crate::state::set_aside::SetAsideRecord;

impl Engine {
    /// Returns the records that stopped their partition: rules and queries do not see them, or will not from the next start on.
    pub fn set_aside_records(&self) -> Vec<SetAsideRecord> {
        self.node.host.set_aside.all()
    }

    /// Runs rules and queries on the events of a record that is set aside, now, and takes it off the list. `id` is that of
    /// [`SetAsideRecord::id`]. Returns the messages of rule firings that failed.
    ///
    /// Should it stop its partition again, it is set aside again, as the record that it is now.
    ///
    /// Errors: `NotFound`; `Conflict` before the next start; `Invalid` when the app has lost a stream of the events;
    /// `Unavailable` when the log takes no records or the record stops its partition.
    pub fn rerun_record(&self, id: &str) -> Result<Vec<String>> {
        let note = self.node.host.set_aside.find(id)?;
        let entry = note.entry(&self.node.app.deployment.streams)?;
        let partition = PartitionId(note.partition);
        let (sender, reply) = crossbeam_channel::bounded(1);
        let ticket = self.node.host.append(partition, entry, Durability::Fsync, Some(sender))?;
        let offset = ticket.wait_assigned()?.offset;
        // after a crash before the record is forgotten it may run twice, but never not at all
        self.node.host.log.sync(partition, offset, Durability::Fsync)?;
        self.node.host.set_aside.forget(&note)?;
        let failed = || {
            let message = format!(
                "record {id} could not be applied again, as record {partition}/{offset}; /readyz says why"
            );
            Err(Error::unavailable(message))
        };
        Ok(reply.recv().unwrap_or_else(|_| failed())?.rule_errors)
    }

    /// Takes a record that is set aside off the list. Its events stay stored.
    ///
    /// Errors: `NotFound`; `Conflict` before the next start; `Unavailable`.
    pub fn forget_record(&self, id: &str) -> Result<()> {
        self.node.host.set_aside.forget(&self.node.host.set_aside.find(id)?)
    }
}
