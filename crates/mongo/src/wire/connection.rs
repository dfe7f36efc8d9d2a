//! A connection: reads a message, runs its command, writes the reply.

use std::sync::Arc;
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, RawDocumentBuf, Timestamp, cstr};
use tidemill_gateway::{Connection, ConnectionHandle, HeldMessage, Socket};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::watch;

use crate::commands::{change_stream, hello, reading::find};
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::runner;
use crate::session::Session;
use crate::shared::MongoServerState;
use crate::wire::error_labels;
use crate::wire::frame::{HEADER_BYTES, Header, Request};
use crate::wire::reply;

/// Maximum bytes of a message before the login.
const LOGIN_MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Memory that is reserved for a message before its bytes arrive. Larger messages count as messages on their way.
const RESERVED_BYTES_MAX: usize = 64 << 10;
/// Time in which a reply must be taken, and a message must arrive once it has begun.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(60);
const READ_BUFFER_BYTES: usize = 16 << 10;

/// Serves a connection until the client closes it, the server stops, or its user or password has changed.
pub(crate) async fn serve(connection: Connection, connection_id: i32, shared: &Arc<MongoServerState>) {
    let Connection { socket, peer, local, handle, .. } = connection;
    let mut session = Session::new(connection_id, local, peer, shared.open_principal());
    let mut stream = BufReader::with_capacity(READ_BUFFER_BYTES, socket);
    let events = ConnectionEvents { handle, access: shared.access_changes() };
    if answer_requests(&mut stream, shared, &mut session, events).await {
        // the client gets the replies that were sent; it may have gone
        let _ = stream.shutdown().await;
    }
}

/// Answers requests until the connection is to be closed. Returns whether the client may be sending.
async fn answer_requests(
    stream: &mut BufReader<Socket>,
    shared: &Arc<MongoServerState>,
    session: &mut Session,
    mut events: ConnectionEvents,
) -> bool {
    let peer = session.peer;
    let mut is_trusted = false;
    loop {
        if session.is_authenticated() && !is_trusted {
            events.handle.trust();
            is_trusted = true;
        }
        let next = tokio::select! {
            () = events.handle.draining() => return false,
            _ = events.access.changed() => {
                if session.is_logged_out(shared.options.access.as_deref()) {
                    tracing::info!(%peer, "a user or a password has changed: the connection is closed");
                    return false;
                }
                continue;
            }
            arrived = wait(stream, shared, session) => arrived,
        };
        let next = match next {
            Ok(false) => return false,
            Err(error) => Err(error),
            Ok(true) => tokio::select! {
                () = events.handle.draining() => return true,
                read = read(stream, shared, session, &events.handle) => read,
            },
        };
        let (request, held) = match next {
            Ok(read) => read,
            Err(error) => {
                tracing::debug!(%peer, "{}: the connection is closed", error.message);
                return true;
            }
        };
        let request = Arc::new(request);
        if let Some(error) = held.as_ref().and_then(|held| held.settle().err()) {
            tracing::warn!(%peer, "{error}");
            return true;
        }
        if !answer(stream, shared, session, &request, &mut events).await {
            return true;
        }
        drop(held);
    }
}

/// Events that end the waiting of a connection.
struct ConnectionEvents {
    handle: ConnectionHandle,
    /// Changes of users, passwords and grants.
    access: watch::Receiver<u64>,
}

/// Runs the command of a request and writes the reply. An exhaust `hello`, or a cursor that is read to its
/// end, gets several replies. Returns whether the connection stays open.
async fn answer(
    stream: &mut BufReader<Socket>,
    shared: &Arc<MongoServerState>,
    session: &mut Session,
    request: &Arc<Request>,
    events: &mut ConnectionEvents,
) -> bool {
    loop {
        let wait = Call::of(request).ok().and_then(|call| hello::await_time(shared, &call));
        let mut more = request.exhaust_allowed && wait.is_some();
        if let Some(wait) = wait {
            tokio::select! {
                () = events.handle.draining() => return false,
                () = tokio::time::sleep(wait) => {}
                sent = stream.fill_buf() => match sent {
                    // the client wants to say something else
                    Ok(sent) if !sent.is_empty() => more = false,
                    _ => return false,
                },
            }
        }
        // a connection that makes room for another one does nothing any more
        let Some(active) = events.handle.begin() else { return false };
        let socket = stream.get_ref();
        let Some(mut reply) = run_or_fail(socket, shared, session, request, events).await else {
            return false;
        };
        // a request that is not a command has an error without labels
        let _ = error_labels::append(request, &mut reply);
        // the batches of a cursor, one after the other without a request for each
        more |= request.exhaust_allowed && reply::has_more_batches(&reply);
        if session.is_authenticated() {
            append_times(&mut reply, shared.cluster_time());
        }
        if !request.wants_reply {
            return true;
        }
        let bytes = match request.encode_reply(&reply, more) {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(peer = %session.peer, "{}", error.message);
                return false;
            }
        };
        // a client that takes its time should not make the server keep the reply twice
        drop(reply);
        // one that has not logged in should not keep its connection by not reading
        let active = Some(active).filter(|_| session.is_authenticated());
        if let Err(error) = send(stream, shared, &bytes).await {
            tracing::warn!(peer = %session.peer, "{}", error.message);
            return false;
        }
        drop(active);
        if !more {
            return true;
        }
    }
}

