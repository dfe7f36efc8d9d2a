//! Connection to an IMAP server.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_imap::error::Error as ImapError;
use async_imap::{Client, Session};
use tidemill_tls::{Authorities, ClientTls};
use tidemill_types::{Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::Security;

/// Timeout for an answer of the server.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes in both directions, encrypted or not.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send + Sync + Debug {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send + Sync + Debug> ByteStream for S {}

/// Session of a user.
pub(super) type ImapSession = Session<Box<dyn ByteStream>>;

/// Server and user of a mailbox.
pub(super) struct ImapServer {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) security: Security,
    /// Authorities that are trusted.
    pub(super) authorities: Authorities,
    pub(super) user: String,
    pub(super) password: String,
}

impl ImapServer {
    /// Returns an error about this server.
    pub(super) fn failed(&self, what: &str, e: impl std::fmt::Display) -> Error {
        Error::unavailable(format!("imap://{}:{}: {what}: {e}", self.host, self.port))
    }

    /// Waits for an answer of the server.
    ///
    /// Errors: it refuses, or takes too long.
    pub(super) async fn answer<T>(
        &self,
        what: &str,
        asked: impl Future<Output = Result<T, ImapError>>,
    ) -> Result<T> {
        match tokio::time::timeout(TIMEOUT, asked).await {
            Ok(answer) => answer.map_err(|e| self.failed(what, e)),
            Err(_) => Err(self.failed(what, format!("no answer within {} s", TIMEOUT.as_secs()))),
        }
    }

    /// Connects and logs in.
    pub(super) async fn log_in(&self) -> Result<ImapSession> {
        let what = "cannot connect";
        let connecting = async { Ok(TcpStream::connect((self.host.as_str(), self.port)).await?) };
        let tcp = self.answer(what, connecting).await?;
        let mut client = match self.security {
            Security::Tls => Client::new(self.encrypted(tcp).await?),
            _ => Client::new(Box::new(tcp) as Box<dyn ByteStream>),
        };
        let greeting = self.answer(what, async { Ok(client.read_response().await?) }).await?;
        if greeting.is_none() {
            return Err(self.failed(what, "the server closed the connection"));
        }
        if matches!(self.security, Security::StartTls | Security::StartTlsIfOffered) {
            let asked = client.run_command_and_check_ok("STARTTLS", None);
            match tokio::time::timeout(TIMEOUT, asked).await {
                Ok(Ok(())) => client = Client::new(self.encrypted(client.into_inner()).await?),
                Ok(Err(ImapError::No(_) | ImapError::Bad(_)))
                    if self.security == Security::StartTlsIfOffered => {}
                Ok(Err(e)) => return Err(self.failed("STARTTLS", e)),
                Err(_) => return Err(self.failed("STARTTLS", "no answer")),
            }
        }
        let what = format!("cannot log in as `{}`", self.user);
        self.answer(&what, async { client.login(&self.user, &self.password).await.map_err(|(e, _)| e) }).await
    }

    async fn encrypted(&self, stream: impl ByteStream + 'static) -> Result<Box<dyn ByteStream>> {
        let what = "cannot encrypt the connection";
        let authorities = self.authorities.clone();
        let config = ClientTls { authorities, ..ClientTls::default() }.config();
        let config = config.map_err(|e| self.failed(what, e.message()))?;
        let name = ServerName::try_from(self.host.clone()).map_err(|e| self.failed(what, e))?;
        let connector = TlsConnector::from(Arc::new(config));
        let stream = self.answer(what, async { Ok(connector.connect(name, stream).await?) }).await?;
        Ok(Box::new(stream))
    }
}
