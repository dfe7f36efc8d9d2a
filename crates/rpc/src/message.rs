//! Messages on the wire, and errors in them.
//!
//! Fields have numbers, so that a newer version can add some and an older one passes over them. The definition as Protocol Buffers is
//! in RFC 28.

use bytes::Bytes;
use prost::{Message, Oneof};
use tidemill_types::{Error, ErrorKind};

/// Methods of the service.
pub(crate) const HELLO_PATH: &str = "/tidemill.Rpc/Hello";
pub(crate) const PROVE_PATH: &str = "/tidemill.Rpc/Prove";
pub(crate) const CALL_PATH: &str = "/tidemill.Rpc/Call";
pub(crate) const STREAM_PATH: &str = "/tidemill.Rpc/Stream";

/// Header of a reply that says that no handler got the call.
pub(crate) const NOT_EXECUTED_HEADER: &str = "tidemill-not-executed";

/// Bytes of a message beside its payload at most.
pub(crate) const MESSAGE_OVERHEAD_BYTES: usize = 64;
/// Maximum bytes of a message of the handshake.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 4 << 10;

/// First message of a connection: the node that calls.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Hello {
    #[prost(string, tag = "1")]
    pub cluster_id: String,
    #[prost(string, tag = "2")]
    pub node: String,
    #[prost(uint64, tag = "3")]
    pub incarnation: u64,
    #[prost(uint32, tag = "4")]
    pub protocol_min: u32,
    #[prost(uint32, tag = "5")]
    pub protocol_max: u32,
    /// Name of the node that is to answer.
    #[prost(string, tag = "6")]
    pub callee: String,
    /// Random bytes, if the nodes share a secret.
    #[prost(bytes = "bytes", tag = "7")]
    pub nonce: Bytes,
}

/// Reply to [`Hello`]: the node that is called.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Welcome {
    #[prost(string, tag = "1")]
    pub cluster_id: String,
    #[prost(string, tag = "2")]
    pub node: String,
    #[prost(uint64, tag = "3")]
    pub incarnation: u64,
    /// Protocol of the connection.
    #[prost(uint32, tag = "4")]
    pub protocol: u32,
    #[prost(bytes = "bytes", tag = "5")]
    pub nonce: Bytes,
    /// Proof that the node knows the secret.
    #[prost(bytes = "bytes", tag = "6")]
    pub proof: Bytes,
}

/// Proof that the node that calls knows the secret; empty if it has found that the other one does not.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Proof {
    #[prost(bytes = "bytes", tag = "1")]
    pub proof: Bytes,
}

/// Reply to [`Proof`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProofAccepted {}

/// A call.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CallMessage {
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    #[prost(uint32, tag = "2")]
    pub partition: u32,
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
    #[prost(bytes = "bytes", tag = "4")]
    pub payload: Bytes,
}

/// A reply to a call, or one of the replies of a stream.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReplyMessage {
    #[prost(oneof = "Outcome", tags = "1, 2, 3")]
    pub outcome: Option<Outcome>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Outcome {
    #[prost(bytes = "bytes", tag = "1")]
    Payload(Bytes),
    #[prost(message, tag = "2")]
    NotOwner(NotOwnerMessage),
    #[prost(message, tag = "3")]
    Error(ErrorMessage),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NotOwnerMessage {
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    #[prost(string, optional, tag = "2")]
    pub owner: Option<String>,
}

/// An [`Error`] with everything that it has.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ErrorMessage {
    /// [`ErrorKind::name`].
    #[prost(string, tag = "1")]
    pub kind: String,
    /// Reaction of a version that does not know the kind.
    #[prost(bool, tag = "2")]
    pub is_retryable: bool,
    #[prost(string, tag = "3")]
    pub message: String,
    #[prost(string, tag = "4")]
    pub hint: String,
    #[prost(sint32, optional, tag = "5")]
    pub document_code: Option<i32>,
    /// Text of the cause with its own causes.
    #[prost(string, optional, tag = "6")]
    pub source: Option<String>,
}

impl From<&Error> for ErrorMessage {
    fn from(error: &Error) -> Self {
        Self {
            kind: error.kind().name().to_owned(),
            is_retryable: error.kind().is_retryable(),
            message: error.message().to_owned(),
            hint: error.hint().to_owned(),
            document_code: error.document_code(),
            source: std::error::Error::source(error).map(ToString::to_string),
        }
    }
}

impl From<ErrorMessage> for Error {
    /// A kind of a newer version becomes the one with the same answer to *retry?*.
    fn from(message: ErrorMessage) -> Self {
        let unknown = if message.is_retryable { ErrorKind::Unavailable } else { ErrorKind::Internal };
        let kind = ErrorKind::from_name(&message.kind).unwrap_or(unknown);
        let mut error = Self::new(kind, message.message).with_hint(message.hint);
        if let Some(code) = message.document_code {
            error = error.with_document_code(code);
        }
        match message.source {
            Some(source) => error.with_source(source),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over_the_wire(error: &Error) -> Error {
        let bytes = ErrorMessage::from(error).encode_to_vec();
        ErrorMessage::decode(&bytes[..]).unwrap().into()
    }

    #[test]
    fn errors_keep_what_they_have() {
        for kind in ErrorKind::ALL {
            let error = Error::new(kind, "partition 3: no `ä`")
                .with_hint(". Did you mean `a`?")
                .with_document_code(-11)
                .with_source(Error::corrupt("file x").with_source("byte 7"));
            let arrived = over_the_wire(&error);
            assert_eq!(arrived.kind(), kind);
            assert_eq!(arrived.message(), error.message());
            assert_eq!(arrived.hint(), error.hint());
            assert_eq!(arrived.document_code(), Some(-11));
            assert_eq!(arrived.to_string(), error.to_string());
            let plain = over_the_wire(&Error::new(kind, "m"));
            assert_eq!((plain.to_string().as_str(), plain.document_code(), plain.hint()), ("m", None, ""));
            assert!(std::error::Error::source(&plain).is_none());
        }
    }

    #[test]
    fn a_kind_of_a_newer_version_keeps_its_text_and_whether_to_retry() {
        let mut message = ErrorMessage::from(&Error::conflict("text"));
        message.kind = "of_a_newer_version".to_owned();
        let arrived = Error::from(message.clone());
        assert_eq!((arrived.kind(), arrived.message()), (ErrorKind::Internal, "text"));
        message.is_retryable = true;
        assert_eq!(Error::from(message).kind(), ErrorKind::Unavailable);
    }
}
