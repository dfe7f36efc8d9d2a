//! Application of transactions on documents.

use bytes::Bytes;
use tidemill_docs::{CommandOutcome, DocsError, DocumentCommand, ErrorCode, Sequence, TransactionWrites};
use tidemill_types::{Error, Result, Timestamp};

use super::{ApplyReply, RecordApplier, check_place};
use crate::commit::{Decision, SessionWrite, TransactionPart};
use crate::deployment::Deployment;
use crate::entry::{ArrivalKind, Entry, next_order, ordered_parts};
use crate::state::PartitionState;

impl RecordApplier<'_> {
    /// Emits the parts of a transaction, with the next place among the transactions.
    pub(super) fn order_transaction(&mut self, state: &mut PartitionState, parts: Vec<TransactionPart>) {
        state.transaction_order = next_order(state.transaction_order, self.time);
        for emission in ordered_parts(parts, state.transaction_order, (self.id, self.offset)) {
            if let (Some(digest), Entry::Transaction(part)) = (&mut self.digest, &emission.entry) {
                digest.transaction_part(emission.target, part);
            }
            self.applied.emissions.push(emission);
        }
    }

    /// Returns whether a part of a transaction that another partition has ordered was applied before, and notes it otherwise.
    pub(super) fn is_repeated(&mut self, state: &mut PartitionState, part: &TransactionPart) -> bool {
        let Some(cause) = part.cause else { return false };
        let is_repeated = !state.note_arrival(ArrivalKind::Transaction, cause);
        if let Some(digest) = &mut self.digest {
            digest.arrival(is_repeated);
        }
        is_repeated
    }

    /// Applies the writes of a transaction. One of several partitions has been decided on; one of this
    /// partition alone is committed if its documents have not changed meanwhile. The inner result is for the
    /// caller.
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
        if let (Some(places), Some(decision)) = (&part.places, &decision) {
            return self.ordered_insert(state, part, places, decision.clone());
        }
        let writes = TransactionWrites::from_bytes(&part.writes)?;
        let Some(decision) = decision else {
            let done = state.store.commit(&writes, part.since.0, Timestamp(part.order)).map_err(Error::from);
            return Ok(done.map(|()| {
                self.remember(state, part.session.as_ref(), CommandOutcome::default());
                outcome()
            }));
        };
        let committed = decision.committed;
        state.decide(part.id, decision);
        if !committed {
            return Ok(Err(conflict().into()));
        }
        let done = state.store.commit(&writes, part.since.0, Timestamp(part.order));
        done.map_err(|e| Error::internal(format!("a transaction that is decided cannot be committed: {e}")))?;
        self.remember(state, part.session.as_ref(), CommandOutcome::default());
        Ok(Ok(outcome()))
    }

    /// Inserts the documents before the first that a partition refuses. The outcome reports the one that this
    /// partition refuses.
    fn ordered_insert(
        &self,
        state: &mut PartitionState,
        part: &TransactionPart,
        places: &[u32],
        decision: Decision,
    ) -> Result<Result<ApplyReply>> {
        let (committed, refused) = (decision.committed, decision.refused);
        state.decide(part.id, decision);
        let command = DocumentCommand::from_bytes(&part.writes)?;
        let known = part.session.as_ref().map(|session| state.sessions.outcome(session)).transpose();
        let known = match known {
            Ok(known) => known.flatten().cloned(),
            Err(e) => return Ok(Err(e.into())),
        };
        if !committed {
            let message = format!(
                "the collection `{}` was changed while documents were inserted, and none was: send them again",
                command.collection()
            );
            return Ok(Err(Error::unavailable(message)));
        }
        if known.is_some() {
            return Ok(Ok(ApplyReply { outcome: known, ..ApplyReply::default() }));
        }
        let count = refused.map_or(places.len(), |refused| places.partition_point(|place| *place <= refused));
        let outcome = match count {
            0 => CommandOutcome::default(),
            count => {
                let order = Timestamp(part.order);
                let sequences = places[..count].iter().map(|place| Sequence::new(order, *place)).collect();
                let command = command.with_documents(0..count).with_sequences(sequences);
                state.store.apply(&command, self.time)?
            }
        };
        self.remember(state, part.session.as_ref(), outcome.clone());
        Ok(Ok(ApplyReply { outcome: Some(outcome), ..ApplyReply::default() }))
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

/// Returns which document of its part of an ordered insert a partition refuses first.
///
/// Errors: it cannot insert at all.
pub fn first_refused(
    deployment: &Deployment,
    state: &mut PartitionState,
    part: &TransactionPart,
) -> Result<Option<usize>> {
    if let Some(session) = &part.session
        && state.sessions.outcome(session)?.is_some()
    {
        return Ok(None);
    }
    let command = DocumentCommand::from_bytes(&part.writes)?;
    check_place(deployment, state, &command)?;
    Ok(state.store.first_refused(&command)?)
}

fn conflict() -> DocsError {
    let message =
        "another writer has changed a document of the transaction since it began: run the transaction again";
    DocsError::new(ErrorCode::WriteConflict, message)
}
