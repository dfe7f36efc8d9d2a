//! SCRAM-SHA-256 (RFC 5802, RFC 7677): the client proves that it knows the password without sending it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::error::{Code, CommandError, Result};

/// The only user.
pub(crate) const USER: &str = "admin";
/// The only mechanism.
pub(crate) const MECHANISM: &str = "SCRAM-SHA-256";
const ITERATIONS: u32 = 15_000;
const SALT_BYTES: usize = 28;
const NONCE_BYTES: usize = 24;
/// Maximum bytes of a message of a client.
const PAYLOAD_BYTES_MAX: usize = 1024;

/// SCRAM keys derived from the password. The password itself is not kept.
pub(crate) struct Credentials {
    salt: [u8; SALT_BYTES],
    stored_key: [u8; 32],
    server_key: [u8; 32],
}

/// A login between the first and the last message of the client.
pub(crate) struct Login {
    nonce: String,
    /// True if the user exists. The login of an unknown user proceeds all the same, so that user names cannot
    /// be probed.
    known: bool,
    /// The messages so far, which both sides sign.
    signed: String,
}

impl Credentials {
    /// Derives the keys of a password, which takes some milliseconds.
    pub fn new(password: &str) -> Self {
        let salt: [u8; SALT_BYTES] = rand::random();
        let salted: [u8; 32] =
            pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(password.as_bytes(), &salt, ITERATIONS);
        let stored_key = Sha256::digest(hmac(&salted, b"Client Key")).into();
        Self { salt, stored_key, server_key: hmac(&salted, b"Server Key") }
    }

    /// Answers the first message of a client.
    pub fn start(&self, payload: &[u8]) -> Result<(Login, String)> {
        let message = text(payload)?;
        // `n,,` says that the client does not bind the login to a TLS channel
        let bare = message.strip_prefix("n,,").or_else(|| message.strip_prefix("y,,"));
        let bare = bare.ok_or_else(|| failed("expected a message that begins with `n,,`"))?;
        let user = attribute(bare, 'n').ok_or_else(|| failed("the user is missing"))?;
        let client_nonce = attribute(bare, 'r').ok_or_else(|| failed("the nonce is missing"))?;
        let known = user.replace("=2C", ",").replace("=3D", "=") == USER;
        let nonce = format!("{client_nonce}{}", BASE64.encode(rand::random::<[u8; NONCE_BYTES]>()));
        let reply = format!("r={nonce},s={},i={ITERATIONS}", BASE64.encode(self.salt));
        let signed = format!("{bare},{reply}");
        Ok((Login { nonce, known, signed }, reply))
    }

    /// Checks the last message of a client. Returns the server's proof that it knows the password, too.
    pub fn finish(&self, login: &Login, payload: &[u8]) -> Result<String> {
        let message = text(payload)?;
        let (without_proof, proof) =
            message.rsplit_once(",p=").ok_or_else(|| failed("the proof is missing"))?;
        let signed = format!("{},{without_proof}", login.signed);
        let signature = hmac(&self.stored_key, signed.as_bytes());
        let proof: [u8; 32] = BASE64.decode(proof).ok().and_then(|p| p.try_into().ok()).ok_or_else(wrong)?;
        let mut client_key = signature;
        client_key.iter_mut().zip(proof).for_each(|(byte, proof)| *byte ^= proof);
        let key: [u8; 32] = Sha256::digest(client_key).into();
        let same_nonce = attribute(without_proof, 'r') == Some(login.nonce.as_str());
        let proven: bool = key.ct_eq(&self.stored_key).into();
        match proven && same_nonce && login.known {
            true => Ok(format!("v={}", BASE64.encode(hmac(&self.server_key, signed.as_bytes())))),
            false => Err(wrong()),
        }
    }
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().into()
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
        "Authentication failed: expected the user `{USER}` with the token of the data directory (DATA/token) as the password"
    );
    CommandError::new(Code::AuthenticationFailed, message)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let credentials = Credentials::new("secret");
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
        let credentials = Credentials::new("secret");
        for first in ["", "n,,", "n,,n=admin", "p=tls-unique,,n=admin,r=x", "\u{0}"] {
            assert!(credentials.start(first.as_bytes()).is_err(), "{first:?}");
        }
        let (login, _) = credentials.start(b"n,,n=admin,r=abc").unwrap();
        for last in ["", "c=biws", "c=biws,r=abc,p=", "c=biws,r=abc,p=!!", "c=biws,r=abc,p=AAAA"] {
            assert!(credentials.finish(&login, last.as_bytes()).is_err(), "{last:?}");
        }
    }
}
