//! Line protocol by the routes of InfluxDB, so that its clients and Telegraf write without a change.
//!
//! ```text
//! POST /write             version 1    db, rp, precision, consistency, u, p
//! POST /api/v2/write      version 2    org, bucket, precision
//! POST /api/v3/write_lp   version 3    db, precision, accept_partial, no_sync
//! ```
//!
//! A line is an event of the stream that its measurement names. Names of databases, buckets and organisations are accepted and mean
//! nothing: a data directory has one set of streams. Errors have the form of each version ([`errors`]).

mod declarations;
pub(crate) mod errors;
pub(crate) mod health;
mod store;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tidemill_engine::Durability;
use tidemill_mappers::line_protocol::Precision;
use utoipa::IntoParams;

use self::errors::{WriteErrorV1, WriteErrorV2, WriteErrorV3};
use self::store::StoreOptions;
use crate::body::RequestBody;
use crate::context::RequestContext;
use crate::error::ApiError;
use crate::extract::QueryParams;
use crate::paths::api_version::ApiVersion;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WriteParamsV1 {
    /// Unit of times: `ns` (the default, also `n`), `us` (also `u`), `ms`, `s`, `m`, `h`.
    precision: Option<String>,
    /// Token, where no header has it.
    #[serde(rename = "p")]
    #[expect(dead_code, reason = "is read before the route is")]
    password: Option<String>,
    /// Has no effect.
    #[expect(dead_code, reason = "has no effect")]
    u: Option<String>,
    /// Has no effect: there is one database.
    #[expect(dead_code, reason = "has no effect")]
    db: Option<String>,
    /// Has no effect: streams say how long events are kept.
    #[expect(dead_code, reason = "has no effect")]
    rp: Option<String>,
    /// Has no effect.
    #[expect(dead_code, reason = "has no effect")]
    consistency: Option<String>,
}

