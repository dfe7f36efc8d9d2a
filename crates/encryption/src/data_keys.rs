//! Data keys of one purpose.

use std::fmt;
use std::sync::Arc;

use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use serde::{Deserialize, Serialize};
use tidemill_types::{Error, Result};
use zeroize::Zeroizing;

use crate::cipher::{Cipher, random};
use crate::secret::{KEY_BYTES, SecretKey};

/// Size of the salt of a derived key, in bytes.
pub const SALT_BYTES: usize = 16;

/// Random number of a data key, 16 hexadecimal digits in texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub [u8; 8]);

impl KeyId {
    pub(crate) fn random() -> Result<Self> {
        let mut id = [0; 8];
        random(&mut id)?;
        Ok(Self(id))
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() != 16 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        u64::from_str_radix(text, 16).ok().map(|id| Self(id.to_be_bytes()))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// Kind of data that a data key encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// Records of logs: events, changes of documents, what waits for sinks.
    Log,
    /// Checkpoints and ids.
    Files,
    /// Tablets of tables.
    Tables,
}

impl Purpose {
    /// All purposes.
    pub const ALL: [Self; 3] = [Self::Log, Self::Files, Self::Tables];

    /// Returns the name in a key ring.
    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Files => "files",
            Self::Tables => "tables",
        }
    }
}

/// A data key, from which the keys of files are derived.
#[derive(Clone)]
pub struct DataKey {
    /// Number of the key.
    pub id: KeyId,
    pub(crate) secret: SecretKey,
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataKey({})", self.id)
    }
}

impl DataKey {
    /// Derives the cipher of one use, which `label` names and `salt`, a random number, makes unique: HKDF with SHA-256.
    pub fn derive(&self, label: &'static str, salt: &[u8]) -> Cipher {
        struct Length;
        impl KeyType for Length {
            fn len(&self) -> usize {
                KEY_BYTES
            }
        }
        let info = [label.as_bytes()];
        let extracted = Salt::new(HKDF_SHA256, salt).extract(self.secret.bytes());
        let mut derived = Zeroizing::new([0; KEY_BYTES]);
        extracted
            .expand(&info, Length)
            .and_then(|material| material.fill(&mut *derived))
            .expect("32 bytes are less than the limit of HKDF");
        Cipher::new(&SecretKey::new(*derived))
    }
}

/// All data keys of one purpose. The first encrypts, the others only decrypt. Cheap to copy.
#[derive(Clone)]
pub struct DataKeys(Arc<[DataKey]>);

impl fmt::Debug for DataKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}

impl PartialEq for DataKeys {
    /// Compares the numbers, which identify keys.
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().map(|key| key.id).eq(other.0.iter().map(|key| key.id))
    }
}

impl Eq for DataKeys {}

impl DataKeys {
    /// Creates a set of keys; `None` without any.
    pub(crate) fn new(keys: Vec<DataKey>) -> Option<Self> {
        (!keys.is_empty()).then(|| Self(keys.into()))
    }

    /// Returns a set with one random key, for tests and for data that does not outlive the process.
    ///
    /// Errors: `Unavailable` when the system has no random numbers.
    pub fn random() -> Result<Self> {
        let key = DataKey { id: KeyId::random()?, secret: SecretKey::random()? };
        Ok(Self(Arc::new([key])))
    }

    /// Returns the key that encrypts.
    pub fn current(&self) -> &DataKey {
        self.0.first().expect("a set of data keys is not empty")
    }

    /// Returns the key with the number `id`.
    ///
    /// Errors: `Invalid` when it is not in the key ring.
    pub fn find(&self, id: KeyId) -> Result<&DataKey> {
        self.0.iter().find(|key| key.id == id).ok_or_else(|| {
            Error::invalid(format!(
                "the data key {id} is not in the key ring: the data was written with another key ring (keys.json); put that \
                 one back from a backup"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_keys_differ_by_label_and_salt() {
        let keys = DataKeys::random().unwrap();
        let sealed = keys.current().derive("one", &[1; SALT_BYTES]).seal_small(b"", b"x").unwrap();
        let open = |label, salt: u8| {
            let cipher = keys.current().derive(label, &[salt; SALT_BYTES]);
            cipher.open_small(b"", &mut sealed.clone()).is_ok()
        };
        assert_eq!((open("one", 1), open("two", 1), open("one", 2)), (true, false, false));
    }

    #[test]
    fn key_ids_are_parsed_as_they_are_shown() {
        let id = KeyId::random().unwrap();
        assert_eq!(KeyId::parse(&id.to_string()), Some(id));
        assert_eq!(KeyId::parse("+0000000000000ff"), None);
        let unknown = DataKeys::random().unwrap().find(id).unwrap_err();
        assert!(unknown.to_string().contains(&id.to_string()), "{unknown}");
    }
}
