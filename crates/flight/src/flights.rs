//! `GetFlightInfo` and `GetSchema`, which say what a command returns, and `DoGet`, which returns it.

use std::sync::Arc;

use arrow_flight::sql::{Command, TicketStatementQuery};
use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo, Ticket, flight_descriptor::DescriptorType};
use arrow_schema::SchemaRef;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use tidemill_database::is_insert;
use tidemill_types::Error;
use tokio_util::sync::CancellationToken;

use crate::catalog;
use crate::command::{command, is_change, json_ticket, no_transaction, packed};
use crate::error::{Result, invalid, status, unsupported};
use crate::reply::{DataStream, Rows, reply};
use crate::shared::{Caller, ServerState};
use crate::statement;
use crate::ticket::{TicketStatement, VerifiedTicket};
use crate::wire::schema_bytes;

/// Rows that a client can ask for.
struct Flight {
    /// Columns; `None` where they are known only when the statement runs.
    columns: Option<SchemaRef>,
    ticket: Bytes,
}

/// Returns the description of a command, with one endpoint: this server.
///
/// Errors: the command is damaged or not known, or its statement cannot be planned.
pub(crate) async fn info(
    state: &ServerState,
    caller: &Caller,
    descriptor: FlightDescriptor,
) -> Result<FlightInfo> {
    let flight = flight(state, caller, &descriptor).await?;
    let schema = match &flight.columns {
        Some(columns) => schema_bytes(columns).map_err(status)?,
        None => Bytes::new(),
    };
    // an endpoint without a location is the server that was asked
    let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(flight.ticket));
    let info = FlightInfo::new().with_descriptor(descriptor).with_endpoint(endpoint);
    Ok(FlightInfo { schema, ..info }.with_total_records(-1).with_total_bytes(-1))
}

/// Returns the columns of a command as a message of Arrow IPC.
///
/// Errors: those of [`info`]; the columns are known only when the statement runs.
pub(crate) async fn schema(
    state: &ServerState,
    caller: &Caller,
    descriptor: FlightDescriptor,
) -> Result<Bytes> {
    let columns = flight(state, caller, &descriptor).await?.columns.ok_or_else(|| {
        invalid("the columns of this statement are known only when it runs: ask for it (GetFlightInfo), and for its rows (DoGet)")
    })?;
    schema_bytes(&columns).map_err(status)
}

/// Starts what a ticket stands for.
///
/// Errors: the ticket is not one of the caller; the statement fails before its first row.
pub(crate) async fn get(state: &Arc<ServerState>, caller: &Caller, ticket: &[u8]) -> Result<DataStream> {
    if let Some(text) = json_ticket(ticket)? {
        statement::columns(state, caller, &text).await.map_err(status)?;
        let rows = statement::run(state, caller, text.into(), Arc::default()).await.map_err(status)?;
        return Ok(reply(state, rows, CancellationToken::new(), ()));
    }
    match command(ticket)? {
        Command::TicketStatementQuery(ticket) => {
            let ticket = state.tickets.verify(&ticket.statement_handle, &caller.name).map_err(status)?;
            run(state, caller, ticket).await
        }
        command => match catalog::columns(&command) {
            Some(schema) => {
                let batch = catalog::rows(state, caller, command).await.map_err(status)?;
                let rows = Rows { schema, batches: stream::iter([Ok(batch)]).boxed() };
                Ok(reply(state, rows, CancellationToken::new(), ()))
            }
            None => Err(invalid(format!(
                "{} is not a ticket: ask for it by GetFlightInfo, and send the ticket of its answer",
                short_name(&command)
            ))),
        },
    }
}

/// Returns the statement of the ticket of an endpoint, be it of a catalog.
///
/// Errors: the ticket is not one of the caller.
pub(crate) fn ticket_of(
    state: &ServerState,
    caller: &Caller,
    endpoint: &FlightEndpoint,
) -> Result<Option<VerifiedTicket>> {
    let ticket = endpoint.ticket.as_ref().ok_or_else(|| invalid("the endpoint has no ticket"))?;
    match command(&ticket.ticket)? {
        Command::TicketStatementQuery(ticket) => {
            state.tickets.verify(&ticket.statement_handle, &caller.name).map(Some).map_err(status)
        }
        _ => Ok(None),
    }
}

async fn flight(state: &ServerState, caller: &Caller, descriptor: &FlightDescriptor) -> Result<Flight> {
    if descriptor.r#type == DescriptorType::Path as i32 {
        return Err(unsupported(
            "a path names a stream for DoPut only: read it by CommandStatementQuery, such as SELECT * FROM events.\"STREAM\"",
        ));
    }
    let issue = |statement: &TicketStatement| {
        let statement_handle = state.tickets.issue(&caller.name, statement);
        packed(&TicketStatementQuery { statement_handle })
    };
    match command(&descriptor.cmd)? {
        Command::CommandStatementQuery(query) => {
            no_transaction(query.transaction_id.as_ref())?;
            let columns = statement::columns(state, caller, &query.query).await.map_err(status)?;
            Ok(Flight { columns, ticket: issue(&TicketStatement::Text(query.query)) })
        }
        Command::CommandPreparedStatementQuery(query) => {
            let handle = query.prepared_statement_handle;
            let prepared = state.prepared.get(&caller.name, &handle).map_err(status)?;
            statement::bound_rows(&prepared).map_err(status)?;
            let columns = statement::known_columns(&prepared);
            Ok(Flight {
                columns,
                ticket: issue(&TicketStatement::Prepared { handle, binding: prepared.binding }),
            })
        }
        Command::CommandStatementSubstraitPlan(_) => {
            Err(unsupported("plans of Substrait are not supported: send SQL"))
        }
        other => match catalog::columns(&other) {
            // a catalog has the rights of the caller who reads it, so its ticket needs no signature
            columns @ Some(_) => Ok(Flight { columns, ticket: descriptor.cmd.clone() }),
            None => Err(invalid(format!("{} returns no rows: send it by DoPut", short_name(&other)))),
        },
    }
}

async fn run(state: &Arc<ServerState>, caller: &Caller, ticket: VerifiedTicket) -> Result<DataStream> {
    let running = state.running.begin(ticket.id);
    let (text, rows): (Arc<str>, _) = match ticket.statement {
        TicketStatement::Text(text) => (text.into(), Arc::default()),
        TicketStatement::Prepared { handle, binding } => {
            let prepared = state.prepared.get(&caller.name, &handle).map_err(status)?;
            if prepared.binding != binding {
                return Err(status(Error::conflict(
                    "other values were bound to the prepared statement since this ticket: ask for it again (GetFlightInfo)",
                )));
            }
            (prepared.text.clone(), statement::bound_rows(&prepared).map_err(status)?)
        }
    };
    if is_change(&text) || is_insert(&text) {
        state.running.spend(ticket.id).map_err(status)?;
    }
    let started = tokio::select! {
        started = statement::run(state, caller, text, rows) => started.map_err(status)?,
        () = running.cancellation().cancelled() => {
            return Err(tonic::Status::cancelled("the statement was cancelled by its client"));
        }
    };
    let cancellation = running.cancellation().clone();
    Ok(reply(state, started, cancellation, running))
}

/// Returns the name of a command, for messages.
fn short_name(command: &Command) -> String {
    command.type_url().rsplit('.').next().unwrap_or_default().to_owned()
}
