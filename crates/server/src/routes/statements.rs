//! Routes of SQL statements: those that run, and the end of one.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

use crate::context::RequestContext;
use crate::error::{ApiError, ErrorBody};
use crate::extract::PathParams;
use crate::guard::concurrency::STATEMENTS;
use tidemill_database::StatementInfo;

/// A SQL statement that runs or has ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Statement {
    /// Its number, which counts from 1 when the server starts.
    id: u64,
    /// Its text, cut to 1,000 characters.
    #[schema(example = "SELECT origin, count(*) FROM events.TakeOffEvent GROUP BY origin")]
    statement: String,
    /// Sender of the statement: `http`, `program` or `rules`.
    origin: String,
    /// Name of the caller.
    caller: String,
    /// `waiting`, `planning`, `running`; `done`, `failed` or `cancelled` after its end.
    phase: String,
    /// When it arrived.
    started: String,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    /// Rows of its result so far.
    rows: u64,
    /// Why it has failed, or who has cancelled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl From<StatementInfo> for Statement {
    fn from(info: StatementInfo) -> Self {
        let StatementInfo { id, text: statement, origin, caller, phase, started, ended, rows, error } = info;
        let (origin, phase) = (origin.to_owned(), phase.name().to_owned());
        let (started, ended) = (started.to_string(), ended.map(|time| time.to_string()));
        Self { id, statement, origin, caller, phase, started, ended, rows, error }
    }
}

/// The statement that was cancelled.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CancelReply {
    /// Its number.
    cancelled: u64,
}

/// List the SQL statements that run, and the last 64 that have ended.
///
/// An administrator sees those of all callers, others their own.
#[utoipa::path(
    get, path = "/api/v1/statements", tag = "sql", operation_id = "listStatements",
    responses((status = 200, description = "The statements, by number", body = Vec<Statement>)),
)]
pub(crate) async fn list(call: RequestContext) -> Json<Vec<Statement>> {
    Json(call.app.database.statements(&call.principal).into_iter().map(Statement::from).collect())
}

/// Cancel a SQL statement that runs.
///
/// It ends at once, and its reply with an error that names this request. A change of events that has begun continues.
#[utoipa::path(
    delete, path = "/api/v1/statements/{id}", tag = "sql", operation_id = "cancelStatement",
    params(("id" = u64, Path, description = "Number of the statement")),
    responses(
        (status = 200, description = "It is cancelled", body = CancelReply),
        (status = 400, description = "Not a number", body = ErrorBody),
        (status = 404, description = "No statement with this number runs", body = ErrorBody),
    ),
)]
pub(crate) async fn cancel(
    call: RequestContext,
    PathParams(id): PathParams<u64>,
) -> Result<Json<CancelReply>, ApiError> {
    call.app.database.cancel(id, &call.principal, &format!("DELETE {STATEMENTS}/{id}"))?;
    Ok(Json(CancelReply { cancelled: id }))
}