/// Write line protocol, as clients of InfluxDB 1 do.
///
/// Each line is an event of the stream that its measurement names. Good lines are stored even when others are refused.
#[utoipa::path(
    post, path = "/write", tag = "line protocol", operation_id = "writeLinesV1", params(WriteParamsV1),
    request_body(description = "Lines; gzip and zstd content encodings are accepted", content((String = "text/plain"))),
    responses(
        (status = 204, description = "All lines were stored"),
        (status = 400, description = "Some lines were refused; the others were stored", body = WriteErrorV1),
    ),
)]
pub(crate) async fn write_v1(
    call: RequestContext,
    QueryParams(params): QueryParams<WriteParamsV1>,
    content: RequestBody,
) -> Result<Response, ApiError> {
    const NAMES: [(&str, Precision); 10] = [
        ("ns", Precision::Nanoseconds),
        ("n", Precision::Nanoseconds),
        ("us", Precision::Microseconds),
        ("u", Precision::Microseconds),
        ("µs", Precision::Microseconds),
        ("µ", Precision::Microseconds),
        ("ms", Precision::Milliseconds),
        ("s", Precision::Seconds),
        ("m", Precision::Minutes),
        ("h", Precision::Hours),
    ];
    let precision = precision(params.precision.as_deref(), &NAMES)?;
    write(call, content, ApiVersion::V1, StoreOptions { precision, ..StoreOptions::default() }).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WriteParamsV2 {
    /// Unit of times: `ns` (the default), `us`, `ms`, `s`.
    precision: Option<String>,
    /// Has no effect: there is one bucket.
    #[expect(dead_code, reason = "has no effect")]
    bucket: Option<String>,
    /// Has no effect.
    #[expect(dead_code, reason = "has no effect")]
    org: Option<String>,
    /// Has no effect.
    #[serde(rename = "orgID")]
    #[expect(dead_code, reason = "has no effect")]
    org_id: Option<String>,
}

/// Write line protocol, as clients of InfluxDB 2 do.
///
/// Each line is an event of the stream that its measurement names. Good lines are stored even when others are refused.
#[utoipa::path(
    post, path = "/api/v2/write", tag = "line protocol", operation_id = "writeLinesV2", params(WriteParamsV2),
    request_body(description = "Lines; gzip and zstd content encodings are accepted", content((String = "text/plain"))),
    responses(
        (status = 204, description = "All lines were stored"),
        (status = 400, description = "Some lines were refused; the others were stored", body = WriteErrorV2),
    ),
)]
pub(crate) async fn write_v2(
    call: RequestContext,
    QueryParams(params): QueryParams<WriteParamsV2>,
    content: RequestBody,
) -> Result<Response, ApiError> {
    const NAMES: [(&str, Precision); 4] = [
        ("ns", Precision::Nanoseconds),
        ("us", Precision::Microseconds),
        ("ms", Precision::Milliseconds),
        ("s", Precision::Seconds),
    ];
    let precision = precision(params.precision.as_deref(), &NAMES)?;
    write(call, content, ApiVersion::V2, StoreOptions { precision, ..StoreOptions::default() }).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WriteParamsV3 {
    /// Unit of times: `auto` (the default: the size of each number decides), `nanosecond`, `microsecond`, `millisecond`, `second`, or `ns`,
    /// `us`, `ms`, `s`.
    precision: Option<String>,
    /// Store good lines also when others are refused.
    #[serde(default = "yes")]
    #[param(default = true)]
    accept_partial: bool,
    /// Reply before the events are on the disk: durability `memory`.
    #[serde(default)]
    #[param(default = false)]
    no_sync: bool,
    /// Has no effect: there is one database.
    #[expect(dead_code, reason = "has no effect")]
    db: Option<String>,
    /// Has no effect.
    #[expect(dead_code, reason = "has no effect")]
    org: Option<String>,
}

fn yes() -> bool {
    true
}

/// Write line protocol, as clients of InfluxDB 3 do.
///
/// Each line is an event of the stream that its measurement names.
#[utoipa::path(
    post, path = "/api/v3/write_lp", tag = "line protocol", operation_id = "writeLinesV3", params(WriteParamsV3),
    request_body(description = "Lines; gzip and zstd content encodings are accepted", content((String = "text/plain"))),
    responses(
        (status = 204, description = "All lines were stored"),
        (status = 400, description = "Some lines were refused", body = WriteErrorV3),
    ),
)]
pub(crate) async fn write_v3(
    call: RequestContext,
    QueryParams(params): QueryParams<WriteParamsV3>,
    content: RequestBody,
) -> Result<Response, ApiError> {
    const NAMES: [(&str, Precision); 9] = [
        ("auto", Precision::Auto),
        ("nanosecond", Precision::Nanoseconds),
        ("microsecond", Precision::Microseconds),
        ("millisecond", Precision::Milliseconds),
        ("second", Precision::Seconds),
        ("ns", Precision::Nanoseconds),
        ("us", Precision::Microseconds),
        ("ms", Precision::Milliseconds),
        ("s", Precision::Seconds),
    ];
    let options = StoreOptions {
        precision: precision(params.precision.as_deref(), &NAMES)?,
        accepts_partial: params.accept_partial,
        durability: params.no_sync.then_some(Durability::Memory),
    };
    write(call, content, ApiVersion::V3, options).await
}

/// Returns the unit of this name, or the first one.
fn precision(name: Option<&str>, known: &[(&str, Precision)]) -> Result<Precision, ApiError> {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(known[0].1) };
    known.iter().find(|(known, _)| *known == name).map(|(_, precision)| *precision).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        ApiError::invalid(format!("precision `{name}`: expected one of {}", names.join(", ")))
    })
}

async fn write(
    call: RequestContext,
    content: RequestBody,
    version: ApiVersion,
    options: StoreOptions,
) -> Result<Response, ApiError> {
    let body = content.into_bytes();
    let principal = call.principal.clone();
    let outcome = call.engine(move |engine| store::store_lines(engine, &principal, &body, &options)).await?;
    match outcome.refused.is_empty() {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Ok(version.refused_lines(&outcome)),
    }
}
