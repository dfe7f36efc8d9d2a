//! OTLP over gRPC: requests with one message, which are routes as others are, with their checks, limits and metrics.
//!
//! A message has five bytes in front: whether it is compressed, and its length. It is decompressed here, within the limits of bodies, as servers of
//! gRPC bound only what comes over the wire.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use tidemill_mappers::otlp::{self, Encoding, Signal};
use tidemill_types::ErrorKind;

use super::reply::{ExportReply, OtlpStatus, ReplyMessage};
use crate::body::RequestBody;
use crate::context::RequestContext;
use crate::error::ApiError;
use crate::routes::telemetry::store;

const GRPC: &str = "application/grpc";
/// Bytes in front of a message.
const PREFIX_BYTES: usize = 5;
const ENCODING_HEADER: &str = "grpc-encoding";
const STATUS_HEADER: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE_HEADER: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS_HEADER: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const ACCEPT_ENCODING_HEADER: HeaderName = HeaderName::from_static("grpc-accept-encoding");

pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(GRPC.as_bytes()))
}

/// Store log records, over gRPC.
#[utoipa::path(
    post, path = "/opentelemetry.proto.collector.logs.v1.LogsService/Export", tag = "telemetry",
    operation_id = "exportLogsGrpc",
    request_body(description = "A call of gRPC, over HTTP/2", content((Vec<u8> = "application/grpc"))),
    responses((status = 200, description = "A reply of gRPC, or an error in its headers", content_type = "application/grpc", body = Vec<u8>)),
)]
pub(crate) async fn logs(
    call: RequestContext,
    version: Version,
    headers: HeaderMap,
    content: RequestBody,
) -> Result<Response, ApiError> {
    export(call, version, &headers, content, Signal::Logs).await
}

/// Store points of metrics, over gRPC.
#[utoipa::path(
    post, path = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", tag = "telemetry",
    operation_id = "exportMetricsGrpc",
    request_body(description = "A call of gRPC, over HTTP/2", content((Vec<u8> = "application/grpc"))),
    responses((status = 200, description = "A reply of gRPC, or an error in its headers", content_type = "application/grpc", body = Vec<u8>)),
)]
pub(crate) async fn metrics(
    call: RequestContext,
    version: Version,
    headers: HeaderMap,
    content: RequestBody,
) -> Result<Response, ApiError> {
    export(call, version, &headers, content, Signal::Metrics).await
}

/// Store spans, over gRPC.
#[utoipa::path(
    post, path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export", tag = "telemetry",
    operation_id = "exportTracesGrpc",
    request_body(description = "A call of gRPC, over HTTP/2", content((Vec<u8> = "application/grpc"))),
    responses((status = 200, description = "A reply of gRPC, or an error in its headers", content_type = "application/grpc", body = Vec<u8>)),
)]
pub(crate) async fn traces(
    call: RequestContext,
    version: Version,
    headers: HeaderMap,
    content: RequestBody,
) -> Result<Response, ApiError> {
    export(call, version, &headers, content, Signal::Traces).await
}

async fn export(
    call: RequestContext,
    version: Version,
    headers: &HeaderMap,
    content: RequestBody,
    signal: Signal,
) -> Result<Response, ApiError> {
    if version != Version::HTTP_2 || !is_grpc(headers) {
        return Err(ApiError::with_status(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ErrorKind::Invalid,
            format!(
                "expected a call of gRPC (HTTP/2, content type {GRPC}): over HTTP/1.1 send to /v1/logs, /v1/metrics, /v1/traces"
            ),
        ));
    }
    let encoding = headers.get(ENCODING_HEADER).and_then(|value| value.to_str().ok()).unwrap_or("identity");
    let encoding = encoding.to_owned();
    let mut body = content.into_bytes();
    let principal = call.principal.clone();
    let outcome = call.app.blocking(call.permit.clone(), call.app.options.request_timeout, move |app| {
        let message = GrpcMessage::of(body.shared())?;
        let bytes = match message.is_compressed {
            true => body.decompress(&message.bytes, &encoding)?,
            false => message.bytes,
        };
        let (outcome, ()) = store(&app.engine, &principal, &mut body, &bytes, |bytes, rows| {
            otlp::decode(signal, Encoding::Protobuf, bytes, rows)
        })?;
        outcome.if_nothing_is_stored().map_or(Ok(outcome), |error| Err(ApiError::from(error)))
    });
    Ok(success(&ExportReply::of(signal, outcome.await?)))
}

/// The message of a request.
struct GrpcMessage {
    is_compressed: bool,
    bytes: Bytes,
}

impl GrpcMessage {
    /// Errors: there is not one message, or not the whole of it.
    fn of(mut body: Bytes) -> Result<Self, ApiError> {
        let length = body.len();
        if length < PREFIX_BYTES {
            return Err(ApiError::invalid(format!("the call has {length} bytes: expected a message")));
        }
        let is_compressed = match body.get_u8() {
            0 => false,
            1 => true,
            other => {
                return Err(ApiError::invalid(format!("the message begins with {other}: expected 0 or 1")));
            }
        };
        let expected = body.get_u32() as usize;
        if expected != body.len() {
            return Err(ApiError::invalid(format!(
                "the call has {} bytes after the length {expected}: expected one message",
                body.len()
            )));
        }
        Ok(Self { is_compressed, bytes: body })
    }
}

fn success(reply: &ExportReply) -> Response {
    let message = reply.to_protobuf();
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    framed.put_u8(0);
    framed.put_u32(message.len() as u32);
    framed.extend_from_slice(&message);
    let trailers = HeaderMap::from_iter([(STATUS_HEADER, HeaderValue::from_static("0"))]);
    let body = Full::new(framed.freeze()).with_trailers(async move { Some(Ok(trailers)) });
    grpc_response(Body::new(body))
}

/// Returns the reply to a call that failed: its status is in the headers.
pub(super) fn refusal(status: &OtlpStatus, details: &[u8]) -> Response {
    let mut response = grpc_response(Body::empty());
    let headers = response.headers_mut();
    headers.insert(STATUS_HEADER, HeaderValue::from(status.code));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(&status.message)) {
        headers.insert(MESSAGE_HEADER, message);
    }
    if let Ok(details) = HeaderValue::try_from(BASE64_STANDARD_NO_PAD.encode(details)) {
        headers.insert(DETAILS_HEADER, details);
    }
    response
}

fn grpc_response(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(GRPC));
    response.headers_mut().insert(ACCEPT_ENCODING_HEADER, HeaderValue::from_static("identity,gzip"));
    response
}

/// Returns a text in the form of `grpc-message`: bytes that are not printable, and percent signs, as hexadecimal digits.
fn percent_encoded(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' => out.push_str("%25"),
            b' '..=b'~' => out.push(char::from(byte)),
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_length_in_front() {
        let message = |bytes: &[u8]| GrpcMessage::of(Bytes::copy_from_slice(bytes));
        assert_eq!(message(&[0, 0, 0, 0, 2, 7, 8]).ok().unwrap().bytes, &[7, 8][..]);
        assert!(message(&[1, 0, 0, 0, 0]).ok().unwrap().is_compressed);
        for bytes in [
            &[][..],
            &[0, 0, 0, 0],
            &[2, 0, 0, 0, 0],
            &[0, 0, 0, 0, 2, 7],
            &[0, 255, 255, 255, 255],
            &[0, 0, 0, 0, 1, 7, 8],
        ] {
            assert!(message(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn texts_of_errors_fit_into_a_header() {
        assert_eq!(percent_encoded("50 % `ä`\n"), "50 %25 `%C3%A4`%0A");
    }
}
