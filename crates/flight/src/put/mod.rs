//! `DoPut`: changes of events, values of parameters, and events.

mod frames;
mod ingest;
mod parameters;

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_flight::flight_descriptor::DescriptorType;
use arrow_flight::sql::{Command, DoPutPreparedStatementResult, DoPutUpdateResult};
use arrow_flight::{FlightData, PutResult};
use bytes::Bytes;
use futures::{StreamExt, stream};
use prost::Message;
use tidemill_types::Error;
use tonic::Streaming;

use crate::command::{command, no_transaction};
use crate::error::{Result, invalid, status, unsupported};
use crate::prepared::{ParameterRows, PreparedStatement};
use crate::shared::{Caller, ServerState};
use crate::statement;
use frames::{Frames, decode};
use ingest::{PutStream, ingest};

/// Does what the descriptor of the first message says with the messages of a client.
///
/// Errors: the descriptor is missing or damaged; those of its command.
pub(crate) async fn put(
    state: &Arc<ServerState>,
    caller: &Caller,
    mut messages: Streaming<FlightData>,
) -> Result<PutStream> {
    let first = messages
        .message()
        .await?
        .ok_or_else(|| invalid("DoPut has no message: expected one with a descriptor"))?;
    let descriptor = first.flight_descriptor.clone().ok_or_else(|| {
        invalid("the first message of DoPut has no descriptor: expected a command, or a path with the name of a stream")
    })?;
    if descriptor.r#type == DescriptorType::Path as i32 {
        let [stream] = descriptor.path.as_slice() else {
            return Err(invalid(format!(
                "the path has {} parts: expected one, the name of a stream",
                descriptor.path.len()
            )));
        };
        return ingest(state, caller, stream.clone(), first, messages, true);
    }
    match command(&descriptor.cmd)? {
        Command::CommandStatementUpdate(update) => {
            no_transaction(update.transaction_id.as_ref())?;
            let changed = statement::change(state, caller, update.query.into(), &[vec![]]).await;
            Ok(updated(changed.map_err(status)?))
        }
        Command::CommandPreparedStatementUpdate(update) => {
            let handle = update.prepared_statement_handle;
            let prepared = state.prepared.get(&caller.name, &handle).map_err(status)?;
            // values may come with the command, or were bound before
            let rows = match values(state, &prepared, first, messages).await? {
                Some(rows) => Arc::new(rows),
                None => statement::bound_rows(&prepared).map_err(status)?,
            };
            let changed = statement::change(state, caller, prepared.text.clone(), &rows).await;
            Ok(updated(changed.map_err(status)?))
        }
        Command::CommandPreparedStatementQuery(query) => {
            let handle = query.prepared_statement_handle;
            let prepared = state.prepared.get(&caller.name, &handle).map_err(status)?;
            if let Some(rows) = values(state, &prepared, first, messages).await? {
                state.prepared.bind(&caller.name, &handle, rows).map_err(status)?;
            }
            let result = DoPutPreparedStatementResult { prepared_statement_handle: Some(handle) };
            Ok(one(result.encode_to_vec()))
        }
        Command::CommandStatementIngest(command) => {
            ingest(state, caller, ingest::target(&command)?, first, messages, false)
        }
        Command::CommandStatementSubstraitPlan(_) => {
            Err(unsupported("plans of Substrait are not supported: send SQL"))
        }
        other => Err(invalid(format!(
            "{} is not a command of DoPut: ask for it by GetFlightInfo",
            other.type_url().rsplit('.').next().unwrap_or_default()
        ))),
    }
}

/// Reads the values of parameters; `None` if the client sends no schema.
async fn values(
    state: &ServerState,
    prepared: &PreparedStatement,
    first: FlightData,
    mut rest: Streaming<FlightData>,
) -> Result<Option<ParameterRows>> {
    let bytes_max = state.options.message_bytes_max;
    let (mut frames, mut batches, mut bytes) = (Frames::default(), vec![], 0_usize);
    let held = state.memory.begin();
    let mut next = Some(first);
    while let Some(message) = next {
        bytes += message.data_body.len();
        if bytes > bytes_max {
            return Err(status(Error::limit(format!(
                "the values have more than {bytes_max} bytes: bind fewer rows at once"
            ))));
        }
        held.grow(message.data_body.len()).map_err(status)?;
        if Frames::is_dictionary(&message) {
            batches.extend(frames.take());
        }
        frames.push(&message).map_err(status)?;
        next = rest.message().await?;
    }
    if !frames.has_schema() {
        return Ok(None);
    }
    batches.extend(frames.take());
    let parameters = prepared.parameters.len();
    // a statement without parameters runs once, whatever is bound to it
    if parameters == 0 && !prepared.is_change {
        return Ok(None);
    }
    let decoded: Vec<_> = batches
        .into_iter()
        .map(|batch: Bytes| decode(batch))
        .collect::<Result<Vec<_>, _>>()
        .map_err(status)?;
    let decoded = decoded.concat();
    if prepared.is_change {
        // some clients send an empty row; how many parameters there are is found when the change is made
        let columns = decoded.first().map_or(0, RecordBatch::num_columns);
        return match columns {
            0 => Ok(None),
            columns => parameters::rows(&decoded, columns).map(Some).map_err(status),
        };
    }
    parameters::rows(&decoded, parameters).map(Some).map_err(status)
}

fn updated(record_count: i64) -> PutStream {
    one(DoPutUpdateResult { record_count }.encode_to_vec())
}

fn one(app_metadata: Vec<u8>) -> PutStream {
    stream::iter([Ok(PutResult { app_metadata: app_metadata.into() })]).boxed()
}
