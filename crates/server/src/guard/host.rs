//! Against DNS rebinding: a page from elsewhere that resolves its own name to this machine is turned away.
//!
//! A browser sends the name it believes to talk to in `Host`, and where the page came from in `Origin`. On a loopback
//! address both must be names of this machine (or configured ones). On other addresses the token is the guard.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header, uri::Authority};
use axum::middleware::Next;
use axum::response::Response;
use tidemill_types::ErrorKind;

use crate::app::App;
use crate::error::ApiError;

pub(crate) async fn check(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if app.loopback {
        // an absolute request target takes the place of the header (RFC 9112, 3.2.2)
        let host = match request.uri().authority() {
            Some(authority) => authority.as_str(),
            None => text(&request, header::HOST).unwrap_or_default(),
        };
        if !is_ours(host, &app.options.hosts) {
            return Err(refused("Host", host));
        }
        if let Some(origin) = text(&request, header::ORIGIN) {
            let host = origin.split_once("://").map_or(origin, |(_, host)| host);
            if !is_ours(host, &app.options.hosts) {
                return Err(refused("Origin", origin));
            }
        }
    }
    Ok(next.run(request).await)
}

/// The header's text; one that is not text is no name of ours.
fn text(request: &Request, name: header::HeaderName) -> Option<&str> {
    request.headers().get(name).map(|v| v.to_str().unwrap_or_default())
}

fn refused(header: &str, found: &str) -> ApiError {
    let found = if found.is_empty() { "is missing".to_owned() } else { format!("is `{found}`") };
    ApiError::with_status(
        StatusCode::MISDIRECTED_REQUEST,
        ErrorKind::Invalid,
        format!(
            "header {header} {found}: expected localhost, 127.0.0.1 or [::1]. \
             To serve another name on a loopback address, add it to the server's `hosts`"
        ),
    )
}

fn is_ours(host: &str, others: &[String]) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    // user information has no place in either header
    if host.contains('@') {
        return false;
    }
    let name = authority.host();
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
            assert!(is_ours(good, &others), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "a@localhost",
            "null",
            "a b",
        ] {
            assert!(!is_ours(bad, &others), "{bad}");
        }
    }
}
