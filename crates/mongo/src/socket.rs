//! The bytes of a connection, encrypted or not.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidemill_types::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

/// Interval at which a connection with unread bytes is checked for being closed.
const CLOSED_POLL: Duration = Duration::from_millis(50);

/// A connection to a client.
pub(crate) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// Writes what the buffers of the system take at once. Returns the number of bytes, which may be 0.
    pub fn try_write(&self, bytes: &[u8]) -> usize {
        match self {
            Self::Plain(stream) => stream.try_write(bytes).unwrap_or(0),
            Self::Tls(_) => 0,
        }
    }

    /// Waits until the client has closed the connection, or it is broken. What the client has sent stays to be read.
    pub async fn closed(&self) {
        let tcp = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        };
        loop {
            match tcp.ready(Interest::READABLE).await {
                Ok(ready) if !ready.is_read_closed() => tokio::time::sleep(CLOSED_POLL).await,
                Ok(_) | Err(_) => return,
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Reads the certificates and the private key of the server from one PEM file.
///
/// Errors: `Invalid` for a file that cannot be read, lacks one of them, or whose key does not belong to its certificate.
pub(crate) fn tls_acceptor(file: &Path) -> Result<TlsAcceptor> {
    let bad = |why: String| {
        Error::invalid(format!(
            "{}: {why}; expected a PEM file with the server's certificate, those that signed it, and its private key",
            file.display()
        ))
    };
    let pem = std::fs::read(file).map_err(|e| bad(e.to_string()))?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|e| bad(format!("a certificate cannot be read ({e})")))?;
    if certificates.is_empty() {
        return Err(bad("there is no certificate".to_owned()));
    }
    let key =
        PrivateKeyDer::from_pem_slice(&pem).map_err(|e| bad(format!("there is no private key ({e})")))?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, key))
        .map_err(|e| bad(e.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
