//! Connection for replication: the ordinary client library has no such mode.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::frontend;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::ChangeSettings;
use crate::drivers::postgres::server_error;
use crate::error::{DbError, DbErrorKind};
use crate::tls;
use crate::url::{DatabaseUrl, TlsMode};

/// Greatest message that is taken; a value in PostgreSQL has at most 1 GiB.
const MESSAGE_BYTES_MAX: usize = (1 << 30) + (1 << 20);
/// Maximum silence of a connection before it is probed.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Settings that make values come in the same form from every server.
const SESSION: [(&str, &str); 9] = [
    ("client_encoding", "UTF8"),
    ("TimeZone", "UTC"),
    ("DateStyle", "ISO"),
    ("IntervalStyle", "iso_8601"),
    ("extra_float_digits", "1"),
    ("bytea_output", "hex"),
    ("client_min_messages", "warning"),
    ("statement_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
];

trait Connection: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Connection for T {}

/// Connection to a server that can replicate.
pub(super) struct Wire {
    connection: Box<dyn Connection>,
    received: BytesMut,
    /// Rest of what is sent: a call may be dropped before the connection has taken it.
    unsent: BytesMut,
}

/// Message of the server.
pub(super) struct ServerMessage {
    pub(super) tag: u8,
    pub(super) body: Bytes,
}

/// Row of a query, as texts.
pub(super) type TextRow = Vec<Option<String>>;

fn lost(e: std::io::Error) -> DbError {
    DbError::unavailable(format!("the connection is lost: {e}"))
}

fn broken(what: &str) -> DbError {
    DbError::unavailable(format!("the server sent {what}; is it PostgreSQL?"))
}

impl Wire {
    /// Connects and logs in, for queries or also for replication.
    ///
    /// Errors: the server cannot be reached, or refuses.
    pub(super) async fn connect(settings: &ChangeSettings, replicates: bool) -> Result<Self, DbError> {
        let url = &settings.url;
        let tcp = TcpStream::connect((url.host.as_str(), url.port))
            .await
            .map_err(|e| DbError::unavailable(format!("error connecting to server: {e}")))?;
        tcp.set_nodelay(true).map_err(lost)?;
        let keepalive = socket2::TcpKeepalive::new().with_time(SILENCE_MAX);
        socket2::SockRef::from(&tcp).set_tcp_keepalive(&keepalive).map_err(lost)?;
        let connection = encrypted(tcp, url).await?;
        let mut wire = Self { connection, received: BytesMut::new(), unsent: BytesMut::new() };
        let user = settings
            .user()
            .ok_or_else(|| DbError::invalid("there is no user; write the option `username`"))?;
        let application = url.application.as_deref().unwrap_or("tidemill");
        let own = [("user", user), ("database", url.database.as_str()), ("application_name", application)];
        let mut out = BytesMut::new();
        let mode = replicates.then_some(("replication", "database"));
        frontend::startup_message(own.into_iter().chain(mode).chain(SESSION), &mut out)
            .map_err(unsendable)?;
        wire.send(&out).await?;
        wire.log_in(user, settings.password()).await?;
        Ok(wire)
    }

    async fn log_in(&mut self, user: &str, password: Option<&str>) -> Result<(), DbError> {
        loop {
            let mut frame = self.read().await?;
            match frame.tag {
                b'R' => self.authenticate(&mut frame.body, user, password).await?,
                b'Z' => return Ok(()),
                _ => {}
            }
        }
    }

    async fn authenticate(
        &mut self,
        body: &mut Bytes,
        user: &str,
        password: Option<&str>,
    ) -> Result<(), DbError> {
        let method = body.try_get_i32().map_err(|_| broken("a login without a method"))?;
        if method == 0 {
            return Ok(());
        }
        let needed = || DbError::invalid("the server wants a password; write the option `password`");
        let password = password.ok_or_else(needed)?.as_bytes();
        let mut out = BytesMut::new();
        match method {
            3 => frontend::password_message(password, &mut out).map_err(unsendable)?,
            5 => {
                let salt: [u8; 4] = body.as_ref().try_into().map_err(|_| broken("a login without salt"))?;
                let hash = md5_hash(user.as_bytes(), password, salt);
                frontend::password_message(hash.as_bytes(), &mut out).map_err(unsendable)?;
            }
            10 if body.split(|b| *b == 0).any(|name| name == SCRAM_SHA_256.as_bytes()) => {
                return self.scram(password).await;
            }
            _ => {
                return Err(DbError::invalid(
                    "the server wants a way to log in that is not supported; set `scram-sha-256` in its pg_hba.conf",
                ));
            }
        }
        self.send(&out).await
    }

    async fn scram(&mut self, password: &[u8]) -> Result<(), DbError> {
        let refused = |e: std::io::Error| DbError::invalid(format!("the login failed: {e}"));
        let mut scram = ScramSha256::new(password, ChannelBinding::unsupported());
        let mut out = BytesMut::new();
        frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), &mut out).map_err(unsendable)?;
        self.send(&out).await?;
        scram.update(&self.login_step(11).await?).map_err(refused)?;
        out.clear();
        frontend::sasl_response(scram.message(), &mut out).map_err(unsendable)?;
        self.send(&out).await?;
        scram.finish(&self.login_step(12).await?).map_err(refused)
    }

    async fn login_step(&mut self, expected: i32) -> Result<Bytes, DbError> {
        let ServerMessage { tag, mut body } = self.read().await?;
        match (tag, body.try_get_i32()) {
            (b'R', Ok(step)) if step == expected => Ok(body),
            _ => Err(broken("another step of the login than expected")),
        }
    }

    /// Sends messages. If the future is dropped, the next call sends the rest.
    ///
    /// Errors: the connection is lost.
    pub(super) async fn send(&mut self, messages: &[u8]) -> Result<(), DbError> {
        self.unsent.extend_from_slice(messages);
        while !self.unsent.is_empty() {
            if self.connection.write_buf(&mut self.unsent).await.map_err(lost)? == 0 {
                return Err(DbError::unavailable("the server closed the connection"));
            }
        }
        self.connection.flush().await.map_err(lost)
    }

    /// Returns the next message that is not only for information. Dropping the future loses nothing.
    ///
    /// Errors: the connection is lost; the server reports an error.
    pub(super) async fn read(&mut self) -> Result<ServerMessage, DbError> {
        loop {
            if let Some(frame) = self.parse()? {
                match frame.tag {
                    b'E' => return Err(server_failure(&frame.body)),
                    // notices, values of settings, notifications
                    b'N' | b'S' | b'A' => {}
                    _ => return Ok(frame),
                }
            } else if self.connection.read_buf(&mut self.received).await.map_err(lost)? == 0 {
                return Err(DbError::unavailable("the server closed the connection"));
            }
        }
    }

    fn parse(&mut self) -> Result<Option<ServerMessage>, DbError> {
        let [tag, a, b, c, d, ..] = *self.received else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(broken("a message of a wrong length"));
        }
        if self.received.len() < length + 1 {
            // the buffer grows as bytes arrive, not by what the length promises
            self.received.reserve((length + 1 - self.received.len()).min(1 << 20));
            return Ok(None);
        }
        let mut body = self.received.split_to(length + 1).freeze();
        body.advance(5);
        Ok(Some(ServerMessage { tag, body }))
    }

    /// Executes statements and returns the rows.
    ///
    /// Errors: those of the server.
    pub(super) async fn query(&mut self, sql: &str) -> Result<Vec<TextRow>, DbError> {
        self.start(sql).await?;
        let mut rows = vec![];
        let mut failure = None;
        loop {
            match self.read().await {
                Ok(ServerMessage { tag: b'D', body }) => rows.push(text_row(body)?),
                Ok(ServerMessage { tag: b'Z', .. }) => break,
                Ok(_) => {}
                Err(e) if e.code.is_empty() => return Err(e),
                Err(e) => failure = Some(e),
            }
        }
        failure.map_or(Ok(rows), Err)
    }

    /// Sends statements without waiting for answers.
    ///
    /// Errors: the connection is lost.
    pub(super) async fn start(&mut self, sql: &str) -> Result<(), DbError> {
        let mut out = BytesMut::new();
        frontend::query(sql, &mut out).map_err(unsendable)?;
        self.send(&out).await
    }

    /// Waits until the server copies: by `H` out of a table, by `W` in both directions.
    ///
    /// Errors: those of the server.
    pub(super) async fn await_copy(&mut self, tag: u8) -> Result<(), DbError> {
        loop {
            let frame = self.read().await?;
            if frame.tag == tag {
                return Ok(());
            }
            if frame.tag == b'Z' {
                return Err(broken("no data"));
            }
        }
    }

    /// Returns the next row that is copied out of a table; `Break` at the end.
    ///
    /// Errors: those of the server.
    pub(super) async fn copied(&mut self) -> Result<ControlFlow<(), Bytes>, DbError> {
        loop {
            match self.read().await? {
                ServerMessage { tag: b'd', body } => return Ok(ControlFlow::Continue(body)),
                ServerMessage { tag: b'Z', .. } => return Ok(ControlFlow::Break(())),
                _ => {}
            }
        }
    }
}

