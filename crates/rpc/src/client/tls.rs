//! TLS of a connection to another node, and what its failures mean.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, Error as TlsError};
use tidemill_types::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Link;
use crate::security::CertificateFiles;

/// Alert by which the other node has ended the connection. HTTP/2 keeps no more than the text of an error.
pub(super) type Alert = Arc<OnceLock<TlsError>>;

/// An encrypted connection that remembers an alert.
pub(super) struct EncryptedStream {
    stream: TlsStream<TcpStream>,
    alert: Alert,
}

/// Encrypts a connection, and checks the certificate of the other node.
///
/// Errors: `Forbidden` if one of the nodes does not trust the other one; `Unavailable` if it speaks no TLS; `Invalid` for files that
/// cannot be used.
pub(super) async fn encrypt(
    link: &Link,
    files: &CertificateFiles,
    stream: TcpStream,
) -> Result<(EncryptedStream, Alert)> {
    let config = files.client_config().map_err(|e| link.error(e.kind(), e))?;
    let name = ServerName::try_from(link.node.clone())
        .map_err(|e| link.error(ErrorKind::Invalid, format!("the name is not a DNS name: {e}")))?;
    let stream = TlsConnector::from(config).connect(name, stream).await.map_err(|error| {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
            Some(error) => refused(link, files, error),
            None => link.unavailable(format!("it ended the connection during the TLS handshake: {error}")),
        }
    })?;
    // With TLS 1.3, the other node checks the certificate of this one after the handshake is complete here. If bytes were sent before, their
    // arrival at a closed connection could destroy the alert that says why. A node that accepts the certificate sends the first bytes
    // of HTTP/2 without waiting.
    stream
        .get_ref()
        .0
        .peek(&mut [0])
        .await
        .map_err(|e| link.unavailable(format!("it ended the connection: {e}")))?;
    let alert = Alert::default();
    Ok((EncryptedStream { stream, alert: alert.clone() }, alert))
}

/// Returns what a failure of TLS means, and what to do.
pub(super) fn refused(link: &Link, files: &CertificateFiles, error: &TlsError) -> Error {
    let (own, authorities) = (&link.settings.identity.node, files.authorities());
    let meaning = match error {
        // the signature is bad if the authority has the name of the right one
        TlsError::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            format!(
                "its certificate is not signed by an authority of {authorities}: give both nodes certificates of the cluster's authority"
            )
        }
        TlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!(
            "its certificate is that of another name: correct the address, or give the node a certificate with `DNS:{}` among its \
             alternative names",
            link.node
        ),
        TlsError::InvalidCertificate(_) => {
            "its certificate cannot be accepted: give the node another one".to_owned()
        }
        TlsError::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => format!(
            "it refuses the certificate of node `{own}`, which is not signed by an authority that it knows: give both nodes certificates of \
             the cluster's authority"
        ),
        TlsError::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "it does not offer HTTP/2: correct the address; is it that of another protocol?".to_owned()
        }
        TlsError::AlertReceived(_) => {
            format!(
                "it refuses the certificate of node `{own}`, and its log says why: give node `{own}` another one"
            )
        }
        TlsError::InvalidMessage(_) => {
            return link.unavailable(format!(
                "it does not speak TLS ({error}): correct the address, or give the node a certificate in place of a shared secret"
            ));
        }
        _ => return link.unavailable(format!("the TLS handshake failed: {error}")),
    };
    link.error(ErrorKind::Forbidden, format!("{meaning} ({error})"))
}

impl AsyncRead for EncryptedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        if let Err(error) = &read
            && let Some(alert @ TlsError::AlertReceived(_)) =
                error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>())
        {
            // the first one is the reason
            let _ = self.alert.set(alert.clone());
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for EncryptedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
