//! Encryption of connections, from what a URL says.

use std::path::Path;

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use tidemill_tls::{Authorities, ClientTls, PemFile, Verification};
use tidemill_types::Error;

use crate::error::DbError;
use crate::url::TlsMode;

/// Returns the certificates of the authorities in `file`, or those of the system.
///
/// Errors: the file cannot be read, or has none; the system has none.
pub fn authorities(file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, DbError> {
    trusted(file)?.certificates().map_err(invalid)
}

/// Returns the settings of encrypted connections.
///
/// Errors: those of [`authorities`].
pub fn client_config(mode: TlsMode, file: Option<&Path>) -> Result<ClientConfig, DbError> {
    let verification = match mode {
        TlsMode::Disabled | TlsMode::Preferred | TlsMode::Required => Verification::Off,
        TlsMode::VerifyAuthority => Verification::Authority,
        TlsMode::VerifyHost => Verification::Host,
    };
    let authorities = match verification {
        // nothing is checked with them
        Verification::Off => Authorities::System,
        _ => trusted(file)?,
    };
    ClientTls { authorities, verification, ..ClientTls::default() }.config().map_err(invalid)
}

fn trusted(file: Option<&Path>) -> Result<Authorities, DbError> {
    let file = file.map(PemFile::read).transpose().map_err(invalid)?;
    Ok(file.map_or(Authorities::System, Authorities::File))
}

fn invalid(e: Error) -> DbError {
    DbError::invalid(format!("certificates of authorities: {}", e.message()))
}
