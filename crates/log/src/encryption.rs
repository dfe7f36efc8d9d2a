//! Encryption of records.
//!
//! The payload of an encrypted record, which its checksum covers as it is stored:
//!
//! ```text
//!  0  key id   8   data key of the key ring
//!  8  salt    16   random, chosen when the partition was opened
//! 24  content      encrypted with the key that is derived from data key, name of the log and salt
//!  …  tag     16
//! ```
//!
//! The nonce is the record's offset and its partition. It is not used twice with one key: while a partition is open, each
//! offset is given once, and what is written again after a failure are the same bytes; the next opening has another salt.
//! Offset, partition and time are associated data, so that a record that is moved or copied to another place, or to another
//! log, is not decrypted.

use std::collections::HashMap;
use std::fmt;

use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_encryption::{Cipher, DataKeys, KeyId, NONCE_BYTES, SALT_BYTES, TAG_BYTES, random};
use tidemill_types::{Error, Result};

use crate::record::Record;

/// Bytes before the content.
const PREFIX_BYTES: usize = 8 + SALT_BYTES;
/// Bytes that encryption adds to a payload.
pub(crate) const ENCRYPTION_BYTES: usize = PREFIX_BYTES + TAG_BYTES;
/// Ciphers of earlier openings that are kept for reading.
const READ_CIPHERS_MAX: usize = 64;

/// Keys of a log, and its name, so that the records of two logs are encrypted with different keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEncryption {
    /// Data keys.
    pub keys: DataKeys,
    /// Purpose of the log: `log`, `changes`.
    pub log: &'static str,
}

/// A record as it is stored.
#[derive(Debug)]
pub(crate) struct StoredRecord {
    pub record: Record,
    pub is_encrypted: bool,
}

/// Encrypts and decrypts the records of a partition while it is open.
pub(crate) struct RecordCipher {
    encryption: LogEncryption,
    partition: u32,
    /// Key id and salt of this opening, which precede each encrypted content.
    prefix: [u8; PREFIX_BYTES],
    cipher: Cipher,
    /// Ciphers by key id and salt.
    opened: Mutex<HashMap<[u8; PREFIX_BYTES], Cipher>>,
}

impl fmt::Debug for RecordCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordCipher").field("encryption", &self.encryption).finish_non_exhaustive()
    }
}

impl RecordCipher {
    /// Creates the cipher of an opening of `partition`.
    ///
    /// Errors: `Unavailable` when the system has no random numbers.
    pub(crate) fn new(encryption: LogEncryption, partition: u32) -> Result<Self> {
        let mut prefix = [0; PREFIX_BYTES];
        let key = encryption.keys.current();
        prefix[..8].copy_from_slice(&key.id.0);
        random(&mut prefix[8..])?;
        let cipher = key.derive(encryption.log, &prefix[8..]);
        Ok(Self { encryption, partition, prefix, cipher, opened: Mutex::default() })
    }

    /// Appends the encrypted payload of the record `offset` to `out`.
    pub(crate) fn seal(&self, offset: u64, time: i64, payload: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        let from = out.len();
        out.extend_from_slice(payload);
        let (nonce, associated) = self.place(offset, time);
        self.cipher.seal(nonce, &associated, out, from);
    }

    /// Decrypts a record.
    ///
    /// Errors: `Invalid` for a data key that is not in the key ring; `Corrupt` for bytes that are not what was encrypted.
    pub(crate) fn open(&self, record: Record) -> Result<Record> {
        let fault = |error: Error| {
            error.context(format!("log partition {}, offset {}", self.partition, record.offset))
        };
        let payload = self.open_payload(&record).map_err(fault)?;
        Ok(Record { payload, ..record })
    }

