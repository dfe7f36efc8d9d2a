//! TLS of clients: whom they trust, and the certificate that they show.

use std::path::Path;
use std::sync::Arc;

use tidemill_connect::{OptionError, Options};
use tidemill_tls::{Authorities, ClientTls};
use tokio_rustls::rustls::ClientConfig;

use crate::tls::OptionFile;

/// Options of a client that uses TLS.
macro_rules! tls_options {
    ($($own:expr),* $(,)?) => {
        &[
            $($own,)*
            OptionSpec::text("tls.ca.file", "PEM file with the authorities that are trusted; default: those of the system."),
            OptionSpec::text("tls.certificate.file", "PEM file with the certificate of this client."),
            OptionSpec::text("tls.key.file", "PEM file with the key of this client."),
        ]
    };
}
pub(crate) use tls_options;

/// Names of the options of a client that uses TLS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TlsOptionNames {
    pub(crate) authorities: &'static str,
    pub(crate) certificate: &'static str,
    pub(crate) key: &'static str,
}

/// Names where the reference has none.
pub(crate) const TLS_OPTIONS: TlsOptionNames =
    TlsOptionNames { authorities: "tls.ca.file", certificate: "tls.certificate.file", key: "tls.key.file" };

/// Returns the TLS of a client from its options.
///
/// Errors: a file cannot be read, or the key does not fit the certificate.
pub(crate) fn client_config(options: &Options, dir: &Path) -> Result<Arc<ClientConfig>, OptionError> {
    named_client_config(options, TLS_OPTIONS, dir)
}

/// Returns the TLS of a client from options with these names.
///
/// Errors: those of [`client_config`].
pub(crate) fn named_client_config(
    options: &Options,
    names: TlsOptionNames,
    dir: &Path,
) -> Result<Arc<ClientConfig>, OptionError> {
    let authorities = match OptionFile::read(options, names.authorities, dir)? {
        Some(file) => Authorities::File(file.pem),
        None => Authorities::System,
    };
    authorities.certificates().map_err(|e| OptionError::option(names.authorities, e.message()))?;
    let (certificate, key) = identity(options, names, dir)?.unzip();
    let tls = ClientTls {
        authorities,
        certificate: certificate.map(|file| file.pem),
        key: key.map(|file| file.pem),
        ..ClientTls::default()
    };
    // what is left is a key that does not fit
    Ok(Arc::new(tls.config().map_err(|e| OptionError::option(names.key, e.message()))?))
}

/// Returns the files with certificate and key of a client; they are the same if the option of the key is missing.
///
/// Errors: a file cannot be read or lacks what it should have; a key without a certificate.
pub(crate) fn identity(
    options: &Options,
    names: TlsOptionNames,
    dir: &Path,
) -> Result<Option<(OptionFile, OptionFile)>, OptionError> {
    let certificate = OptionFile::read(options, names.certificate, dir)?;
    match (certificate, OptionFile::read(options, names.key, dir)?) {
        (None, None) => Ok(None),
        (None, Some(_)) => {
            Err(OptionError::option(names.key, format!("a key needs `{}`", names.certificate)))
        }
        (Some(certificate), key) => {
            let key = key.unwrap_or_else(|| certificate.clone());
            // missing parts are found now rather than when the first connection fails
            certificate.certificates()?;
            key.key()?;
            Ok(Some((certificate, key)))
        }
    }
}
