//! Protection against DNS rebinding: rejects foreign pages that resolve their own name to this machine.
//!
//! A browser sends the host name it connects to in `Host` and the origin of the page in `Origin`. On a
//! loopback address both must be names of this machine or configured names. On other addresses the token is
//! the protection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header, uri::Authority};
use axum::middleware::Next;
use axum::response::Response;
use tidemill_types::ErrorKind;

use crate::app::AppState;
use crate::error::ApiError;

/// Address of the listener that a request came to, as an extension of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListenerAddress(pub SocketAddr);

pub(crate) async fn check(
    State(app): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let listener = request.extensions().get::<ListenerAddress>();
    if listener.is_none_or(|listener| listener.0.ip().to_canonical().is_loopback()) {
        check_host(&request, &app.options.hosts)?;
        check_origin(request.headers(), &app.options.hosts)?;
    }
    Ok(next.run(request).await)
}

/// Refuses requests of pages from elsewhere, on every address: MCP asks for it. A page is of this server if it has the host of the
/// request, and allowed as on a loopback address otherwise.
pub(crate) async fn check_page(
    State(app): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let target = request.uri().authority().map(Authority::as_str);
    let own: Vec<&str> = target.into_iter().chain(header_strings(request.headers(), header::HOST)).collect();
    let is_ours = |origin: &str| {
        let host = origin.split_once("://").map(|(_, host)| host);
        host.is_some_and(|host| own.contains(&host) || is_allowed_host(host, &app.options.hosts))
    };
    if let Some(foreign) = header_strings(request.headers(), header::ORIGIN).find(|origin| !is_ours(origin)) {
        return Err(ApiError::with_status(
            StatusCode::FORBIDDEN,
            ErrorKind::Forbidden,
            format!(
                "header Origin is `{foreign}`: pages from elsewhere may not ask here. To allow them, add the host to the setting `server.hosts`"
            ),
        ));
    }
    Ok(next.run(request).await)
}

/// Checks the host of the request. An absolute request target overrides the header (RFC 9112, 3.2.2), but a
/// request with a differing or repeated header is ambiguous, so all names given must be allowed and a second
/// header is rejected.
fn check_host(request: &Request, others: &[String]) -> Result<(), ApiError> {
    let target = request.uri().authority().map(Authority::as_str);
    let hosts: Vec<&str> = header_strings(request.headers(), header::HOST).collect();
    if let Some(wrong) = target.iter().chain(&hosts).find(|host| !is_allowed_host(host, others)) {
        return Err(foreign_name_error("Host", wrong));
    }
    match (target, hosts.len()) {
        (Some(_), 0) | (_, 1) => Ok(()),
        (None, 0) => Err(foreign_name_error("Host", "")),
        _ => Err(ApiError::invalid("header Host is there more than once: send it once")),
    }
}

fn check_origin(headers: &HeaderMap, others: &[String]) -> Result<(), ApiError> {
    let is_ours =
        |origin: &str| origin.split_once("://").is_some_and(|(_, host)| is_allowed_host(host, others));
    match header_strings(headers, header::ORIGIN).find(|origin| !is_ours(origin)) {
        Some(wrong) => Err(foreign_name_error("Origin", wrong)),
        None if headers.get_all(header::ORIGIN).iter().nth(1).is_some() => {
            Err(ApiError::invalid("header Origin is there more than once: send it once"))
        }
        None => Ok(()),
    }
}

/// Returns all values of the header; one that is not visible ASCII becomes empty, which is never an allowed
/// name.
fn header_strings(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = &str> {
    headers.get_all(name).into_iter().map(|v| v.to_str().unwrap_or_default())
}

fn foreign_name_error(header: &str, found: &str) -> ApiError {
    let found = if found.is_empty() { "is missing".to_owned() } else { format!("is `{found}`") };
    ApiError::with_status(
        StatusCode::MISDIRECTED_REQUEST,
        ErrorKind::Invalid,
        format!(
            "header {header} {found}: expected localhost, 127.0.0.1 or [::1]. \
             To serve another name on a loopback address, add it to the setting `server.hosts`"
        ),
    )
}

fn is_allowed_host(host: &str, others: &[String]) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    // neither header may contain user information
    if host.contains('@') {
        return false;
    }
    let name = authority.host();
    // any port is accepted, but it must be numeric
    if !host
        .get(name.len()..)
        .and_then(|rest| rest.strip_prefix(':'))
        .unwrap_or_default()
        .bytes()
        .all(|b| b.is_ascii_digit())
    {
        return false;
    }
    let ip = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost")
        || ip.is_ok_and(|ip| ip.is_loopback())
        || others.iter().any(|other| other.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_ours() {
        let others = ["mill.example".to_owned()];
        for good in ["localhost", "LOCALHOST:4700", "127.0.0.1:4700", "127.1.2.3", "[::1]:80", "mill.example"]
        {
            assert!(is_allowed_host(good, &others), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "a@localhost",
            "localhost:evil",
            "localhost:evil.example:80",
            "127.0.0.1:80@evil.example",
            "[::1]:evil",
            "localhost,evil.example",
            "localhost evil.example",
            "localhost/",
            "null",
            "a b",
        ] {
            assert!(!is_allowed_host(bad, &others), "{bad}");
        }
    }
}
