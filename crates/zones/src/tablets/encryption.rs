//! Encryption of tablets: Parquet modular encryption, AES-GCM, footer and all columns.
//!
//! Each tablet has a random key of its own. It is in the metadata of the footer's key, encrypted with the tables' data key:
//!
//! ```text
//!  0  "TMK1"    4
//!  4  key id    8   data key of the key ring
//! 12  sealed   60   nonce, key of the file and tag
//! ```
//!
//! The Delta log is not encrypted: it has no bounds of the columns of such a tablet, which are values of events. They are in
//! a tag of its entry, encrypted. There are no Bloom filters: the Parquet library writes them unencrypted, and they would
//! tell whether a given key is in the file.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::encryption::decrypt::{FileDecryptionProperties, KeyRetriever};
use parquet::encryption::encrypt::FileEncryptionProperties;
use parquet::errors::ParquetError;
use tidemill_encryption::{DataKeys, KEY_BYTES, KeyId, NONCE_BYTES, SecretKey, TAG_BYTES};
use tidemill_types::{Error, Result};

use crate::error::internal;

const MAGIC: &[u8] = b"TMK1";
const ID_BYTES: usize = 8;
/// Size of a key's metadata.
const METADATA_BYTES: usize = MAGIC.len() + ID_BYTES + NONCE_BYTES + KEY_BYTES + TAG_BYTES;
const FILE_KEY_LABEL: &str = "tidemill tablet key";
const BOUNDS_LABEL: &str = "tidemill tablet bounds";

/// Data keys with which tablets are encrypted and decrypted. Cheap to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TabletKeys(DataKeys);

impl TabletKeys {
    /// Encrypts with the current one of `keys`.
    pub fn new(keys: DataKeys) -> Self {
        Self(keys)
    }

    /// Returns the properties of a new file, with a random key.
    pub(crate) fn new_file(&self) -> Result<Arc<FileEncryptionProperties>> {
        let key = SecretKey::random()?;
        let by = self.0.current();
        let sealed = by.derive(FILE_KEY_LABEL, &[]).seal_small(MAGIC, key.bytes())?;
        let metadata = [MAGIC, &by.id.0, &sealed].concat();
        // Parquet keeps the key in memory until the file is written.
        let properties = FileEncryptionProperties::builder(key.bytes().to_vec());
        properties
            .with_footer_key_metadata(metadata)
            .build()
            .map_err(|e| internal("a tablet cannot be encrypted", e))
    }

    /// Returns the properties with which encrypted and unencrypted files are read.
    pub fn for_reading(&self) -> Result<Arc<FileDecryptionProperties>> {
        FileDecryptionProperties::with_key_retriever(Arc::new(self.clone()))
            .build()
            .map_err(|e| internal("tablets cannot be decrypted", e))
    }

    fn file_key(&self, metadata: &[u8]) -> Result<SecretKey> {
        let foreign = || Error::invalid("it was encrypted by another program: its key has other metadata");
        let rest = metadata.strip_prefix(MAGIC).filter(|_| metadata.len() == METADATA_BYTES);
        let (id, sealed) = rest.and_then(|rest| rest.split_first_chunk::<ID_BYTES>()).ok_or_else(foreign)?;
        let cipher = self.0.find(KeyId(*id))?.derive(FILE_KEY_LABEL, &[]);
        let mut sealed = sealed.to_vec();
        let key =
            cipher.open_small(MAGIC, &mut sealed).map_err(|e| Error::corrupt(format!("its key: {e}")))?;
        let secret = SecretKey::from_slice(key);
        key.fill(0);
        secret.ok_or_else(foreign)
    }

    /// Encrypts the statistics of the tablet `name` for the Delta log.
    pub(crate) fn seal_stats(&self, name: &str, stats: &str) -> Result<String> {
        let by = self.0.current();
        let sealed = by.derive(BOUNDS_LABEL, &[]).seal_small(name.as_bytes(), stats.as_bytes())?;
        Ok(STANDARD.encode([&by.id.0[..], &sealed].concat()))
    }

    /// Decrypts the output of [`Self::seal_stats`].
    ///
    /// Errors: `Invalid` for a data key that is not in the key ring; `Corrupt`.
    pub(crate) fn open_stats(&self, name: &str, text: &str) -> Result<String> {
        let damaged = || Error::corrupt("its encrypted statistics are not what was written");
        let mut bytes = STANDARD.decode(text).map_err(|_| damaged())?;
        let (id, sealed) = bytes.split_first_chunk_mut::<ID_BYTES>().ok_or_else(damaged)?;
        let cipher = self.0.find(KeyId(*id))?.derive(BOUNDS_LABEL, &[]);
        let stats = cipher.open_small(name.as_bytes(), sealed).map_err(|_| damaged())?;
        String::from_utf8(stats.to_vec()).map_err(|_| damaged())
    }
}

impl KeyRetriever for TabletKeys {
    fn retrieve_key(&self, metadata: &[u8]) -> Result<Vec<u8>, ParquetError> {
        let key = self.file_key(metadata).map_err(|e| ParquetError::General(e.message().to_owned()))?;
        Ok(key.bytes().to_vec())
    }
}

/// Returns the options with which a tablet is read.
pub(crate) fn reader_options(keys: Option<&TabletKeys>) -> Result<ArrowReaderOptions> {
    let options = ArrowReaderOptions::new();
    match keys {
        Some(keys) => Ok(options.with_file_decryption_properties(keys.for_reading()?)),
        None => Ok(options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_statistics_are_opened_by_their_data_key_and_at_their_file_only() {
        let keys = TabletKeys::new(DataKeys::random().unwrap());
        let file = keys.new_file().unwrap();
        let metadata = file.footer_key_metadata().unwrap();
        assert_eq!(&keys.file_key(metadata).unwrap().bytes()[..], &file.footer_key()[..]);
        assert_ne!(keys.new_file().unwrap().footer_key(), file.footer_key());
        let other = TabletKeys::new(DataKeys::random().unwrap());
        assert!(other.retrieve_key(metadata).unwrap_err().to_string().contains("key ring"));
        assert!(keys.file_key(b"some other metadata").is_err());
        let mut damaged = metadata.clone();
        damaged[30] ^= 1;
        assert!(keys.file_key(&damaged).is_err());

        let stats = keys.seal_stats("tablets/0/a.parquet", "{\"minValues\":1}").unwrap();
        assert_eq!(keys.open_stats("tablets/0/a.parquet", &stats).unwrap(), "{\"minValues\":1}");
        assert!(keys.open_stats("tablets/0/b.parquet", &stats).is_err());
        assert!(keys.open_stats("tablets/0/a.parquet", "!").is_err());
        assert!(other.open_stats("tablets/0/a.parquet", &stats).is_err());
    }
}
