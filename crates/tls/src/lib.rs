//! TLS of clients: trusted authorities, the certificate of the client, and the checks of the server's. [`PemFile`] also serves
//! the other side.
//!
//! ```no_run
//! use tidemill_tls::{Authorities, ClientTls, PemFile};
//!
//! let authorities = Authorities::File(PemFile::read("authorities.pem".as_ref())?);
//! let config = ClientTls { authorities, ..ClientTls::default() }.config()?;
//! # Ok::<(), tidemill_types::Error>(())
//! ```
//!
//! All connections of the program use the algorithms of [`provider`]. The process has several providers, because libraries bring
//! their own; so a configuration names it, and [`install_provider`] sets it for libraries that ask for that of the process.

mod client;
mod pem;
mod verifier;

pub use client::{Authorities, ClientTls, Verification};
pub use pem::PemFile;

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// Returns the algorithms of all connections.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Makes [`provider`] known to libraries that ask for that of the process. Another one that the program has chosen before stays.
pub fn install_provider() {
    // an error means that there is one
    let _ = aws_lc_rs::default_provider().install_default();
}
