//! Execution of document commands: on the partitions that they go to, once for each statement of a session.

use std::sync::Arc;

use bson::raw::RawDocument;
use tidemill_docs::{CommandOutcome, DocBytes, DocumentCommand, FindOptions, Modification, update_limits};
use tidemill_log::Durability;
use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::commit::{SessionWrite, TransactionId, TransactionPart};
use crate::document_parts::bad_bson;
use crate::document_parts::part::WantedDocuments;
use crate::documents::PendingReplies;
use crate::documents::routing::{
    RoutedCommand, collation_of, collection_spec_of, filter_of, in_order_of_request, merge_outcomes, route,
    route_to_all,
};
use crate::documents::snapshot::DocumentSnapshot;
use crate::entry::Entry;
use crate::node::Node;

/// Maximum number of times that a command on one document looks for one, as it may come too late for the one
/// that it found.
const SEARCH_ATTEMPTS_MAX: usize = 100;

impl Node {
    /// Returns the outcome of a statement of a client session, if it was executed before, in all partitions or in some.
    ///
    /// Errors: `Conflict` if the session has gone on to a later write.
    pub fn session_outcome(&self, session: &SessionWrite) -> Result<Option<CommandOutcome>> {
        for id in self.host.partition_ids() {
            let here = self.with_view(id, |view| view.sessions.outcome(session).map(Option::<&_>::cloned));
            let outcome = match here {
                Some(outcome) => outcome?,
                None => self.client(id)?.session_outcome(session)?,
            };
            if outcome.is_some() {
                return Ok(outcome);
            }
        }
        Ok(None)
    }

    /// Runs a document command and waits for its outcome, see `Engine::write_documents`; with a session, only once.
    ///
    /// Errors: those of `Engine::write_documents`; `Conflict` if the session has gone on to a later write.
    pub fn write_documents(
        self: &Arc<Self>,
        command: DocumentCommand,
        durability: Option<Durability>,
        session: Option<&SessionWrite>,
    ) -> Result<CommandOutcome> {
        self.submit_documents(command, durability, session)?.wait()
    }

    /// Creates a collection in all partitions, unless there is one of that name.
    ///
    /// Errors: those of the log.
    pub fn create_missing_collection(
        self: &Arc<Self>,
        name: &str,
        durability: Option<Durability>,
    ) -> Result<()> {
        if self.collection_spec(name).is_ok() {
            return Ok(());
        }
        let create = route_to_all(self, &DocumentCommand::CreateCollection(self.new_collection(name)));
        self.append_commands(create, true, durability, None)?.wait().map(drop)
    }

    /// Appends a document command to the logs of its partitions.
    ///
    /// Errors: as [`Self::write_documents`], those of the documents themselves excepted.
    pub fn submit_documents(
        self: &Arc<Self>,
        command: DocumentCommand,
        durability: Option<Durability>,
        session: Option<&SessionWrite>,
    ) -> Result<DocumentWrite> {
        let command = self.with_entity_definition(command)?;
        if command.inserts() {
            self.create_missing_collection(command.collection(), durability)?;
        }
        let documents = DocumentSnapshot::now(self)?;
        let replicated = collection_spec_of(&documents, &command)?.is_some_and(|s| s.replicated);
        let mut search = None;
        if searched(&command).is_some() {
            // the document may have another partition by now
            if let Some(session) = session
                && let Some(outcome) = self.session_outcome(session)?
            {
                return Ok(DocumentWrite { progress: WriteProgress::Known(outcome), search });
            }
            search = Some(DocumentSearch {
                node: self.clone(),
                command: command.clone(),
                replicated,
                durability,
                session: session.cloned(),
            });
        }
        let ordered = command.is_ordered_insert() && !replicated;
        let inserts = command.inserts() && !replicated;
        let mut routed = route(self, &documents, command)?;
        if ordered && routed.len() > 1 {
            let appended = self.append_ordered_insert(routed, durability, session)?;
            return Ok(DocumentWrite { progress: WriteProgress::Appended(appended), search });
        }
        if routed.len() > 1 && !replicated {
            routed = self.up_to_first_refused(&documents, routed)?;
        }
        if inserts && routed.len() > 1 {
            routed = in_order_of_request(routed, self.host.commits.time_of_statement(self.host.clock.now()));
        }
        let appended = self.append_commands(routed, replicated, durability, session)?;
        Ok(DocumentWrite { progress: WriteProgress::Appended(appended), search })
    }

