//! Settings of the server: the token and the limits.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use subtle::ConstantTimeEq;
use tidemill_access::Access;
use tidemill_gateway::Clock;
use tidemill_types::{Error, Result};

/// Settings of a server. [`ServerOptions::default`] has every limit at its default and no token.
#[derive(Clone)]
pub struct ServerOptions {
    /// Token of the first administrator. Without it and [`Self::access`], callers need no token and have all rights, and listeners
    /// may only have loopback addresses.
    pub token: Option<Token>,
    /// Users and tokens beside the first administrator.
    pub access: Option<Arc<Access>>,
    /// Names besides `localhost` and the loopback addresses that a request to a loopback address may have in
    /// its `Host` header, without port: those of a reverse proxy.
    pub hosts: Vec<String>,
    /// Maximum bytes of one request body, after decompression.
    pub body_bytes_max: usize,
    /// Maximum bytes of all request bodies in memory.
    pub bodies_bytes_max: usize,
    /// Maximum bytes of documents in the reply of one `find`.
    pub reply_bytes_max: usize,
    /// Time limit for a request's body to arrive, and again for the engine to answer.
    pub request_timeout: Duration,
    /// Time limit of a SQL query or an aggregate run, from start to last row.
    pub query_timeout: Duration,
    /// Time after which a reply is aborted because the client reads none of it.
    pub stall_timeout: Duration,
    /// Maximum concurrent requests to `/api`. Further ones are rejected with 429.
    pub concurrency_max: usize,
    /// Maximum open connections of a listener that has no other limit. A further one evicts an idle one, those without the token first.
    pub connections_max: usize,
    /// Clock of the time for which the next page of a result can be asked for.
    pub clock: Clock,
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions").field("needs_token", &!self.is_open()).finish_non_exhaustive()
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            token: None,
            access: None,
            hosts: Vec::new(),
            body_bytes_max: 64 << 20,
            bodies_bytes_max: 512 << 20,
            reply_bytes_max: 64 << 20,
            request_timeout: Duration::from_secs(30),
            query_timeout: Duration::from_secs(300),
            stall_timeout: Duration::from_secs(30),
            concurrency_max: 256,
            connections_max: 1024,
            clock: Arc::new(Instant::now),
        }
    }
}

impl ServerOptions {
    /// Rejects settings that cannot work.
    ///
    /// Errors: `Invalid` with the setting and its bounds.
    pub fn check(&self) -> Result<()> {
        for (name, value) in [
            ("body_bytes_max", self.body_bytes_max),
            ("reply_bytes_max", self.reply_bytes_max),
            ("concurrency_max", self.concurrency_max),
            ("connections_max", self.connections_max),
        ] {
            if value == 0 {
                return Err(Error::invalid(format!("server option {name} = 0: expected at least 1")));
            }
        }
        if self.bodies_bytes_max < self.body_bytes_max {
            return Err(Error::invalid(format!(
                "server option bodies_bytes_max = {}: expected at least body_bytes_max = {}",
                self.bodies_bytes_max, self.body_bytes_max
            )));
        }
        for (name, value) in [
            ("request_timeout", self.request_timeout),
            ("query_timeout", self.query_timeout),
            ("stall_timeout", self.stall_timeout),
        ] {
            if value.is_zero() {
                return Err(Error::invalid(format!("server option {name} = 0: expected a positive time")));
            }
        }
        Ok(())
    }

    /// Returns whether callers need no token.
    pub(crate) fn is_open(&self) -> bool {
        self.token.is_none() && self.access.is_none()
    }
}

/// Secret that callers send. `Debug` output never contains it.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Minimum length, in bytes.
    pub const BYTES_MIN: usize = 16;
    /// Maximum length, in bytes.
    pub const BYTES_MAX: usize = 4096;

    /// Creates a token from `text`.
    ///
    /// Errors: `Invalid` unless it is 16 to 4096 visible ASCII characters (the characters a header can
    /// carry).
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        let sized = (Self::BYTES_MIN..=Self::BYTES_MAX).contains(&text.len());
        if !sized || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Error::invalid(format!(
                "token of {} bytes: expected {} to {} visible ASCII characters without spaces",
                text.len(),
                Self::BYTES_MIN,
                Self::BYTES_MAX
            )));
        }
        Ok(Self(text))
    }

    /// Returns whether `shown` equals this token, in time that depends on the lengths only.
    pub(crate) fn matches(&self, shown: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(shown).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_cannot_work_are_named() {
        ServerOptions::default().check().unwrap();
        for (options, name) in [
            (ServerOptions { bodies_bytes_max: 1, ..ServerOptions::default() }, "bodies_bytes_max"),
            (ServerOptions { connections_max: 0, ..ServerOptions::default() }, "connections_max"),
            (ServerOptions { stall_timeout: Duration::ZERO, ..ServerOptions::default() }, "stall_timeout"),
        ] {
            let message = options.check().unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
        }
    }

    #[test]
    fn tokens_are_compared_whole_and_not_shown() {
        let token = Token::new("0123456789abcdef").unwrap();
        assert!(token.matches(b"0123456789abcdef"));
        assert!(!token.matches(b"0123456789abcdeF"));
        assert!(!token.matches(b"0123456789abcdef0"));
        assert!(!token.matches(b""));
        assert_eq!(format!("{token:?}"), "Token(…)");
        assert!(Token::new("short").is_err());
        assert!(Token::new("with a space in it").is_err());
    }
}
