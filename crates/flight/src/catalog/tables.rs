//! Tables, read from `information_schema`, which has those that the caller may read.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_cast::cast;
use arrow_flight::sql::metadata::{GetCatalogsBuilder, GetDbSchemasBuilder, GetTablesBuilder};
use arrow_flight::sql::{CommandGetDbSchemas, CommandGetTableTypes, CommandGetTables};
use arrow_schema::{DataType, SchemaRef};
use futures::TryStreamExt;
use tidemill_database::QueryRequest;
use tidemill_types::{Error, ErrorKind, Result};

use super::failed;
use super::like::is_like;
use crate::shared::{Caller, PROTOCOL, ServerState};
use crate::wire::wire_schema;

/// Types of tables: those of `information_schema`, and as clients know them.
const TYPES: [(&str, &str); 2] = [("BASE TABLE", "TABLE"), ("VIEW", "VIEW")];

const SCHEMAS: &str = "SELECT catalog_name, schema_name FROM information_schema.schemata";
const TABLES: &str =
    "SELECT table_catalog, table_schema, table_name, table_type FROM information_schema.tables";

pub(super) async fn catalogs(state: &ServerState, caller: &Caller) -> Result<RecordBatch> {
    let mut names: Vec<String> =
        texts(state, caller, SCHEMAS).await?.into_iter().map(|[catalog, _]: [String; 2]| catalog).collect();
    names.sort();
    names.dedup();
    let mut builder = GetCatalogsBuilder::new();
    names.into_iter().for_each(|name| builder.append(name));
    builder.build().map_err(failed)
}

pub(super) async fn schemas(
    state: &ServerState,
    caller: &Caller,
    command: CommandGetDbSchemas,
) -> Result<RecordBatch> {
    let mut builder = GetDbSchemasBuilder::new(None::<String>, None::<String>);
    for [catalog, schema] in texts(state, caller, SCHEMAS).await? {
        if is_catalog(command.catalog.as_deref(), &catalog)
            && fits(command.db_schema_filter_pattern.as_deref(), &schema)
        {
            builder.append(catalog, schema);
        }
    }
    builder.build().map_err(failed)
}

pub(super) async fn tables(
    state: &ServerState,
    caller: &Caller,
    command: CommandGetTables,
) -> Result<RecordBatch> {
    let no_types: [String; 0] = [];
    let mut builder = GetTablesBuilder::new(
        None::<String>,
        None::<String>,
        None::<String>,
        no_types,
        command.include_schema,
    );
    let empty = arrow_schema::Schema::empty();
    for [catalog, schema, table, kind] in texts(state, caller, TABLES).await? {
        let kind = TYPES.iter().find(|(own, _)| *own == kind).map_or(kind.as_str(), |(_, known)| *known);
        let is_asked_for = is_catalog(command.catalog.as_deref(), &catalog)
            && fits(command.db_schema_filter_pattern.as_deref(), &schema)
            && fits(command.table_name_filter_pattern.as_deref(), &table)
            && (command.table_types.is_empty() || command.table_types.iter().any(|asked| asked == kind));
        if !is_asked_for {
            continue;
        }
        let columns = match command.include_schema {
            true => match columns(state, caller, &schema, &table).await? {
                Some(columns) => Some(columns),
                // it has gone since the list was made
                None => continue,
            },
            false => None,
        };
        let columns = columns.as_deref().unwrap_or(&empty);
        builder.append(&catalog, &schema, &table, kind, columns).map_err(failed)?;
    }
    builder.build().map_err(failed)
}

pub(super) fn types(command: CommandGetTableTypes) -> Result<RecordBatch> {
    let mut builder = command.into_builder();
    TYPES.iter().for_each(|(_, known)| builder.append(known));
    builder.build().map_err(failed)
}

/// Returns the columns of a table; `None` if there is no such table.
async fn columns(
    state: &ServerState,
    caller: &Caller,
    schema: &str,
    table: &str,
) -> Result<Option<SchemaRef>> {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let text = format!("SELECT * FROM {}.{}", quoted(schema), quoted(table));
    match state.database.describe(QueryRequest::new(text, PROTOCOL, caller.principal.clone())).await {
        Ok(description) => Ok(Some(wire_schema(&description.columns))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the rows of a statement that has `N` columns of texts without nulls.
async fn texts<const N: usize>(state: &ServerState, caller: &Caller, text: &str) -> Result<Vec<[String; N]>> {
    let unexpected = || Error::internal(format!("`{text}` has not returned {N} columns of texts"));
    let reply = state.database.query(QueryRequest::new(text, PROTOCOL, caller.principal.clone())).await?;
    let batches: Vec<RecordBatch> = reply.batches.try_collect().await?;
    let mut rows = vec![];
    for batch in &batches {
        let columns = batch.columns().iter().map(|column| cast(column, &DataType::Utf8));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(|e| unexpected().with_source(e))?;
        let columns: &[_; N] = columns.as_slice().try_into().map_err(|_| unexpected())?;
        rows.extend(
            (0..batch.num_rows())
                .map(|row| columns.each_ref().map(|c| c.as_string::<i32>().value(row).to_owned())),
        );
    }
    Ok(rows)
}

/// Returns whether a catalog is asked for. An empty name asks for what has none.
fn is_catalog(asked: Option<&str>, name: &str) -> bool {
    asked.is_none_or(|asked| asked == name)
}

fn fits(pattern: Option<&str>, name: &str) -> bool {
    pattern.is_none_or(|pattern| is_like(name, pattern))
}
