//! Configuration of a client's connections.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tidemill_types::{Error, Result};

use crate::pem::PemFile;
use crate::provider;
use crate::verifier::LenientVerifier;

/// Authorities whose certificates a client trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Authorities {
    /// Those of the system.
    #[default]
    System,
    /// Those of a file.
    File(PemFile),
    /// Those of the system, if it has some, and those of a file.
    SystemAnd(PemFile),
}

impl Authorities {
    /// Returns their certificates.
    ///
    /// Errors: `Invalid` if the file has none, or the system.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>> {
        match self {
            Self::File(file) => file.certificates(),
            Self::SystemAnd(file) => {
                let mut all = rustls_native_certs::load_native_certs().certs;
                all.extend(file.certificates()?);
                Ok(all)
            }
            Self::System => match rustls_native_certs::load_native_certs().certs {
                none if none.is_empty() => Err(Error::invalid(
                    "the system has no authorities that are trusted; name a PEM file with them",
                )),
                all => Ok(all),
            },
        }
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = match self {
            Self::System => RootCertStore::empty(),
            Self::File(file) | Self::SystemAnd(file) => file.roots()?,
        };
        if !matches!(self, Self::File(_)) {
            // one that cannot be read is not trusted, which is the safe side
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        match roots.is_empty() {
            true => Err(Error::invalid(
                "the system has no authorities that are trusted; name a PEM file with them",
            )),
            false => Ok(roots),
        }
    }
}

/// Checks of the server's certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Verification {
    /// It is valid, and of the host.
    #[default]
    Host,
    /// It is valid, for whichever host.
    Authority,
    /// Only the signatures of the handshake: the connection is encrypted, and the other side may be anyone.
    Off,
}

/// TLS of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// Trusted authorities. Not read without verification.
    pub authorities: Authorities,
    /// Checks of the server's certificate.
    pub verification: Verification,
    /// Certificates of the client, its own first; its key may be in the same file.
    pub certificate: Option<PemFile>,
    /// Key of the client if it is in a file of its own.
    pub key: Option<PemFile>,
    /// Protocols for ALPN, the preferred one first.
    pub protocols: Vec<Vec<u8>>,
}

impl ClientTls {
    /// Returns the configuration.
    ///
    /// Errors: `Invalid` if a file lacks what it should have, the key does not fit the certificate, or a key has no certificate.
    pub fn config(&self) -> Result<ClientConfig> {
        let invalid = |e: &dyn std::fmt::Display| Error::invalid(format!("TLS: {e}"));
        let provider = provider();
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| invalid(&e))?;
        let strict = |authorities: &Authorities| {
            let roots = Arc::new(authorities.roots()?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
            verifier.map_err(|e| invalid(&e))
        };
        let lenient = |authorities| LenientVerifier { authorities, provider: provider.clone() };
        let verifier: Arc<dyn ServerCertVerifier> = match self.verification {
            Verification::Off => Arc::new(lenient(None)),
            Verification::Authority => Arc::new(lenient(Some(strict(&self.authorities)?))),
            Verification::Host => strict(&self.authorities)?,
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match (&self.certificate, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (None, Some(key)) => return Err(key.wrong("the key needs the certificate of this client")),
            (Some(certificate), key) => {
                let key = key.as_ref().unwrap_or(certificate);
                builder
                    .with_client_auth_cert(certificate.certificates()?, key.key()?)
                    .map_err(|e| key.wrong(format!("the key does not fit the certificate: {e}")))?
            }
        };
        config.alpn_protocols.clone_from(&self.protocols);
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(text: &str) -> PemFile {
        PemFile { path: "test.pem".into(), bytes: text.as_bytes().to_vec() }
    }

    #[test]
    fn a_client_needs_authorities_and_a_key_that_fits() {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let authorities = Authorities::File(pem(&own.cert.pem()));
        let client = ClientTls { authorities, ..ClientTls::default() };
        assert!(client.config().is_ok());
        let key = Some(pem(&own.signing_key.serialize_pem()));
        let with_key = ClientTls { certificate: Some(pem(&own.cert.pem())), key, ..client.clone() };
        assert!(with_key.config().is_ok());
        let alone = ClientTls { certificate: None, ..with_key.clone() };
        assert!(alone.config().unwrap_err().to_string().contains("needs the certificate"));
        let wrong = ClientTls { key: Some(pem(&other.signing_key.serialize_pem())), ..with_key };
        assert!(wrong.config().unwrap_err().to_string().contains("does not fit"));
        let empty = ClientTls { authorities: Authorities::File(pem("")), ..client };
        assert!(empty.config().unwrap_err().to_string().contains("has no certificate"));
        assert!(ClientTls { verification: Verification::Off, ..empty }.config().is_ok());
    }
}
