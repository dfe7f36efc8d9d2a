//! Actions: prepared statements, cancellation, session options.

use std::collections::HashMap;

use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightInfo,
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use bytes::Bytes;
use http::HeaderMap;
use prost::Message;

use crate::command::{no_transaction, packed, unpacked};
use crate::error::{Result, invalid, status, unsupported};
use crate::flights::ticket_of;
use crate::messages::{
    CloseSessionResult, CloseSessionStatus, GetSessionOptionsResult, OptionValue, SessionOptionError,
    SessionOptionErrorKind, SessionOptionValue, SetSessionOptionsRequest, SetSessionOptionsResult,
};
use crate::prepared::PreparedStatement;
use crate::shared::{Caller, ServerState};
use crate::statement;
use crate::wire::schema_bytes;

/// The one catalog, as the option `catalog` of a session names it.
const CATALOG: &str = "tidemill";
const CATALOG_OPTION: &str = "catalog";

/// Actions, and what they do.
const ACTIONS: [(&str, &str); 7] = [
    (
        "CreatePreparedStatement",
        "Prepares a statement: ActionCreatePreparedStatementRequest in, ActionCreatePreparedStatementResult out",
    ),
    (
        "ClosePreparedStatement",
        "Closes a prepared statement: ActionClosePreparedStatementRequest in, nothing out",
    ),
    (
        "CancelFlightInfo",
        "Cancels a statement that runs: CancelFlightInfoRequest in, CancelFlightInfoResult out",
    ),
    (
        "CancelQuery",
        "Cancels a statement that runs, the older way: ActionCancelQueryRequest in, ActionCancelQueryResult out",
    ),
    (
        "SetSessionOptions",
        "Sets the option `catalog` of the session: SetSessionOptionsRequest in, SetSessionOptionsResult out",
    ),
    (
        "GetSessionOptions",
        "Returns options of the session: GetSessionOptionsRequest in, GetSessionOptionsResult out",
    ),
    ("CloseSession", "Ends the session of a handshake: CloseSessionRequest in, CloseSessionResult out"),
];

/// Returns the actions for `ListActions`.
pub(crate) fn list() -> impl Iterator<Item = ActionType> {
    ACTIONS.into_iter().map(|(name, description)| ActionType {
        r#type: name.to_owned(),
        description: description.to_owned(),
    })
}

/// Takes an action. Returns the body of its result; `None` for an action without one.
///
/// Errors: the action is not known, or its body is damaged; those of the action.
pub(crate) async fn act(
    state: &ServerState,
    caller: &Caller,
    headers: &HeaderMap,
    action: &Action,
) -> Result<Option<Bytes>> {
    let body = action.body.as_ref();
    Ok(Some(match action.r#type.as_str() {
        "CreatePreparedStatement" => create(state, caller, unpacked(body)?).await?,
        "ClosePreparedStatement" => {
            let request: ActionClosePreparedStatementRequest = unpacked(body)?;
            state.prepared.close(&caller.name, &request.prepared_statement_handle);
            return Ok(None);
        }
        "CancelFlightInfo" => {
            let request: CancelFlightInfoRequest = decoded(body, "CancelFlightInfoRequest")?;
            let info = request.info.ok_or_else(|| invalid("CancelFlightInfoRequest has no FlightInfo"))?;
            encoded(&CancelFlightInfoResult { status: cancel(state, caller, &info)? as i32 })
        }
        "CancelQuery" => {
            let request: ActionCancelQueryRequest = unpacked(body)?;
            let info = decoded(&request.info, "FlightInfo")?;
            // the numbers of both results are the same
            packed(&ActionCancelQueryResult { result: cancel(state, caller, &info)? as i32 })
        }
        "SetSessionOptions" => encoded(&set_options(decoded(body, "SetSessionOptionsRequest")?)),
        "GetSessionOptions" => {
            let value = SessionOptionValue { value: Some(OptionValue::Text(CATALOG.to_owned())) };
            encoded(&GetSessionOptionsResult {
                session_options: HashMap::from([(CATALOG_OPTION.to_owned(), value)]),
            })
        }
        "CloseSession" => {
            let status = match state.login.close_session(headers) {
                true => CloseSessionStatus::Closed,
                false => CloseSessionStatus::NotCloseable,
            };
            encoded(&CloseSessionResult { status: status as i32 })
        }
        "BeginTransaction" | "EndTransaction" | "BeginSavepoint" | "EndSavepoint" => {
            return Err(unsupported(
                "there are no transactions: each statement sees one moment, and its effect is there when it is answered (autocommit)",
            ));
        }
        "CreatePreparedSubstraitPlan" => {
            return Err(unsupported("plans of Substrait are not supported: send SQL"));
        }
        other => {
            let shown: String = other.chars().take(100).collect();
            let known = ACTIONS.map(|(name, _)| name).join(", ");
            return Err(unsupported(format!("there is no action `{shown}`: expected one of {known}")));
        }
    }))
}

