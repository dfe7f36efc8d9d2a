//! Messages of clients, decoded from bytes that any client may have sent.
//!
//! A message is a letter, its length as four bytes (itself included, the letter not), and its content. Those before the login have
//! no letter. Lengths and counts are checked against the bytes that are there before memory is reserved for them, names and texts
//! have to be UTF-8, and a message must not have bytes that its letter does not explain.

use bytes::Bytes;

use crate::error::{PgError, Result, code};

/// Bytes of the letter and the length of a message.
pub(crate) const HEADER_BYTES: usize = 5;

/// Codes at the beginning of a connection, in place of a version.
const SSL_REQUEST: u32 = (1234 << 16) | 5679;
const GSS_ENCRYPTION_REQUEST: u32 = (1234 << 16) | 5680;
const CANCEL_REQUEST: u32 = (1234 << 16) | 5678;

/// First message of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FirstMessage {
    /// The client asks for TLS.
    Encrypt,
    /// The client asks for encryption by GSSAPI.
    EncryptByGss,
    /// Another connection is to end its statement.
    Cancel { process: u32, key: Bytes },
    /// The client begins a session.
    Startup { minor_version: u16, parameters: Vec<(String, String)> },
}

/// Kind of a named object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Statement,
    Portal,
}

/// Format of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Binary,
}

impl Format {
    /// Returns the number in messages.
    pub fn number(self) -> u16 {
        match self {
            Self::Text => 0,
            Self::Binary => 1,
        }
    }
}

/// Message of a client that has logged in. An empty name is that of the unnamed statement or portal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Query(String),
    Parse {
        name: String,
        text: String,
        types: Vec<u32>,
    },
    Bind(Bind),
    Describe(Target, String),
    Execute {
        portal: String,
        rows_max: u64,
    },
    Close(Target, String),
    Flush,
    Sync,
    Terminate,
    /// Data of a `COPY … FROM STDIN`, which a client may still send when its statement has failed.
    CopyData(Bytes),
    CopyDone,
    /// The client gives the data up, with its reason.
    CopyFail(String),
    /// Password, or a step of a login, which is over.
    Password,
}

/// Values for the parameters of a statement, from which a portal becomes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    pub portal: String,
    pub statement: String,
    pub parameter_formats: Vec<Format>,
    pub values: Vec<Option<Bytes>>,
    pub result_formats: Vec<Format>,
}

impl FirstMessage {
    /// Decodes the content behind the length.
    ///
    /// Errors: it is another message.
    pub fn decode(content: Bytes) -> Result<Self> {
        let mut input = Input(content);
        match input.u32()? {
            SSL_REQUEST => input.end().map(|()| Self::Encrypt),
            GSS_ENCRYPTION_REQUEST => input.end().map(|()| Self::EncryptByGss),
            CANCEL_REQUEST => {
                let process = input.u32()?;
                Ok(Self::Cancel { process, key: input.0 })
            }
            version if version >> 16 == 3 => {
                let mut parameters = Vec::new();
                loop {
                    let name = input.text()?;
                    if name.is_empty() {
                        break;
                    }
                    parameters.push((name, input.text()?));
                }
                input.end()?;
                // the lower half has no further bits than these
                let minor_version = u16::try_from(version & 0xffff).unwrap_or(u16::MAX);
                Ok(Self::Startup { minor_version, parameters })
            }
            version => Err(PgError::protocol(format!(
                "version {}.{} of the protocol is not supported: expected 3.0 to 3.2",
                version >> 16,
                version & 0xffff
            ))),
        }
    }
}

impl Message {
    /// Decodes the content of a message.
    ///
    /// Errors: fatal, as what follows cannot be trusted either.
    pub fn decode(letter: u8, content: Bytes) -> Result<Self> {
        let mut input = Input(content);
        let message = match letter {
            b'Q' => Self::Query(input.text()?),
            b'P' => {
                let (name, text) = (input.text()?, input.text()?);
                let types = input.list(4, Input::u32)?;
                Self::Parse { name, text, types }
            }
            b'B' => Self::Bind(Bind {
                portal: input.text()?,
                statement: input.text()?,
                parameter_formats: input.list(2, Input::format)?,
                values: input.list(4, Input::value)?,
                result_formats: input.list(2, Input::format)?,
            }),
            b'D' => Self::Describe(input.target()?, input.text()?),
            b'E' => {
                let portal = input.text()?;
                // zero and negative numbers are for all rows
                let rows_max = i64::from(input.u32()?.cast_signed()).max(0).unsigned_abs();
                Self::Execute { portal, rows_max }
            }
            b'C' => Self::Close(input.target()?, input.text()?),
            b'H' => Self::Flush,
            b'S' => Self::Sync,
            b'X' => Self::Terminate,
            b'd' => return Ok(Self::CopyData(input.0)),
            b'c' => Self::CopyDone,
            b'f' => Self::CopyFail(input.text()?),
            b'p' => return Ok(Self::Password),
            b'F' => {
                return Err(PgError::fatal(
                    code::NOT_SUPPORTED,
                    "calls of functions by their own message are not supported: send SELECT with the function",
                ));
            }
            other => {
                return Err(PgError::protocol(format!("unknown message {:?}", char::from(other))));
            }
        };
        input.end()?;
        Ok(message)
    }
}

