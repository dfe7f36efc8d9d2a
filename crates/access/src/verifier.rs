//! What checks a password without knowing it: SCRAM-SHA-256 (RFC 5802, RFC 7677).

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tidemill_types::{Error, Result};

/// Rounds of PBKDF2 for new passwords.
pub const ITERATIONS: u32 = 15_000;
/// Length of a salt.
pub const SALT_BYTES: usize = 28;
/// Rounds that a file may ask for; a login would take seconds beyond it.
const ITERATIONS_MAX: u32 = 1_000_000;
/// Shortest password of a new user, in characters.
const PASSWORD_CHARS_MIN: usize = 8;
const PASSWORD_BYTES_MAX: usize = 1024;

/// Keys derived from a password, by which both sides of a login prove that they know it. `Debug` output has no key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verifier {
    #[serde(with = "bytes")]
    salt: [u8; SALT_BYTES],
    #[serde(deserialize_with = "iterations")]
    iterations: u32,
    #[serde(with = "bytes")]
    stored_key: [u8; 32],
    #[serde(with = "bytes")]
    server_key: [u8; 32],
}

impl Verifier {
    /// Derives the keys of a password with a new salt, which takes some milliseconds.
    pub fn new(password: &str) -> Self {
        Self::with_salt(password, rand::random())
    }

    /// Derives the keys of the password of a new user.
    ///
    /// Errors: `Invalid` for a password of less than 8 characters or more than 1,024 bytes, and for one that SASLprep (RFC 4013)
    /// does not allow.
    pub fn of_new_password(password: &str) -> Result<Self> {
        if password.chars().count() < PASSWORD_CHARS_MIN || password.len() > PASSWORD_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the password has {} characters: expected {PASSWORD_CHARS_MIN} at least, and at most {PASSWORD_BYTES_MAX} bytes",
                password.chars().count()
            )));
        }
        if stringprep::saslprep(password).is_err() {
            return Err(Error::invalid(
                "the password has characters that SASLprep (RFC 4013) forbids, such as control characters: leave them out",
            ));
        }
        Ok(Self::new(password))
    }

    fn with_salt(password: &str, salt: [u8; SALT_BYTES]) -> Self {
        let salted = salted(password, &salt, ITERATIONS);
        let stored_key = Sha256::digest(hmac(&salted, b"Client Key")).into();
        Self { salt, iterations: ITERATIONS, stored_key, server_key: hmac(&salted, b"Server Key") }
    }

    /// Returns whether this is the verifier of a password that a client has sent as it is, which takes some milliseconds.
    pub fn fits(&self, password: &str) -> bool {
        let client_key = hmac(&salted(password, &self.salt, self.iterations), b"Client Key");
        let key: [u8; 32] = Sha256::digest(client_key).into();
        key.ct_eq(&self.stored_key).into()
    }

    /// Returns a verifier that no password fits, the same for the same name and `secret`: the login of an unknown user proceeds
    /// with it, so that the answers do not say which users there are.
    pub fn of_unknown_user(name: &str, secret: &[u8; 32]) -> Self {
        let key = |purpose: &[u8]| hmac(&hmac(secret, purpose), name.as_bytes());
        let mut salt = [0; SALT_BYTES];
        salt.copy_from_slice(&key(b"salt")[..SALT_BYTES]);
        Self { salt, iterations: ITERATIONS, stored_key: key(b"stored key"), server_key: key(b"server key") }
    }

    /// Returns the salt, which the client gets.
    pub fn salt(&self) -> &[u8; SALT_BYTES] {
        &self.salt
    }

    /// Returns the rounds of PBKDF2, which the client gets.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Checks the client's proof for the messages that both sides sign. Returns the signature of the server if it is right.
    pub fn check(&self, signed: &[u8], proof: &[u8; 32]) -> Option<[u8; 32]> {
        let mut client_key = hmac(&self.stored_key, signed);
        client_key.iter_mut().zip(proof).for_each(|(byte, proof)| *byte ^= proof);
        let key: [u8; 32] = Sha256::digest(client_key).into();
        let proven: bool = key.ct_eq(&self.stored_key).into();
        proven.then(|| hmac(&self.server_key, signed))
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verifier({} iterations)", self.iterations)
    }
}

