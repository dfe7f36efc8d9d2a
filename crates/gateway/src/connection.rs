//! A connection, as a protocol gets it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::connections::ConnectionHandle;
use crate::socket::Socket;
use crate::tls::ServerTls;

/// A connection to a client.
pub struct Connection {
    /// Its bytes, encrypted or not.
    pub socket: Socket,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Address that the client has reached.
    pub local: SocketAddr,
    /// Address of the listener, which may be that of all interfaces.
    pub listener: SocketAddr,
    /// Messages between the connection and its listener.
    pub handle: ConnectionHandle,
    /// Certificate of a listener whose protocol begins the encryption itself.
    pub(crate) tls: Option<Arc<ServerTls>>,
}

impl Connection {
    /// Returns whether [`Self::encrypt`] has a certificate to use.
    pub fn can_encrypt(&self) -> bool {
        self.tls.is_some() && !self.socket.is_encrypted()
    }

    /// Encrypts the connection of a client that has asked for it and begins with a TLS handshake now. No byte of the client may have
    /// been read beyond its request.
    ///
    /// Errors: the listener has no certificate, or the connection is encrypted already; the client does not speak TLS, does not trust
    /// the certificate, or takes more than ten seconds.
    pub async fn encrypt(self) -> io::Result<Self> {
        let Self { socket, peer, local, listener, handle, tls } = self;
        let stream = socket.into_plain()?;
        let Some(files) = &tls else { return Err(io::Error::other("the listener has no certificate")) };
        let socket = files.accept(stream).await?;
        Ok(Self { socket, peer, local, listener, handle, tls })
    }
}
