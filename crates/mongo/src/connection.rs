//! A connection: reads a message, runs its command, writes the reply.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use bson::RawDocumentBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::commands;
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::frame::{HEADER_BYTES, Header, Request};
use crate::session::Session;
use crate::shared::Shared;

/// Maximum bytes of a message before the login.
const LOGIN_MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Memory that is reserved for a message before its bytes arrive.
const RESERVED_BYTES_MAX: usize = 1 << 20;
/// Time in which a reply must be taken, and a message must arrive once it has begun.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);
const READ_BUFFER_BYTES: usize = 16 << 10;

/// Serves a connection until the client closes it, or the server stops.
pub(crate) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    connection_id: i32,
    shared: &Shared,
    mut stopping: watch::Receiver<bool>,
) {
    // replies are small, and the client waits for each
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "TCP_NODELAY");
    }
    let open = shared.credentials.is_none();
    let mut session =
        Session { connection_id, peer, open, authenticated: open, login: None, awaits_empty_message: false };
    let mut stream = BufReader::with_capacity(READ_BUFFER_BYTES, stream);
    loop {
        let next = tokio::select! {
            _ = stopping.changed() => return,
            next = read(&mut stream, shared, &session) => next,
        };
        let request = match next {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%peer, "{}: the connection is closed", error.message);
                return;
            }
        };
        let reply = run(shared, &mut session, &request).unwrap_or_else(|error| error.reply());
        if !request.wants_reply {
            continue;
        }
        let bytes = match request.encode_reply(&reply) {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(%peer, "{}", error.message);
                return;
            }
        };
        match tokio::time::timeout(TRANSFER_TIMEOUT, stream.get_mut().write_all(&bytes)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => {
                tracing::debug!(%peer, "the client does not take its reply: the connection is closed");
                return;
            }
        }
    }
}

/// Reads a request; `None` when the client has closed the connection.
async fn read(
    stream: &mut BufReader<TcpStream>,
    shared: &Shared,
    session: &Session,
) -> Result<Option<Request>> {
    let failed = |e: std::io::Error| CommandError::new(Code::HostUnreachable, e.to_string());
    let slow = |_| CommandError::new(Code::ProtocolError, "the message did not arrive in time");
    let mut head = [0; HEADER_BYTES];
    let first = stream.read(&mut head[..1]);
    let first = match session.authenticated {
        true => first.await,
        false => tokio::time::timeout(shared.options.login_timeout, first).await.map_err(slow)?,
    };
    if first.map_err(failed)? == 0 {
        return Ok(None);
    }
    let rest = async {
        stream.read_exact(&mut head[1..]).await.map_err(failed)?;
        let header = Header::read(&head)?;
        let most = if session.authenticated { usize::MAX } else { LOGIN_MESSAGE_BYTES_MAX };
        if header.length > most {
            let message =
                format!("a message of {} bytes before the login: limit of {most} bytes", header.length);
            return Err(CommandError::new(Code::ProtocolError, message));
        }
        let length = header.length - HEADER_BYTES;
        let mut content = Vec::with_capacity(length.min(RESERVED_BYTES_MAX));
        let read = (&mut *stream).take(length as u64).read_to_end(&mut content).await.map_err(failed)?;
        if read < length {
            return Err(CommandError::new(Code::ProtocolError, "the message ends too early"));
        }
        Request::parse(header, &head, content.into())
    };
    tokio::time::timeout(TRANSFER_TIMEOUT, rest).await.map_err(slow)?.map(Some)
}

/// Runs the command of a request.
fn run(shared: &Shared, session: &mut Session, request: &Request) -> Result<RawDocumentBuf> {
    let call = Call::of(request)?;
    let mut command = || {
        catch_unwind(AssertUnwindSafe(|| commands::run(shared, session, &call))).unwrap_or_else(|_| {
            tracing::error!(command = call.name, "a command panicked");
            Err(CommandError::new(
                Code::InternalError,
                format!("a defect in Tidemill: `{}` panicked", call.name),
            ))
        })
    };
    match commands::is_quick(&call) {
        true => command(),
        // commands that write wait for the disk
        false => tokio::task::block_in_place(command),
    }
}
