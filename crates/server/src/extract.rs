//! Path and query parameters whose errors are [`ApiError`] instead of axum's.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::error::ApiError;

/// Path parameters, percent-decoded.
pub(crate) struct PathParams<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(segments)) => Ok(Self(segments)),
            Err(e) => Err(ApiError::invalid(format!("path {}: {}", parts.uri.path(), e.body_text()))),
        }
    }
}

/// Query parameters. Their types reject unknown names, so that typos are reported instead of ignored.
pub(crate) struct QueryParams<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(e) => {
                let text = e.body_text();
                let reason = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
                let reason = reason.replace("missing field", "missing parameter");
                Err(ApiError::invalid(match parts.uri.query() {
                    None | Some("") => format!("{reason}; none are given behind `?`"),
                    // a token is not repeated
                    Some(query) if query.split('&').any(|part| part.starts_with("p=")) => reason,
                    Some(query) => format!("query `?{query}`: {reason}"),
                }))
            }
        }
    }
}
