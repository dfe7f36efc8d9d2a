//! Certificates and keys in PEM files.

use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tidemill_types::{Error, Result};

/// First bytes of a Java key store.
const JKS_MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];

/// Content of a PEM file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PemFile {
    /// Path, for messages.
    pub path: PathBuf,
    /// Content.
    pub bytes: Vec<u8>,
}

impl PemFile {
    /// Reads a file.
    ///
    /// Errors: `Invalid` if the file cannot be read or is a Java key store.
    pub fn read(path: &Path) -> Result<Self> {
        let java_endings = ["jks", "p12", "pfx", "keystore"];
        let ends_like_java = path
            .extension()
            .is_some_and(|extension| java_endings.iter().any(|end| extension.eq_ignore_ascii_case(end)));
        if ends_like_java {
            return Err(java_key_store(path));
        }
        let bytes = std::fs::read(path)
            .map_err(|e| Error::invalid(format!("cannot read {}: {e}", path.display())))?;
        match bytes.starts_with(&JKS_MAGIC) {
            true => Err(java_key_store(path)),
            false => Ok(Self { path: path.to_owned(), bytes }),
        }
    }

    /// Returns an error about this file.
    pub fn wrong(&self, message: impl std::fmt::Display) -> Error {
        Error::invalid(format!("{}: {message}", self.path.display()))
    }

    /// Returns the certificates, in their order in the file.
    ///
    /// Errors: `Invalid` if the file has no certificates, or is damaged.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>> {
        let all = CertificateDer::pem_slice_iter(&self.bytes).collect::<Result<Vec<_>, _>>();
        let all = all.map_err(|e| self.wrong(format!("not a PEM file: {e}")))?;
        match all.is_empty() {
            true => Err(self.wrong("the file has no certificate (`-----BEGIN CERTIFICATE-----`)")),
            false => Ok(all),
        }
    }

    /// Returns the private key.
    ///
    /// Errors: `Invalid` if the file has no private key, or the key is encrypted.
    pub fn key(&self) -> Result<PrivateKeyDer<'static>> {
        let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
        if self.bytes.windows(encrypted.len()).any(|part| part == encrypted) {
            return Err(
                self.wrong("the key is encrypted; decrypt it by `openssl pkey -in key.pem -out plain.pem`")
            );
        }
        PrivateKeyDer::from_pem_slice(&self.bytes)
            .map_err(|_| self.wrong("the file has no private key (`-----BEGIN PRIVATE KEY-----`)"))
    }

    /// Returns the certificates as authorities. Those that no authority can have are not trusted.
    ///
    /// Errors: those of [`Self::certificates`]; no authority can have any of them.
    pub fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        match roots.add_parsable_certificates(self.certificates()?) {
            (0, _) => Err(self.wrong("no authority can have the certificates of the file")),
            _ => Ok(roots),
        }
    }
}

fn java_key_store(path: &Path) -> Error {
    Error::invalid(format!(
        "{} is a Java key store; convert it by `keytool -importkeystore -srckeystore {0} -destkeystore store.p12 \
         -deststoretype PKCS12` and `openssl pkcs12 -in store.p12 -nodes -out store.pem`, and name the PEM file",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_do_not_fit_are_named_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let read = |name: &str, content: &[u8]| {
            std::fs::write(dir.path().join(name), content).unwrap();
            PemFile::read(&dir.path().join(name))
        };
        let java = read("keys.JKS", b"").unwrap_err().to_string();
        assert!(java.contains("keys.JKS is a Java key store"), "{java}");
        let java = read("keys.bin", &[0xfe, 0xed, 0xfe, 0xed, 0]).unwrap_err().to_string();
        assert!(java.contains("keys.bin is a Java key store"), "{java}");
        let missing = PemFile::read(&dir.path().join("none.pem")).unwrap_err().to_string();
        assert!(missing.contains("cannot read") && missing.contains("none.pem"), "{missing}");
        let empty = read("empty.pem", b"").unwrap();
        assert!(empty.certificates().unwrap_err().to_string().contains("has no certificate"));
        assert!(empty.key().unwrap_err().to_string().contains("has no private key"));
        let encrypted = read("locked.pem", b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n").unwrap();
        assert!(encrypted.key().unwrap_err().to_string().contains("the key is encrypted"));
    }
}
