//! Ways in which nodes prove who they are.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ClientConfig;
use tidemill_gateway::TlsFiles;
use tidemill_tls::{Authorities, ClientTls, PemFile, Verification};
use tidemill_types::{Error, Result};

use crate::node::is_loopback;
use crate::secret::Secret;

/// Name of HTTP/2 in the TLS handshake.
pub(crate) const ALPN: &[u8] = b"h2";

/// Proof of nodes.
#[derive(Debug)]
pub enum Security {
    /// Certificates of an authority of the cluster, by which connections are also encrypted.
    Certificates(CertificateFiles),
    /// A secret, without encryption: for nodes of one machine only, at loopback addresses.
    Secret(Secret),
}

/// PEM files with which a node proves who it is, both as caller and as callee. A file that has changed is read for the next
/// connection; open ones stay.
pub struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    authorities: PathBuf,
    client: Mutex<ClientState>,
}

/// The configuration that the files had when they could be read last.
#[derive(Default)]
struct ClientState {
    config: Option<Arc<ClientConfig>>,
    problem: Option<String>,
}

impl CertificateFiles {
    /// Files with the certificate of the node and those that signed it, with its private key (it may be the same file), and with the
    /// authorities of the cluster. The certificate has the name of the node among its alternative names, and is for servers and for
    /// clients, if it names its purposes.
    pub fn new(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        authorities: impl Into<PathBuf>,
    ) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
            authorities: authorities.into(),
            client: Mutex::default(),
        }
    }

    /// Returns the files for a listener.
    pub(crate) fn listener_files(&self) -> TlsFiles {
        TlsFiles::separate(&self.certificate, &self.key).with_client_authorities(&self.authorities)
    }

    /// Returns the configuration of a client by the present files, or by the former ones if these cannot be used.
    ///
    /// Errors: `Invalid` if no files could be used yet.
    pub(crate) fn client_config(&self) -> Result<Arc<ClientConfig>> {
        let mut state = self.client.lock();
        match self.read() {
            Ok(config) => {
                let config = Arc::new(config);
                *state = ClientState { config: Some(config.clone()), problem: None };
                Ok(config)
            }
            Err(error) => {
                let Some(config) = &state.config else { return Err(error) };
                let (config, problem) = (config.clone(), error.to_string());
                if state.problem.as_ref() != Some(&problem) {
                    tracing::error!(
                        "the former certificate stays in force for calls to other nodes: {problem}"
                    );
                    state.problem = Some(problem);
                }
                Ok(config)
            }
        }
    }

    /// Returns the path of the authorities, for messages.
    pub(crate) fn authorities(&self) -> std::path::Display<'_> {
        self.authorities.display()
    }

    fn read(&self) -> Result<ClientConfig> {
        let tls = ClientTls {
            authorities: Authorities::File(PemFile::read(&self.authorities)?),
            verification: Verification::Host,
            certificate: Some(PemFile::read(&self.certificate)?),
            key: Some(PemFile::read(&self.key)?),
            protocols: vec![ALPN.to_vec()],
        };
        tls.config()
    }
}

impl fmt::Debug for CertificateFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateFiles")
            .field("certificate", &self.certificate)
            .field("key", &self.key)
            .field("authorities", &self.authorities)
            .finish_non_exhaustive()
    }
}

impl Security {
    /// Checks an address at which this node or another one is reached.
    ///
    /// Errors: `Invalid` for one that other machines can reach, if nodes share a secret.
    pub(crate) fn check_address(&self, address: SocketAddr) -> Result<()> {
        match self {
            Self::Secret(_) if !is_loopback(address.ip()) => Err(Error::invalid(format!(
                "{address} is not an address of this machine only, and nodes with a shared secret do not encrypt what they send: give each \
                 node a certificate of the cluster's authority, or use 127.0.0.1"
            ))),
            _ => Ok(()),
        }
    }
}
