//! Routes of records that stopped their partition, so that rules and queries do not see them.

use axum::Json;
use serde::{Deserialize, Serialize};
use tidemill_engine::SetAsideRecord;
use utoipa::ToSchema;

use crate::body::RequestBody;
use crate::context::RequestContext;
use crate::error::{ApiError, ErrorBody};

/// A record that stopped its partition.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SetAside {
    /// Its partition and its offset there.
    #[schema(example = "3/17")]
    id: String,
    /// Content of the record; empty until the server has been started again, which sets it aside.
    content: String,
    /// Why it could not be applied.
    reason: String,
    /// When that was found.
    time: String,
}

impl From<SetAsideRecord> for SetAside {
    fn from(record: SetAsideRecord) -> Self {
        let id = record.id();
        let SetAsideRecord { content, reason, time, .. } = record;
        Self { id, content, reason, time }
    }
}

/// The record that is meant.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordSelection {
    /// Its id.
    #[schema(example = "3/17")]
    id: String,
}

/// Outcome of a record that was run again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RerunReply {
    /// Why rules failed, if some did.
    errors: Vec<String>,
}

/// The record that was forgotten.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ForgetReply {
    /// Its id.
    forgotten: String,
}

/// List the records that are set aside: their events are stored, but rules and queries do not see them.
#[utoipa::path(
    get, path = "/api/v1/set-aside", tag = "system", operation_id = "listSetAside",
    responses((status = 200, description = "The records by partition and offset", body = Vec<SetAside>)),
)]
pub(crate) async fn list(call: RequestContext) -> Result<Json<Vec<SetAside>>, ApiError> {
    let records = call.engine(|engine| Ok(engine.set_aside_records())).await?;
    Ok(Json(records.into_iter().map(SetAside::from).collect()))
}

/// Run rules and queries on the events of a record that is set aside, now.
///
/// Should it stop its partition again, it is set aside again, with another id.
#[utoipa::path(
    post, path = "/api/v1/set-aside/rerun", tag = "system", operation_id = "rerunSetAside",
    request_body = RecordSelection,
    responses(
        (status = 200, description = "It was run", body = RerunReply),
        (status = 404, description = "It is not set aside", body = ErrorBody),
        (status = 409, description = "It is set aside when its partition is opened again", body = ErrorBody),
    ),
)]
pub(crate) async fn rerun(call: RequestContext, content: RequestBody) -> Result<Json<RerunReply>, ApiError> {
    let RecordSelection { id } = content.json(&call).await?;
    let errors = call.engine(move |engine| engine.rerun_record(&id)).await?;
    Ok(Json(RerunReply { errors }))
}

/// Forget a record that is set aside. Its events stay stored.
#[utoipa::path(
    post, path = "/api/v1/set-aside/forget", tag = "system", operation_id = "forgetSetAside",
    request_body = RecordSelection,
    responses(
        (status = 200, description = "It is forgotten", body = ForgetReply),
        (status = 404, description = "It is not set aside", body = ErrorBody),
        (status = 409, description = "It is set aside when its partition is opened again", body = ErrorBody),
    ),
)]
pub(crate) async fn forget(
    call: RequestContext,
    content: RequestBody,
) -> Result<Json<ForgetReply>, ApiError> {
    let RecordSelection { id } = content.json(&call).await?;
    let forgotten = id.clone();
    call.engine(move |engine| engine.forget_record(&id)).await?;
    Ok(Json(ForgetReply { forgotten }))
}
