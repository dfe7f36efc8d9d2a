//! Logins: the caller of each call, by a token, by a password, or by the session that a password has opened.
//!
//! ```text
//! authorization: Bearer TOKEN             a token of `tidemill tokens new`, that of the data directory, or a session of `Handshake`
//! authorization: Basic NAME:PASSWORD      checked with each call, some milliseconds; `Handshake` answers with a session
//! ```

mod sessions;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::HeaderMap;
use subtle::ConstantTimeEq;
use tidemill_access::{ADMIN, Access, Principal};
use tokio::sync::Semaphore;
use tonic::Status;

use crate::error::Result;
use crate::options::FlightOptions;
use sessions::Sessions;

/// Passwords that are checked at the same time. Each takes some milliseconds of a core, so callers who only guess wait for each other.
const CHECKS_MAX: usize = 2;
/// Callers that wait for the check of their password.
const WAITING_MAX: usize = 64;
/// Maximum bytes of what a client shows.
const SHOWN_BYTES_MAX: usize = 8 << 10;
/// Token of a session where no login is needed; clients that log in all the same expect one.
const OPEN_TOKEN: &str = "local";

/// Check of callers.
pub(crate) struct Login {
    token: Option<String>,
    access: Option<Arc<Access>>,
    is_open: bool,
    sessions: Sessions,
    checks: Semaphore,
    waiting: Semaphore,
}

/// A name and a password.
pub(crate) struct Password {
    pub user: String,
    pub password: String,
}

/// Proof of a caller, as the headers have it.
enum Shown {
    Nothing,
    Token(Vec<u8>),
    Password(Password),
}

impl Login {
    pub fn new(options: &FlightOptions) -> Self {
        Self {
            token: options.token.clone(),
            access: options.access.clone(),
            is_open: options.is_open(),
            sessions: Sessions::new(options.sessions_max, options.session_lifetime, options.clock.clone()),
            checks: Semaphore::new(CHECKS_MAX),
            waiting: Semaphore::new(WAITING_MAX),
        }
    }

    /// Returns the caller of a call.
    ///
    /// Errors: `Unauthenticated`, with what to send.
    pub async fn principal(&self, headers: &HeaderMap) -> Result<Principal> {
        if self.is_open {
            return Ok(Principal::local());
        }
        match shown(headers)? {
            Shown::Nothing => Err(unauthenticated("the call has no `authorization`")),
            Shown::Token(token) => self.principal_of_token(&token),
            Shown::Password(password) => self.principal_of_password(password).await,
        }
    }

    /// Opens a session for who shows a password, in the headers or, as older clients do, in the message of `Handshake`. Returns the token
    /// of the session; who shows a token gets it back.
    ///
    /// Errors: `Unauthenticated`, with what to send.
    pub async fn handshake(&self, headers: &HeaderMap, message: Option<Password>) -> Result<String> {
        if self.is_open {
            return Ok(OPEN_TOKEN.to_owned());
        }
        let password = match (shown(headers)?, message) {
            (Shown::Password(password), _) | (Shown::Nothing, Some(password)) => password,
            (Shown::Token(token), _) => {
                self.principal_of_token(&token)?;
                // it was one of ours, so it is text
                return Ok(String::from_utf8_lossy(&token).into_owned());
            }
            (Shown::Nothing, None) => return Err(unauthenticated("the handshake has no name and password")),
        };
        Ok(self.sessions.open(self.principal_of_password(password).await?))
    }

    /// Ends the session of a caller. Returns false for one who has shown something else than its token.
    pub fn close_session(&self, headers: &HeaderMap) -> bool {
        match shown(headers) {
            Ok(Shown::Token(token)) => self.sessions.close(&token),
            _ => false,
        }
    }

    /// Ends sessions that were not used for long.
    pub fn tick(&self) {
        self.sessions.tick();
    }

    fn principal_of_token(&self, token: &[u8]) -> Result<Principal> {
        if self.token.as_ref().is_some_and(|own| own.as_bytes().ct_eq(token).into()) {
            return Ok(Principal::admin());
        }
        if let Some(principal) = self.sessions.principal(token) {
            let renewed = match &self.access {
                Some(access) => access.renew(&principal),
                None => Some(principal),
            };
            return renewed.ok_or_else(|| {
                self.sessions.close(token);
                unauthenticated("the password of this session was changed, or its user removed")
            });
        }
        let known = self.access.as_ref().and_then(|access| access.principal_of_token(token));
        known.ok_or_else(|| {
            unauthenticated("the token is wrong, has expired, or is of a session that has ended")
        })
    }

    async fn principal_of_password(&self, shown: Password) -> Result<Principal> {
        let wrong = || {
            unauthenticated(
                "the name or the password is wrong: expected the user admin with the token of the data directory (DATA/token) as the \
                 password, or another user with its password (tidemill users list)",
            )
        };
        let Password { user, password } = shown;
        if user == ADMIN {
            let is_right =
                self.token.as_ref().is_some_and(|own| own.as_bytes().ct_eq(password.as_bytes()).into());
            return is_right.then(Principal::admin).ok_or_else(wrong);
        }
        let access = self.access.clone().ok_or_else(wrong)?;
        let _place = self.waiting.try_acquire().map_err(|_| {
            Status::resource_exhausted(format!(
                "{WAITING_MAX} passwords wait to be checked, which is the limit: try again, or use a token"
            ))
        })?;
        let _turn =
            self.checks.acquire().await.map_err(|_| Status::unavailable("the server is shutting down"))?;
        let checked = tokio::task::spawn_blocking(move || {
            let verifier = access.verifier(&user);
            verifier.fits(&password).then(|| access.principal_of_login(&user, &verifier)).flatten()
        });
        let checked = checked.await.map_err(|_| Status::internal("the check of a password hit a defect"))?;
        checked.ok_or_else(wrong)
    }
}

