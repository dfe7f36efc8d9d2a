//! Application of transactions on documents.

use bytes::Bytes;
use tidemill_docs::{CommandOutcome, DocsError, ErrorCode, TransactionWrites};
use tidemill_types::{Error, Result};

use super::{ApplyReply, RecordApplier};
use crate::commit::{Decision, SessionWrite, TransactionPart};
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
        let outcome = || ApplyReply { outcome: Some(CommandOutcome::default()), ..ApplyReply::default() };
        if let Some(session) = &part.session
            && decision.is_none()
        {
            match state.sessions.outcome(session) {
                Ok(None) => {}
                Ok(Some(_)) => return Ok(Ok(outcome())),
                Err(e) => return Ok(Err(e.into())),
            }
        }
        let writes = TransactionWrites::from_bytes(&part.writes)?;
        let Some(decision) = decision else {
            let done = state.store.commit(&writes, part.since.0).map_err(Error::from);
            return Ok(done.map(|()| {
                self.remember(state, part.session.as_ref(), CommandOutcome::default());
                outcome()
            }));
        };
        let committed = decision.committed;
        state.decisions.insert(part.id, decision);
        if !committed {
            return Ok(Err(conflict().into()));
        }
        let done = state.store.commit(&writes, part.since.0);
        done.map_err(|e| Error::internal(format!("a transaction that is decided cannot be committed: {e}")))?;
        self.remember(state, part.session.as_ref(), CommandOutcome::default());
        Ok(Ok(outcome()))
    }

    /// Runs a document command of a client session, unless the session has sent it before: then the outcome is the one that it had.
    pub(super) fn session_command(
        &self,
        state: &mut PartitionState,
        session: &SessionWrite,
        command: &Bytes,
    ) -> Result<ApplyReply> {
        if let Some(known) = state.sessions.outcome(session)? {
            return Ok(ApplyReply { outcome: Some(known.clone()), ..ApplyReply::default() });
        }
        let reply = self.command(state, command)?;
        // a command that found nothing may look for a document again, here or in another partition
        if let Some(outcome) = reply.outcome.as_ref().filter(|outcome| **outcome != CommandOutcome::default())
        {
            self.remember(state, Some(session), outcome.clone());
        }
        Ok(reply)
    }

    fn remember(&self, state: &mut PartitionState, session: Option<&SessionWrite>, outcome: CommandOutcome) {
        if let Some(session) = session {
            state.sessions.remember(session, self.offset, outcome);
        }
    }
}

fn conflict() -> DocsError {
    let message =
        "another writer has changed a document of the transaction since it began: run the transaction again";
    DocsError::new(ErrorCode::WriteConflict, message)
}