fn salted(password: &str, salt: &[u8; SALT_BYTES], iterations: u32) -> [u8; 32] {
    // clients do the same; what the profile does not allow is used as it is
    let prepared = stringprep::saslprep(password).unwrap_or(Cow::Borrowed(password));
    pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(prepared.as_bytes(), salt, iterations)
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().into()
}

fn iterations<'de, D: Deserializer<'de>>(d: D) -> Result<u32, D::Error> {
    let count = u32::deserialize(d)?;
    match (1..=ITERATIONS_MAX).contains(&count) {
        true => Ok(count),
        false => Err(de::Error::custom(format!("iterations = {count}: expected 1 to {ITERATIONS_MAX}"))),
    }
}

/// Bytes of a fixed number, as base64.
mod bytes {
    use super::*;

    pub fn serialize<S: Serializer, const N: usize>(bytes: &[u8; N], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&BASE64.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>, const N: usize>(d: D) -> Result<[u8; N], D::Error> {
        let text = String::deserialize(d)?;
        let bytes = BASE64.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| de::Error::custom(format!("expected {N} bytes in base64")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the proof of a client that has this password.
    fn proof(verifier: &Verifier, password: &str, signed: &[u8]) -> [u8; 32] {
        let salted: [u8; 32] = pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(
            password.as_bytes(),
            verifier.salt(),
            verifier.iterations(),
        );
        let client_key = hmac(&salted, b"Client Key");
        let stored: [u8; 32] = Sha256::digest(client_key).into();
        let signature = hmac(&stored, signed);
        std::array::from_fn(|at| client_key[at] ^ signature[at])
    }

    #[test]
    fn only_the_password_proves_itself() {
        let verifier = Verifier::new("secret");
        assert!(verifier.check(b"messages", &proof(&verifier, "secret", b"messages")).is_some());
        assert!(verifier.check(b"messages", &proof(&verifier, "Secret", b"messages")).is_none());
        assert!(verifier.check(b"others", &proof(&verifier, "secret", b"messages")).is_none());
        assert!(verifier.fits("secret") && !verifier.fits("Secret") && !verifier.fits(""));
        assert!(!Verifier::of_unknown_user("ana", &[7; 32]).fits(""));
    }

    #[test]
    fn the_exchange_of_the_rfc_is_accepted() {
        // RFC 7677, section 3, has a salt of 16 bytes and 4,096 rounds
        let (salt, iterations) = (BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap(), 4096);
        let salted: [u8; 32] = pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(b"pencil", &salt, iterations);
        let stored_key = Sha256::digest(hmac(&salted, b"Client Key")).into();
        let verifier = Verifier {
            salt: [0; SALT_BYTES],
            iterations,
            stored_key,
            server_key: hmac(&salted, b"Server Key"),
        };
        let signed = "n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                      s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof = BASE64.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
        let signature = verifier.check(signed.as_bytes(), &proof.try_into().unwrap()).unwrap();
        assert_eq!(BASE64.encode(signature), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn passwords_are_prepared_as_clients_prepare_them() {
        // the ordinal indicator becomes a letter
        let verifier = Verifier::of_new_password("passw\u{aa}rd").unwrap();
        assert!(verifier.check(b"m", &proof(&verifier, "passward", b"m")).is_some());
        for wrong in ["", "short", "with\u{7}bell", &"x".repeat(1025)] {
            assert!(Verifier::of_new_password(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_unknown_user_has_one_salt_as_a_known_one_has() {
        let (ana, again) =
            (Verifier::of_unknown_user("ana", &[7; 32]), Verifier::of_unknown_user("ana", &[7; 32]));
        assert_eq!(ana, again);
        assert_ne!(ana.salt(), Verifier::of_unknown_user("eva", &[7; 32]).salt());
        assert_ne!(ana.salt(), Verifier::of_unknown_user("ana", &[8; 32]).salt());
    }

    #[test]
    fn verifiers_are_read_as_they_are_written_and_not_shown() {
        let verifier = Verifier::new("secret");
        let text = serde_json::to_string(&verifier).unwrap();
        assert_eq!(serde_json::from_str::<Verifier>(&text).unwrap(), verifier);
        assert_eq!(format!("{verifier:?}"), "Verifier(15000 iterations)");
        for wrong in [
            text.replace("15000", "0"),
            text.replace("\"salt\":\"", "\"salt\":\"AA"),
            text.replace("salt", "salz"),
        ] {
            assert!(serde_json::from_str::<Verifier>(&wrong).is_err(), "{wrong}");
        }
    }
}
