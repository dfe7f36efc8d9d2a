//! Execution of document commands: on the partitions that they go to, once for each statement of a session.

use bson::raw::RawDocument;
use tidemill_docs::{Command, CommandOutcome, DocBytes, FindOptions, Modification};
use tidemill_log::Durability;
use tidemill_types::{Error, Result};

use crate::commit::SessionWrite;
use crate::core::Core;
use crate::document_routing::{RoutedCommand, collection_spec_of, merge_outcomes, route, route_to_all};
use crate::document_snapshot::DocumentSnapshot;
use crate::documents::bad_bson;
use crate::entry::Entry;

/// How often a command on one document looks for another one when it comes too late for the one that it found.
const SEARCH_ATTEMPTS_MAX: usize = 100;

impl Core {
    /// Returns the outcome of a statement of a client session, if it was executed before, in all partitions or in some.
    ///
    /// Errors: `Conflict` if the session has gone on to a later write.
    pub fn session_outcome(&self, session: &SessionWrite) -> Result<Option<CommandOutcome>> {
        for partition in self.partitions() {
            if let Some(outcome) = partition.view().sessions.outcome(session)? {
                return Ok(Some(outcome.clone()));
            }
        }
        Ok(None)
    }

    /// Runs a document command and waits for its outcome, see `Engine::write_documents`; with a session, only once.
    ///
    /// Errors: those of `Engine::write_documents`; `Conflict` if the session has gone on to a later write.
    pub fn write_documents(
        &self,
        command: Command,
        durability: Option<Durability>,
        session: Option<&SessionWrite>,
    ) -> Result<CommandOutcome> {
        if command.inserts() && self.collection_spec(command.collection()).is_err() {
            let spec = self.new_collection(command.collection());
            self.run_commands(route_to_all(self, &Command::CreateCollection(spec)), true, durability, None)?;
        }
        let documents = DocumentSnapshot::now(self);
        let replicated = collection_spec_of(&documents, &command)?.is_some_and(|s| s.replicated);
        let Some((filter, upserts)) = searched(&command) else {
            return self.run_commands(route(self, &documents, command)?, replicated, durability, session);
        };
        // the document may have another partition by now
        if let Some(session) = session
            && let Some(outcome) = self.session_outcome(session)?
        {
            return Ok(outcome);
        }
        let filter = filter.clone();
        for _ in 0..SEARCH_ATTEMPTS_MAX {
            let routed = route(self, &DocumentSnapshot::now(self), command.clone())?;
            let outcome = self.run_commands(routed, replicated, durability, session)?;
            if outcome != CommandOutcome::default() {
                return Ok(outcome);
            }
            // the document that was found may have been changed by another writer before this command
            let filter = RawDocument::from_bytes(&filter).map_err(bad_bson)?;
            let first = FindOptions { limit: Some(1), ..FindOptions::default() };
            if !upserts && DocumentSnapshot::now(self).find(command.collection(), filter, &first)?.is_empty()
            {
                return Ok(outcome);
            }
        }
        Err(Error::conflict(format!(
            "other writers changed every document that was found, {SEARCH_ATTEMPTS_MAX} times: try again"
        )))
    }

    /// Runs routed commands and merges their outcomes. With `same`, every partition does the same work, so
    /// only the first outcome counts.
    fn run_commands(
        &self,
        commands: Vec<RoutedCommand>,
        same: bool,
        durability: Option<Durability>,
        session: Option<&SessionWrite>,
    ) -> Result<CommandOutcome> {
        let entries: Vec<_> = commands
            .iter()
            .map(|r| {
                let command = r.command.to_bytes()?;
                let entry = match session {
                    Some(session) => Entry::SessionCommand { session: session.clone(), command },
                    None => Entry::Command(command),
                };
                Ok((r.partition, entry))
            })
            .collect::<Result<_>>()?;
        let replies = self.write_and_wait(entries, durability)?;
        let outcomes = replies.into_iter().map(|reply| reply.outcome.unwrap_or_default());
        Ok(merge_outcomes(&commands, outcomes, same))
    }
}

/// Returns the filter of a command that first looks for the partition of a document, and whether it inserts one if there is none.
fn searched(command: &Command) -> Option<(&DocBytes, bool)> {
    match command {
        Command::Update { filter, multi, upsert, .. } if *upsert || !multi => Some((filter, *upsert)),
        Command::Delete { filter, multi: false, .. } => Some((filter, false)),
        Command::Replace { filter, upsert, .. } => Some((filter, *upsert)),
        Command::FindAndModify { filter, upsert, change, .. } => {
            Some((filter, *upsert && *change != Modification::Remove))
        }
        Command::Unvalidated(inner) => searched(inner),
        _ => None,
    }
}
