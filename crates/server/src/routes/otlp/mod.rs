//! OTLP, the protocol of OpenTelemetry, over HTTP and gRPC.
//!
//! ```text
//! POST /v1/logs                                                     protocol buffers or JSON
//! POST /opentelemetry.proto.collector.logs.v1.LogsService/Export    gRPC, HTTP/2
//! ```
//!
//! Replies have the encoding of their requests: an empty message, or one with the number of records that were rejected and why; errors are
//! `google.rpc.Status` ([`errors`]).

pub(crate) mod errors;
pub(crate) mod grpc;
mod reply;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tidemill_mappers::otlp::{self, Encoding, Signal};
use tidemill_types::ErrorKind;

use self::reply::{ExportReply, OtlpStatus, encode};
use super::telemetry::store;
use crate::body::RequestBody;
use crate::context::RequestContext;
use crate::error::ApiError;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// Store log records.
///
/// Each is an event of the stream `otel_logs`. Records that are rejected are counted in `partialSuccess`; the others are stored.
#[utoipa::path(
    post, path = "/v1/logs", tag = "telemetry", operation_id = "exportLogs",
    request_body(
        description = "`ExportLogsServiceRequest`; gzip and zstd content encodings are accepted",
        content((Vec<u8> = "application/x-protobuf"), (Object = "application/json")),
    ),
    responses(
        (status = 200, description = "Stored; `partialSuccess` says what was not, and why", body = ExportReply),
        (status = 400, description = "Nothing was stored", body = OtlpStatus),
    ),
)]
pub(crate) async fn logs(call: RequestContext, content: RequestBody) -> Result<Response, ApiError> {
    export(call, content, Signal::Logs).await
}

/// Store points of metrics.
///
/// Each is an event of the stream of its kind: `otel_metrics_gauge`, `otel_metrics_sum`, `otel_metrics_histogram`,
/// `otel_metrics_exponential_histogram`, `otel_metrics_summary`.
#[utoipa::path(
    post, path = "/v1/metrics", tag = "telemetry", operation_id = "exportMetrics",
    request_body(
        description = "`ExportMetricsServiceRequest`; gzip and zstd content encodings are accepted",
        content((Vec<u8> = "application/x-protobuf"), (Object = "application/json")),
    ),
    responses(
        (status = 200, description = "Stored; `partialSuccess` says what was not, and why", body = ExportReply),
        (status = 400, description = "Nothing was stored", body = OtlpStatus),
    ),
)]
pub(crate) async fn metrics(call: RequestContext, content: RequestBody) -> Result<Response, ApiError> {
    export(call, content, Signal::Metrics).await
}

/// Store spans.
///
/// Each is an event of the stream `otel_traces`.
#[utoipa::path(
    post, path = "/v1/traces", tag = "telemetry", operation_id = "exportTraces",
    request_body(
        description = "`ExportTraceServiceRequest`; gzip and zstd content encodings are accepted",
        content((Vec<u8> = "application/x-protobuf"), (Object = "application/json")),
    ),
    responses(
        (status = 200, description = "Stored; `partialSuccess` says what was not, and why", body = ExportReply),
        (status = 400, description = "Nothing was stored", body = OtlpStatus),
    ),
)]
pub(crate) async fn traces(call: RequestContext, content: RequestBody) -> Result<Response, ApiError> {
    export(call, content, Signal::Traces).await
}

async fn export(call: RequestContext, content: RequestBody, signal: Signal) -> Result<Response, ApiError> {
    let encoding = match content.media.as_deref() {
        Some(PROTOBUF) => Encoding::Protobuf,
        Some(JSON) => Encoding::Json,
        other => {
            let found =
                other.map_or_else(|| "no content type".to_owned(), |other| format!("content type `{other}`"));
            return Err(ApiError::with_status(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                ErrorKind::Invalid,
                format!("{found}: expected {PROTOBUF} or {JSON}"),
            ));
        }
    };
    let mut body = content.into_bytes();
    let principal = call.principal.clone();
    let outcome = call.engine(move |engine| {
        let bytes = body.shared();
        let (outcome, ()) = store(engine, &principal, &mut body, &bytes, |bytes, rows| {
            otlp::decode(signal, encoding, bytes, rows)
        })?;
        outcome.if_nothing_is_stored().map_or(Ok(outcome), Err)
    });
    let reply = ExportReply::of(signal, outcome.await?);
    Ok(encode(StatusCode::OK, encoding, &reply).into_response())
}
