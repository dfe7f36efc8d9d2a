//! Messages in a stream of bytes.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

/// First byte of a message in Siddhi's protocol.
const MESSAGE_TYPE: u8 = 2;

/// Separation of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Siddhi's protocol: the byte 2, the number of bytes that follow, then session id, channel and content, each
    /// behind its length. Lengths have 4 bytes, the highest first.
    Siddhi,
    /// One message a line; empty lines mean nothing.
    Line,
    /// Each message behind its length of 4 bytes, the highest first.
    Length,
}

/// Message that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Channel; `None` if the framing has none.
    pub(crate) channel: Option<String>,
    pub(crate) payload: Bytes,
}

/// Reason why bytes are not a message. The bytes that follow cannot be understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    MessageType(u8),
    TooLong { bytes: usize, bytes_max: usize },
    Parts { bytes: usize, parts: u64 },
    Channel,
    Incomplete,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MessageType(found) => write!(
                f,
                "expected a message of type {MESSAGE_TYPE} of Siddhi's protocol, found the byte {found}; for lines \
                 write framing='line'"
            ),
            Self::TooLong { bytes, bytes_max } => {
                write!(f, "a message of {bytes} bytes or more is longer than max.message.bytes='{bytes_max}'")
            }
            Self::Parts { bytes, parts } => {
                write!(f, "a message of {bytes} bytes has parts of {parts} bytes")
            }
            Self::Channel => f.write_str("the channel of a message is not UTF-8"),
            Self::Incomplete => f.write_str("the connection ended within a message"),
        }
    }
}

/// Why a message cannot be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unframeable(pub(crate) &'static str);

impl Framing {
    /// Names that users write.
    pub(crate) const NAMES: &'static [&'static str] = &["siddhi", "line", "length"];

    /// Returns the framing of this name.
    pub(crate) fn parse(name: &str) -> Self {
        match name.trim() {
            name if name.eq_ignore_ascii_case("line") => Self::Line,
            name if name.eq_ignore_ascii_case("length") => Self::Length,
            _ => Self::Siddhi,
        }
    }

    /// Takes the first message from `buffer`; `None` if it is not complete.
    ///
    /// Errors: the bytes are not a message, or the message has more than `bytes_max` bytes.
    pub(crate) fn decode(self, buffer: &mut BytesMut, bytes_max: usize) -> Result<Option<Frame>, FrameError> {
        match self {
            Self::Siddhi => decode_siddhi(buffer, bytes_max),
            Self::Line => decode_line(buffer, bytes_max),
            Self::Length => {
                let Some(bytes) = length_at(buffer, 0) else { return Ok(None) };
                check_length(bytes, bytes_max)?;
                if buffer.len() < 4 + bytes {
                    return Ok(None);
                }
                buffer.advance(4);
                Ok(Some(Frame { channel: None, payload: buffer.split_to(bytes).freeze() }))
            }
        }
    }

    /// Takes what is left at the end of the connection.
    ///
    /// Errors: a part of a message.
    pub(crate) fn finish(self, mut buffer: BytesMut) -> Result<Option<Frame>, FrameError> {
        match (self, buffer.is_empty()) {
            (_, true) => Ok(None),
            (Self::Line, false) => {
                buffer.extend_from_slice(b"\n");
                decode_line(&mut buffer, usize::MAX)
            }
            _ => Err(FrameError::Incomplete),
        }
    }

    /// Appends a message to `out`.
    ///
    /// Errors: the framing cannot carry the message.
    pub(crate) fn encode(
        self,
        session: &str,
        channel: &str,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Unframeable> {
        const TOO_LONG: Unframeable = Unframeable("the message is longer than 2 GiB");
        match self {
            Self::Siddhi => {
                let parts = [session.as_bytes(), channel.as_bytes(), payload];
                let bytes: usize = parts.iter().map(|part| 4 + part.len()).sum();
                let bytes = i32::try_from(bytes).map_err(|_| TOO_LONG)?;
                out.push(MESSAGE_TYPE);
                out.extend_from_slice(&bytes.to_be_bytes());
                for part in parts {
                    // each part is shorter than the whole, which fits
                    out.extend_from_slice(&(part.len() as u32).to_be_bytes());
                    out.extend_from_slice(part);
                }
            }
            Self::Line => {
                if payload.contains(&b'\n') {
                    return Err(Unframeable("the message has line breaks; write framing='length'"));
                }
                out.extend_from_slice(payload);
                out.push(b'\n');
            }
            Self::Length => {
                let bytes = i32::try_from(payload.len()).map_err(|_| TOO_LONG)?;
                out.extend_from_slice(&bytes.to_be_bytes());
                out.extend_from_slice(payload);
            }
        }
        Ok(())
    }
}

fn length_at(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(four.try_into().ok()?) as usize)
}

fn check_length(bytes: usize, bytes_max: usize) -> Result<(), FrameError> {
    match bytes > bytes_max {
        true => Err(FrameError::TooLong { bytes, bytes_max }),
        false => Ok(()),
    }
}

/// Checks the length of a line, which is not known before its end.
fn check_line(bytes: usize, bytes_max: usize) -> Result<(), FrameError> {
    check_length(bytes.min(bytes_max.saturating_add(1)), bytes_max)
}

fn decode_siddhi(buffer: &mut BytesMut, bytes_max: usize) -> Result<Option<Frame>, FrameError> {
    match buffer.first() {
        None => return Ok(None),
        Some(&MESSAGE_TYPE) => {}
        Some(&other) => return Err(FrameError::MessageType(other)),
    }
    let Some(bytes) = length_at(buffer, 1) else { return Ok(None) };
    check_length(bytes, bytes_max)?;
    if buffer.len() < 5 + bytes {
        return Ok(None);
    }
    buffer.advance(5);
    let mut message = buffer.split_to(bytes).freeze();
    let mut left = bytes as u64;
    let mut part = || -> Result<Bytes, FrameError> {
        let found = length_at(&message, 0);
        let end = found.map_or(4, |length| 4 + length);
        if message.len() < end {
            return Err(FrameError::Parts { bytes, parts: bytes as u64 - left + end as u64 });
        }
        left -= end as u64;
        message.advance(4);
        Ok(message.split_to(end - 4))
    };
    let _session = part()?;
    let channel = part()?;
    let payload = part()?;
    if left != 0 {
        return Err(FrameError::Parts { bytes, parts: bytes as u64 - left });
    }
    let channel = String::from_utf8(channel.to_vec()).map_err(|_| FrameError::Channel)?;
    Ok(Some(Frame { channel: Some(channel), payload }))
}

fn decode_line(buffer: &mut BytesMut, bytes_max: usize) -> Result<Option<Frame>, FrameError> {
    loop {
        let Some(end) = memchr::memchr(b'\n', buffer) else {
            // the last byte may belong to the end of the line
            return check_line(buffer.len().saturating_sub(1), bytes_max).map(|()| None);
        };
        let line = buffer.split_to(end + 1).freeze();
        let line = line.slice(..end);
        let line = if line.last() == Some(&b'\r') { line.slice(..end - 1) } else { line };
        check_line(line.len(), bytes_max)?;
        if !line.trim_ascii().is_empty() {
            return Ok(Some(Frame { channel: None, payload: line }));
        }
    }
}

#[cfg(test)]
mod tests;
