//! Tokens: secrets of programs; the file has their hashes.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tidemill_types::{Error, Timestamp};

use crate::grant::Grant;

/// Beginning of the text of a token, so that searches for leaked secrets find it.
const PREFIX: &str = "tidemill_";
const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;

/// A token of a user. Its secret is known to the user who made it only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Name of the token, by which it is listed, rotated and revoked: 12 hexadecimal digits.
    pub id: String,
    /// The user whose rights it has.
    pub user: String,
    pub(crate) sha256: SecretHash,
    /// When it was made, or rotated for the last time.
    #[serde(with = "time")]
    pub created: Timestamp,
    /// When it stops to let its holder in.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_time")]
    pub expires: Option<Timestamp>,
    /// Limits of the rights: those of the user that one of these grants allows, too. `None` for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Vec<Grant>>,
}

/// A token that was just made, and its text, which is shown once.
#[derive(Debug)]
pub struct NewToken {
    /// The token.
    pub token: Token,
    /// Text that its holder sends: `tidemill_ID_SECRET`.
    pub text: String,
}

/// SHA-256 of a secret of 256 random bits, which needs no salt. `Debug` output does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SecretHash([u8; 32]);

impl Token {
    /// Makes a token of a user with a new secret.
    pub(crate) fn create(
        user: &str,
        limits: Option<Vec<Grant>>,
        created: Timestamp,
        expires: Option<Timestamp>,
    ) -> NewToken {
        let id = hex(&rand::random::<[u8; ID_BYTES]>());
        let token = Self { id, user: user.to_owned(), sha256: SecretHash([0; 32]), created, expires, limits };
        token.with_new_secret(created)
    }

    /// Returns the token with another secret.
    pub(crate) fn with_new_secret(self, created: Timestamp) -> NewToken {
        let secret = hex(&rand::random::<[u8; SECRET_BYTES]>());
        let text = format!("{PREFIX}{}_{secret}", self.id);
        NewToken { token: Self { sha256: SecretHash::of(&secret), created, ..self }, text }
    }

    /// Returns id and secret of the text of a token.
    pub(crate) fn parse(text: &[u8]) -> Option<(&str, &str)> {
        std::str::from_utf8(text).ok()?.strip_prefix(PREFIX)?.split_once('_')
    }

    /// Returns whether the secret is that of the token, and the token has not expired at `now`.
    pub(crate) fn lets_in(&self, secret: &str, now: Timestamp) -> bool {
        let is_known: bool = SecretHash::of(secret).0.ct_eq(&self.sha256.0).into();
        is_known && self.is_valid(now)
    }

    /// Returns whether the token has not expired at `now`.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

impl SecretHash {
    pub(crate) fn of(secret: &str) -> Self {
        Self(Sha256::digest(secret.as_bytes()).into())
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl Serialize for SecretHash {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for SecretHash {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        of_hex(&text).map(Self).ok_or_else(|| de::Error::custom("expected 64 hexadecimal digits"))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn of_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let bytes = (0..N).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok());
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

/// A time as RFC 3339.
mod time {
    use super::*;

    pub fn serialize<S: Serializer>(time: &Timestamp, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(time)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(d)?;
        Timestamp::parse(&text).map_err(|e: Error| de::Error::custom(e.message()))
    }
}

/// A time as RFC 3339, or nothing.
mod optional_time {
    use super::*;

    pub fn serialize<S: Serializer>(time: &Option<Timestamp>, s: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => s.collect_str(time),
            None => s.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Timestamp>, D::Error> {
        time::deserialize(d).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

    #[test]
    fn the_secret_lets_in_until_it_is_rotated_or_expires() {
        let expires = Timestamp(NOW.0 + 10);
        let NewToken { token, text } = Token::create("ana", None, NOW, Some(expires));
        let (id, secret) = Token::parse(text.as_bytes()).unwrap();
        assert_eq!(id, token.id);
        assert!(token.lets_in(secret, NOW) && token.lets_in(secret, Timestamp(expires.0 - 1)));
        assert!(!token.lets_in(secret, expires), "it has expired");
        assert!(!token.lets_in(&secret.to_uppercase(), NOW) && !token.lets_in("", NOW));
        let rotated = token.clone().with_new_secret(NOW);
        assert!(!rotated.token.lets_in(secret, NOW));
        let (_, new) = Token::parse(rotated.text.as_bytes()).unwrap();
        assert!(rotated.token.lets_in(new, NOW));
    }

    #[test]
    fn tokens_are_read_as_they_are_written_and_have_no_secret() {
        let limits = Some(vec!["read stream:*".parse().unwrap()]);
        let NewToken { token, text } = Token::create("ana", limits, NOW, Some(NOW));
        let json = serde_json::to_string(&token).unwrap();
        assert_eq!(serde_json::from_str::<Token>(&json).unwrap(), token);
        let (_, secret) = Token::parse(text.as_bytes()).unwrap();
        assert!(!json.contains(secret) && !format!("{token:?}").contains(secret));
        assert!(json.contains("\"created\":\"2023-11-14T22:13:20Z\""), "{json}");
        let without_time = json.replace("2023-11-14T22:13:20Z", "soon");
        assert!(serde_json::from_str::<Token>(&without_time).is_err());
    }

    #[test]
    fn other_texts_are_no_tokens() {
        for text in ["", "tidemill_", "tidemill_abc", "0123456789abcdef"] {
            assert_eq!(Token::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Token::parse(b"\xff"), None);
        assert_eq!(of_hex::<1>("+1"), None);
    }
}
