//! Logins by SCRAM-SHA-256 (RFC 5802, RFC 7677): the client proves that it knows the password without sending it. Over TLS, it may
//! bind the proof to the certificate of the server, so that a server in between cannot pass it on.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tidemill_access::{ADMIN, Access, Principal, Verifier};

use crate::error::{PgError, Result, code};

pub(crate) const PLAIN: &str = "SCRAM-SHA-256";
pub(crate) const BOUND: &str = "SCRAM-SHA-256-PLUS";
/// Kind of the binding: a hash of the server's certificate.
const BINDING: &str = "p=tls-server-end-point,,";
const NONCE_BYTES: usize = 24;

/// Users who can log in: the first administrator, and the users of the data directory.
pub(crate) struct Credentials {
    /// Verifier of the password of the first administrator.
    admin: Option<Verifier>,
    access: Option<Arc<Access>>,
    /// Secret from which salts of unknown users are derived where there are no others.
    secret: [u8; 32],
}

/// A login between the first and the last message of the client.
pub(crate) struct Login {
    user: String,
    /// Verifier of the password. That of an unknown user fits no password, so that names cannot be probed.
    verifier: Verifier,
    nonce: String,
    /// The messages so far, which both sides sign.
    signed: String,
    /// Bytes that the client has to repeat: the beginning of its first message, and the hash of the certificate if it has bound the login.
    binding: Vec<u8>,
}

impl Credentials {
    /// Creates the credentials of a listener; `None` if it needs no login. The keys of the password take some milliseconds.
    pub fn new(password: Option<&str>, access: Option<Arc<Access>>) -> Option<Self> {
        let is_needed = password.is_some() || access.is_some();
        is_needed.then(|| Self { admin: password.map(Verifier::new), access, secret: rand::random() })
    }

    fn verifier(&self, user: &str) -> Verifier {
        match (&self.admin, &self.access) {
            (Some(admin), _) if user == ADMIN => admin.clone(),
            (_, Some(access)) => access.verifier(user),
            _ => Verifier::of_unknown_user(user, &self.secret),
        }
    }

    /// Answers the first message of a client that wants to be `user`. `certificate` is the hash of the server's own over TLS.
    ///
    /// Errors: it is malformed, or the client thinks that the server cannot bind logins, which somebody in between has told it.
    pub fn start(
        &self,
        user: &str,
        mechanism: &str,
        payload: &[u8],
        certificate: Option<&[u8]>,
    ) -> Result<(Login, String)> {
        let message = text(payload)?;
        let (header, bare, hash) = match (mechanism, certificate) {
            (BOUND, Some(hash)) => {
                let bare = message.strip_prefix(BINDING);
                (BINDING, bare.ok_or_else(|| malformed("expected a binding by tls-server-end-point"))?, hash)
            }
            (PLAIN, certificate) => match (message.strip_prefix("n,,"), message.strip_prefix("y,,")) {
                (Some(bare), _) => ("n,,", bare, &[][..]),
                (None, Some(_)) if certificate.is_some() => {
                    return Err(malformed(
                        "the client was not told that logins can be bound to the certificate",
                    ));
                }
                (None, Some(bare)) => ("y,,", bare, &[][..]),
                (None, None) => return Err(malformed("expected a message that begins with `n,,`")),
            },
            _ => return Err(malformed(&format!("the mechanism \"{mechanism}\" was not offered"))),
        };
        // the user is that of the session; the one in the message is not used by this protocol
        let client_nonce = attribute(bare, 'r').filter(|nonce| !nonce.is_empty());
        let client_nonce = client_nonce.ok_or_else(|| malformed("the nonce is missing"))?;
        let verifier = self.verifier(user);
        let nonce = format!("{client_nonce}{}", BASE64.encode(rand::random::<[u8; NONCE_BYTES]>()));
        let reply = format!("r={nonce},s={},i={}", BASE64.encode(verifier.salt()), verifier.iterations());
        let signed = format!("{bare},{reply}");
        let binding = [header.as_bytes(), hash].concat();
        Ok((Login { user: user.to_owned(), verifier, nonce, signed, binding }, reply))
    }

    /// Checks the last message of a client. Returns who it is, and the server's proof that it knows the password, too.
    pub fn finish(&self, login: &Login, payload: &[u8]) -> Result<(Principal, String)> {
        let message = text(payload)?;
        let (without_proof, proof) =
            message.rsplit_once(",p=").ok_or_else(|| malformed("the proof is missing"))?;
        let is_bound = attribute(without_proof, 'c').and_then(|binding| BASE64.decode(binding).ok())
            == Some(login.binding.clone());
        if !is_bound {
            return Err(malformed("the login is bound to another connection"));
        }
        let signed = format!("{},{without_proof}", login.signed);
        let wrong = || {
            PgError::fatal(code::INVALID_PASSWORD, format!("password authentication failed for user \"{}\"", login.user))
                .with_hint(format!(
                    "Expected the user {ADMIN} with the token of the data directory (DATA/token) as the password, or another user with \
                     its password (tidemill users list)."
                ))
        };
        let proof: [u8; 32] = BASE64.decode(proof).ok().and_then(|p| p.try_into().ok()).ok_or_else(wrong)?;
        let same_nonce = attribute(without_proof, 'r') == Some(login.nonce.as_str());
        let signature = login.verifier.check(signed.as_bytes(), &proof).filter(|_| same_nonce);
        let signature = signature.ok_or_else(wrong)?;
        let principal = match &self.access {
            _ if login.user == ADMIN => Some(Principal::admin()),
            // one who was removed meanwhile, or has another password now, is not let in
            access => {
                access.as_ref().and_then(|access| access.principal_of_login(&login.user, &login.verifier))
            }
        };
        Ok((principal.ok_or_else(wrong)?, format!("v={}", BASE64.encode(signature))))
    }
}

