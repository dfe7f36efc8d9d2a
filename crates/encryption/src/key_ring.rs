//! The key ring: data keys, wrapped by wrapping keys.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tidemill_types::{Error, Result};

use crate::cipher::Cipher;
use crate::data_keys::{DataKey, DataKeys, KeyId, Purpose};
use crate::secret::SecretKey;
use crate::wrapping_keys::WrappingKeys;

const FORMAT: u32 = 1;

/// A key ring as it is stored. It has no secret that is readable without a wrapping key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRing {
    format: u32,
    keys: Vec<WrappedKey>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WrappedKey {
    id: String,
    purpose: Purpose,
    /// Name of the wrapping key.
    wrapped_by: String,
    /// Nonce, data key and tag, in base64.
    wrapped: String,
}

impl Default for KeyRing {
    fn default() -> Self {
        Self { format: FORMAT, keys: Vec::new() }
    }
}

/// A key ring whose keys are unwrapped.
#[derive(Debug, Clone, Default)]
pub struct OpenKeyRing {
    keys: Vec<(Purpose, DataKey)>,
}

impl KeyRing {
    /// Unwraps the data keys.
    ///
    /// Errors: `Invalid` when a wrapping key is missing or another one than that of its name; `Corrupt` for a content that
    /// no release wrote.
    pub fn open(&self, wrapping: &WrappingKeys) -> Result<OpenKeyRing> {
        if self.format != FORMAT {
            return Err(Error::invalid(format!(
                "the key ring has format {}, this release reads format {FORMAT}: use the release that wrote it",
                self.format
            )));
        }
        let keys = self.keys.iter().map(|key| Ok((key.purpose, key.unwrap(wrapping)?)));
        Ok(OpenKeyRing { keys: keys.collect::<Result<_>>()? })
    }

    /// Returns whether there is a key that another wrapping key than the current one has wrapped.
    pub fn needs_rotation(&self, wrapping: &WrappingKeys) -> bool {
        self.keys.iter().any(|key| key.wrapped_by != wrapping.current().0)
    }

