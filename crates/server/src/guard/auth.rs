//! Authentication by token: who calls.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use tidemill_access::Principal;
use tidemill_gateway::ConnectionHandle;

use crate::app::AppState;
use crate::error::ApiError;
use crate::options::ServerOptions;

/// Paths that need no token, because their replies do not depend on data. All others need it. A caller of one of these paths who has a
/// token is known all the same.
const UNAUTHENTICATED_PATHS: [&str; 3] = ["/", "/livez", "/readyz"];

/// Lets a request through whose caller is known, with the caller as an extension of the request, a [`Principal`].
pub(crate) async fn check(
    State(app): State<Arc<AppState>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let identified = identify(&app.options, request.headers());
    if UNAUTHENTICATED_PATHS.contains(&request.uri().path()) {
        if let Ok(principal) = identified {
            request.extensions_mut().insert(principal);
        }
        return Ok(next.run(request).await);
    }
    let principal = identified?;
    if let Some(connection) = request.extensions().get::<ConnectionHandle>() {
        connection.trust();
    }
    request.extensions_mut().insert(principal);
    Ok(next.run(request).await)
}

/// Returns the caller of a request.
///
/// Errors: 401 without a token, and for one that is unknown or has expired.
fn identify(options: &ServerOptions, headers: &HeaderMap) -> Result<Principal, ApiError> {
    if options.is_open() {
        return Ok(Principal::local());
    }
    let shown = headers.get(header::AUTHORIZATION).ok_or_else(|| ApiError::unauthorized("no token"))?;
    let shown = bearer(shown.as_bytes())
        .ok_or_else(|| ApiError::unauthorized("the Authorization header is not a bearer token"))?;
    if options.token.as_ref().is_some_and(|token| token.matches(shown)) {
        return Ok(Principal::admin());
    }
    let known = options.access.as_ref().and_then(|access| access.principal_of_token(shown));
    known.ok_or_else(|| ApiError::unauthorized("wrong token"))
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