async fn create(
    state: &ServerState,
    caller: &Caller,
    request: ActionCreatePreparedStatementRequest,
) -> Result<Bytes> {
    no_transaction(request.transaction_id.as_ref())?;
    let prepared = statement::prepare(state, caller, request.query).await.map_err(status)?;
    let (parameters, columns) = (parameter_columns(&prepared), prepared.columns.clone());
    // clients take a statement with columns for a query, and one without for a change
    let dataset_schema = schema_bytes(&columns).map_err(status)?;
    let parameter_schema = schema_bytes(&parameters).map_err(status)?;
    let prepared_statement_handle = state.prepared.add(&caller.name, prepared).map_err(status)?;
    Ok(packed(&ActionCreatePreparedStatementResult {
        prepared_statement_handle,
        dataset_schema,
        parameter_schema,
    }))
}

/// Returns the parameters as columns. One whose place does not tell its type is a text.
///
/// Times have milliseconds: the JDBC driver (18.3) sends those whatever the unit, so that others would be wrong by a factor of 1,000. Values
/// may have any unit.
fn parameter_columns(statement: &PreparedStatement) -> Schema {
    let in_millis = |ty: &DataType| match ty {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Millisecond, zone.clone()),
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time32(TimeUnit::Millisecond),
        other => other.clone(),
    };
    let fields = (1..).zip(statement.parameters.iter()).map(|(number, ty)| {
        Field::new(format!("${number}"), ty.as_ref().map_or(DataType::Utf8, in_millis), true)
    });
    crate::wire::wire_schema(&Schema::new(fields.collect::<Vec<_>>())).as_ref().clone()
}

fn cancel(state: &ServerState, caller: &Caller, info: &FlightInfo) -> Result<CancelStatus> {
    let mut cancelled = false;
    for endpoint in &info.endpoint {
        if let Some(ticket) = ticket_of(state, caller, endpoint)? {
            cancelled |= state.running.cancel(&ticket.id);
        }
    }
    // one that has not begun, or has ended, cannot be cancelled
    Ok(if cancelled { CancelStatus::Cancelled } else { CancelStatus::NotCancellable })
}

/// Sets options: there is one catalog, and its name may be set.
fn set_options(request: SetSessionOptionsRequest) -> SetSessionOptionsResult {
    let refused = request.session_options.into_iter().filter_map(|(name, option)| {
        let kind = match (name.as_str(), option.value) {
            (CATALOG_OPTION, None) => return None,
            (CATALOG_OPTION, Some(OptionValue::Text(value))) if value == CATALOG => return None,
            (CATALOG_OPTION, Some(_)) => SessionOptionErrorKind::InvalidValue,
            _ => SessionOptionErrorKind::InvalidName,
        };
        Some((name, SessionOptionError { value: kind as i32 }))
    });
    SetSessionOptionsResult { errors: refused.collect() }
}

fn decoded<M: Message + Default>(bytes: &[u8], expected: &str) -> Result<M> {
    M::decode(bytes)
        .map_err(|e| invalid(format!("the body of the action is damaged ({e}): expected {expected}")))
}

fn encoded(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}