/// Writes a reply. Errors: the client does not take it in time, or it has to give way to others, or the connection is broken.
async fn send(stream: &mut BufReader<Socket>, shared: &MongoServerState, bytes: &[u8]) -> Result<()> {
    let stream = stream.get_mut();
    // most replies fit into the buffers of the system, and then nothing is held
    let sent = stream.try_write(bytes);
    if sent == bytes.len() {
        return Ok(());
    }
    let held = shared.message_memory.begin();
    held.grow(bytes.len()).map_err(full)?;
    let write = async {
        let mut rest = &bytes[sent..];
        while !rest.is_empty() {
            let count = stream.write(rest).await?;
            rest = &rest[count..];
            held.moved();
        }
        stream.flush().await
    };
    tokio::select! {
        () = held.evicted() => Err(full(held.full())),
        written = tokio::time::timeout(TRANSFER_TIMEOUT, write) => match written {
            Ok(written) => written.map_err(|e| CommandError::new(Code::HostUnreachable, e.to_string())),
            Err(_) => {
                let message = "the client does not take its reply: the connection is closed";
                Err(CommandError::new(Code::HostUnreachable, message))
            }
        },
    }
}

/// Runs the command of a request, unless a fail point has something else in mind. Returns nothing if the connection is to be closed.
async fn run_or_fail(
    socket: &Socket,
    shared: &Arc<MongoServerState>,
    session: &mut Session,
    request: &Arc<Request>,
    events: &mut ConnectionEvents,
) -> Option<RawDocumentBuf> {
    let Some(points) = &shared.fail_points else {
        return run_awaiting(socket, shared, session, request, events).await;
    };
    let failure = match Call::of(request).and_then(|call| points.failure(shared, &call, session)) {
        Ok(Some(failure)) => failure,
        Ok(None) => return run_awaiting(socket, shared, session, request, events).await,
        Err(error) => return Some(error.reply()),
    };
    if let Some(time) = failure.block {
        tokio::select! {
            () = events.handle.draining() => return None,
            () = tokio::time::sleep(time) => {}
        }
    }
    let mut reply = match failure.error {
        Some(error) => error,
        None => run_awaiting(socket, shared, session, request, events).await?,
    };
    if failure.close {
        return None;
    }
    for element in &failure.appended {
        let (name, value) = element.ok()?;
        if reply.get(name).is_ok_and(|known| known.is_none()) {
            reply.append(name, value);
        }
    }
    Some(reply)
}

/// Runs the command of a request; one that reads changes or the end of a capped collection waits until there is something. Returns nothing
/// if the server stops, or the client has gone.
async fn run_awaiting(
    socket: &Socket,
    shared: &Arc<MongoServerState>,
    session: &mut Session,
    request: &Arc<Request>,
    events: &mut ConnectionEvents,
) -> Option<RawDocumentBuf> {
    let awaited = Call::of(request).ok().and_then(|call| find::awaited_cursor(shared, &call));
    let Some((cursor, wait)) = awaited else {
        return runner::run(socket, shared, session, request).await;
    };
    let deadline = tokio::time::Instant::now() + wait;
    let mut published = shared.whole_engine.changes_published();
    loop {
        published.mark_unchanged();
        let reply = runner::run(socket, shared, session, request).await?;
        if !change_stream::is_empty_batch(&reply) || tokio::time::Instant::now() >= deadline {
            return Some(reply);
        }
        // a cursor that has read only changes of others continues at once
        if shared.cursors.awaits_more(cursor) == Some(true) {
            tokio::select! {
                () = events.handle.draining() => return None,
                () = socket.closed() => return None,
                _ = published.changed() => {}
                // the next look refuses a client whose user or password has changed
                _ = events.access.changed() => {}
                () = tokio::time::sleep_until(deadline) => {}
            }
        }
    }
}

