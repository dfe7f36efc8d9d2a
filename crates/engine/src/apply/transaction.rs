//! Application of transactions on documents.

use tidemill_docs::{CommandOutcome, DocsError, ErrorCode, TransactionWrites};
use tidemill_types::{Error, Result};

use super::{ApplyReply, RecordApplier};
use crate::commit::{Decision, TransactionPart};
use crate::state::PartitionState;

impl RecordApplier<'_> {
    /// Applies the writes of a transaction. One of several partitions has been decided on; one of this partition alone is
    /// committed if nobody has changed its documents meanwhile. The inner result is for the caller.
    ///
    /// Errors: the decision cannot be followed.
    pub(super) fn transaction(
        &self,
        state: &mut PartitionState,
        part: &TransactionPart,
        decision: Option<Decision>,
    ) -> Result<Result<ApplyReply>> {
        let reply = ApplyReply { outcome: Some(CommandOutcome::default()), ..ApplyReply::default() };
        let writes = TransactionWrites::from_bytes(&part.writes)?;
        let Some(decision) = decision else {
            return Ok(state.store.commit(&writes, part.since.0).map(|()| reply).map_err(Error::from));
        };
        let committed = decision.committed;
        state.decisions.insert(part.id, decision);
        if !committed {
            return Ok(Err(conflict().into()));
        }
        let done = state.store.commit(&writes, part.since.0);
        done.map_err(|e| Error::internal(format!("a transaction that is decided cannot be committed: {e}")))?;
        Ok(Ok(reply))
    }
}

fn conflict() -> DocsError {
    let message =
        "another writer has changed a document of the transaction since it began: run the transaction again";
    DocsError::new(ErrorCode::WriteConflict, message)
}
