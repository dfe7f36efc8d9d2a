//! Listeners of the protocols, as plain data: `[[settings.listen]]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use tidemill_types::{Error, Result, host_and_port};

/// Protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListenProtocol {
    /// JSON over HTTP, and Flight SQL by HTTP/2.
    Http,
    /// MongoDB's wire protocol.
    MongoDb,
    /// PostgreSQL's wire protocol.
    Postgres,
    /// Flight SQL alone.
    Flight,
}

/// An address at which a protocol is served, and the certificate with which connections are encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenSettings {
    /// Protocol.
    pub protocol: ListenProtocol,
    /// Address: `HOST:PORT`, or `PORT` for this machine only.
    pub address: String,
    /// PEM file with the certificate of the server, those that signed it, and its private key.
    #[serde(default)]
    pub tls_file: Option<PathBuf>,
    /// PEM file with the certificate of the server and those that signed it.
    #[serde(default)]
    pub certificate_file: Option<PathBuf>,
    /// PEM file with the private key of the certificate.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// Maximum open connections. Default: that of the protocol.
    #[serde(default)]
    pub connections_max: Option<u64>,
}

/// Rejects listeners that cannot work.
///
/// Errors: `Invalid` with the number of the listener, from 1, the setting, and what is expected.
pub(super) fn check(all: &[ListenSettings]) -> Result<()> {
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, listener) in (1..).zip(all) {
        let bad = |what: String| Err(Error::invalid(format!("setting listen, listener {number}: {what}")));
        let port = match host_and_port(&listener.address) {
            Ok((_, port)) => port,
            Err(expected) => return bad(format!("address = \"{}\": {expected}", listener.address)),
        };
        match (&listener.tls_file, &listener.certificate_file, &listener.key_file) {
            (None, None, None) | (Some(_), None, None) | (None, Some(_), Some(_)) => {}
            (None, Some(_), None) => {
                return bad("certificate_file without key_file: add the file with the private key".to_owned());
            }
            (None, None, Some(_)) => {
                return bad("key_file without certificate_file: add the file with the certificate".to_owned());
            }
            (Some(_), ..) => {
                return bad(
                    "tls_file has certificate and key: expected it alone, or certificate_file and key_file instead"
                        .to_owned(),
                );
            }
        }
        if listener.connections_max == Some(0) {
            return bad("connections_max = 0: expected at least 1".to_owned());
        }
        // each listener with port 0 gets a port of its own
        if port != 0
            && let Some(first) = known.insert(&listener.address, number)
        {
            return bad(format!(
                "address = \"{}\" is that of listener {first}, too: choose another port",
                listener.address
            ));
        }
    }
    Ok(())
}
