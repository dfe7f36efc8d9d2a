//! On-demand queries over what SiddhiQL apps hold.

use axum::Json;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::Call;
use crate::body::Content;
use crate::error::{ApiError, ErrorBody};

/// An on-demand query.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OnDemandRequest {
    /// The file whose tables, named windows or aggregations are meant; needed where several have one of that name.
    #[serde(default)]
    app: Option<String>,
    /// The query.
    #[schema(example = "from Last on price > 10.0 select symbol, price")]
    query: String,
}

/// What it found.
#[derive(Serialize, ToSchema)]
pub(crate) struct OnDemandReply {
    /// The values of each row in order; none for a query that changes a table.
    #[schema(value_type = Vec<Vec<Object>>)]
    records: Vec<Vec<serde_json::Value>>,
}

/// Ask or change a table, ask a named window or an aggregation.
#[utoipa::path(
    post, path = "/api/v1/siddhi/query", tag = "queries", operation_id = "queryOnDemand",
    request_body = OnDemandRequest,
    responses(
        (status = 200, description = "What was found, or nothing for a change", body = OnDemandReply),
        (status = 400, description = "The query is wrong", body = ErrorBody),
        (status = 404, description = "No such file, table, window or aggregation", body = ErrorBody),
    ),
)]
pub(crate) async fn query(call: Call, content: Content) -> Result<Json<OnDemandReply>, ApiError> {
    let request: OnDemandRequest = content.json(&call).await?;
    let timeout = call.app.options.query_timeout;
    let ask = call
        .engine_within(timeout, move |engine| engine.query_on_demand(request.app.as_deref(), &request.query));
    Ok(Json(OnDemandReply { records: ask.await? }))
}