fn shown(headers: &HeaderMap) -> Result<Shown> {
    let Some(value) = headers.get(http::header::AUTHORIZATION) else {
        // clients with a handler of their own send the token of the handshake so
        return Ok(match headers.get("auth-token-bin").and_then(|value| decode(value.as_bytes())) {
            Some(token) => Shown::Token(token),
            None => Shown::Nothing,
        });
    };
    let value = value.as_bytes();
    if value.len() > SHOWN_BYTES_MAX {
        return Err(unauthenticated("the header `authorization` is too long"));
    }
    let (scheme, rest) = match value.iter().position(|byte| *byte == b' ') {
        Some(space) => (&value[..space], value[space..].trim_ascii()),
        None => (value, &b""[..]),
    };
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Ok(Shown::Token(rest.to_vec()));
    }
    let password = scheme.eq_ignore_ascii_case(b"basic").then(|| basic(rest)).flatten();
    let malformed = || {
        unauthenticated(
            "the header `authorization` is neither `Bearer TOKEN` nor `Basic` with NAME:PASSWORD in base64",
        )
    };
    password.map(Shown::Password).ok_or_else(malformed)
}

fn basic(encoded: &[u8]) -> Option<Password> {
    let text = String::from_utf8(decode(encoded)?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(Password { user: user.to_owned(), password: password.to_owned() })
}

fn decode(encoded: &[u8]) -> Option<Vec<u8>> {
    STANDARD.decode(encoded).or_else(|_| STANDARD_NO_PAD.decode(encoded)).ok()
}

fn unauthenticated(reason: &str) -> Status {
    Status::unauthenticated(format!(
        "{reason}. Send the header `authorization: Bearer TOKEN`; the token is in the file `token` of the data directory (DATA/token), or \
         `tidemill tokens new` makes one"
    ))
}

#[cfg(test)]
mod tests {
    use tidemill_access::{AccessFile, Verifier};

    use super::*;

    const TOKEN: &str = "token-of-the-data-directory";

    fn headers(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if !value.is_empty() {
            headers.insert("authorization", value.parse().unwrap());
        }
        headers
    }

    fn basic_of(user: &str, password: &str) -> HeaderMap {
        headers(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
    }

    #[tokio::test]
    async fn callers_are_known_by_tokens_passwords_and_sessions() {
        let dir = tempfile::tempdir().unwrap();
        let file = AccessFile::in_directory(dir.path());
        let made = file.update(|accounts| {
            accounts.add_user("ana", vec!["read".parse()?], Some(Verifier::new("of ana")))?;
            accounts.new_token("ana", None, tidemill_types::Timestamp(0), None)
        });
        let token = made.unwrap().text;
        let access = Some(Arc::new(Access::open(file).unwrap()));
        let login =
            Login::new(&FlightOptions { token: Some(TOKEN.to_owned()), access, ..FlightOptions::default() });
        for (headers, expected) in [
            (headers(&format!("Bearer {TOKEN}")), Some("admin")),
            (headers(&format!("bearer  {token} ")), Some("ana")),
            (basic_of("admin", TOKEN), Some("admin")),
            (basic_of("ana", "of ana"), Some("ana")),
            (basic_of("ana", "of eva"), None),
            (basic_of("ana", TOKEN), None),
            (basic_of("admin", "of ana"), None),
            (basic_of("unknown", "of ana"), None),
            (headers(""), None),
            (headers("Bearer"), None),
            (headers("Basic !"), None),
            (headers("Digest abc"), None),
            (headers("Bearer local"), None),
        ] {
            let found = login.principal(&headers).await;
            let found = found.as_ref().map(Principal::name).map_err(Status::code);
            assert_eq!(found, expected.ok_or(tonic::Code::Unauthenticated), "{headers:?}");
        }
        let session = login.handshake(&basic_of("ana", "of ana"), None).await.unwrap();
        let shown = headers(&format!("Bearer {session}"));
        assert_eq!(login.principal(&shown).await.unwrap().name(), "ana");
        let password = Password { user: "ana".to_owned(), password: "of ana".to_owned() };
        let other = login.handshake(&HeaderMap::new(), Some(password)).await.unwrap();
        let mut binary = HeaderMap::new();
        binary.insert("auth-token-bin", STANDARD_NO_PAD.encode(&other).parse().unwrap());
        assert_eq!(login.principal(&binary).await.unwrap().name(), "ana");
        assert_eq!(login.handshake(&shown, None).await.unwrap(), session);
        assert!(login.handshake(&HeaderMap::new(), None).await.is_err());
        assert!(login.close_session(&shown) && !login.close_session(&shown));
        assert!(login.principal(&shown).await.is_err());
    }

    #[tokio::test]
    async fn without_users_and_token_every_caller_is_the_local_one() {
        let login = Login::new(&FlightOptions::default());
        assert_eq!(login.principal(&HeaderMap::new()).await.unwrap().name(), Principal::local().name());
        assert_eq!(login.handshake(&HeaderMap::new(), None).await.unwrap(), OPEN_TOKEN);
    }
}
