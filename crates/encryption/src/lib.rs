//! Keys of data at rest: wrapping keys from outside, the key ring with the data keys that they wrap, and AES-256-GCM.
//!
//! ```text
//! key file or command ─► WrappingKeys ─► KeyRing (a JSON file: data keys, wrapped) ─► DataKeys of one purpose ─► Cipher
//! ```
//!
//! A wrapping key never encrypts data, so it is replaced by wrapping the few data keys again. A data key never encrypts data
//! either: each file, and each start of a log, derives a key of its own from it and from a random salt, so that nonces need
//! to be unique within one file or one start only. `docs/encryption.md` says what is encrypted,
//! `docs/rfcs/0018-encryption.md` why it is done this way.

mod cipher;
mod data_keys;
mod key_ring;
mod key_source;
mod page;
mod secret;
mod wrapping_keys;

pub use cipher::{Cipher, NONCE_BYTES, SealedError, TAG_BYTES, random};
pub use data_keys::{DataKey, DataKeys, KeyId, Purpose, SALT_BYTES};
pub use key_ring::{KeyRing, OpenKeyRing};
pub use key_source::KeySource;
pub use page::{FILE_HEADER_BYTES, FileHeader, PAGE_BYTES, PageCipher, STORED_PAGE_BYTES};
pub use secret::{KEY_BYTES, SecretKey};
pub use wrapping_keys::{WrappingKeys, new_key_line};
