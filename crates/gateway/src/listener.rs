//! A bound address of a protocol, before connections are accepted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tidemill_types::{Error, Result};
use tokio::net::TcpListener;

use crate::front_end::FrontEnd;
use crate::tls::{Clock, ServerTls, TlsFiles};

/// Limit of connections of a listener that has no other one.
const CONNECTIONS_MAX: usize = 10_000;

/// Settings of a listener.
#[derive(Clone)]
pub struct ListenOptions {
    /// Address to listen on; port 0 selects a free one.
    pub address: SocketAddr,
    /// Files of the certificate with which connections are encrypted; `None` for connections in plain text.
    pub tls: Option<TlsFiles>,
    /// Maximum open connections, at least 1. The share of the process's file handles may be a lower limit.
    pub connections_max: usize,
    /// Clock that says when the files of the certificate are looked at again.
    pub clock: Clock,
}

impl ListenOptions {
    /// Settings for connections in plain text, at most 10,000.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, tls: None, connections_max: CONNECTIONS_MAX, clock: Arc::new(Instant::now) }
    }
}

/// A bound address at which a protocol is served once [`crate::Gateway::start`] gets it. Clients can connect and wait until then.
pub struct Listener {
    pub(crate) front_end: Arc<dyn FrontEnd>,
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Arc<ServerTls>>,
    pub(crate) connections_max: usize,
}

impl Listener {
    /// Checks the settings and binds the address. Must be called inside a tokio runtime with time and I/O enabled.
    ///
    /// Errors: `Invalid` for an address that other machines can reach although clients need no login, for a limit of 0, and for
    /// files without a usable certificate and key; `Conflict` when the port is taken; `Unavailable` when the address cannot be
    /// bound for another reason.
    pub async fn bind(front_end: Arc<dyn FrontEnd>, options: ListenOptions) -> Result<Self> {
        let ListenOptions { address, tls, connections_max, clock } = options;
        let protocol = front_end.protocol();
        let is_local = address.ip().to_canonical().is_loopback();
        if !is_local && !front_end.requires_login() {
            return Err(Error::invalid(format!(
                "{protocol} at {address}: other machines can reach this address, but clients need no token or password: require one, \
                 or listen on 127.0.0.1"
            )));
        }
        if connections_max == 0 {
            return Err(Error::invalid(format!(
                "{protocol} at {address}: connections_max = 0: expected at least 1"
            )));
        }
        let tls = match tls {
            Some(files) => {
                let tls = ServerTls::open(files, front_end.alpn(), clock);
                Some(Arc::new(tls.map_err(|e| e.context(format!("{protocol} at {address}")))?))
            }
            None => None,
        };
        if !is_local && tls.is_none() {
            tracing::warn!(
                "{protocol} at {address}: other machines can reach this address, and connections are not encrypted: who can read the \
                 network reads the data, and what is sent to prove who calls. Give the listener a certificate, or listen on 127.0.0.1 \
                 behind a proxy that speaks TLS"
            );
        }
        let failed = |e| cannot_bind(protocol, address, e);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { front_end, listener, address, tls, connections_max })
    }

    /// Returns the address, with the port that was selected.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether connections are encrypted, or can be if the protocol asks clients first.
    pub fn has_certificate(&self) -> bool {
        self.tls.is_some()
    }
}

fn cannot_bind(protocol: &str, address: SocketAddr, e: std::io::Error) -> Error {
    let port = address.port();
    match e.kind() {
        std::io::ErrorKind::AddrInUse => Error::conflict(format!(
            "port {port} of {} is taken by another process: choose another port for {protocol}, or 0 for a free one",
            address.ip()
        )),
        std::io::ErrorKind::AddrNotAvailable => Error::unavailable(format!(
            "cannot listen on {address}: this machine has no such address; expected one of its own for {protocol}, 127.0.0.1 for this \
             machine only, or 0.0.0.0 for all"
        )),
        std::io::ErrorKind::PermissionDenied => Error::unavailable(format!(
            "cannot listen on {address}: the system does not let this user have port {port}; choose one from 1024 on for {protocol}"
        )),
        _ => Error::unavailable(format!("cannot listen on {address} for {protocol}")).with_source(e),
    }
}
