//! Bytes of a key: zeroed when they are dropped, and never shown.

use std::fmt;

use tidemill_types::Result;
use zeroize::Zeroizing;

use crate::cipher::random;

/// Size of every key in bytes: that of AES-256.
pub const KEY_BYTES: usize = 32;

/// The bytes of a key.
#[derive(Clone)]
pub struct SecretKey(Zeroizing<[u8; KEY_BYTES]>);

impl SecretKey {
    /// Takes over the bytes of a key.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Copies the bytes of a key; `None` when there are not [`KEY_BYTES`].
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        if bytes.len() != KEY_BYTES {
            return None;
        }
        key.copy_from_slice(bytes);
        Some(Self(key))
    }

    /// Creates a random key.
    ///
    /// Errors: `Unavailable` when the system has no random numbers.
    pub fn random() -> Result<Self> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        random(&mut *key)?;
        Ok(Self(key))
    }

    /// Returns the bytes of the key.
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}
