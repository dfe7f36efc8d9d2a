//! The bytes of a connection, encrypted or not.
//!
//! A server that closes a connection while bytes of the client are unread resets it, and the system then throws away what the client has
//! not been sent yet: the end of a reply, or the error that says why it was closed. `shutdown` of a [`Socket`] therefore ends the
//! server's side first, and reads on, for a short time, until the client has closed its own.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;

use crate::client_certificate::ClientCertificate;

/// Interval at which a connection with unread bytes is checked for being closed.
const CLOSED_POLL: Duration = Duration::from_millis(50);

/// Time that a connection takes at most to end, with a client that does not read, or does not close its side.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes that are thrown away at once while a connection ends.
const DISCARD_BYTES: usize = 4 << 10;

/// Bytes of a connection.
pub struct Socket {
    stream: Stream,
    shutdown: Option<Shutdown>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<EncryptedSocket>),
}

/// The end of a connection, once it has begun.
struct Shutdown {
    deadline: Pin<Box<Sleep>>,
    /// The client has been told that nothing more will come.
    is_told: bool,
}

/// Bytes of an encrypted connection.
pub struct EncryptedSocket {
    pub(crate) stream: TlsStream<TcpStream>,
    pub(crate) certificate_hash: Arc<[u8]>,
}

impl Socket {
    /// Takes over a connection that is not encrypted.
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self { stream: Stream::Plain(stream), shutdown: None }
    }

    /// Takes over a connection that is encrypted.
    pub(crate) fn encrypted(socket: EncryptedSocket) -> Self {
        Self { stream: Stream::Tls(Box::new(socket)), shutdown: None }
    }

    /// Returns the connection to be encrypted. Errors: it is encrypted already.
    pub(crate) fn into_plain(self) -> io::Result<TcpStream> {
        match self.stream {
            Stream::Plain(stream) => Ok(stream),
            Stream::Tls(_) => Err(io::Error::other("the connection is encrypted already")),
        }
    }

    /// Returns the connection below the encryption.
    pub fn tcp(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(socket) => socket.stream.get_ref().0,
        }
    }

    fn tls(&self) -> Option<&EncryptedSocket> {
        match &self.stream {
            Stream::Plain(_) => None,
            Stream::Tls(socket) => Some(socket),
        }
    }

    /// Returns whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls().is_some()
    }

    /// Returns the hash of the server's certificate to which a login can be bound (`tls-server-end-point` of RFC 5929); `None` for a
    /// connection that is not encrypted.
    pub fn certificate_hash(&self) -> Option<&[u8]> {
        Some(&self.tls()?.certificate_hash)
    }

    /// Returns the name of the protocol that the client has chosen during the TLS handshake.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.tls()?.stream.get_ref().1.alpn_protocol()
    }

    /// Returns the certificate with which the client has proven who it is; `None` without encryption, and on a listener whose files have
    /// no authorities of clients.
    pub fn client_certificate(&self) -> Option<ClientCertificate> {
        let own = self.tls()?.stream.get_ref().1.peer_certificates()?.first()?;
        Some(ClientCertificate::new(own.clone().into_owned()))
    }

    /// Writes what the buffers of the system take at once. Returns the number of bytes, which may be 0.
    pub fn try_write(&self, bytes: &[u8]) -> usize {
        match &self.stream {
            Stream::Plain(stream) => stream.try_write(bytes).unwrap_or(0),
            Stream::Tls(_) => 0,
        }
    }

    /// Waits until the client has closed the connection, or it is broken. What the client has sent stays to be read.
    pub async fn closed(&self) {
        loop {
            match self.tcp().ready(Interest::READABLE).await {
                Ok(ready) if !ready.is_read_closed() => tokio::time::sleep(CLOSED_POLL).await,
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Ends the server's side, then throws away what the client sends until it has closed its own. Errors: the connection is broken.
    fn poll_close(&mut self, is_told: &mut bool, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !*is_told {
            ready!(match &mut self.stream {
                Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
                Stream::Tls(socket) => Pin::new(&mut socket.stream).poll_shutdown(cx),
            })?;
            *is_told = true;
        }
        let tcp = match &mut self.stream {
            Stream::Plain(stream) => stream,
            // nobody looks at the bytes, so they need not be decrypted
            Stream::Tls(socket) => socket.stream.get_mut().0,
        };
        let mut discarded = [0; DISCARD_BYTES];
        loop {
            let mut buffer = ReadBuf::new(&mut discarded);
            ready!(Pin::new(&mut *tcp).poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(socket) => Pin::new(&mut socket.stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(socket) => Pin::new(&mut socket.stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Stream::Tls(socket) => Pin::new(&mut socket.stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(socket) => socket.stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(socket) => Pin::new(&mut socket.stream).poll_flush(cx),
        }
    }

    /// Ends the connection so that the client gets all that was written to it. Takes [`SHUTDOWN_TIMEOUT`] at most.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        let mut shutdown = socket.shutdown.take().unwrap_or_else(|| Shutdown {
            deadline: Box::pin(tokio::time::sleep(SHUTDOWN_TIMEOUT)),
            is_told: false,
        });
        let mut closed = socket.poll_close(&mut shutdown.is_told, cx);
        if closed.is_pending() && shutdown.deadline.as_mut().poll(cx).is_ready() {
            closed = Poll::Ready(Ok(()));
        }
        socket.shutdown = Some(shutdown);
        closed
    }
}
