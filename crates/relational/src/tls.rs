//! Encryption of connections.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::DbError;
use crate::url::TlsMode;

/// Makes the provider of ciphers known to libraries that ask for that of the process. Another one that the program
/// has chosen before stays.
pub fn set_default_provider() {
    // an error means that there is one
    let _ = aws_lc_rs::default_provider().install_default();
}

/// Returns the certificates of the authorities in `file`, or those of the system.
///
/// Errors: the file cannot be read, or has none; the system has none.
pub fn authorities(file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, DbError> {
    let certificates: Vec<CertificateDer<'static>> = match file {
        Some(file) => {
            let unreadable = |e: &dyn std::fmt::Display| {
                DbError::invalid(format!("certificates of authorities in {}: {e}", file.display()))
            };
            let parsed = CertificateDer::pem_file_iter(file).map_err(|e| unreadable(&e))?;
            let found: Result<Vec<_>, _> = parsed.collect();
            found.map_err(|e| unreadable(&e))?
        }
        None => rustls_native_certs::load_native_certs().certs,
    };
    match (certificates.is_empty(), file) {
        (false, _) => Ok(certificates),
        (true, Some(file)) => Err(DbError::invalid(format!(
            "{} has no certificates in PEM form (-----BEGIN CERTIFICATE-----)",
            file.display()
        ))),
        (true, None) => Err(DbError::invalid(
            "the system has no certificates of authorities; name a file with them in the URL",
        )),
    }
}

/// Returns the settings of encrypted connections.
///
/// Errors: those of [`authorities`].
pub fn client_config(mode: TlsMode, file: Option<&Path>) -> Result<ClientConfig, DbError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| DbError::invalid(format!("TLS: {e}")))?;
    let verifier: Arc<dyn ServerCertVerifier> = match mode {
        TlsMode::Disabled | TlsMode::Preferred | TlsMode::Required => Arc::new(AnyCertificate(provider)),
        TlsMode::VerifyAuthority | TlsMode::VerifyHost => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(authorities(file)?);
            let strict = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|e| DbError::invalid(format!("certificates of authorities: {e}")))?;
            match mode {
                TlsMode::VerifyHost => strict,
                _ => Arc::new(AnyHost(strict)),
            }
        }
    };
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// Accepts all certificates: the connection is encrypted, and the other side may be anyone.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _host: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts certificates of known authorities for any host.
#[derive(Debug)]
struct AnyHost(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyHost {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // the name is checked last, after chain and time
        match self.0.verify_server_cert(certificate, intermediates, host, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