fn attribute(message: &str, name: char) -> Option<&str> {
    message.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

fn text(payload: &[u8]) -> Result<&str> {
    std::str::from_utf8(payload).map_err(|_| malformed("the message is not UTF-8"))
}

fn malformed(what: &str) -> PgError {
    PgError::fatal("28000", format!("{PLAIN}: {what}"))
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit, Mac};
    use sha2::{Digest, Sha256};
    use tidemill_access::{AccessFile, ITERATIONS};

    use super::*;

    const HASH: &[u8] = b"hash of the certificate";

    fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        mac.update(message);
        mac.finalize().into_bytes().into()
    }

    /// Returns the final message of a client.
    fn client_final(password: &str, header: &str, hash: &[u8], bare: &str, server_first: &str) -> String {
        let salt = BASE64.decode(attribute(server_first, 's').unwrap()).unwrap();
        let salted: [u8; 32] =
            pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(password.as_bytes(), &salt, ITERATIONS);
        let client_key = hmac(&salted, b"Client Key");
        let stored: [u8; 32] = Sha256::digest(client_key).into();
        let binding = BASE64.encode([header.as_bytes(), hash].concat());
        let without_proof = format!("c={binding},r={}", attribute(server_first, 'r').unwrap());
        let signature = hmac(&stored, format!("{bare},{server_first},{without_proof}").as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        format!("{without_proof},p={}", BASE64.encode(proof))
    }

    fn log_in(credentials: &Credentials, user: &str, password: &str) -> Result<Principal> {
        let (login, reply) = credentials.start(user, PLAIN, b"n,,n=,r=abc", None)?;
        let last = client_final(password, "n,,", b"", "n=,r=abc", &reply);
        Ok(credentials.finish(&login, last.as_bytes())?.0)
    }

    #[test]
    fn only_the_user_with_the_password_is_let_in() {
        let dir = tempfile::tempdir().unwrap();
        let file = AccessFile::in_directory(dir.path());
        let change = file.update(|accounts| {
            accounts.add_user("ana", vec!["read".parse()?], Some(Verifier::new("of ana")))?;
            accounts.add_user("eva", vec![], None)
        });
        change.unwrap();
        let access = Arc::new(Access::open(file).unwrap());
        let credentials = Credentials::new(Some("secret"), Some(access)).unwrap();
        for (user, password, right) in [
            ("admin", "secret", true),
            ("admin", "of ana", false),
            ("ana", "of ana", true),
            ("ana", "secret", false),
            ("eva", "", false),
            ("unknown", "of ana", false),
        ] {
            match log_in(&credentials, user, password) {
                Ok(principal) => assert!(right && principal.name() == user, "{user} {password}"),
                Err(error) => assert!(!right && error.code == code::INVALID_PASSWORD, "{user} {password}"),
            }
        }
    }

    #[test]
    fn a_bound_login_is_of_one_connection() {
        let credentials = Credentials::new(Some("secret"), None).unwrap();
        let first = format!("{BINDING}n=,r=abc");
        let bind = |hash: &[u8]| {
            let (login, reply) = credentials.start("admin", BOUND, first.as_bytes(), Some(HASH)).unwrap();
            let last = client_final("secret", BINDING, hash, "n=,r=abc", &reply);
            credentials.finish(&login, last.as_bytes())
        };
        assert!(bind(HASH).is_ok());
        assert!(bind(b"another").is_err_and(|error| error.message.contains("another connection")));
        let start =
            |mechanism, first: &[u8], hash| credentials.start("admin", mechanism, first, hash).is_ok();
        assert!(!start(BOUND, first.as_bytes(), None), "not offered without TLS");
        assert!(!start(PLAIN, b"y,,n=,r=abc", Some(HASH)), "somebody has removed the offer");
        assert!(start(PLAIN, b"n,,n=,r=abc", Some(HASH)), "a client that cannot bind");
    }

    #[test]
    fn malformed_messages_are_refused() {
        let credentials = Credentials::new(Some("secret"), None).unwrap();
        for first in ["", "n,,", "n,,n=admin", "n,,r=", "p=tls-unique,,n=admin,r=x", "\u{0}"] {
            assert!(credentials.start("admin", PLAIN, first.as_bytes(), None).is_err(), "{first:?}");
        }
        assert!(credentials.start("admin", "PLAIN", b"n,,n=admin,r=abc", None).is_err());
        let (login, _) = credentials.start("admin", PLAIN, b"n,,n=admin,r=abc", None).unwrap();
        for last in ["", "c=biws", "c=biws,r=abc,p=", "c=biws,r=abc,p=!!", "c=eSws,r=abc,p=AAAA"] {
            assert!(credentials.finish(&login, last.as_bytes()).is_err(), "{last:?}");
        }
    }
}
