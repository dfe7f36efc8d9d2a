//! Events that a client sends.
//!
//! Batches are sent on as soon as there are some megabytes of them, or the client sends no more at once. Each part is acknowledged by the
//! database as a request over HTTP is. A client that put to a path gets a reply to each part; a client of `CommandStatementIngest` gets one, at the end.

use std::sync::Arc;

use arrow_flight::sql::{CommandStatementIngest, DoPutUpdateResult, TableExistsOption};
use arrow_flight::{FlightData, PutResult};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use prost::Message;
use tidemill_access::{Action, Resource};
use tidemill_database::{RejectedEvent, SendRequest};
use tidemill_gateway::HeldMessage;
use tidemill_types::Error;
use tonic::{Status, Streaming};

use super::frames::Frames;
use crate::command::no_transaction;
use crate::error::{Result, status, unsupported};
use crate::shared::{Caller, PROTOCOL, ServerState};

/// Bytes of batches that are sent on at once, if the client sends as many. A larger batch is sent alone.
const PART_BYTES: usize = 4 << 20;
/// Rejected events that an error names.
const REASONS_SHOWN: usize = 3;

/// Replies of `DoPut`.
pub(super) type PutStream = BoxStream<'static, Result<PutResult>>;

/// Returns the stream that an ingest command names.
///
/// Errors: the command asks for what streams do not have.
pub(super) fn target(command: &CommandStatementIngest) -> Result<String> {
    let refused = |what: &str| {
        unsupported(format!(
            "{what}: events are appended to a stream that the app declares. Send the table as the name of a stream, with \
             TABLE_EXISTS_OPTION_APPEND (in ADBC: mode=\"append\")"
        ))
    };
    no_transaction(command.transaction_id.as_ref())?;
    if command.temporary {
        return Err(refused("there are no temporary tables"));
    }
    let if_exists =
        command.table_definition_options.as_ref().map_or(TableExistsOption::Unspecified, |o| o.if_exists());
    if if_exists != TableExistsOption::Append {
        let name = if_exists.as_str_name();
        return Err(refused(&format!(
            "{name} is not supported, as tables are not created, replaced or emptied here"
        )));
    }
    if command.catalog.as_deref().is_some_and(|catalog| !["", "tidemill"].contains(&catalog)) {
        return Err(refused(&format!("there is no catalog `{}`", command.catalog())));
    }
    if command.schema.as_deref().is_some_and(|schema| !["", "events"].contains(&schema)) {
        return Err(refused(&format!(
            "events are in the schema `events`, and not in `{}`",
            command.schema()
        )));
    }
    if let Some(option) = command.options.keys().min() {
        return Err(refused(&format!("there is no option `{option}`")));
    }
    Ok(command.table.clone())
}

/// Sends the events of a client to a stream. `replies_to_parts` says that each part gets a reply, and not only the last.
///
/// Errors: the caller may not write the stream. Later errors come through the replies.
pub(super) fn ingest(
    state: &Arc<ServerState>,
    caller: &Caller,
    stream: String,
    first: FlightData,
    rest: Streaming<FlightData>,
    replies_to_parts: bool,
) -> Result<PutStream> {
    caller.principal.may(Action::Write, &Resource::stream(&stream)).map_err(status)?;
    let held = state.memory.begin();
    let ingest = Ingest {
        state: state.clone(),
        caller: caller.clone(),
        stream,
        rest,
        next: Some(first),
        frames: Frames::default(),
        held,
        accepted: 0,
    };
    let replies = stream::unfold(Some(ingest), move |ingest| async move {
        let mut ingest = ingest?;
        loop {
            return match ingest.part().await {
                Ok(true) if !replies_to_parts => continue,
                Ok(true) => Some((Ok(ingest.reply()), Some(ingest))),
                // each part has had its reply
                Ok(false) if replies_to_parts && ingest.accepted > 0 => None,
                Ok(false) => Some((Ok(ingest.reply()), None)),
                Err(failed) => Some((Err(failed), None)),
            };
        }
    });
    Ok(replies.boxed())
}

/// Events that arrive.
struct Ingest {
    state: Arc<ServerState>,
    caller: Caller,
    stream: String,
    rest: Streaming<FlightData>,
    /// A message that was read and belongs to the next part.
    next: Option<FlightData>,
    frames: Frames,
    /// Memory of the batches that are put together.
    held: HeldMessage,
    /// Events that were accepted so far.
    accepted: u64,
}

impl Ingest {
    /// Reads batches and sends them on. Returns false at the end, when there were none.
    async fn part(&mut self) -> Result<bool> {
        loop {
            let message = match self.next.take() {
                Some(message) => Some(message),
                None if self.frames.len() == 0 => self.read().await?,
                None => match self.read().now_or_never() {
                    Some(read) => read?,
                    // the client has sent all that it has for now
                    None => return self.send().await,
                },
            };
            let Some(message) = message else {
                if !self.frames.has_schema() {
                    return Err(self.failed(Error::invalid("no schema and no batch was sent")));
                }
                return self.send().await;
            };
            if Frames::is_dictionary(&message) && self.frames.len() > 0 {
                self.next = Some(message);
                return self.send().await;
            }
            self.hold(message.data_body.len())?;
            self.frames.push(&message).map_err(|error| self.failed(error))?;
            if self.frames.len() >= PART_BYTES {
                return self.send().await;
            }
        }
    }

    async fn read(&mut self) -> Result<Option<FlightData>> {
        let read = self.rest.message().await;
        read.map_err(|failed| match self.accepted {
            0 => failed,
            count => Status::new(
                failed.code(),
                format!("{} ({count} events before were accepted)", failed.message()),
            ),
        })
    }

    fn hold(&mut self, bytes: usize) -> Result<()> {
        self.held.grow(bytes).map_err(|error| self.failed(error))
    }

    /// Sends what was read. Returns false if that is nothing.
    async fn send(&mut self) -> Result<bool> {
        let Some(events) = self.frames.take() else { return Ok(false) };
        let request = SendRequest {
            stream: self.stream.clone(),
            events,
            origin: PROTOCOL,
            principal: self.caller.principal.clone(),
        };
        let sent = self.state.database.send(request).await;
        self.held = self.state.memory.begin();
        let receipt = sent.map_err(|error| self.failed(error))?;
        self.accepted += receipt.accepted;
        match receipt.rejected.as_slice() {
            [] => Ok(true),
            rejected => Err(self.rejected(rejected, receipt.accepted)),
        }
    }

    /// Returns an error with what was accepted before it.
    fn failed(&self, error: Error) -> Status {
        match self.accepted {
            0 => status(error),
            count => status(error.context(format!("after {count} events that were accepted"))),
        }
    }

    fn rejected(&self, rejected: &[RejectedEvent], accepted: u64) -> Status {
        let count = rejected.len();
        let reasons =
            rejected.iter().take(REASONS_SHOWN).map(|event| format!("row {}: {}", event.row, event.reason));
        let mut reasons = reasons.collect::<Vec<_>>().join("; ");
        if count > REASONS_SHOWN {
            reasons += "; …";
        }
        status(Error::invalid(format!(
            "{count} of the last {} rows were rejected, and are in system.rejected; {} events were accepted. {reasons}",
            count as u64 + accepted,
            self.accepted
        )))
    }

    fn reply(&self) -> PutResult {
        let record_count = i64::try_from(self.accepted).unwrap_or(i64::MAX);
        PutResult { app_metadata: DoPutUpdateResult { record_count }.encode_to_vec().into() }
    }
}
