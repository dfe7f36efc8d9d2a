//! Updates of many documents, which end at the first document that is refused, over several partitions.

use tidemill_types::Timestamp;

use super::{DocumentCommand, document};
use crate::collation::Collation;
use crate::collection::Collection;
use crate::error::Result;
use crate::filter::Filter;
use crate::found::{FoundDocuments, counts_up_to_first};
use crate::sort::SortOrder;
use crate::update::Update;

/// Trial of an update of many documents in one partition.
pub struct UpdateTrial<'c> {
    found: FoundDocuments<'c>,
    /// Number of the documents before the first that it refuses.
    failing: Option<usize>,
}

impl Collection {
    /// Tries an update of many documents, and changes nothing; `None` if it refuses no document, whatever the documents are.
    ///
    /// Errors: those of the command.
    pub fn try_update(
        &self,
        command: &DocumentCommand,
        collation: Option<&Collation>,
        now: Timestamp,
    ) -> Result<Option<UpdateTrial<'_>>> {
        let DocumentCommand::Update { filter, update, multi: true, .. } = command.plain() else {
            return Ok(None);
        };
        let filter = Filter::parse_by(document("filter", filter)?, collation)?;
        let update = Update::parse_by(document("update", update)?, now, collation)?;
        let validates = !command.is_unvalidated();
        if !self.may_refuse(&update, validates) {
            return Ok(None);
        }
        let found = self.find_for_write(&filter, &SortOrder::default(), None)?;
        let failing = self.first_refused_update(found.slots(), &filter, &update, validates, now)?;
        Ok(Some(UpdateTrial { found, failing }))
    }
}

/// Returns how many documents each partition changes, up to the first over all partitions that one of them refuses, with it; `None` if
/// none is refused.
pub fn update_limits(trials: Vec<UpdateTrial<'_>>) -> Option<Vec<u64>> {
    let (found, failing): (Vec<_>, Vec<_>) =
        trials.into_iter().map(|trial| (trial.found, trial.failing)).unzip();
    counts_up_to_first(&found, &failing)
}

impl DocumentCommand {
    /// Returns the update of many documents that changes at most the first of them.
    pub fn with_first(self, documents: u64) -> Self {
        match self {
            Self::Unvalidated(inner) => inner.with_first(documents).without_validation(),
            Self::Collated { collation, command } => {
                Self::Collated { collation, command: Box::new(command.with_first(documents)) }
            }
            command => Self::First { documents, command: Box::new(command) },
        }
    }

    fn is_unvalidated(&self) -> bool {
        match self {
            Self::Unvalidated(_) => true,
            Self::Collated { command, .. } => command.is_unvalidated(),
            _ => false,
        }
    }
}
