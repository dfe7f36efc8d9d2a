//! PEM files that options name, and TLS of servers.

use std::path::Path;
use std::sync::Arc;

use tidemill_connect::{OptionError, Options};
use tidemill_tls::{PemFile, provider};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;

/// PEM file that an option names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OptionFile {
    /// Option, for messages.
    pub(crate) option: &'static str,
    pub(crate) pem: PemFile,
}

impl OptionFile {
    /// Reads the file that an option names, which starts at `dir` if it is relative; `None` if the option is not there.
    ///
    /// Errors: the file cannot be read or is a Java key store.
    pub(crate) fn read(
        options: &Options,
        option: &'static str,
        dir: &Path,
    ) -> Result<Option<Self>, OptionError> {
        let Some(text) = options.get(option) else { return Ok(None) };
        let pem = PemFile::read(&dir.join(text)).map_err(|e| OptionError::option(option, e.message()))?;
        Ok(Some(Self { option, pem }))
    }

    /// Returns an error about this file.
    pub(crate) fn wrong(&self, message: impl std::fmt::Display) -> OptionError {
        OptionError::option(self.option, self.pem.wrong(message).message())
    }

    /// Returns the certificates.
    ///
    /// Errors: the file has no certificates, or is damaged.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, OptionError> {
        self.pem.certificates().map_err(|e| OptionError::option(self.option, e.message()))
    }

    /// Returns the private key.
    ///
    /// Errors: the file has no private key, or the key is encrypted.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, OptionError> {
        self.pem.key().map_err(|e| OptionError::option(self.option, e.message()))
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
    pub(crate) certificate: OptionFile,
    /// Key if it is in a file of its own.
    pub(crate) key: Option<OptionFile>,
    /// Authorities of clients.
    pub(crate) authorities: Option<OptionFile>,
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
                let roots = authorities.pem.roots();
                let roots = roots.map_err(|e| OptionError::option(authorities.option, e.message()))?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
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
