//! Routes of health, metrics, the API description and the front page.

use axum::Json;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidemill_access::{Action, Resource};
use tidemill_types::Error;
use utoipa::ToSchema;

use crate::context::RequestContext;
use crate::error::{ApiError, ErrorBody};
use crate::metrics;
use crate::model::Readiness;
use crate::negotiate::wants_html;
use crate::page;

/// That the process answers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Liveness {
    /// Always true.
    alive: bool,
}

/// Check that the process answers.
#[utoipa::path(
    get, path = "/livez", tag = "system", operation_id = "livez", security(()),
    responses((status = 200, description = "It does", body = Liveness)),
)]
pub(crate) async fn livez() -> Json<Liveness> {
    Json(Liveness { alive: true })
}

/// Check whether requests can be served.
///
/// Problems are for callers who may read the server, or the table `system.problems`.
#[utoipa::path(
    get, path = "/readyz", tag = "system", operation_id = "readyz", security(()),
    responses(
        (status = 200, description = "They can; problems may be there all the same", body = Readiness),
        (status = 503, description = "Not now", body = Readiness),
    ),
)]
pub(crate) async fn readyz(call: RequestContext) -> Result<(StatusCode, Json<Readiness>), ApiError> {
    let mut readiness: Readiness = call.engine(|engine| Ok(engine.health())).await?.into();
    if call.app.is_stopping() {
        readiness.ready = false;
        readiness.problems.get_or_insert_default().push("the server is shutting down".to_owned());
    }
    // they name streams, files and addresses
    let may_know = [Resource::SERVER, Resource::system("problems")];
    if !may_know.iter().any(|resource| call.principal.can(Action::Read, resource)) {
        readiness.problems = None;
    }
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, Json(readiness)))
}

/// All metrics, in the OpenMetrics text form that Prometheus reads.
#[utoipa::path(
    get, path = "/metrics", tag = "system", operation_id = "metrics",
    responses(
        (status = 200, description = "The metrics", body = String, content_type = "application/openmetrics-text"),
        (status = 401, description = "No token, or a wrong one", body = ErrorBody),
    ),
)]
pub(crate) async fn metrics(call: RequestContext) -> Result<Response, ApiError> {
    let engine = call.engine(|engine| Ok(engine.metrics())).await?;
    let text = call
        .app
        .metrics
        .exposition(engine, &call.app.connections)
        .map_err(|e| Error::internal("the metrics could not be written").with_source(e))?;
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

/// This description.
#[utoipa::path(
    get, path = "/api/v1/openapi.json", tag = "system", operation_id = "openapi",
    responses((status = 200, description = "OpenAPI 3.1", body = Object)),
)]
pub(crate) async fn openapi(call: RequestContext) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], call.app.description.json.clone()).into_response()
}

/// The front page: for browsers streams with their rates, problems and a box for SQL, otherwise text.
#[utoipa::path(
    get, path = "/", tag = "system", operation_id = "index", security(()),
    responses((status = 200, description = "Where to go from here", content(
        (String = "text/plain"), (String = "text/html"),
    ))),
)]
pub(crate) async fn index(headers: HeaderMap) -> Response {
    if wants_html(&headers) {
        return page::reply();
    }
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::VARY, "accept")], INDEX_TEXT)
        .into_response()
}

const INDEX_TEXT: &str = "\
Tidemill keeps events queryable and acts on them.

  POST /api/v1/streams/STREAM    send events
  POST /api/v1/sql               ask in SQL
  GET  /api/v1/rules             rules and what they did
  GET  /api/v1/openapi.json      all routes
  GET  /readyz                   health
  GET  /metrics                  metrics for Prometheus

Requests to /api and /metrics need the header `Authorization: Bearer TOKEN`.
The token is in the file `token` of the data directory.
In a browser this address is a page with streams, problems and a box for SQL.
";
