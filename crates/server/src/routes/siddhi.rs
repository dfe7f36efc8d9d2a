//! Routes of SiddhiQL apps: on-demand queries, and reports on why a query emits nothing.

use axum::Json;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tidemill_access::{Action, Resource};
use tidemill_engine::OnDemandTarget;
use utoipa::{IntoParams, ToSchema};

use crate::body::RequestBody;
use crate::context::RequestContext;
use crate::error::{ApiError, ErrorBody};
use crate::extract::{PathParams, QueryParams};
use crate::negotiate::prefers_text;

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

/// Result of the query.
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
pub(crate) async fn query(
    call: RequestContext,
    content: RequestBody,
) -> Result<Json<OnDemandReply>, ApiError> {
    let request: OnDemandRequest = content.json(&call).await?;
    let timeout = call.app.options.query_timeout;
    let target = OnDemandTarget::parse(&request.query)?;
    let action = match target.changes {
        true => Action::Write,
        false => Action::Read,
    };
    call.principal.may(action, &Resource::table(&target.store))?;
    for table in &target.searches {
        call.principal.may(Action::Read, &Resource::table(table))?;
    }
    let ask = call
        .engine_within(timeout, move |engine| engine.query_on_demand(request.app.as_deref(), &request.query));
    Ok(Json(OnDemandReply { records: ask.await? }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhyQueryParams {
    /// The file that has the query; needed where several have one of that name.
    #[serde(default)]
    app: Option<String>,
    /// Key of a query inside `partition with`; without it, all keys are reported together.
    #[serde(default)]
    key: Option<String>,
}

/// Explain why a query emits nothing.
///
/// What came to it since the server started, what its window, pattern or join holds, the condition that failed, and what it
/// waits for. As JSON, or with `Accept: text/plain` as text for people.
#[utoipa::path(
    get, path = "/api/v1/queries/{query}/why", tag = "queries", operation_id = "whyQuery",
    params(("query" = String, Path, description = "Name of the query, as system.queries shows it"), WhyQueryParams),
    responses(
        (status = 200, description = "A report for each partition of the log in which it runs", content(
            (Vec<Object> = "application/json"), (String = "text/plain"),
        )),
        (status = 400, description = "A key of a query that has none, a file to be named, a rule", body = ErrorBody),
        (status = 404, description = "No such query, file or key", body = ErrorBody),
    ),
)]
pub(crate) async fn why(
    call: RequestContext,
    PathParams(query): PathParams<String>,
    QueryParams(params): QueryParams<WhyQueryParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let WhyQueryParams { app, key } = params;
    let reports = call.engine(move |engine| engine.why_query(app.as_deref(), &query, key.as_deref())).await?;
    if prefers_text(&headers) {
        let text: Vec<String> = reports.iter().map(ToString::to_string).collect();
        return Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text.join("\n")).into_response());
    }
    Ok(Json(reports).into_response())
}
