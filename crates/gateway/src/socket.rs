//! The bytes of a connection, encrypted or not.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::client_certificate::ClientCertificate;

/// Interval at which a connection with unread bytes is checked for being closed.
const CLOSED_POLL: Duration = Duration::from_millis(50);

/// Bytes of a connection.
pub enum Socket {
    /// Not encrypted.
    Plain(TcpStream),
    /// Encrypted by TLS.
    Tls(Box<EncryptedSocket>),
}

/// Bytes of an encrypted connection.
pub struct EncryptedSocket {
    pub(crate) stream: TlsStream<TcpStream>,
    pub(crate) certificate_hash: Arc<[u8]>,
}

impl Socket {
    /// Returns whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Returns the hash of the server's certificate to which a login can be bound (`tls-server-end-point` of RFC 5929); `None` for a
    /// connection that is not encrypted.
    pub fn certificate_hash(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(socket) => Some(&socket.certificate_hash),
        }
    }

    /// Returns the name of the protocol that the client has chosen during the TLS handshake.
    pub fn alpn(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(socket) => socket.stream.get_ref().1.alpn_protocol(),
        }
    }

    /// Returns the certificate with which the client has proven who it is; `None` without encryption, and on a listener whose files have
    /// no authorities of clients.
    pub fn client_certificate(&self) -> Option<ClientCertificate> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(socket) => {
                let own = socket.stream.get_ref().1.peer_certificates()?.first()?;
                Some(ClientCertificate::new(own.clone().into_owned()))
            }
        }
    }

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
            Self::Tls(socket) => socket.stream.get_ref().0,
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
            Self::Tls(socket) => Pin::new(&mut socket.stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(socket) => Pin::new(&mut socket.stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Tls(socket) => Pin::new(&mut socket.stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(socket) => socket.stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(socket) => Pin::new(&mut socket.stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(socket) => Pin::new(&mut socket.stream).poll_shutdown(cx),
        }
    }
}
