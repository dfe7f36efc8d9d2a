//! Routes of sinks: what became of their events, and the store of those that other systems refused.

use axum::Json;
use serde::{Deserialize, Serialize};
use tidemill_access::{Action, Resource};
use tidemill_engine::{SinkInfo, UndeliveredEvent, UndeliveredSelection};
use utoipa::{IntoParams, ToSchema};

use crate::body::RequestBody;
use crate::context::RequestContext;
use crate::error::{ApiError, ErrorBody};
use crate::extract::QueryParams;

/// Undelivered events of a reply without `limit`.
const LIMIT: u64 = 1000;

/// Counts of the events of a sink: `emitted` is the sum of `delivered`, `failed` and `waiting`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Sink {
    /// Name: the app's file, the stream and the type.
    #[schema(example = "orders.siddhi: Orders to kafka")]
    name: String,
    /// Stream whose events it sends.
    stream: String,
    /// Events since the sink exists.
    emitted: u64,
    /// Events that the other side has acknowledged.
    delivered: u64,
    /// Events that the other side has refused for good.
    failed: u64,
    /// Events that wait.
    waiting: u64,
    /// Bytes of the events that wait, in memory and on the disk.
    waiting_bytes: u64,
    /// Why events are not delivered at present.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl From<SinkInfo> for Sink {
    fn from(info: SinkInfo) -> Self {
        let SinkInfo { name, stream, emitted, delivered, failed, waiting, waiting_bytes, problem } = info;
        Self { name, stream, emitted, delivered, failed, waiting, waiting_bytes, problem }
    }
}

/// An event that another system refused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Undelivered {
    /// Its id in the store.
    #[schema(example = "orders.siddhi: Orders to kafka#0-1042-7")]
    id: String,
    /// Name of the sink.
    sink: String,
    /// Stream of the event.
    stream: String,
    /// The event.
    #[schema(value_type = Object)]
    event: serde_json::Value,
    /// Why it was refused.
    reason: String,
    /// When it was refused.
    time: String,
}

impl From<UndeliveredEvent> for Undelivered {
    fn from(event: UndeliveredEvent) -> Self {
        let UndeliveredEvent { id, sink, stream, event, reason, time } = event;
        let event = serde_json::from_str(&event).unwrap_or(serde_json::Value::String(event));
        Self { id, sink, stream, event, reason, time: time.to_string() }
    }
}

/// Selection of undelivered events.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Selection {
    /// Those of this sink.
    #[serde(default)]
    sink: Option<String>,
    /// Those with these ids.
    #[serde(default)]
    ids: Vec<String>,
    /// All of them.
    #[serde(default)]
    all: bool,
}

impl Selection {
    /// Errors: nothing is selected, or all besides something else.
    fn checked(self) -> Result<UndeliveredSelection, ApiError> {
        let is_some = self.sink.is_some() || !self.ids.is_empty();
        match (self.all, is_some) {
            (true, true) => Err(ApiError::invalid("`all` stands alone: leave `sink` and `ids` out")),
            (false, false) => Err(ApiError::invalid(
                "no event is selected: expected `sink`, `ids`, or `\"all\": true` for every undelivered event",
            )),
            _ => Ok(UndeliveredSelection { sink: self.sink, ids: self.ids }),
        }
    }
}

/// Outcome of a retry.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RetryReply {
    /// Events that went to their sinks again. Those that are refused again come back with new ids.
    retried: u64,
    /// Why others did not.
    errors: Vec<String>,
}

/// Outcome of a discard.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DiscardReply {
    /// Events that were forgotten.
    discarded: u64,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UndeliveredParams {
    /// Only those of this sink.
    #[serde(default)]
    sink: Option<String>,
    /// Maximum number of events; default: 1000.
    #[serde(default)]
    limit: Option<u64>,
}

/// List the sinks to other systems.
#[utoipa::path(
    get, path = "/api/v1/sinks", tag = "sinks", operation_id = "listSinks",
    responses((status = 200, description = "The sinks of streams that the caller may read", body = Vec<Sink>)),
)]
pub(crate) async fn list(call: RequestContext) -> Result<Json<Vec<Sink>>, ApiError> {
    let sinks = call.engine(|engine| Ok(engine.sinks())).await?;
    let sinks =
        sinks.into_iter().filter(|sink| call.principal.can(Action::Read, &Resource::stream(&sink.stream)));
    Ok(Json(sinks.map(Sink::from).collect()))
}

/// List the events that sinks with `on.error='STORE'` could not deliver.
#[utoipa::path(
    get, path = "/api/v1/undelivered", tag = "sinks", operation_id = "listUndelivered",
    params(UndeliveredParams),
    responses((status = 200, description = "The events of streams that the caller may read, oldest first", body = Vec<Undelivered>)),
)]
pub(crate) async fn undelivered(
    call: RequestContext,
    QueryParams(params): QueryParams<UndeliveredParams>,
) -> Result<Json<Vec<Undelivered>>, ApiError> {
    let selection = UndeliveredSelection { sink: params.sink, ids: vec![] };
    let limit = params.limit.unwrap_or(LIMIT);
    let principal = call.principal.clone();
    let sees = move |event: &UndeliveredEvent| principal.can(Action::Read, &Resource::stream(&event.stream));
    let events = call
        .engine(move |engine| {
            let mut events = engine.undelivered(&selection, u64::MAX)?;
            events.retain(sees);
            events.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            Ok(events)
        })
        .await?;
    Ok(Json(events.into_iter().map(Undelivered::from).collect()))
}

/// Hand undelivered events to their sinks again.
///
/// Each is sent once, even if the server crashes meanwhile. What is refused again comes back to the store.
#[utoipa::path(
    post, path = "/api/v1/undelivered/retry", tag = "sinks", operation_id = "retryUndelivered",
    request_body = Selection,
    responses(
        (status = 200, description = "They are on their way", body = RetryReply),
        (status = 400, description = "Nothing is selected", body = ErrorBody),
    ),
)]
pub(crate) async fn retry(call: RequestContext, content: RequestBody) -> Result<Json<RetryReply>, ApiError> {
    let selection = content.json::<Selection>(&call).await?.checked()?;
    let outcome = call.engine(move |engine| engine.retry_undelivered(&selection)).await?;
    Ok(Json(RetryReply { retried: outcome.retried, errors: outcome.errors }))
}

/// Forget undelivered events.
#[utoipa::path(
    post, path = "/api/v1/undelivered/discard", tag = "sinks", operation_id = "discardUndelivered",
    request_body = Selection,
    responses(
        (status = 200, description = "They are forgotten", body = DiscardReply),
        (status = 400, description = "Nothing is selected", body = ErrorBody),
    ),
)]
pub(crate) async fn discard(
    call: RequestContext,
    content: RequestBody,
) -> Result<Json<DiscardReply>, ApiError> {
    let selection = content.json::<Selection>(&call).await?.checked()?;
    let discarded = call.engine(move |engine| engine.discard_undelivered(&selection)).await?;
    Ok(Json(DiscardReply { discarded }))
}
