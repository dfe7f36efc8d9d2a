//! Reply and status of a document write.

use axum::http::StatusCode;
use bson::Bson;
use serde::Serialize;
use serde_json::value::RawValue;
use tidemill_docs::{CommandOutcome, DocumentError, ErrorCode};
use tidemill_types::Error;
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorBody, ErrorDetail};
use crate::extjson::RelaxedValue;

/// Outcome of a write.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct WriteReply {
    /// Documents inserted.
    pub inserted: u64,
    /// Documents that were found.
    pub matched: u64,
    /// Documents that became different.
    pub modified: u64,
    /// Documents removed.
    pub deleted: u64,
    /// `_id` of the document that an upsert inserted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub upserted_id: Option<Box<RawValue>>,
    /// With an insert: the `_id` of every document sent, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<serde_json::Value>>)]
    pub ids: Option<Vec<Box<RawValue>>>,
    /// Documents that were refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<RefusedDocument>,
    /// Present when nothing was done: the first of `errors`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorDetail>,
}

/// Either what was done with each document, or why nothing could be.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "names the forms for the API description")]
pub(crate) enum WriteRefusal {
    Refused(WriteReply),
    Error(ErrorBody),
}

/// Why one document was refused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RefusedDocument {
    /// Its place in the request, from 0.
    pub index: usize,
    /// MongoDB's number for the error, for example 11000 for a value that a unique index has already.
    pub code: i32,
    /// The error's kind.
    pub kind: String,
    /// Explanation: what was expected and what was found.
    pub message: String,
}

/// Encodes an `_id` as relaxed Extended JSON.
pub(crate) fn json_of(id: &Bson) -> Result<Box<RawValue>, ApiError> {
    let wrapped = bson::RawBson::try_from(id.clone())
        .map_err(|e| ApiError::from(Error::internal("an _id could not be read").with_source(e)))?;
    serde_json::value::to_raw_value(&RelaxedValue(wrapped.as_raw_bson_ref()))
        .map_err(|e| Error::internal("an _id could not be written as JSON").with_source(e).into())
}

/// Converts the outcome of a write into its reply and status: 207 when some documents were rejected, the
/// status of the first error when nothing was done.
pub(crate) fn into_reply(outcome: CommandOutcome) -> Result<(StatusCode, WriteReply), ApiError> {
    let CommandOutcome { inserted, matched, modified, deleted, upserted_id, errors, before: _, after: _ } =
        outcome;
    let upserted_id = upserted_id.as_ref().map(json_of).transpose()?;
    let done = inserted + modified + deleted > 0 || upserted_id.is_some();
    let (status, error) = match errors.first() {
        None => (StatusCode::OK, None),
        Some(_) if done => (StatusCode::MULTI_STATUS, None),
        Some(first) => {
            let (status, detail) = refusal(first);
            (status, Some(detail))
        }
    };
    let errors = errors
        .into_iter()
        .map(|DocumentError { index, error }| RefusedDocument {
            index,
            code: error.code(),
            kind: error.kind().name().to_owned(),
            message: error.message().to_owned(),
        })
        .collect();
    Ok((status, WriteReply { inserted, matched, modified, deleted, upserted_id, ids: None, errors, error }))
}

fn refusal(first: &DocumentError) -> (StatusCode, ErrorDetail) {
    let kind = first.error.kind();
    let (status, retryable) = match first.error.error_code() {
        // a retry would not make the document smaller
        ErrorCode::DocumentTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, false),
        _ => (
            StatusCode::from_u16(kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            kind.is_retryable(),
        ),
    };
    (
        status,
        ErrorDetail { kind: kind.name().to_owned(), message: first.error.message().to_owned(), retryable },
    )
}