fn unsendable(e: std::io::Error) -> DbError {
    DbError::invalid(format!("the request cannot be sent: {e}"))
}

async fn encrypted(mut tcp: TcpStream, url: &DatabaseUrl) -> Result<Box<dyn Connection>, DbError> {
    if url.tls == TlsMode::Disabled {
        return Ok(Box::new(tcp));
    }
    let mut out = BytesMut::new();
    frontend::ssl_request(&mut out);
    tcp.write_all(&out).await.map_err(lost)?;
    match (tcp.read_u8().await.map_err(lost)?, url.tls) {
        (b'S', _) => {}
        (_, TlsMode::Preferred) => return Ok(Box::new(tcp)),
        _ => {
            let message = "the server does not support TLS; write `sslmode=disable` in the URL";
            return Err(DbError::invalid(message));
        }
    }
    let config = tls::client_config(url.tls, url.root_cert.as_deref())?;
    let name = ServerName::try_from(url.host.clone())
        .map_err(|_| DbError::invalid(format!("`{}` is no name of a host", url.host)))?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let connection = connector.connect(name, tcp).await.map_err(|e| {
        let is_refusal = e.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
        let kind = if is_refusal { DbErrorKind::Invalid } else { DbErrorKind::Unavailable };
        DbError::new(kind, format!("TLS: {e}"))
    })?;
    Ok(Box::new(connection))
}

fn server_failure(body: &Bytes) -> DbError {
    let field = |wanted: u8| {
        let fields = body.split(|b| *b == 0).filter_map(<[u8]>::split_first);
        let mut found = fields.filter(|(kind, _)| **kind == wanted);
        found.next().map(|(_, text)| String::from_utf8_lossy(text).into_owned())
    };
    let message = field(b'M').unwrap_or_else(|| "an error without a message".into());
    server_error(&field(b'C').unwrap_or_else(|| "XX000".into()), message, field(b'D').as_deref())
}

fn text_row(mut body: Bytes) -> Result<TextRow, DbError> {
    let bad = || broken("a row that ends too early");
    let count = body.try_get_u16().map_err(|_| bad())?;
    let mut row = Vec::with_capacity(count.into());
    for _ in 0..count {
        let length = body.try_get_i32().map_err(|_| bad())?;
        let value = match usize::try_from(length) {
            Err(_) => None,
            Ok(length) if length <= body.len() => {
                Some(String::from_utf8_lossy(&body.split_to(length)).into_owned())
            }
            Ok(_) => return Err(bad()),
        };
        row.push(value);
    }
    Ok(row)
}