/// First answer of a client to the request for a login.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SaslStart {
    pub mechanism: String,
    pub payload: Bytes,
}

impl SaslStart {
    /// Decodes the content of a message `p`.
    pub fn decode(content: Bytes) -> Result<Self> {
        let mut input = Input(content);
        let mechanism = input.text()?;
        let payload = input.value()?.unwrap_or_default();
        input.end()?;
        Ok(Self { mechanism, payload })
    }
}

/// Bytes that were not decoded yet.
struct Input(Bytes);

impl Input {
    fn take(&mut self, bytes: usize) -> Result<Bytes> {
        match bytes <= self.0.len() {
            true => Ok(self.0.split_to(bytes)),
            false => Err(PgError::protocol("a message ends too early")),
        }
    }

    fn u32(&mut self) -> Result<u32> {
        let bytes = self.take(4)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    fn u16(&mut self) -> Result<u16> {
        let bytes = self.take(2)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u16::from(*byte)))
    }

    /// Returns a text that ends with a zero byte.
    fn text(&mut self) -> Result<String> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let text = self.take(end.ok_or_else(|| PgError::protocol("a text in a message has no end"))?)?;
        self.take(1)?;
        String::from_utf8(text.into()).map_err(|e| {
            PgError::fatal(
                code::UNTRANSLATABLE,
                format!("a text in a message is not UTF-8: {}", e.utf8_error()),
            )
        })
    }

    /// Returns values behind their number, each of at least `bytes`.
    fn list<T>(&mut self, bytes: usize, next: fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = usize::from(self.u16()?);
        if count.saturating_mul(bytes) > self.0.len() {
            return Err(PgError::protocol(format!("a message announces {count} values and ends too early")));
        }
        (0..count).map(|_| next(self)).collect()
    }

    fn format(&mut self) -> Result<Format> {
        match self.u16()? {
            0 => Ok(Format::Text),
            1 => Ok(Format::Binary),
            other => Err(PgError::protocol(format!("format {other}: expected 0 for text or 1 for binary"))),
        }
    }

    /// Returns a value behind its length; `None` for null.
    fn value(&mut self) -> Result<Option<Bytes>> {
        match self.u32()?.cast_signed() {
            -1 => Ok(None),
            length => match usize::try_from(length) {
                Ok(length) => self.take(length).map(Some),
                Err(_) => Err(PgError::protocol(format!("a value of {length} bytes"))),
            },
        }
    }

    fn target(&mut self) -> Result<Target> {
        match self.take(1)?.first() {
            Some(b'S') => Ok(Target::Statement),
            Some(b'P') => Ok(Target::Portal),
            _ => Err(PgError::protocol("expected S for a statement or P for a portal")),
        }
    }

    fn end(&self) -> Result<()> {
        match self.0.len() {
            0 => Ok(()),
            more => Err(PgError::protocol(format!("a message has {more} bytes too many"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(letter: u8, content: &'static [u8]) -> Result<Message> {
        Message::decode(letter, Bytes::from_static(content))
    }

    #[test]
    fn lengths_and_counts_are_checked_before_memory_is_reserved() {
        for (letter, content) in [
            (b'Q', &b"SELECT 1"[..]),
            (b'Q', b"SELECT 1\0x"),
            (b'Q', b"\xff\0"),
            (b'P', b"\0SELECT 1\0\xff\xff"),
            (b'B', b"\0\0\0\x01\0\x02\0\0\0\0"),
            (b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff\0\0"),
            (b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"),
            (b'D', b"X\0"),
            (b'E', b"\0\0\0"),
            (b'S', b"x"),
            (b'!', b""),
        ] {
            let error = decode(letter, content).unwrap_err();
            assert!(error.is_fatal(), "{} {content:?}", char::from(letter));
        }
    }

    #[test]
    fn values_are_null_empty_or_bytes() {
        let content = b"p\0s\0\0\x01\0\x01\0\x03\xff\xff\xff\xff\0\0\0\0\0\0\0\x02ab\0\x01\0\0";
        let Message::Bind(bind) = decode(b'B', content).unwrap() else { panic!("no bind") };
        assert_eq!(bind.values, [None, Some(Bytes::new()), Some(Bytes::from_static(b"ab"))]);
        assert_eq!((bind.parameter_formats, bind.result_formats), (vec![Format::Binary], vec![Format::Text]));
        let all = Message::Execute { portal: String::new(), rows_max: 0 };
        assert_eq!(decode(b'E', b"\0\xff\xff\xff\xff").unwrap(), all);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(letter: u8, content: Vec<u8>) {
            let _ = Message::decode(letter, content.clone().into());
            let _ = FirstMessage::decode(content.clone().into());
            let _ = SaslStart::decode(content.into());
        }
    }
}
