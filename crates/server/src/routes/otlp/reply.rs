//! Messages of replies, as protocol buffers and as JSON.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, StatusCode};
use prost::Message;
use serde::Serialize;
use tidemill_mappers::otlp::{Encoding, Signal};
use utoipa::ToSchema;

use super::{JSON, PROTOBUF};
use crate::error::ErrorDetail;
use crate::routes::telemetry::RecordsOutcome;

/// Seconds after which a request may be sent again.
const RETRY_AFTER_S: i64 = 1;
/// Bytes of the text of an error; over gRPC it is in a header.
const MESSAGE_BYTES_MAX: usize = 4096;

/// Reply to a request whose records were stored: `ExportLogsServiceResponse` and its like.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExportReply {
    /// Records that were not stored, or remarks about those that were; missing without either.
    #[serde(skip_serializing_if = "Option::is_none")]
    partial_success: Option<PartialSuccess>,
}

/// Number of records that were rejected, which is 0 for a warning, and why.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PartialSuccess {
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected_log_records: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected_data_points: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected_spans: Option<String>,
    #[serde(skip)]
    rejected: u64,
    error_message: String,
}

/// [`ExportReply`] as protocol buffers, whose fields have the same numbers for all signals.
#[derive(Clone, PartialEq, Message)]
struct ExportMessage {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccessMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccessMessage {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// Error, as `google.rpc.Status`.
#[derive(Clone, PartialEq, Message, Serialize, ToSchema)]
pub(crate) struct OtlpStatus {
    /// Code of gRPC.
    #[prost(int32, tag = "1")]
    #[schema(example = 3)]
    pub code: i32,
    /// For people: the place, what was expected, what to do.
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(message, repeated, tag = "3")]
    #[serde(skip)]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`, without which clients do not send again what was refused for lack of room.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Duration>,
}

#[derive(Clone, PartialEq, Message)]
struct Duration {
    #[prost(int64, tag = "1")]
    seconds: i64,
}

/// Message that a reply can have.
pub(super) trait ReplyMessage: Serialize {
    /// Returns it as protocol buffers.
    fn to_protobuf(&self) -> Vec<u8>;
}

impl ExportReply {
    pub(super) fn of(signal: Signal, outcome: RecordsOutcome) -> Self {
        if outcome.message.is_empty() {
            return Self { partial_success: None };
        }
        let count = |of| (of == signal).then(|| outcome.rejected.to_string());
        Self {
            partial_success: Some(PartialSuccess {
                rejected_log_records: count(Signal::Logs),
                rejected_data_points: count(Signal::Metrics),
                rejected_spans: count(Signal::Traces),
                rejected: outcome.rejected,
                error_message: outcome.message,
            }),
        }
    }
}

impl ReplyMessage for ExportReply {
    fn to_protobuf(&self) -> Vec<u8> {
        let partial_success = self.partial_success.as_ref().map(|part| PartialSuccessMessage {
            rejected: part.rejected as i64,
            error_message: part.error_message.clone(),
        });
        ExportMessage { partial_success }.encode_to_vec()
    }
}

impl ReplyMessage for OtlpStatus {
    fn to_protobuf(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

impl OtlpStatus {
    /// Returns the status of an error of the routes.
    pub(super) fn of(status: StatusCode, error: &ErrorDetail) -> Self {
        let code = match status {
            StatusCode::UNAUTHORIZED => 16,
            StatusCode::FORBIDDEN => 7,
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => 12,
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => 8,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::REQUEST_TIMEOUT => 14,
            status if status.is_server_error() => 13,
            _ => 3,
        };
        let retry = || {
            let info = RetryInfo { retry_delay: Some(Duration { seconds: RETRY_AFTER_S }) };
            Any {
                type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
                value: info.encode_to_vec(),
            }
        };
        let message = error.message[..error.message.floor_char_boundary(MESSAGE_BYTES_MAX)].to_owned();
        Self { code, message, details: error.retryable.then(retry).into_iter().collect() }
    }
}

/// Returns the parts of a reply.
pub(super) fn encode(
    status: StatusCode,
    encoding: Encoding,
    message: &impl ReplyMessage,
) -> (StatusCode, [(HeaderName, &'static str); 1], Vec<u8>) {
    let (media, bytes) = match encoding {
        Encoding::Protobuf => (PROTOBUF, message.to_protobuf()),
        Encoding::Json => (JSON, serde_json::to_vec(message).unwrap_or_default()),
    };
    (status, [(CONTENT_TYPE, media)], bytes)
}
