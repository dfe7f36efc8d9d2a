//! Statements of clients: their columns, and their rows.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use futures::StreamExt;
use futures::stream::{self, TryStreamExt};
use tidemill_database::{
    AppendRequest, BatchReply, CheckedEvents, Description, QueryRequest, StagedInsert, is_insert,
};
use tidemill_types::{Error, Result, Value};

use crate::command::{is_change, is_kill};
use crate::prepared::{ParameterRows, PreparedStatement};
use crate::reply::Rows;
use crate::shared::{Caller, PROTOCOL, ServerState};
use crate::wire::wire_schema;

/// Returns the columns of a statement without parameters before it runs; `None` for a change of events or an `INSERT` without
/// `RETURNING`, whose only row says how many there were, and for `KILL QUERY`.
///
/// Errors: those in its text; it has parameters.
pub(crate) async fn columns(state: &ServerState, caller: &Caller, text: &str) -> Result<Option<SchemaRef>> {
    check_text(text)?;
    if is_change(text) || is_kill(text) {
        return Ok(None);
    }
    let description = describe(state, caller, text).await?;
    match description.parameters.len() {
        0 if is_insert(text) && description.columns.fields().is_empty() => Ok(None),
        0 => Ok(Some(wire_schema(&description.columns))),
        count => Err(Error::invalid(format!(
            "the statement has {count} parameters, and no values for them: prepare it (CreatePreparedStatement), and bind values"
        ))),
    }
}

/// Prepares a statement.
///
/// Errors: those in its text.
pub(crate) async fn prepare(state: &ServerState, caller: &Caller, text: String) -> Result<PreparedStatement> {
    check_text(&text)?;
    let is_change = is_change(&text);
    let without_parameters = |columns: Vec<Field>| Description::new(vec![], Arc::new(Schema::new(columns)));
    let description = if is_change {
        without_parameters(vec![])
    } else if is_kill(&text) {
        // clients take a statement without columns for a change
        without_parameters(vec![Field::new("cancelled", DataType::Int64, true)])
    } else {
        describe(state, caller, &text).await?
    };
    Ok(PreparedStatement {
        is_change: is_change || is_insert(&text) && description.columns.fields().is_empty(),
        text: text.into(),
        parameters: description.parameters.into(),
        columns: wire_schema(&description.columns),
        binding: 0,
        rows: Arc::default(),
    })
}

/// Returns the columns of a prepared statement as far as they are known: one whose type depends on a parameter is not.
pub(crate) fn known_columns(statement: &PreparedStatement) -> Option<SchemaRef> {
    let is_unknown = statement.parameters.iter().any(Option::is_none)
        && statement.columns.fields().iter().any(|field| *field.data_type() == DataType::Null);
    (!statement.is_change && !is_unknown).then(|| statement.columns.clone())
}

/// Returns the values with which a prepared statement runs, a list for each run.
///
/// Errors: no values were bound, and it has parameters.
pub(crate) fn bound_rows(statement: &PreparedStatement) -> Result<Arc<ParameterRows>> {
    match (statement.parameters.len(), statement.binding) {
        (_, 1..) => Ok(statement.rows.clone()),
        (0, 0) => Ok(Arc::new(vec![vec![]])),
        (count, 0) => Err(Error::invalid(format!(
            "the prepared statement has {count} parameters, and no values were bound to it: send a row of them by DoPut first"
        ))),
    }
}