    /// Cuts an update of many documents of several partitions behind the first document that it refuses, in their order. It is found in the
    /// documents of the moment: what others write before the update is applied may change which one it is.
    fn up_to_first_refused(
        &self,
        documents: &DocumentSnapshot,
        routed: Vec<RoutedCommand>,
    ) -> Result<Vec<RoutedCommand>> {
        let Some(command) = routed.first().map(|part| &part.command) else { return Ok(routed) };
        if !command.updates_many() {
            return Ok(routed);
        }
        let (collation, now) = (collation_of(documents, command)?, self.host.clock.now());
        let filter = filter_of(command)
            .map(|filter| documents.parsed_bytes(filter, collation.as_ref()))
            .transpose()?;
        let wanted = WantedDocuments { filter: filter.as_ref(), ..WantedDocuments::default() };
        let parts = documents.parts(command.collection(), &wanted)?;
        let with_documents = parts.iter().filter(|(_, part)| part.get().is_some_and(|part| !part.is_empty()));
        // one partition ends there by itself
        if with_documents.count() < 2 {
            return Ok(routed);
        }
        let mut trials = Vec::new();
        for part in &routed {
            let of = parts.iter().find(|(at, _)| *at == part.partition.0 as usize);
            let Some(collection) = of.and_then(|(_, part)| part.get()) else { return Ok(routed) };
            match collection.try_update(command, collation.as_ref(), now)? {
                Some(trial) => trials.push(trial),
                None => return Ok(routed),
            }
        }
        let Some(limits) = update_limits(trials) else { return Ok(routed) };
        let cut = routed.into_iter().zip(limits).filter(|(_, limit)| *limit > 0);
        Ok(cut
            .map(|(part, limit)| RoutedCommand { command: part.command.with_first(limit), ..part })
            .collect())
    }

    /// Appends routed commands. With `same`, every partition does the same work, so only the first outcome counts.
    fn append_commands(
        &self,
        commands: Vec<RoutedCommand>,
        same: bool,
        durability: Option<Durability>,
        session: Option<&SessionWrite>,
    ) -> Result<AppendedCommands> {
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
        let replies = self.append_all(entries, durability)?;
        Ok(AppendedCommands { commands, replies, same })
    }
}

impl Node {
    /// Appends the parts of an ordered insert, whose partitions decide together which document is the first that is refused.
    fn append_ordered_insert(
        &self,
        commands: Vec<RoutedCommand>,
        durability: Option<Durability>,
        session: Option<&SessionWrite>,
    ) -> Result<AppendedCommands> {
        let durability = durability.unwrap_or(self.app.deployment.settings.durability);
        self.host.check_disk_space()?;
        let id = TransactionId::new();
        let participants: Vec<PartitionId> = commands.iter().map(|part| part.partition).collect();
        let part = |routed: &RoutedCommand| {
            Ok(TransactionPart {
                id,
                order: 0,
                participants: participants.clone(),
                since: Offset(0),
                writes: routed.command.to_bytes()?,
                session: session.cloned(),
                places: Some(routed.request_indexes.iter().map(|place| *place as u32).collect()),
                cause: None,
            })
        };
        let parts = commands.iter().map(part).collect::<Result<Vec<_>>>()?;
        let replies = self.append_parts(parts, durability)?;
        Ok(AppendedCommands { commands, replies, same: false })
    }
}

