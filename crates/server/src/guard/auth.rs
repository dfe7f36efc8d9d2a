//! Authentication by token: who calls.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::{HeaderValue, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tidemill_access::Principal;
use tidemill_gateway::ConnectionHandle;

use crate::app::AppState;
use crate::error::ApiError;
use crate::options::ServerOptions;
use crate::paths::api_version::ApiVersion;

/// Paths that need no token, because their replies do not depend on data. All others need it. A caller of one of these paths who has a
/// token is known all the same.
const UNAUTHENTICATED_PATHS: [&str; 5] = ["/", "/livez", "/readyz", "/ping", "/health"];

/// Lets a request through whose caller is known, with the caller as an extension of the request, a [`Principal`].
pub(crate) async fn check(
    State(app): State<Arc<AppState>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let identified = identify(&app.options, &request);
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
fn identify(options: &ServerOptions, request: &Request) -> Result<Principal, ApiError> {
    if options.is_open() {
        return Ok(Principal::local());
    }
    let shown = shown_token(request)?;
    if options.token.as_ref().is_some_and(|token| token.matches(&shown)) {
        return Ok(Principal::admin());
    }
    let known = options.access.as_ref().and_then(|access| access.principal_of_token(&shown));
    known.ok_or_else(|| ApiError::unauthorized("wrong token"))
}

/// Returns the token of a request. Clients of InfluxDB have other spellings of it: `Token TOKEN`, the password of `Basic`, and the
/// parameter `p`; the name of the user beside a password is not looked at.
///
/// Errors: 401 without one.
fn shown_token(request: &Request) -> Result<Cow<'_, [u8]>, ApiError> {
    let takes_other_spellings = ApiVersion::of_path(request.uri().path()).is_some();
    let Some(header) = request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes) else {
        let password = takes_other_spellings.then(|| password_parameter(request.uri())).flatten();
        return password.map(Cow::Owned).ok_or_else(|| ApiError::unauthorized("no token"));
    };
    let found = match after_scheme(header, "bearer") {
        None if takes_other_spellings => {
            let basic = || after_scheme(header, "basic").and_then(password).map(Cow::Owned);
            after_scheme(header, "token").map(Cow::Borrowed).or_else(basic)
        }
        bearer => bearer.map(Cow::Borrowed),
    };
    found.ok_or_else(|| ApiError::unauthorized("the Authorization header is not a bearer token"))
}

/// Returns the text after the name of a scheme, which is matched case-insensitively.
fn after_scheme<'v>(value: &'v [u8], scheme: &str) -> Option<&'v [u8]> {
    let (found, rest) = value.split_at_checked(scheme.len())?;
    let rest = rest.strip_prefix(b" ")?;
    found.eq_ignore_ascii_case(scheme.as_bytes()).then(|| rest.trim_ascii())
}

/// Returns the password of `Basic`.
fn password(encoded: &[u8]) -> Option<Vec<u8>> {
    let text = BASE64_STANDARD.decode(encoded).ok()?;
    let colon = text.iter().position(|byte| *byte == b':')?;
    Some(text[colon + 1..].to_vec())
}

fn password_parameter(uri: &Uri) -> Option<Vec<u8>> {
    let Query(parameters) = Query::<Vec<(String, String)>>::try_from_uri(uri).ok()?;
    parameters.into_iter().find(|(name, _)| name == "p").map(|(_, value)| value.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_in_the_spellings_of_their_routes() {
        let shown = |uri: &str, header: &str| {
            let request = Request::builder().uri(uri);
            let request = if header.is_empty() { request } else { request.header("Authorization", header) };
            let request = request.body(axum::body::Body::empty()).unwrap();
            shown_token(&request).ok().map(|token| String::from_utf8(token.into_owned()).unwrap())
        };
        let abc = Some("abc".to_owned());
        for path in ["/api/v1/sql", "/write?p=other", "/api/v2/write", "/api/v3/write_lp"] {
            assert_eq!(shown(path, "Bearer abc"), abc, "{path}");
            assert_eq!(shown(path, "bearer  abc "), abc, "{path}");
            assert_eq!(shown(path, "Bearer"), None, "{path}");
        }
        for (path, is_other) in
            [("/api/v1/sql", false), ("/write", true), ("/query", true), ("/api/v2/write", true)]
        {
            let expected = is_other.then(|| "abc".to_owned());
            assert_eq!(shown(path, "Token abc"), expected, "{path}");
            assert_eq!(shown(path, "Basic dXNlcjphYmM="), expected, "{path}");
            assert_eq!(shown(&format!("{path}?db=x&u=user&p=%61bc"), ""), expected, "{path}");
            assert_eq!(shown(path, "Basic YWJj"), None, "{path}");
            assert_eq!(shown(path, "Digest abc"), None, "{path}");
            assert_eq!(shown(path, ""), None, "{path}");
        }
    }
}
