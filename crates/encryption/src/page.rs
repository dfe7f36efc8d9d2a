//! Files that are encrypted page by page, so that any part of them can be read and written.
//!
//! ```text
//! header, 32 bytes                         page, at most 4,124 bytes
//!  0  magic   8  "TIDEENC\n"                0  nonce    12  random, new at each write of the page
//!  8  key id  8                            12  content  up to 4,096 bytes, encrypted; less in the last page
//! 16  salt   16  random                     …  tag      16
//! ```
//!
//! The key of a file is derived from the data key and the salt. A page is bound to its number, so that pages of a file
//! cannot be exchanged. That pages are missing at the end is not noticed here, but by the checksums of the content.

use tidemill_types::Result;

use crate::cipher::{Cipher, NONCE_BYTES, SealedError, TAG_BYTES, random};
use crate::data_keys::{DataKeys, KeyId, SALT_BYTES};

/// First bytes of an encrypted file.
const MAGIC: [u8; 8] = *b"TIDEENC\n";
/// Size of the header in bytes.
pub const FILE_HEADER_BYTES: usize = 32;
/// Content of a page in bytes.
pub const PAGE_BYTES: usize = 4096;
/// Size of a full page in the file.
pub const STORED_PAGE_BYTES: usize = PAGE_BYTES + NONCE_BYTES + TAG_BYTES;

const LABEL: &str = "tidemill file";

/// Header of an encrypted file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    key: KeyId,
    salt: [u8; SALT_BYTES],
}

impl FileHeader {
    /// Creates the header of a new file.
    ///
    /// Errors: `Unavailable` when the system has no random numbers.
    pub fn new(keys: &DataKeys) -> Result<Self> {
        let mut salt = [0; SALT_BYTES];
        random(&mut salt)?;
        Ok(Self { key: keys.current().id, salt })
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes = [0; FILE_HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.key.0);
        bytes[16..].copy_from_slice(&self.salt);
        bytes
    }

    /// Decodes the header at the start of a file; `None` if the file is not encrypted.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<FILE_HEADER_BYTES>()?;
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (key, rest) = rest.split_first_chunk::<8>()?;
        let salt = rest.first_chunk::<SALT_BYTES>()?;
        (*magic == MAGIC).then_some(Self { key: KeyId(*key), salt: *salt })
    }

    /// Returns the cipher of the file's pages.
    ///
    /// Errors: `Invalid` when the key is not among `keys`.
    pub fn cipher(&self, keys: &DataKeys) -> Result<PageCipher> {
        Ok(PageCipher(keys.find(self.key)?.derive(LABEL, &self.salt)))
    }
}

/// Encrypts and decrypts the pages of one file.
#[derive(Debug, Clone)]
pub struct PageCipher(Cipher);

impl PageCipher {
    /// Appends page `number`, encrypted, to `out`.
    ///
    /// Errors: `Unavailable` when the system has no random numbers.
    pub fn seal(&self, number: u64, content: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let mut nonce = [0; NONCE_BYTES];
        random(&mut nonce)?;
        out.extend_from_slice(&nonce);
        let from = out.len();
        out.extend_from_slice(content);
        self.0.seal(nonce, &number.to_le_bytes(), out, from);
        Ok(())
    }

    /// Decrypts page `number` in place and returns its content.
    ///
    /// Errors: [`SealedError`].
    pub fn open<'b>(&self, number: u64, stored: &'b mut [u8]) -> Result<&'b mut [u8], SealedError> {
        self.0.open_small(&number.to_le_bytes(), stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_bound_to_their_file_and_number() {
        let keys = DataKeys::random().unwrap();
        let header = FileHeader::new(&keys).unwrap();
        assert_eq!(FileHeader::decode(&header.encode()), Some(header));
        assert_eq!(FileHeader::decode(b"TIDELOG\n"), None);
        let cipher = header.cipher(&keys).unwrap();
        let mut page = Vec::new();
        cipher.seal(3, b"content", &mut page).unwrap();
        assert_eq!(cipher.open(3, &mut page.clone()).unwrap(), b"content");
        assert!(cipher.open(4, &mut page.clone()).is_err());
        let other = FileHeader::new(&keys).unwrap().cipher(&keys).unwrap();
        assert!(other.open(3, &mut page.clone()).is_err());
        assert!(header.cipher(&DataKeys::random().unwrap()).is_err());
    }
}
