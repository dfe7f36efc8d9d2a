//! Errors in the forms of InfluxDB's versions, also those that come before a route is called.

use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidemill_types::BadRow;
use utoipa::ToSchema;

use super::store::LinesOutcome;
use crate::error::ErrorDetail;
use crate::paths::api_version::ApiVersion;

/// Refused lines that a reply names.
const LINES_SHOWN_MAX: usize = 100;
/// Bytes of a refused line that a reply shows.
const TEXT_SHOWN_BYTES_MAX: usize = 256;
/// Bytes of a reason that a reply shows; it may have names of the line.
const REASON_SHOWN_BYTES_MAX: usize = 4096;

/// Error of version 1.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WriteErrorV1 {
    /// For people. Clients look for `partial write`, after which they do not send the lines again.
    #[schema(example = "partial write: 1 of 2 lines was stored\nline 2: No fields were provided")]
    error: String,
}

/// Error of version 2.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WriteErrorV2 {
    /// `invalid`, `unauthorized`, `forbidden`, `not found`, `conflict`, `request too large`, `too many requests`, `unavailable`,
    /// `internal error`.
    #[schema(example = "invalid")]
    code: &'static str,
    /// For people.
    message: String,
    /// Number of the first refused line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
}

/// Error of version 3.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WriteErrorV3 {
    /// For people.
    error: String,
    /// Refused lines; the first of them when no line was stored because of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<RefusedLines>,
}

/// One refused line or a list of them.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum RefusedLines {
    First(RefusedLine),
    All(Vec<RefusedLine>),
}

/// A refused line.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RefusedLine {
    /// Its text, or the beginning of it.
    original_line: String,
    /// Its number, from 1.
    line_number: u64,
    /// Explanation: what was expected and what was found.
    error_message: String,
}

impl ApiVersion {
    /// Returns the reply that names the refused lines.
    pub(super) fn refused_lines(self, outcome: &LinesOutcome) -> Response {
        let lines = outcome.refused.iter().take(LINES_SHOWN_MAX);
        let more = outcome.refused.len().saturating_sub(LINES_SHOWN_MAX);
        let more = if more == 0 { String::new() } else { format!("\nand {more} more lines") };
        match self {
            Self::V1 | Self::V2 => {
                let reasons: String = lines
                    .map(|bad| {
                        format!("\nline {}: {}", number(bad), cut(&bad.message, REASON_SHOWN_BYTES_MAX))
                    })
                    .collect();
                let all = outcome.stored + outcome.refused.len() as u64;
                let verb = if outcome.stored == 1 { "was" } else { "were" };
                let message =
                    format!("partial write: {} of {all} lines {verb} stored{reasons}{more}", outcome.stored);
                let line = outcome.refused.first().map(number);
                match self {
                    Self::V1 => refusal(WriteErrorV1 { error: message }),
                    _ => refusal(WriteErrorV2 { code: "invalid", message, line }),
                }
            }
            Self::V3 if outcome.is_withdrawn => refusal(WriteErrorV3 {
                error: "parsing failed for write_lp endpoint".to_owned(),
                data: outcome.refused.first().map(|bad| RefusedLines::First(refused_line(bad))),
            }),
            Self::V3 => refusal(WriteErrorV3 {
                error: format!("partial write of line protocol occurred{more}"),
                data: Some(RefusedLines::All(lines.map(refused_line).collect())),
            }),
        }
    }

    /// Returns the body of an error that is not about lines.
    fn body(self, status: StatusCode, error: ErrorDetail) -> Body {
        let json = match self {
            Self::V1 => serde_json::to_vec(&WriteErrorV1 { error: error.message }),
            Self::V2 => serde_json::to_vec(&WriteErrorV2 {
                code: code(status, &error.kind),
                message: error.message,
                line: None,
            }),
            Self::V3 => serde_json::to_vec(&WriteErrorV3 { error: error.message, data: None }),
        };
        json.unwrap_or_default().into()
    }
}

fn refusal(body: impl Serialize) -> Response {
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

fn number(bad: &BadRow) -> u64 {
    bad.origin.line.unwrap_or(bad.origin.number + 1)
}

fn refused_line(bad: &BadRow) -> RefusedLine {
    RefusedLine {
        original_line: cut(&bad.text, TEXT_SHOWN_BYTES_MAX).to_owned(),
        line_number: number(bad),
        error_message: cut(&bad.message, REASON_SHOWN_BYTES_MAX).to_owned(),
    }
}

fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Returns the code of version 2 for one of our kinds.
fn code(status: StatusCode, kind: &str) -> &'static str {
    match kind {
        "invalid" => "invalid",
        "unauthorized" => "unauthorized",
        "forbidden" => "forbidden",
        "not_found" => "not found",
        "conflict" => "conflict",
        "limit_reached" if status == StatusCode::PAYLOAD_TOO_LARGE => "request too large",
        "limit_reached" => "too many requests",
        "unavailable" => "unavailable",
        _ => "internal error",
    }
}

/// Gives errors of the routes of line protocol the form that their clients read.
pub(crate) async fn own_form(request: Request, next: Next) -> Response {
    let version = ApiVersion::of_path(request.uri().path());
    let response = next.run(request).await;
    let Some((version, error)) = version.zip(response.extensions().get::<ErrorDetail>().cloned()) else {
        return response;
    };
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = version.body(parts.status, error);
    Response::from_parts(parts, body)
}