fn failed(e: std::io::Error) -> CommandError {
    CommandError::new(Code::HostUnreachable, e.to_string())
}

fn full(e: tidemill_types::Error) -> CommandError {
    CommandError::new(Code::ExceededMemoryLimit, e.to_string())
}

fn slow(_: tokio::time::error::Elapsed) -> CommandError {
    CommandError::new(Code::ProtocolError, "the message did not arrive in time")
}

/// Waits for the first byte of a message, which stays to be read. Returns false when the client has closed the connection.
async fn wait(stream: &mut BufReader<Socket>, shared: &MongoServerState, session: &Session) -> Result<bool> {
    let arrived = stream.fill_buf();
    let arrived = match session.is_authenticated() {
        true => arrived.await,
        false => tokio::time::timeout(shared.options.login_timeout, arrived).await.map_err(slow)?,
    };
    Ok(!arrived.map_err(failed)?.is_empty())
}

/// Reads a request that has begun to arrive, and holds its memory if it is large.
async fn read(
    stream: &mut BufReader<Socket>,
    shared: &MongoServerState,
    session: &Session,
    handle: &ConnectionHandle,
) -> Result<(Request, Option<HeldMessage>)> {
    let mut head = [0; HEADER_BYTES];
    let rest = async {
        stream.read_exact(&mut head).await.map_err(failed)?;
        let header = header(&head, session)?;
        let length = header.length - HEADER_BYTES;
        if stream.buffer().len() < length {
            handle.arriving();
        }
        let cut = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                CommandError::new(Code::ProtocolError, "the message ends too early")
            }
            _ => failed(e),
        };
        let mut content = vec![0; length.min(RESERVED_BYTES_MAX)];
        stream.read_exact(&mut content).await.map_err(cut)?;
        let mut held = None;
        if content.len() < length {
            let held = held.insert(shared.message_memory.begin());
            held.grow(content.len()).map_err(full)?;
            while content.len() < length {
                // the memory grows as the bytes arrive, so that announcing a large message does not reserve
                // it
                let (start, more) = (content.len(), content.len().min(length - content.len()));
                held.grow(more).map_err(full)?;
                content.reserve_exact(more);
                content.resize(start + more, 0);
                tokio::select! {
                    () = held.evicted() => return Err(full(held.full())),
                    read = stream.read_exact(&mut content[start..]) => read.map_err(cut)?,
                };
            }
        }
        let request = request(header, &head, content, session)?;
        let unpacked = request.unpacked_bytes();
        if unpacked > RESERVED_BYTES_MAX {
            held.get_or_insert_with(|| shared.message_memory.begin()).grow(unpacked).map_err(full)?;
        }
        Ok((request, held))
    };
    tokio::time::timeout(TRANSFER_TIMEOUT, rest).await.map_err(slow)?
}

/// Reads the header of a message. Errors: its length is impossible, or too large for a client that has not logged in.
pub(crate) fn header(head: &[u8; HEADER_BYTES], session: &Session) -> Result<Header> {
    let header = Header::read(head)?;
    if !session.is_authenticated() && header.length > LOGIN_MESSAGE_BYTES_MAX {
        let message = format!(
            "a message of {} bytes before the login: limit of {LOGIN_MESSAGE_BYTES_MAX} bytes",
            header.length
        );
        return Err(CommandError::new(Code::ProtocolError, message));
    }
    Ok(header)
}

/// Parses the message behind a header. Errors: it is malformed.
pub(crate) fn request(
    header: Header,
    head: &[u8; HEADER_BYTES],
    content: Vec<u8>,
    session: &Session,
) -> Result<Request> {
    // a small message may not become a large one before the login either
    let length_max = if session.is_authenticated() { usize::MAX } else { LOGIN_MESSAGE_BYTES_MAX };
    Request::parse(header, head, content.into(), length_max)
}

/// Appends the time of the log, which drivers send back, so that what they read next is not older.
fn append_times(reply: &mut RawDocumentBuf, now: Timestamp) {
    let mut signature = RawDocumentBuf::new();
    signature.append(cstr!("hash"), Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 20] });
    signature.append(cstr!("keyId"), 0_i64);
    let mut cluster_time = RawDocumentBuf::new();
    cluster_time.append(cstr!("clusterTime"), now);
    cluster_time.append(cstr!("signature"), signature);
    reply.append(cstr!("$clusterTime"), cluster_time);
    reply.append(cstr!("operationTime"), now);
}