    /// Returns the names of the wrapping keys that are needed to open it, each once.
    pub fn wrapped_by(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.keys.iter().map(|key| key.wrapped_by.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns true if the key ring has no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl WrappedKey {
    fn wrap(purpose: Purpose, key: &DataKey, wrapping: &WrappingKeys) -> Result<Self> {
        let id = key.id.to_string();
        let (name, by) = wrapping.current();
        let wrapped = Cipher::new(by).seal_small(&associated(purpose, &id), key.secret.bytes())?;
        Ok(Self { id, purpose, wrapped_by: name.to_owned(), wrapped: STANDARD.encode(wrapped) })
    }

    fn unwrap(&self, wrapping: &WrappingKeys) -> Result<DataKey> {
        let Self { id, purpose, wrapped_by: name, .. } = self;
        let by = wrapping.find(name).ok_or_else(|| {
            let known: Vec<String> = wrapping.names().map(|name| format!("`{name}`")).collect();
            Error::invalid(format!(
                "the data key {id} ({}) is wrapped by the key `{name}`, which is not among the given ones ({}): add the line \
                 of `{name}` after the first",
                purpose.name(),
                known.join(", ")
            ))
        })?;
        let damaged = || Error::corrupt(format!("the data key {id} in the key ring cannot be read"));
        let number = KeyId::parse(id).ok_or_else(damaged)?;
        let mut wrapped = STANDARD.decode(&self.wrapped).map_err(|_| damaged())?;
        let secret = Cipher::new(by).open_small(&associated(*purpose, id), &mut wrapped).map_err(|_| {
            Error::invalid(format!(
                "the key `{name}` does not open the data key {id} ({}): it is the wrong key, another one than the key of \
                 that name that wrapped it",
                purpose.name()
            ))
        })?;
        let secret = SecretKey::from_slice(secret).ok_or_else(damaged);
        zeroize::Zeroize::zeroize(&mut wrapped);
        Ok(DataKey { id: number, secret: secret? })
    }
}

/// Binds a wrapped key to its place, so that keys of a ring cannot be exchanged.
fn associated(purpose: Purpose, id: &str) -> Vec<u8> {
    format!("tidemill data key {} {id}", purpose.name()).into_bytes()
}

impl OpenKeyRing {
    /// Wraps all keys with the current wrapping key.
    ///
    /// Errors: `Unavailable` when the system has no random numbers.
    pub fn wrap(&self, wrapping: &WrappingKeys) -> Result<KeyRing> {
        let keys = self.keys.iter().map(|(purpose, key)| WrappedKey::wrap(*purpose, key, wrapping));
        Ok(KeyRing { format: FORMAT, keys: keys.collect::<Result<_>>()? })
    }

    /// Adds a random key for each of `purposes` that has none; returns whether there was such a one.
    ///
    /// Errors: `Unavailable` when the system has no random numbers.
    pub fn complete(&mut self, purposes: &[Purpose]) -> Result<bool> {
        let before = self.keys.len();
        for purpose in purposes {
            if self.keys(*purpose).is_none() {
                self.keys.push((*purpose, DataKey { id: KeyId::random()?, secret: SecretKey::random()? }));
            }
        }
        Ok(self.keys.len() > before)
    }

    /// Adds the keys of `other` of one purpose before those that it has; returns whether there was a new one.
    pub fn add(&mut self, other: &Self, purpose: Purpose) -> bool {
        let known = |id: KeyId| self.keys.iter().any(|(_, key)| key.id == id);
        let new: Vec<_> =
            other.keys.iter().filter(|(of, key)| *of == purpose && !known(key.id)).cloned().collect();
        let added = !new.is_empty();
        self.keys.splice(0..0, new);
        added
    }

    /// Returns the ring with the keys of one purpose.
    pub fn only(&self, purpose: Purpose) -> Self {
        Self { keys: self.keys.iter().filter(|(of, _)| *of == purpose).cloned().collect() }
    }

    /// Returns the keys of a purpose, the current one first, or `None` if the purpose has no key.
    pub fn keys(&self, purpose: Purpose) -> Option<DataKeys> {
        let keys = self.keys.iter().filter(|(of, _)| *of == purpose).map(|(_, key)| key.clone());
        DataKeys::new(keys.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrapping_keys::new_key_line;

    fn line(name: &str) -> String {
        new_key_line(name).unwrap().to_string()
    }

    fn wrapping(lines: &[&str]) -> WrappingKeys {
        WrappingKeys::parse(&lines.join("\n")).unwrap()
    }

    fn new_ring(keys: &WrappingKeys) -> (KeyRing, OpenKeyRing) {
        let mut open = OpenKeyRing::default();
        assert!(open.complete(&Purpose::ALL).unwrap() && !open.complete(&Purpose::ALL).unwrap());
        (open.wrap(keys).unwrap(), open)
    }

    #[test]
    fn a_ring_is_opened_by_the_keys_that_wrapped_it_and_by_no_other() {
        let first = line("first");
        let (ring, open) = new_ring(&wrapping(&[&first]));
        let text = serde_json::to_string(&ring).unwrap();
        let read: KeyRing = serde_json::from_str(&text).unwrap();
        let again = read.open(&wrapping(&[&line("other"), &first])).unwrap();
        assert_eq!(again.keys(Purpose::Log), open.keys(Purpose::Log));
        assert_ne!(again.keys(Purpose::Log), open.keys(Purpose::Tables));
        let missing = read.open(&wrapping(&[&line("second")])).unwrap_err().to_string();
        assert!(
            missing.contains("wrapped by the key `first`") && missing.contains("(`second`)"),
            "{missing}"
        );
        let wrong = read.open(&wrapping(&[&line("first")])).unwrap_err().to_string();
        assert!(wrong.contains("the key `first` does not open") && wrong.contains("wrong key"), "{wrong}");
    }

    #[test]
    fn rotation_makes_the_old_key_unnecessary() {
        let (old, new) = (line("old"), line("new"));
        let (ring, open) = new_ring(&wrapping(&[&old]));
        let both = wrapping(&[&new, &old]);
        assert!(ring.needs_rotation(&both));
        let rotated = ring.open(&both).unwrap().wrap(&both).unwrap();
        assert_eq!((rotated.needs_rotation(&both), rotated.wrapped_by()), (false, vec!["new"]));
        let opened = rotated.open(&wrapping(&[&new])).unwrap();
        for purpose in Purpose::ALL {
            assert_eq!(opened.keys(purpose), open.keys(purpose));
            let sealed =
                open.keys(purpose).unwrap().current().derive("t", b"s").seal_small(b"", b"x").unwrap();
            let cipher = opened.keys(purpose).unwrap().current().derive("t", b"s");
            assert_eq!(cipher.open_small(b"", &mut sealed.clone()).unwrap(), b"x");
        }
    }

    #[test]
    fn keys_of_a_ring_cannot_be_exchanged() {
        let keys = wrapping(&[&line("a")]);
        let (mut ring, _) = new_ring(&keys);
        let other = ring.keys[1].wrapped.clone();
        ring.keys[0].wrapped = other;
        assert!(ring.open(&keys).unwrap_err().to_string().contains("does not open"));
        ring.keys[0].wrapped = "!".to_owned();
        assert!(ring.open(&keys).unwrap_err().to_string().contains("cannot be read"));
    }

    #[test]
    fn rings_of_two_places_are_joined_by_purpose() {
        let keys = wrapping(&[&line("a")]);
        let ((_, mut ours), (_, theirs)) = (new_ring(&keys), new_ring(&keys));
        let log = ours.keys(Purpose::Log);
        assert!(ours.add(&theirs, Purpose::Tables) && !ours.add(&theirs, Purpose::Tables));
        assert_eq!(ours.keys(Purpose::Log), log);
        let tables = ours.keys(Purpose::Tables).unwrap();
        let current = theirs.keys(Purpose::Tables).unwrap().current().id;
        assert_eq!(tables.current().id, current);
        assert!(ours.only(Purpose::Tables).keys(Purpose::Log).is_none());
    }
}
