//! Routes of rules: statistics, explanations, and running an aggregate rule.

use axum::Json;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tidemill_access::{Action, Resource};
use tidemill_engine::EventSelector;
use utoipa::IntoParams;

use crate::context::RequestContext;
use crate::error::{ApiError, ErrorBody};
use crate::extract::{PathParams, QueryParams};
use crate::model::{Rule, RunReply};
use crate::negotiate::prefers_text;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhyParams {
    /// An event id (`0-1042-7`), or field values: `flight_id=F1,origin=EWR` (percent-encode `=` and `,` if in doubt).
    event: String,
}

/// List the rules.
#[utoipa::path(
    get, path = "/api/v1/rules", tag = "rules", operation_id = "listRules",
    responses((status = 200, description = "The rules that the caller may read", body = Vec<Rule>)),
)]
pub(crate) async fn list(call: RequestContext) -> Result<Json<Vec<Rule>>, ApiError> {
    let rules = call.engine(tidemill_engine::Engine::rules).await?;
    let rules =
        rules.into_iter().filter(|rule| call.principal.can(Action::Read, &Resource::rule(&rule.name)));
    Ok(Json(rules.map(Rule::from).collect()))
}

/// Explain why a rule fired for an event, or why not.
///
/// As JSON, or with `Accept: text/plain` as text for people.
#[utoipa::path(
    get, path = "/api/v1/rules/{rule}/why", tag = "rules", operation_id = "whyRule",
    params(("rule" = String, Path, description = "Name of the rule"), WhyParams),
    responses(
        (status = 200, description = "An explanation per event: that with the id, or of each partition the latest with the fields", content(
            (Vec<Object> = "application/json"), (String = "text/plain"),
        )),
        (status = 400, description = "Not an event id or field values", body = ErrorBody),
        (status = 404, description = "No such rule or event", body = ErrorBody),
    ),
)]
pub(crate) async fn why_rule(
    call: RequestContext,
    PathParams(rule): PathParams<String>,
    QueryParams(params): QueryParams<WhyParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    explain(call, Some(rule), params, &headers).await
}

/// Explain what every rule did with an event, and why.
///
/// As JSON, or with `Accept: text/plain` as text for people.
#[utoipa::path(
    get, path = "/api/v1/why", tag = "rules", operation_id = "why",
    params(WhyParams),
    responses(
        (status = 200, description = "An explanation per event: that with the id, or of each partition the latest with the fields", content(
            (Vec<Object> = "application/json"), (String = "text/plain"),
        )),
        (status = 400, description = "Not an event id or field values", body = ErrorBody),
        (status = 404, description = "No such event", body = ErrorBody),
    ),
)]
pub(crate) async fn why(
    call: RequestContext,
    QueryParams(params): QueryParams<WhyParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    explain(call, None, params, &headers).await
}

async fn explain(
    call: RequestContext,
    rule: Option<String>,
    params: WhyParams,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let event: EventSelector = params.event.parse()?;
    let explanations = call.engine(move |engine| engine.why(rule.as_deref(), &event)).await?;
    if prefers_text(headers) {
        let text: Vec<String> = explanations.iter().map(ToString::to_string).collect();
        return Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text.join("\n")).into_response());
    }
    Ok(Json(explanations).into_response())
}

/// Run an aggregate rule now.
#[utoipa::path(
    post, path = "/api/v1/rules/{rule}/run", tag = "rules", operation_id = "runRule",
    params(("rule" = String, Path, description = "Name of an aggregate rule")),
    responses(
        (status = 200, description = "The run is done", body = RunReply),
        (status = 400, description = "Not an aggregate rule", body = ErrorBody),
        (status = 404, description = "No such rule", body = ErrorBody),
    ),
)]
pub(crate) async fn run(
    call: RequestContext,
    PathParams(rule): PathParams<String>,
) -> Result<Json<RunReply>, ApiError> {
    let timeout = call.app.options.query_timeout;
    let documents_written = call.engine_within(timeout, move |engine| engine.run_aggregate(&rule)).await?;
    Ok(Json(RunReply { documents_written }))
}
