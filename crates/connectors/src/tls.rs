//! Certificates and keys in PEM files, for both sides of TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemill_connect::OptionError;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// First bytes of a Java key store.
const JKS_MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];

/// PEM file that an option names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PemFile {
    /// Option, for messages.
    pub(crate) option: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

impl PemFile {
    /// Reads the file `text` of the option, which starts at `dir` if it is relative.
    ///
    /// Errors: the file cannot be read or is a Java key store.
    pub(crate) fn read(option: &'static str, text: &str, dir: &Path) -> Result<Self, OptionError> {
        let path = dir.join(text);
        let wrong = |message: String| OptionError::option(option, message);
        let is_java = ["jks", "p12", "pfx", "keystore"]
            .iter()
            .any(|end| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(end)));
        let refused = || {
            wrong(format!(
                "{} is a Java key store; convert it by `keytool -importkeystore -srckeystore {0} -destkeystore \
                 store.p12 -deststoretype PKCS12` and `openssl pkcs12 -in store.p12 -nodes -out store.pem`, and name \
                 the PEM file",
                path.display()
            ))
        };
        if is_java {
            return Err(refused());
        }
        let bytes =
            std::fs::read(&path).map_err(|e| wrong(format!("cannot read {}: {e}", path.display())))?;
        if bytes.starts_with(&JKS_MAGIC) {
            return Err(refused());
        }
        Ok(Self { option, path, bytes })
    }

    fn wrong(&self, message: impl std::fmt::Display) -> OptionError {
        OptionError::option(self.option, format!("{}: {message}", self.path.display()))
    }

    /// Returns the certificates.
    ///
    /// Errors: the file has no certificates, or is damaged.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, OptionError> {
        let all = CertificateDer::pem_slice_iter(&self.bytes).collect::<Result<Vec<_>, _>>();
        let all = all.map_err(|e| self.wrong(format!("not a PEM file: {e}")))?;
        match all.is_empty() {
            true => Err(self.wrong("the file has no certificate (`-----BEGIN CERTIFICATE-----`)")),
            false => Ok(all),
        }
    }

    /// Returns the private key.
    ///
    /// Errors: the file has no private key, or the key is encrypted.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, OptionError> {
        let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
        if self.bytes.windows(encrypted.len()).any(|part| part == encrypted) {
            let help = "the key is encrypted; decrypt it by `openssl pkey -in key.pem -out plain.pem`";
            return Err(self.wrong(help));
        }
        PrivateKeyDer::from_pem_slice(&self.bytes)
            .map_err(|_| self.wrong("the file has no private key (`-----BEGIN PRIVATE KEY-----`)"))
    }
}

/// Clients that a server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientCertificates {
    /// All.
    Ignored,
    /// Those without a certificate, and those with one of the given authorities.
    Optional,
    /// Those with a certificate of the given authorities.
    Required,
}

/// TLS of a server. Equal values make equal servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerTls {
    /// Certificates, the server's first, and perhaps its key.
    pub(crate) certificate: PemFile,
    /// Key if it is in a file of its own.
    pub(crate) key: Option<PemFile>,
    /// Authorities of clients.
    pub(crate) authorities: Option<PemFile>,
    pub(crate) clients: ClientCertificates,
}

impl ServerTls {
    /// Returns what encrypts connections. `protocols` are those of ALPN.
    ///
    /// Errors: a file lacks something, or the key does not fit the certificate.
    pub(crate) fn acceptor(&self, protocols: &[&str]) -> Result<TlsAcceptor, OptionError> {
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| self.certificate.wrong(e))?;
        let builder = match (self.clients, &self.authorities) {
            (ClientCertificates::Ignored, _) => builder.with_no_client_auth(),
            (_, None) => {
                let message = "client certificates are checked with the authorities in https.truststore.file";
                return Err(OptionError::option("ssl.verify.client", message));
            }
            (clients, Some(authorities)) => {
                let roots = Arc::new(root_store(authorities)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match clients {
                    ClientCertificates::Optional => verifier.allow_unauthenticated(),
                    _ => verifier,
                };
                builder.with_client_cert_verifier(verifier.build().map_err(|e| authorities.wrong(e))?)
            }
        };
        let key = self.key.as_ref().unwrap_or(&self.certificate);
        let mut config = builder
            .with_single_cert(self.certificate.certificates()?, key.key()?)
            .map_err(|e| key.wrong(format!("the key does not fit the certificate: {e}")))?;
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Returns the algorithms, chosen here because the process may have several providers.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Returns the authorities of a file.
///
/// Errors: the file has none.
pub(crate) fn root_store(file: &PemFile) -> Result<RootCertStore, OptionError> {
    let mut roots = RootCertStore::empty();
    for certificate in file.certificates()? {
        roots.add(certificate).map_err(|e| file.wrong(e))?;
    }
    Ok(roots)
}
