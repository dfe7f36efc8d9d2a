//! Encryption: the certificate and key of a listener, read again when their files have changed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest, Sha256, Sha384, Sha512};
use tidemill_types::{Error, Result};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use x509_parser::oid_registry as oids;

use crate::socket::{EncryptedSocket, Socket};

/// Time between two looks at the files.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Time in which a client has to finish the handshake.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of a file; one beyond is not a certificate.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Clock that says when files are looked at again.
pub type Clock = Arc<dyn Fn() -> Instant + Send + Sync>;

/// PEM files with the certificate of a server, those that signed it, and its private key, and those with the authorities of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    certificate: PathBuf,
    /// The same file if it has both.
    key: PathBuf,
    client_authorities: Option<PathBuf>,
}

impl TlsFiles {
    /// One file with the certificate, those that signed it, and the private key, in any order.
    pub fn one(file: impl Into<PathBuf>) -> Self {
        let file = file.into();
        Self { certificate: file.clone(), key: file, client_authorities: None }
    }

    /// A file with the certificate and those that signed it, and a file with the private key.
    pub fn separate(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { certificate: certificate.into(), key: key.into(), client_authorities: None }
    }

    /// Adds a file with the certificates of authorities. A client then needs a certificate that one of them has signed for clients;
    /// the protocol gets it as [`Socket::client_certificate`].
    pub fn with_client_authorities(mut self, file: impl Into<PathBuf>) -> Self {
        self.client_authorities = Some(file.into());
        self
    }

    /// Returns whether clients need a certificate.
    pub fn requires_client_certificate(&self) -> bool {
        self.client_authorities.is_some()
    }

    fn all(&self) -> impl Iterator<Item = &Path> {
        [&self.certificate, &self.key].into_iter().chain(&self.client_authorities).map(PathBuf::as_path)
    }
}

/// Identity of one content of a file: device, inode, seconds and nanoseconds of the last change, and length.
type FileStamp = (u64, u64, i64, i64, u64);
/// Identity of one content of all files.
type Stamp = Vec<FileStamp>;

/// Certificate and key of a listener that encrypts its connections.
///
/// The files are looked at when a client connects and when somebody asks for problems, at most every ten seconds. Files that have
/// changed are read. If they cannot be used, the former certificate stays in force, the log says why, and [`Self::problem`] does.
pub(crate) struct ServerTls {
    files: TlsFiles,
    alpn: Vec<Vec<u8>>,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    identity: Arc<Identity>,
    stamp: Stamp,
    checked: Instant,
    problem: Option<String>,
}

/// A certificate in force.
struct Identity {
    config: Arc<ServerConfig>,
    certificate_hash: Arc<[u8]>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// Errors: `Invalid` with the file that cannot be read or lacks something, and when the key is not that of the certificate.
    pub fn open(files: TlsFiles, alpn: &[&[u8]], clock: Clock) -> Result<Self> {
        let alpn: Vec<Vec<u8>> = alpn.iter().map(|name| name.to_vec()).collect();
        // the stamp first: a change in between is then read again
        let stamp = stamp(&files)?;
        let identity = Arc::new(Identity::read(&files, &alpn)?);
        let state = State { identity, stamp, checked: clock(), problem: None };
        Ok(Self { files, alpn, clock, state: Mutex::new(state) })
    }

    /// Encrypts the connection of a client that begins with a handshake.
    ///
    /// Errors: the client does not speak TLS, does not trust the certificate, has none that is needed, or takes too much time.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<Socket> {
        let identity = self.identity();
        let handshake = TlsAcceptor::from(identity.config.clone()).accept(stream);
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await.map_err(|_| {
            let message = format!("the client did not finish the TLS handshake within {HANDSHAKE_TIMEOUT:?}");
            io::Error::new(io::ErrorKind::TimedOut, message)
        })??;
        let certificate_hash = identity.certificate_hash.clone();
        Ok(Socket::encrypted(EncryptedSocket { stream, certificate_hash }))
    }

    /// Returns whether clients need a certificate.
    pub fn requires_client_certificate(&self) -> bool {
        self.files.requires_client_certificate()
    }

    /// Returns why the present files are not in force; `None` if they are.
    pub fn problem(&self) -> Option<String> {
        let mut state = self.state.lock();
        self.look(&mut state);
        state.problem.clone()
    }

    fn identity(&self) -> Arc<Identity> {
        let mut state = self.state.lock();
        self.look(&mut state);
        state.identity.clone()
    }

    /// Reads the files if it is time for a look and they have changed.
    fn look(&self, state: &mut State) {
        let now = (self.clock)();
        if now.saturating_duration_since(state.checked) < CHECK_INTERVAL {
            return;
        }
        state.checked = now;
        let stamp = match stamp(&self.files) {
            Ok(stamp) if stamp == state.stamp => return,
            Ok(stamp) => stamp,
            Err(error) => return state.keep(&error),
        };
        match Identity::read(&self.files, &self.alpn) {
            Ok(identity) => {
                tracing::info!(file = %self.files.certificate.display(), "the certificate has changed");
                *state = State { identity: Arc::new(identity), stamp, checked: now, problem: None };
            }
            // the stamp stays that of the files in force, so that the next look reads them again, and knows them if they come back
            Err(error) => state.keep(&error),
        }
    }
}