    fn open_payload(&self, record: &Record) -> Result<Bytes> {
        let changed = || {
            Error::corrupt(
                "the record is not what was encrypted for this place: it was changed, or it was moved here from another one",
            )
        };
        let (prefix, sealed) = record.payload.split_first_chunk::<PREFIX_BYTES>().ok_or_else(changed)?;
        let cipher = self.cipher_of(prefix)?;
        let (nonce, associated) = self.place(record.offset.0, record.time.micros());
        let mut content = sealed.to_vec();
        let length = cipher.open(nonce, &associated, &mut content).map_err(|_| changed())?.len();
        content.truncate(length);
        Ok(content.into())
    }

    fn cipher_of(&self, prefix: &[u8; PREFIX_BYTES]) -> Result<Cipher> {
        if *prefix == self.prefix {
            return Ok(self.cipher.clone());
        }
        if let Some(cipher) = self.opened.lock().get(prefix) {
            return Ok(cipher.clone());
        }
        let (id, salt) = prefix.split_first_chunk::<8>().expect("a prefix is longer than a key id");
        let cipher = self.encryption.keys.find(KeyId(*id))?.derive(self.encryption.log, salt);
        let mut opened = self.opened.lock();
        if opened.len() >= READ_CIPHERS_MAX {
            opened.clear();
        }
        opened.insert(*prefix, cipher.clone());
        Ok(cipher)
    }

    /// Returns the nonce of a record, and its associated data.
    fn place(&self, offset: u64, time: i64) -> ([u8; NONCE_BYTES], [u8; 20]) {
        let mut associated = [0; 20];
        associated[..8].copy_from_slice(&offset.to_le_bytes());
        associated[8..12].copy_from_slice(&self.partition.to_le_bytes());
        associated[12..].copy_from_slice(&time.to_le_bytes());
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&associated[..NONCE_BYTES]);
        (nonce, associated)
    }
}

#[cfg(test)]
mod tests {
    use tidemill_types::{ErrorKind, Offset, Timestamp};

    use super::*;

    fn encryption() -> LogEncryption {
        LogEncryption { keys: DataKeys::random().unwrap(), log: "log" }
    }

    fn sealed(cipher: &RecordCipher, offset: u64) -> Record {
        let mut payload = Vec::new();
        cipher.seal(offset, 7, b"content", &mut payload);
        assert_eq!(payload.len(), 7 + ENCRYPTION_BYTES);
        Record { offset: Offset(offset), time: Timestamp(7), clock: 0, payload: payload.into() }
    }

    #[test]
    fn a_record_is_decrypted_at_its_place_only() {
        let encryption = encryption();
        let cipher = RecordCipher::new(encryption.clone(), 1).unwrap();
        let record = sealed(&cipher, 5);
        // the next opening
        let later = RecordCipher::new(encryption.clone(), 1).unwrap();
        assert_eq!(&later.open(record.clone()).unwrap().payload[..], b"content");
        assert_ne!(sealed(&later, 5).payload, record.payload);
        let kind = |cipher: &RecordCipher, record: Record| cipher.open(record).unwrap_err().kind();
        assert_eq!(kind(&later, Record { offset: Offset(6), ..record.clone() }), ErrorKind::Corrupt);
        assert_eq!(kind(&later, Record { time: Timestamp(8), ..record.clone() }), ErrorKind::Corrupt);
        assert_eq!(
            kind(&later, Record { payload: record.payload.slice(..20), ..record.clone() }),
            ErrorKind::Corrupt
        );
        assert_eq!(
            kind(&RecordCipher::new(encryption.clone(), 2).unwrap(), record.clone()),
            ErrorKind::Corrupt
        );
        let changes = LogEncryption { log: "changes", ..encryption };
        assert_eq!(kind(&RecordCipher::new(changes, 1).unwrap(), record.clone()), ErrorKind::Corrupt);
        let other = RecordCipher::new(self::encryption(), 1).unwrap();
        let unknown = other.open(record).unwrap_err().to_string();
        assert!(unknown.contains("log partition 1, offset 5") && unknown.contains("key ring"), "{unknown}");
    }
}
