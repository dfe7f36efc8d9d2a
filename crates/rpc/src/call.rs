//! Calls and replies, as callers and handlers see them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tidemill_types::{Error, ErrorKind, PartitionId, Result};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A call to another node.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// Meaning of the payload; the handler of the other node knows it.
    pub kind: u16,
    /// Partition whose owner is asked.
    pub partition: PartitionId,
    /// Epoch of the partition, as the caller knows it.
    pub epoch: u64,
    /// Time for the whole call, including a connection that has to be opened first. For a stream: the time until the other node has
    /// begun it. More than a day is a day.
    pub timeout: Duration,
    /// Content, at most [`crate::CallLimits::message_bytes_max`].
    pub payload: Bytes,
}

/// A reply of the node that was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The answer, at most [`crate::CallLimits::message_bytes_max`].
    Payload(Bytes),
    /// The node does not own the partition: the caller asks the owner. The call had no effect.
    NotOwner {
        /// Epoch of the partition, as the node that was asked knows it.
        epoch: u64,
        /// Name of the owner; `None` while no node is, or the node that was asked does not know it.
        owner: Option<String>,
    },
}

/// A node at the other end of a connection, which has proven who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Name.
    pub node: String,
    /// Number of its present run.
    pub incarnation: u64,
    /// Protocol of the connection: the latest one that both nodes have.
    pub protocol: u32,
}

/// A call of another node.
#[derive(Debug, Clone)]
pub struct IncomingCall {
    /// Meaning of the payload.
    pub kind: u16,
    /// Partition that is asked.
    pub partition: PartitionId,
    /// Epoch of the partition, as the caller knows it.
    pub epoch: u64,
    /// Content.
    pub payload: Bytes,
    /// Node that calls.
    pub peer: Arc<PeerIdentity>,
    /// Time at which the caller waits no longer; `None` for a stream, which lasts as long as it is read.
    pub deadline: Option<Instant>,
    /// Cancelled when the work has no use any longer: the caller is gone, the deadline has passed, the connection is broken, or the reply
    /// has been sent. Threads that work for the call look at it; futures and streams of the handler are dropped besides.
    pub cancellation: CancellationToken,
}

/// Answers the calls of other nodes. It is called on threads that must not be blocked: work that takes long belongs to another thread,
/// from which the future gets the reply.
pub trait CallHandler: Send + Sync + 'static {
    /// Answers a call. The future is dropped when [`IncomingCall::cancellation`] is cancelled.
    ///
    /// Errors: they reach the caller as [`CallError::Answered`], with all that [`Error`] has.
    fn call(&self, call: IncomingCall) -> BoxFuture<'static, Result<Reply>>;

    /// Answers a call with many replies. The stream is asked for the next one when there is room for it on the way to the reader, and
    /// dropped when the reader is gone. It ends after [`Reply::NotOwner`] or an error.
    fn stream(&self, call: IncomingCall) -> BoxStream<'static, Result<Reply>>;
}

/// A call without a reply. The three cases leave the caller with different choices.
#[derive(Debug)]
pub enum CallError {
    /// The node that was asked has answered with an error.
    Answered(Error),
    /// The call did not reach a handler, so it had no effect and can be repeated.
    NotSent(Error),
    /// The call was sent, and no reply has come: it may have had its effect. Only a call that may happen twice can be repeated.
    Unanswered(Error),
}

impl CallError {
    /// Returns whether the call may have had an effect.
    pub fn was_sent(&self) -> bool {
        !matches!(self, Self::NotSent(_))
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.error().kind()
    }

    /// Returns the error.
    pub fn error(&self) -> &Error {
        let (Self::Answered(error) | Self::NotSent(error) | Self::Unanswered(error)) = self;
        error
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error().fmt(f)?;
        f.write_str(match self {
            Self::Answered(_) => "",
            Self::NotSent(_) => "; the call was not executed",
            Self::Unanswered(_) => "; the call may have been executed",
        })
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(self.error())
    }
}

impl From<CallError> for Error {
    /// The message says whether the call may have been executed.
    fn from(error: CallError) -> Self {
        match error {
            CallError::Answered(error) => error,
            other => Self::new(other.kind(), other.to_string()),
        }
    }
}
