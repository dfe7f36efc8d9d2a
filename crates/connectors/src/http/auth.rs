//! User names and passwords that the clients of our servers need.

use std::sync::Arc;

use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use subtle::ConstantTimeEq;
use tidemill_connect::{OptionError, OptionSpec, Options};

use super::server::problem;

/// An answer that refuses a request.
pub(crate) type Refusal = Box<Response<Body>>;

/// Options of servers that may need a user name and a password.
pub(crate) const AUTH_OPTIONS: &[OptionSpec] = &[
    OptionSpec::flag(
        "basic.auth.enabled",
        "false",
        "Whether requests need the user name and password below.",
    ),
    OptionSpec::text("basic.auth.username", "User name that requests need."),
    OptionSpec::text("basic.auth.password", "Password that requests need.").secret(),
];

/// Credentials that requests must have.
#[derive(Clone)]
pub(crate) struct RequiredLogin {
    /// `user:password` if requests need it.
    credentials: Option<Arc<str>>,
}

impl RequiredLogin {
    /// Errors: it is demanded and not given.
    pub(crate) fn of(options: &Options) -> Result<Self, OptionError> {
        let credentials = match options.flag("basic.auth.enabled") {
            false => None,
            true => match (options.get("basic.auth.username"), options.get("basic.auth.password")) {
                (Some(user), Some(password)) => Some(format!("{user}:{password}").into()),
                _ => {
                    let message = "requests are compared with a user name and a password, which are missing";
                    return Err(OptionError::option("basic.auth.enabled", message)
                        .expected(["basic.auth.username='…'", "basic.auth.password='…'"]));
                }
            },
        };
        Ok(Self { credentials })
    }

    /// Checks the headers of a request.
    ///
    /// Errors: the answer that refuses it.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        if self.is_authorized(headers) {
            return Ok(());
        }
        let mut answer = problem(StatusCode::UNAUTHORIZED, "wrong or missing user name and password");
        let basic = HeaderValue::from_static("Basic realm=\"events\", charset=\"UTF-8\"");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, basic);
        Err(Box::new(answer))
    }

    fn is_authorized(&self, headers: &HeaderMap) -> bool {
        let Some(expected) = &self.credentials else { return true };
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.split_once(' '));
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic"));
        let given = given.and_then(|(_, encoded)| STANDARD.decode(encoded.trim()).ok());
        given.is_some_and(|given| given.ct_eq(expected.as_bytes()).into())
    }
}
