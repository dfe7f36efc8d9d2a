//! TLS of clients: whom they trust, and the certificate that they show.

use std::path::Path;
use std::sync::Arc;

use tidemill_connect::{OptionError, Options};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::tls::{PemFile, provider, root_store};

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
const TLS_OPTIONS: TlsOptionNames =
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
    let file = |name: &'static str| options.get(name).map(|text| PemFile::read(name, text, dir)).transpose();
    let roots = match file(names.authorities)? {
        Some(file) => root_store(&file)?,
        None => system_roots(names.authorities)?,
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| OptionError::connector(format!("TLS does not work: {e}")))?
        .with_root_certificates(roots);
    let config = match (file(names.certificate)?, file(names.key)?) {
        (None, None) => builder.with_no_client_auth(),
        (Some(certificate), key) => {
            let key = key.as_ref().unwrap_or(&certificate).key()?;
            builder
                .with_client_auth_cert(certificate.certificates()?, key)
                .map_err(|e| OptionError::option(names.key, format!("the key does not fit: {e}")))?
        }
        (None, Some(_)) => {
            return Err(OptionError::option(names.key, format!("a key needs `{}`", names.certificate)));
        }
    };
    Ok(Arc::new(config))
}

fn system_roots(option: &str) -> Result<RootCertStore, OptionError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    match roots.is_empty() {
        true => Err(OptionError::option(
            option,
            "the system has no authorities that are trusted; name a PEM file with them",
        )),
        false => Ok(roots),
    }
}
