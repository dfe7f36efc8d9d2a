//! Bytes of a connection: messages out of a buffer that grows as they arrive, and replies until the client takes them.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tidemill_gateway::{HeldMessage, MessageMemory, Socket};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::error::{PgError, Result, code};
use crate::messages::input::HEADER_BYTES;

/// Bytes of messages that arrive for which no memory is accounted.
const UNACCOUNTED_BYTES: usize = 64 << 10;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;
/// Buffers that are larger than this are given back when they are empty.
const KEPT_BYTES: usize = 256 << 10;
/// Bytes of replies after which rows wait until the client has taken them.
pub(crate) const OUTPUT_BYTES: usize = 64 << 10;

/// A connection with what has arrived and what was not sent yet.
pub(crate) struct Wire {
    socket: Socket,
    input: BytesMut,
    /// Messages for the client, which [`Self::flush`] sends.
    pub output: BytesMut,
    memory: Arc<MessageMemory>,
    /// Memory of the message that arrives, or is processed.
    held: Option<(HeldMessage, usize)>,
    transfer_timeout: Duration,
}

impl Wire {
    pub fn new(socket: Socket, memory: Arc<MessageMemory>, transfer_timeout: Duration) -> Self {
        let (input, output) = (BytesMut::new(), BytesMut::new());
        Self { socket, input, output, memory, held: None, transfer_timeout }
    }

    /// Returns the hash of the server's certificate; `None` for a connection that is not encrypted.
    pub fn certificate_hash(&self) -> Option<Vec<u8>> {
        self.socket.certificate_hash().map(<[u8]>::to_vec)
    }

    /// Returns whether the client has begun to send a message.
    pub fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// Takes the next message, if it has arrived: its letter and its content.
    ///
    /// Errors: its length is impossible, or more than `bytes_max`.
    pub fn take(&mut self, bytes_max: usize) -> Result<Option<(u8, Bytes)>> {
        let Some(header) = self.input.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [letter, length @ ..] = *header;
        let length = usize::try_from(i32::from_be_bytes(length)).ok().filter(|length| *length >= 4);
        let length = length.ok_or_else(|| PgError::protocol("a message has an impossible length"))?;
        if length > bytes_max {
            return Err(PgError::fatal(
                code::TOO_LARGE,
                format!("a message of {length} bytes: the limit is {bytes_max} bytes"),
            ));
        }
        if self.input.len() < length + 1 {
            return Ok(None);
        }
        if let Some((held, _)) = &self.held {
            held.settle().map_err(full)?;
        }
        let message = self.input.split_to(length + 1).freeze();
        if self.input.is_empty() && self.input.capacity() > KEPT_BYTES {
            self.input = BytesMut::new();
        }
        Ok(Some((letter, message.slice(HEADER_BYTES..))))
    }

    /// Gives the memory of the last message back, when it is processed.
    pub fn release(&mut self) {
        self.held = None;
    }

    /// Waits for bytes of the client. Returns false when it has closed the connection. May be dropped at any time.
    ///
    /// Errors: the connection is broken, or the messages of all connections need more memory than they may have.
    pub async fn fill(&mut self) -> Result<bool> {
        self.input.reserve(READ_BYTES);
        let read = self.socket.read_buf(&mut self.input);
        let read = match &self.held {
            None => read.await,
            Some((held, _)) => tokio::select! {
                read = read => read,
                () = held.evicted() => return Err(full(held.full())),
            },
        };
        let read = read.map_err(broken)?;
        let length = self.input.len();
        if length > UNACCOUNTED_BYTES {
            let (held, accounted) = self.held.get_or_insert_with(|| (self.memory.begin(), 0));
            held.grow(length.saturating_sub(*accounted)).map_err(full)?;
            *accounted = length.max(*accounted);
        }
        Ok(read > 0)
    }

    /// Sends the output. May be dropped at any time: what was not sent stays in the output.
    ///
    /// Errors: the connection is broken, or the client has taken nothing for too long.
    pub async fn flush(&mut self) -> Result<()> {
        let limit = self.transfer_timeout;
        let slow = |_| {
            PgError::fatal(code::CONNECTION_FAILURE, format!("the client has taken nothing for {limit:?}"))
        };
        while !self.output.is_empty() {
            let written = timeout(limit, self.socket.write_buf(&mut self.output)).await.map_err(slow)?;
            if written.map_err(broken)? == 0 {
                return Err(gone());
            }
        }
        if self.output.capacity() > KEPT_BYTES {
            self.output = BytesMut::new();
        }
        timeout(limit, self.socket.flush()).await.map_err(slow)?.map_err(broken)
    }

    /// Ends the connection so that the client gets all that was sent.
    pub async fn close(mut self) {
        // it may have gone
        let _ = self.socket.shutdown().await;
    }

    /// Waits until the client has closed the connection.
    ///
    /// Errors: always that.
    pub async fn closed<T>(&self) -> Result<T> {
        self.socket.closed().await;
        Err(gone())
    }
}

/// Reads a message without a letter: those before the login. Returns `None` if the client has closed the connection.
///
/// No byte behind the message is read, as those after a request for encryption are of the handshake of TLS.
/// Errors: its length is impossible; the connection is broken.
pub(crate) async fn read_first(socket: &mut Socket, bytes_max: usize) -> Result<Option<Bytes>> {
    let mut length = [0; 4];
    if socket.read_exact(&mut length).await.is_err() {
        return Ok(None);
    }
    let length = u32::from_be_bytes(length) as usize;
    if !(8..=bytes_max).contains(&length) {
        return Err(PgError::protocol(format!(
            "the first message has {length} bytes: expected a client that speaks PostgreSQL's protocol"
        )));
    }
    let mut content = vec![0; length - 4];
    match socket.read_exact(&mut content).await {
        Ok(_) => Ok(Some(content.into())),
        Err(_) => Ok(None),
    }
}

fn full(e: tidemill_types::Error) -> PgError {
    PgError::fatal(code::MEMORY, e.to_string())
}

fn broken(e: std::io::Error) -> PgError {
    PgError::fatal(code::CONNECTION_FAILURE, e.to_string())
}

fn gone() -> PgError {
    PgError::fatal(code::CONNECTION_FAILURE, "the client has closed the connection")
}
