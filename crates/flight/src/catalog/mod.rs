//! Catalogs: tables and their columns as the caller sees them, and what the server can do.

mod keys;
mod like;
mod server_info;
mod tables;
mod type_info;

use arrow_array::RecordBatch;
use arrow_flight::sql::Command;
use arrow_schema::SchemaRef;
use tidemill_types::{Error, Result};

use crate::shared::{Caller, ServerState};

/// Returns the columns of the reply to a command that asks for a catalog; `None` for other commands.
pub(crate) fn columns(command: &Command) -> Option<SchemaRef> {
    Some(match command {
        Command::CommandGetCatalogs(command) => command.into_builder().schema(),
        Command::CommandGetDbSchemas(command) => command.clone().into_builder().schema(),
        Command::CommandGetTables(command) => command.clone().into_builder().schema(),
        Command::CommandGetTableTypes(command) => command.into_builder().schema(),
        Command::CommandGetPrimaryKeys(_) => keys::primary(),
        Command::CommandGetImportedKeys(_)
        | Command::CommandGetExportedKeys(_)
        | Command::CommandGetCrossReference(_) => keys::foreign(),
        Command::CommandGetSqlInfo(_) => server_info::columns(),
        Command::CommandGetXdbcTypeInfo(_) => type_info::columns(),
        _ => return None,
    })
}

/// Returns the rows of a catalog.
///
/// Errors: those of the statements that read it; `Internal` for a command that asks for none.
pub(crate) async fn rows(state: &ServerState, caller: &Caller, command: Command) -> Result<RecordBatch> {
    match command {
        Command::CommandGetCatalogs(_) => tables::catalogs(state, caller).await,
        Command::CommandGetDbSchemas(command) => tables::schemas(state, caller, command).await,
        Command::CommandGetTables(command) => tables::tables(state, caller, command).await,
        Command::CommandGetTableTypes(command) => tables::types(command),
        Command::CommandGetSqlInfo(command) => server_info::rows(command),
        Command::CommandGetXdbcTypeInfo(command) => type_info::rows(command),
        other => match columns(&other) {
            // no table has a key that others refer to
            Some(columns) => Ok(RecordBatch::new_empty(columns)),
            None => Err(Error::internal(format!("{} asks for no catalog", other.type_url()))),
        },
    }
}

/// Returns the error for a catalog that cannot be written.
fn failed(error: arrow_flight::error::FlightError) -> Error {
    Error::internal("a catalog cannot be written").with_source(error)
}