/// Starts a statement with the values of each row, one run after the other. The first one has started when this returns.
///
/// Errors: those in its text, and of its first values.
pub(crate) async fn run(
    state: &Arc<ServerState>,
    caller: &Caller,
    text: Arc<str>,
    rows: Arc<ParameterRows>,
) -> Result<Rows> {
    let (state, caller) = (state.clone(), caller.clone());
    let first = rows.first().cloned().unwrap_or_default();
    let BatchReply { schema, batches, .. } = start(&state, &caller, &text, first).await?;
    let schema = wire_schema(&schema);
    if rows.len() <= 1 {
        return Ok(Rows { schema, batches });
    }
    let columns = schema.clone();
    let rest = stream::iter(1..rows.len()).then(move |run| {
        let started = start(&state, &caller, &text, rows[run].clone());
        let columns = columns.clone();
        async move {
            let next = started.await?;
            match wire_schema(&next.schema) == columns {
                true => Ok(next.batches),
                false => Err(Error::invalid(format!(
                    "the columns of the statement have other types with row {} of its values than with the first one: write $1::TYPE for a \
                     parameter whose place does not tell its type",
                    run + 1
                ))),
            }
        }
    });
    Ok(Rows { schema, batches: batches.chain(rest.try_flatten()).boxed() })
}

/// Runs a change of events with the values of each row. Returns the number of events that were changed.
///
/// Errors: those of the statement; it is another one than `DELETE` or `UPDATE`.
pub(crate) async fn change(
    state: &Arc<ServerState>,
    caller: &Caller,
    text: Arc<str>,
    rows: &[Vec<Value<'static>>],
) -> Result<i64> {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;

    check_text(&text)?;
    if is_insert(&text) {
        return insert(state, caller, &text, rows).await;
    }
    if !is_change(&text) {
        return Err(Error::invalid(
            "expected INSERT, DELETE or UPDATE: rows of other statements are asked for by GetFlightInfo and DoGet (executeQuery), and events are \
             sent by CommandStatementIngest",
        ));
    }
    let mut changed = 0;
    for values in rows {
        let reply = start(state, caller, &text, values.clone()).await?;
        let batches: Vec<_> = reply.batches.try_collect().await?;
        for batch in &batches {
            let counts = batch.columns().first().and_then(|column| column.as_primitive_opt::<Int64Type>());
            let counts = counts
                .ok_or_else(|| Error::internal("a change of events has not said how many there were"))?;
            changed += counts.values().iter().sum::<i64>();
        }
    }
    Ok(changed)
}

/// Runs an `INSERT` with the values of each row. All rows are checked first, and appended together. Returns the number of events.
async fn insert(
    state: &ServerState,
    caller: &Caller,
    text: &str,
    rows: &[Vec<Value<'static>>],
) -> Result<i64> {
    let mut inserts = Vec::with_capacity(rows.len());
    for values in rows {
        let request = QueryRequest::new(text, PROTOCOL, caller.principal.clone());
        inserts.push(state.database.stage(request.with_parameters(values.clone())).await?);
    }
    let mut events = CheckedEvents::default();
    inserts.iter().for_each(|insert| events.append(insert.events()));
    let reports_stored = inserts.iter().any(StagedInsert::reports_stored);
    let principal = caller.principal.clone();
    let receipt =
        state.database.append(AppendRequest { events, origin: PROTOCOL, principal, reports_stored });
    let receipt = receipt.await?;
    let count = match receipt.stored {
        Some(stored) => stored.iter().flatten().count() as u64,
        None => receipt.accepted,
    };
    Ok(i64::try_from(count).unwrap_or(i64::MAX))
}

fn start(
    state: &ServerState,
    caller: &Caller,
    text: &str,
    values: Vec<Value<'static>>,
) -> futures::future::BoxFuture<'static, Result<BatchReply>> {
    let request = QueryRequest::new(text, PROTOCOL, caller.principal.clone()).with_parameters(values);
    state.database.query(request)
}

async fn describe(state: &ServerState, caller: &Caller, text: &str) -> Result<Description> {
    state.database.describe(QueryRequest::new(text, PROTOCOL, caller.principal.clone())).await
}

fn check_text(text: &str) -> Result<()> {
    match text.trim().is_empty() {
        true => Err(Error::invalid("the statement is empty: expected SQL, for example `SELECT 1`")),
        false => Ok(()),
    }
}
