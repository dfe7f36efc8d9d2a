//! Health by the paths and in the forms that clients of InfluxDB check.

use axum::Json;
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::context::RequestContext;
use crate::error::ApiError;

/// Version of the routes, as clients read it from [`VERSION_HEADER`].
pub(crate) const VERSION: &str = concat!("1.8-tidemill-", env!("CARGO_PKG_VERSION"));
const VERSION_HEADER: HeaderName = HeaderName::from_static("x-influxdb-version");
const BUILD_HEADER: HeaderName = HeaderName::from_static("x-influxdb-build");

/// Health, as clients of InfluxDB 2 check it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthCheck {
    name: &'static str,
    message: &'static str,
    /// `pass` or `fail`.
    #[schema(example = "pass")]
    status: &'static str,
    /// Always empty: `/readyz` has the problems.
    checks: [&'static str; 0],
    version: &'static str,
    /// Always empty.
    commit: &'static str,
}

/// Check that the process answers, as clients of InfluxDB do.
#[utoipa::path(
    get, path = "/ping", tag = "line protocol", operation_id = "ping", security(()),
    responses((status = 204, description = "It does; the header `X-Influxdb-Version` has a version")),
)]
pub(crate) async fn ping() -> Response {
    (StatusCode::NO_CONTENT, [(VERSION_HEADER, VERSION), (BUILD_HEADER, "tidemill")]).into_response()
}

/// Check whether requests can be served, as clients of InfluxDB 2 do.
#[utoipa::path(
    get, path = "/health", tag = "line protocol", operation_id = "health", security(()),
    responses(
        (status = 200, description = "They can", body = HealthCheck),
        (status = 503, description = "Not now", body = HealthCheck),
    ),
)]
pub(crate) async fn health(call: RequestContext) -> Result<(StatusCode, Json<HealthCheck>), ApiError> {
    let is_ready = call.engine(|engine| Ok(engine.health().ready)).await? && !call.app.is_stopping();
    let (code, status, message) = match is_ready {
        true => (StatusCode::OK, "pass", "ready for queries and writes"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "fail", "not ready: /readyz has the problems"),
    };
    let version = env!("CARGO_PKG_VERSION");
    Ok((code, Json(HealthCheck { name: "tidemill", message, status, checks: [], version, commit: "" })))
}