/// Commands in the logs of their partitions, whose outcomes are to come.
struct AppendedCommands {
    commands: Vec<RoutedCommand>,
    replies: PendingReplies,
    same: bool,
}

impl AppendedCommands {
    /// Waits for the outcomes and merges them.
    fn wait(self) -> Result<CommandOutcome> {
        let outcomes = self.replies.wait()?.into_iter().map(|reply| reply.outcome.unwrap_or_default());
        Ok(merge_outcomes(&self.commands, outcomes, self.same))
    }
}

/// A document command in the log, or on its way there: it takes effect whether or not somebody waits for it.
///
/// Commands that one thread submits for documents of one partition are applied in the order of their submission.
#[must_use = "without waiting, nobody knows whether the command was durable and what it did"]
pub struct DocumentWrite {
    progress: WriteProgress,
    /// Search to repeat if the command comes too late for the document that it found.
    search: Option<DocumentSearch>,
}

enum WriteProgress {
    /// The command had been executed before.
    Known(CommandOutcome),
    Appended(AppendedCommands),
}

/// A command on one document, which its partition was looked up for.
struct DocumentSearch {
    node: Arc<Node>,
    command: DocumentCommand,
    replicated: bool,
    durability: Option<Durability>,
    session: Option<SessionWrite>,
}

impl DocumentWrite {
    /// Waits until the command is as durable as its submission asked for, and applied, and returns what it did.
    ///
    /// Errors: those of `Engine::write_documents`.
    pub fn wait(self) -> Result<CommandOutcome> {
        let outcome = match self.progress {
            WriteProgress::Known(outcome) => return Ok(outcome),
            WriteProgress::Appended(commands) => commands.wait()?,
        };
        match self.search {
            Some(search) if outcome == CommandOutcome::default() => search.repeat(),
            _ => Ok(outcome),
        }
    }
}

impl DocumentSearch {
    /// Repeats a command that changed nothing, as long as there is a document for it.
    fn repeat(self) -> Result<CommandOutcome> {
        let Some((filter, upserts)) = searched(&self.command) else {
            return Ok(CommandOutcome::default());
        };
        let filter = RawDocument::from_bytes(filter).map_err(bad_bson)?;
        let first = FindOptions { limit: Some(1), ..FindOptions::default() };
        let node = &self.node;
        for _ in 1..SEARCH_ATTEMPTS_MAX {
            // the document that was found may have been changed by another writer before the command
            let documents = DocumentSnapshot::now(node)?;
            let parsed = documents.parsed(filter, collation_of(&documents, &self.command)?.as_ref())?;
            if !upserts && documents.find_parsed(self.command.collection(), &parsed, &first)?.is_empty() {
                return Ok(CommandOutcome::default());
            }
            let routed = route(node, &documents, self.command.clone())?;
            let appended =
                node.append_commands(routed, self.replicated, self.durability, self.session.as_ref())?;
            let outcome = appended.wait()?;
            if outcome != CommandOutcome::default() {
                return Ok(outcome);
            }
        }
        Err(Error::conflict(format!(
            "other writers changed every document that was found, {SEARCH_ATTEMPTS_MAX} times: try again"
        )))
    }
}

/// Returns the filter of a command that first looks for the partition of a document, and whether it inserts a
/// document if it finds none.
fn searched(command: &DocumentCommand) -> Option<(&DocBytes, bool)> {
    match command {
        DocumentCommand::Update { filter, multi, upsert, .. } if *upsert || !multi => Some((filter, *upsert)),
        DocumentCommand::Delete { filter, multi: false, .. } => Some((filter, false)),
        DocumentCommand::Replace { filter, upsert, .. } => Some((filter, *upsert)),
        DocumentCommand::FindAndModify { filter, upsert, change, .. } => {
            Some((filter, *upsert && *change != Modification::Remove))
        }
        DocumentCommand::Unvalidated(inner) | DocumentCommand::Collated { command: inner, .. } => {
            searched(inner)
        }
        _ => None,
    }
}