impl State {
    /// Keeps the certificate as it is, because the files cannot be used.
    fn keep(&mut self, error: &Error) {
        let problem = format!("the former certificate stays in force: {error}");
        if self.problem.as_deref() != Some(&problem) {
            tracing::error!("{problem}");
            self.problem = Some(problem);
        }
    }
}

impl Identity {
    fn read(files: &TlsFiles, alpn: &[Vec<u8>]) -> Result<Self> {
        let separate = files.certificate != files.key;
        let expected = match separate {
            false => "a PEM file with the server's certificate, those that signed it, and its private key",
            true => {
                "PEM files, one with the server's certificate and those that signed it, one with its private key"
            }
        };
        let bad = |file: &Path, why: String| {
            Error::invalid(format!("{}: {why}; expected {expected}", file.display()))
        };
        let read = |file: &Path| read_limited(file).map_err(|e| bad(file, e.to_string()));
        let pem = read(&files.certificate)?;
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<_, _>>()
            .map_err(|e| bad(&files.certificate, format!("a certificate cannot be read ({e})")))?;
        let Some(first) = certificates.first() else {
            return Err(bad(&files.certificate, "there is no certificate".to_owned()));
        };
        let certificate_hash = certificate_hash(first)
            .ok_or_else(|| bad(&files.certificate, "the first certificate is damaged".to_owned()))?;
        let key_pem = if separate { read(&files.key)? } else { pem };
        let key = PrivateKeyDer::from_pem_slice(&key_pem)
            .map_err(|e| bad(&files.key, format!("there is no private key ({e})")))?;
        let clients = match &files.client_authorities {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(file) => client_verifier(&read(file)?).map_err(|why| {
                Error::invalid(format!(
                    "{}: {why}; expected a PEM file with the certificates of the authorities that sign those of clients",
                    file.display()
                ))
            })?,
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder.with_client_cert_verifier(clients).with_single_cert(certificates, key)
            })
            .map_err(|e| {
                bad(&files.key, format!("the private key cannot be used with the certificate ({e})"))
            })?;
        config.alpn_protocols = alpn.to_vec();
        Ok(Self { config: Arc::new(config), certificate_hash })
    }
}

/// Returns the check of clients' certificates by the authorities of a PEM file.
///
/// Errors: why there can be none.
fn client_verifier(pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|e| format!("a certificate cannot be read ({e})"))?;
        roots.add(certificate).map_err(|e| format!("a certificate cannot be that of an authority ({e})"))?;
    }
    if roots.is_empty() {
        return Err("there is no certificate".to_owned());
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(|e| e.to_string())
}

fn read_limited(file: &Path) -> io::Result<Vec<u8>> {
    let length = fs::metadata(file)?.len();
    match length <= FILE_BYTES_MAX {
        true => fs::read(file),
        false => Err(io::Error::other(format!(
            "the file has {length} bytes, and at most {FILE_BYTES_MAX} are read"
        ))),
    }
}

fn stamp(files: &TlsFiles) -> Result<Stamp> {
    let stamp = |file: &Path| -> Result<FileStamp> {
        let found = fs::metadata(file).map_err(|e| {
            Error::invalid(format!("{}: the file cannot be read", file.display())).with_source(e)
        })?;
        Ok((found.dev(), found.ino(), found.ctime(), found.ctime_nsec(), found.len()))
    };
    files.all().map(stamp).collect()
}

/// Returns the hash of a certificate by the function of its signature, and by SHA-256 for one that has an older or no such function
/// (RFC 5929, 4.1); `None` for a damaged certificate.
fn certificate_hash(certificate: &CertificateDer<'_>) -> Option<Arc<[u8]>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let algorithm = &parsed.signature_algorithm.algorithm;
    let is_one_of = |known: &[&x509_parser::der_parser::Oid<'_>]| known.contains(&algorithm);
    let hash = if is_one_of(&[&oids::OID_PKCS1_SHA384WITHRSA, &oids::OID_SIG_ECDSA_WITH_SHA384]) {
        Sha384::digest(certificate).to_vec()
    } else if is_one_of(&[&oids::OID_PKCS1_SHA512WITHRSA, &oids::OID_SIG_ECDSA_WITH_SHA512]) {
        Sha512::digest(certificate).to_vec()
    } else {
        Sha256::digest(certificate).to_vec()
    };
    Some(hash.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_certificate_is_that_of_its_signature() {
        for (algorithm, length) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, 32),
            (&rcgen::PKCS_ECDSA_P384_SHA384, 48),
            (&rcgen::PKCS_ED25519, 32),
        ] {
            let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let made = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key);
            let made = made.unwrap();
            let hash = certificate_hash(made.der()).unwrap();
            assert_eq!(hash.len(), length);
            assert_ne!(hash[..], [0; 64][..length]);
        }
        assert_eq!(certificate_hash(&CertificateDer::from_slice(b"nothing")), None);
    }
}
