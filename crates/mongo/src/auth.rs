//! SCRAM-SHA-256 (RFC 5802, RFC 7677): the client proves that it knows the password without sending it.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tidemill_access::{ADMIN, Access, Principal, Verifier};

use crate::error::{Code, CommandError, Result};

/// The only mechanism.
pub(crate) const MECHANISM: &str = "SCRAM-SHA-256";
const NONCE_BYTES: usize = 24;
/// Maximum bytes of a message of a client.
const PAYLOAD_BYTES_MAX: usize = 1024;

/// Users who can log in: the first administrator, and the users of the data directory.
pub(crate) struct Credentials {
    /// Verifier of the password of the first administrator.
    admin: Option<Verifier>,
    access: Option<Arc<Access>>,
    /// Secret from which salts of unknown users are derived where there are no others.
    secret: [u8; 32],
}

/// A login between the first and the last message of the client.
pub(crate) struct ScramLogin {
    nonce: String,
    user: String,
    /// Verifier of the password. That of an unknown user fits no password, so that user names cannot be probed.
    verifier: Verifier,
    /// The messages so far, which both sides sign.
    signed: String,
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

    /// Answers the first message of a client.
    pub fn start(&self, payload: &[u8]) -> Result<(ScramLogin, String)> {
        let message = text(payload)?;
        // `n,,` says that the client does not bind the login to a TLS channel
        let bare = message.strip_prefix("n,,").or_else(|| message.strip_prefix("y,,"));
        let bare = bare.ok_or_else(|| failed("expected a message that begins with `n,,`"))?;
        let user = attribute(bare, 'n').ok_or_else(|| failed("the user is missing"))?;
        let client_nonce = attribute(bare, 'r').ok_or_else(|| failed("the nonce is missing"))?;
        let user = user.replace("=2C", ",").replace("=3D", "=");
        let verifier = self.verifier(&user);
        let nonce = format!("{client_nonce}{}", BASE64.encode(rand::random::<[u8; NONCE_BYTES]>()));
        let reply = format!("r={nonce},s={},i={}", BASE64.encode(verifier.salt()), verifier.iterations());
        let signed = format!("{bare},{reply}");
        Ok((ScramLogin { nonce, user, verifier, signed }, reply))
    }

    /// Checks the last message of a client. Returns who it is, and the server's proof that it knows the password, too.
    pub fn finish(&self, login: &ScramLogin, payload: &[u8]) -> Result<(Principal, String)> {
        let message = text(payload)?;
        let (without_proof, proof) =
            message.rsplit_once(",p=").ok_or_else(|| failed("the proof is missing"))?;
        let signed = format!("{},{without_proof}", login.signed);
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

    /// Returns the names of all users.
    pub fn users(&self) -> Vec<String> {
        let mut names: Vec<String> = self.admin.iter().map(|_| ADMIN.to_owned()).collect();
        if let Some(access) = &self.access {
            names.extend(access.accounts().users().map(|user| user.name.clone()));
        }
        names
    }

    /// Returns the user of that name, with the present rights.
    pub fn principal(&self, name: &str) -> Option<Principal> {
        match &self.access {
            _ if name == ADMIN => self.admin.as_ref().map(|_| Principal::admin()),
            access => access.as_ref()?.principal_of_user(name),
        }
    }
}

fn attribute(message: &str, name: char) -> Option<&str> {
    message.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

fn text(payload: &[u8]) -> Result<&str> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(failed("the message is too long"));
    }
    std::str::from_utf8(payload).map_err(|_| failed("the message is not UTF-8"))
}

fn failed(what: &str) -> CommandError {
    CommandError::new(Code::AuthenticationFailed, format!("{MECHANISM}: {what}"))
}

fn wrong() -> CommandError {
    let message = format!(
        "Authentication failed: expected the user `{ADMIN}` with the token of the data directory (DATA/token) as the password, or \
         another user with its password (`tidemill users list`)"
    );
    CommandError::new(Code::AuthenticationFailed, message)
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit, Mac};
    use sha2::{Digest, Sha256};
    use tidemill_access::{AccessFile, ITERATIONS};

    use super::*;

    fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
        mac.update(message);
        mac.finalize().into_bytes().into()
    }

    /// Returns the final message of a client.
    fn client_final(password: &str, bare: &str, server_first: &str) -> String {
        let salt = BASE64.decode(attribute(server_first, 's').unwrap()).unwrap();
        let salted: [u8; 32] =
            pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(password.as_bytes(), &salt, ITERATIONS);
        let client_key = hmac(&salted, b"Client Key");
        let stored: [u8; 32] = Sha256::digest(client_key).into();
        let without_proof = format!("c=biws,r={}", attribute(server_first, 'r').unwrap());
        let signature = hmac(&stored, format!("{bare},{server_first},{without_proof}").as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        format!("{without_proof},p={}", BASE64.encode(proof))
    }

    #[test]
    fn only_the_user_with_the_password_is_let_in() {
        let credentials = Credentials::new(Some("secret"), None).unwrap();
        for (user, password, right) in
            [("admin", "secret", true), ("admin", "Secret", false), ("root", "secret", false)]
        {
            let bare = format!("n={user},r=abc");
            let (login, reply) = credentials.start(format!("n,,{bare}").as_bytes()).unwrap();
            let last = client_final(password, &bare, &reply);
            assert_eq!(credentials.finish(&login, last.as_bytes()).is_ok(), right, "{user} {password}");
        }
    }

    #[test]
    fn malformed_messages_are_refused() {
        let credentials = Credentials::new(Some("secret"), None).unwrap();
        for first in ["", "n,,", "n,,n=admin", "p=tls-unique,,n=admin,r=x", "\u{0}"] {
            assert!(credentials.start(first.as_bytes()).is_err(), "{first:?}");
        }
        let (login, _) = credentials.start(b"n,,n=admin,r=abc").unwrap();
        for last in ["", "c=biws", "c=biws,r=abc,p=", "c=biws,r=abc,p=!!", "c=biws,r=abc,p=AAAA"] {
            assert!(credentials.finish(&login, last.as_bytes()).is_err(), "{last:?}");
        }
    }

    #[test]
    fn users_of_the_data_directory_log_in_with_their_own_passwords() {
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
            ("ana", "of ana", true),
            ("ana", "secret", false),
            ("admin", "secret", true),
            ("admin", "of ana", false),
            ("eva", "", false),
            ("unknown", "of ana", false),
        ] {
            let bare = format!("n={user},r=abc");
            let (login, reply) = credentials.start(format!("n,,{bare}").as_bytes()).unwrap();
            let last = client_final(password, &bare, &reply);
            let found = credentials.finish(&login, last.as_bytes());
            assert_eq!(found.is_ok(), right, "{user} {password}");
            if let Ok((principal, _)) = found {
                assert_eq!(principal.name(), user);
            }
        }
        assert_eq!(credentials.users(), ["admin", "ana", "eva"]);
    }
}
