//! Errors in the forms of MCP.
//!
//! A refusal by a tool is a result of the tool, which the model reads. Bytes that are not a message of MCP get an error of JSON-RPC.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::json;
use tidemill_types::Error;

/// Code of JSON-RPC for a request that is not one.
const INVALID_REQUEST: i32 = -32_600;

/// Returns an error of a tool as its result.
pub(crate) fn tool_error(error: &Error) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(error.to_string())])
}

/// Returns the body of a reply to a request that is not one of MCP.
pub(crate) fn refusal_body(message: &str) -> Bytes {
    let error = json!({"code": INVALID_REQUEST, "message": message});
    json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string().into()
}

/// Returns a refusal as a reply.
pub(crate) fn refusal(status: StatusCode, message: &str) -> Response<Bytes> {
    let mut response = Response::new(refusal_body(message));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns what to send instead of what the transport refuses with a status; `None` where it says all.
pub(crate) fn advice(status: StatusCode) -> Option<&'static str> {
    Some(match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            "MCP is served without sessions and streams of its own: send each message as POST"
        }
        StatusCode::NOT_ACCEPTABLE => {
            "expected the header `Accept: application/json, text/event-stream`, as clients of MCP send it"
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "expected the header `Content-Type: application/json`",
        _ => return None,
    })
}
