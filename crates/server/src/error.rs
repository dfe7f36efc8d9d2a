//! Error replies, which all have the form `{"error": {"kind", "message", "retryable"}}`.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tidemill_types::{Error, ErrorKind};
use utoipa::ToSchema;

/// Value of `Retry-After`, in seconds.
pub(crate) const RETRY_AFTER_S: &str = "1";

/// The body of every reply that is not a success.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErrorBody {
    pub error: ErrorDetail,
}

/// Description of an error, and what can be done about it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorDetail {
    /// `invalid`, `not_found`, `conflict`, `limit_reached`, `unavailable`, `corrupt`, `forbidden`, `internal`,
    /// `unauthorized`.
    #[schema(example = "invalid")]
    pub kind: String,
    /// For people: the place, what was expected, what to do.
    pub message: String,
    /// True if the same request may succeed when it is sent again.
    pub retryable: bool,
}

/// Error reply.
///
/// Created from [`Error`], with the status of its kind, or by a constructor for errors that only HTTP has.
#[derive(Debug)]
pub(crate) struct ApiError(Box<ErrorReply>);

#[derive(Debug)]
struct ErrorReply {
    status: StatusCode,
    detail: ErrorDetail,
    header: Option<(HeaderName, HeaderValue)>,
}

impl ApiError {
    fn new(status: StatusCode, detail: ErrorDetail) -> Self {
        Self(Box::new(ErrorReply { status, detail, header: None }))
    }

    /// Creates an error whose status is not the default of its kind. Retryable only if the kind is
    /// `unavailable`.
    pub fn with_status(status: StatusCode, kind: ErrorKind, message: impl Into<String>) -> Self {
        let retryable = kind == ErrorKind::Unavailable;
        Self::new(status, ErrorDetail { kind: kind.name().to_owned(), message: message.into(), retryable })
    }

    /// Creates a 400 error: the request is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::with_status(StatusCode::BAD_REQUEST, ErrorKind::Invalid, message)
    }

    /// Creates a 401 error. `reason` states whether the token is missing, malformed or wrong.
    pub fn unauthorized(reason: &str) -> Self {
        let message = format!(
            "{reason}: send the header `Authorization: Bearer TOKEN`. \
             The token is in the file `token` of the data directory (DATA/token)"
        );
        let challenge = HeaderValue::from_static("Bearer realm=\"tidemill\"");
        let detail = ErrorDetail { kind: "unauthorized".to_owned(), message, retryable: false };
        Self::new(StatusCode::UNAUTHORIZED, detail).with_header(header::WWW_AUTHENTICATE, challenge)
    }

    /// Sets an additional header of the reply, replacing one set earlier.
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.header = Some((name, value));
        self
    }

    /// Returns the content of the reply.
    pub fn detail(&self) -> &ErrorDetail {
        &self.0.detail
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let kind = error.kind();
        if matches!(kind, ErrorKind::Internal | ErrorKind::Corrupt) {
            tracing::error!(kind = kind.name(), %error, "a request failed");
        }
        let status = StatusCode::from_u16(kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (kind, retryable) = (kind.name().to_owned(), kind.is_retryable());
        Self::new(status, ErrorDetail { kind, message: error.to_string(), retryable })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let ErrorReply { status, detail, header } = *self.0;
        let retryable = detail.retryable;
        let mut response = (status, Json(ErrorBody { error: detail.clone() })).into_response();
        // some routes have another form of errors, which is made of it
        response.extensions_mut().insert(detail);
        if retryable {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
        }
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_retry_come_from_the_kind() {
        let response = ApiError::from(Error::limit("full")).into_response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        let response = ApiError::from(Error::conflict("taken")).into_response();
        assert_eq!(response.status(), 409);
        assert!(!response.headers().contains_key(header::RETRY_AFTER));
    }
}
