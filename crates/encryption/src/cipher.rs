//! AES-256-GCM with one key, and random bytes.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use tidemill_types::{Error, Result};

use crate::secret::SecretKey;

/// Size of a nonce in bytes.
pub const NONCE_BYTES: usize = 12;
/// Bytes that encryption adds behind the content.
pub const TAG_BYTES: usize = 16;

/// The content is not what was encrypted with this key, nonce and associated data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedError;

impl fmt::Display for SealedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the content is not what was encrypted, or was encrypted with another key")
    }
}

impl std::error::Error for SealedError {}

/// AES-256-GCM with one key. The caller never uses a nonce twice for two contents.
#[derive(Clone)]
pub struct Cipher(LessSafeKey);

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cipher")
    }
}

impl Cipher {
    /// Creates the cipher of a key.
    pub fn new(key: &SecretKey) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, key.bytes()).expect("a SecretKey has the length of AES-256");
        Self(LessSafeKey::new(key))
    }

    /// Encrypts `out[from..]` in place and appends the tag. `associated` is not stored: the same is needed to decrypt.
    pub fn seal(&self, nonce: [u8; NONCE_BYTES], associated: &[u8], out: &mut Vec<u8>, from: usize) {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce, Aad::from(associated), &mut out[from..])
            .expect("a content is shorter than 64 GiB, the limit of AES-GCM");
        out.extend_from_slice(tag.as_ref());
    }

    /// Decrypts `sealed`, content and tag, in place and returns the content.
    ///
    /// Errors: [`SealedError`]; `sealed` has no meaning then.
    pub fn open<'b>(
        &self,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        sealed: &'b mut [u8],
    ) -> Result<&'b mut [u8], SealedError> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.open_in_place(nonce, Aad::from(associated), sealed).map_err(|_| SealedError)
    }

    /// Encrypts a small content under a random nonce, which is put in front. At most 2^32 contents per key.
    ///
    /// Errors: `Unavailable` when the system has no random numbers.
    pub fn seal_small(&self, associated: &[u8], content: &[u8]) -> Result<Vec<u8>> {
        let mut nonce = [0; NONCE_BYTES];
        random(&mut nonce)?;
        let mut out = Vec::with_capacity(NONCE_BYTES + content.len() + TAG_BYTES);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(content);
        self.seal(nonce, associated, &mut out, NONCE_BYTES);
        Ok(out)
    }

    /// Decrypts the result of [`Self::seal_small`] in place and returns the content.
    ///
    /// Errors: [`SealedError`].
    pub fn open_small<'b>(
        &self,
        associated: &[u8],
        sealed: &'b mut [u8],
    ) -> Result<&'b mut [u8], SealedError> {
        let (nonce, content) = sealed.split_first_chunk_mut::<NONCE_BYTES>().ok_or(SealedError)?;
        self.open(*nonce, associated, content)
    }
}

/// Fills `bytes` with random numbers of the system.
///
/// Errors: `Unavailable`.
pub fn random(bytes: &mut [u8]) -> Result<()> {
    SystemRandom::new()
        .fill(bytes)
        .map_err(|_| Error::unavailable("the system gives no random numbers, which encryption needs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_other_associated_data_are_found() {
        let cipher = Cipher::new(&SecretKey::new([7; 32]));
        let sealed = cipher.seal_small(b"place 1", b"content").unwrap();
        assert!(!sealed.windows(7).any(|part| part == b"content"));
        assert_eq!(cipher.open_small(b"place 1", &mut sealed.clone()).unwrap(), b"content");
        assert_eq!(cipher.open_small(b"place 2", &mut sealed.clone()), Err(SealedError));
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(cipher.open_small(b"place 1", &mut damaged), Err(SealedError), "bit {bit}");
        }
        let other = Cipher::new(&SecretKey::new([8; 32]));
        assert_eq!(other.open_small(b"place 1", &mut sealed.clone()), Err(SealedError));
        assert_eq!(cipher.open_small(b"place 1", &mut [0; 5]), Err(SealedError));
    }

    #[test]
    fn nothing_shows_a_key() {
        let key = SecretKey::new([65; 32]);
        let shown = format!("{key:?} {:?}", Cipher::new(&key));
        assert_eq!(shown, "SecretKey Cipher");
    }
}
