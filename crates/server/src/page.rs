//! The page at `/`: one file with its style and its script, which uses only the published routes.
//!
//! The page itself has no data, so it needs no token. Its script sends the token with each request, like any other caller;
//! it takes the token from the user or from the fragment of the URL, which browsers do not send, and keeps it in the
//! storage of the tab.

use std::sync::LazyLock;

use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

const HTML: &str = include_str!("page/index.html");

/// Nothing but this script and this style runs, and nothing is fetched from elsewhere. Text cannot become markup
/// (`trusted-types`), and no other page can frame this one.
static SECURITY_POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        hash_of("script"),
        hash_of("style")
    )
});

/// Returns the page with its headers.
pub(crate) fn reply() -> Response {
    let headers: [(HeaderName, &str); 7] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, &SECURITY_POLICY),
        (header::CACHE_CONTROL, "no-cache"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::VARY, "accept"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    (headers, HTML).into_response()
}

/// Returns the hash of the contents of an element that the page has once, as a security policy names it.
fn hash_of(element: &str) -> String {
    let behind = HTML.split_once(&format!("<{element}>")).map_or("", |(_, behind)| behind);
    let contents = behind.split_once(&format!("</{element}>")).map_or("", |(contents, _)| contents);
    BASE64_STANDARD.encode(Sha256::digest(contents.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_script_and_one_style_and_nothing_else_that_the_policy_would_refuse() {
        for element in ["script", "style"] {
            assert_eq!(HTML.matches(&format!("<{element}")).count(), 1, "{element}");
            assert_eq!(HTML.matches(&format!("<{element}>")).count(), 1, "{element} without attributes");
            assert_eq!(HTML.matches(&format!("</{element}>")).count(), 1, "{element}");
        }
        for refused in [
            "style=",
            "onclick=\"",
            "onload=\"",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "eval(",
            "http:",
            "https:",
        ] {
            assert!(!HTML.contains(refused), "{refused}");
        }
    }
}
