//! Authentication by token.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;

use crate::app::AppState;
use crate::connections::ConnectionHandle;
use crate::error::ApiError;

/// Paths that need no token, because their replies do not depend on data. All others need it.
const UNAUTHENTICATED_PATHS: [&str; 3] = ["/", "/livez", "/readyz"];

pub(crate) async fn check(
    State(app): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if UNAUTHENTICATED_PATHS.contains(&request.uri().path()) {
        return Ok(next.run(request).await);
    }
    if let Some(token) = &app.options.token {
        let shown =
            request.headers().get(header::AUTHORIZATION).ok_or_else(|| ApiError::unauthorized("no token"))?;
        let shown = bearer(shown.as_bytes())
            .ok_or_else(|| ApiError::unauthorized("the Authorization header is not a bearer token"))?;
        if !token.matches(shown) {
            return Err(ApiError::unauthorized("wrong token"));
        }
    }
    if let Some(connection) = request.extensions().get::<ConnectionHandle>() {
        connection.trust();
    }
    Ok(next.run(request).await)
}

/// Returns the text after `Bearer `, which is matched case-insensitively.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bearer_is_read() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Basic YWJj"), None);
        assert_eq!(bearer(b"Bearer"), None);
    }
}
