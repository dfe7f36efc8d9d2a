//! Failed calls: whether they may have been executed.

use std::error::Error as StdError;
use std::fmt;

use h2::Reason;
use hyper::client::conn::TrySendError;
use tidemill_types::ErrorKind;
use tonic::{Code, Status};

use super::Link;
use crate::call::CallError;
use crate::message::NOT_EXECUTED_HEADER;

/// Request that a connection has not carried to a reply.
#[derive(Debug)]
pub(super) struct SendFailure {
    /// The other node may have got it.
    pub was_sent: bool,
    reason: String,
}

impl<B> From<TrySendError<B>> for SendFailure {
    fn from(mut error: TrySendError<B>) -> Self {
        let is_back = error.take_message().is_some();
        let error = error.into_error();
        Self { was_sent: !is_back && !is_refused(&error), reason: chain(&error) }
    }
}

impl fmt::Display for SendFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl StdError for SendFailure {}

impl From<hyper::Error> for SendFailure {
    /// A connection that takes no more requests.
    fn from(error: hyper::Error) -> Self {
        Self { was_sent: false, reason: chain(&error) }
    }
}

/// Returns whether the other node has said that it does not process the request: it refused the stream, or closes the connection in
/// order and has not begun it.
fn is_refused(error: &hyper::Error) -> bool {
    let Some(error) = error.source().and_then(|source| source.downcast_ref::<h2::Error>()) else {
        return false;
    };
    let is = |reason| error.is_remote() && error.reason() == Some(reason);
    (error.is_reset() && is(Reason::REFUSED_STREAM)) || (error.is_go_away() && is(Reason::NO_ERROR))
}

impl Link {
    /// Returns the error of a call that has ended with a status.
    ///
    /// Replies of handlers are messages, with their errors. So a status is a word of the transport: of this node about its connection, or
    /// of the other one, which marks calls that no handler got.
    pub(super) fn failure(&self, status: &Status) -> CallError {
        if status.metadata().contains_key(NOT_EXECUTED_HEADER) {
            let kind = match status.code() {
                Code::ResourceExhausted => ErrorKind::LimitReached,
                Code::PermissionDenied | Code::Unauthenticated => ErrorKind::Forbidden,
                Code::InvalidArgument | Code::Unimplemented => ErrorKind::Invalid,
                // a message that cannot be decoded
                Code::Internal => ErrorKind::Internal,
                _ => ErrorKind::Unavailable,
            };
            return CallError::NotSent(self.error(kind, status.message()));
        }
        let failure = StdError::source(status).and_then(|source| source.downcast_ref::<SendFailure>());
        match (failure, status.code()) {
            (Some(failure), _) if !failure.was_sent => {
                CallError::NotSent(self.unavailable(format!("the connection has ended: {failure}")))
            }
            (Some(failure), _) => CallError::Unanswered(
                self.unavailable(format!("the connection has ended before the reply: {failure}")),
            ),
            (None, Code::OutOfRange) => CallError::Unanswered(self.error(
                ErrorKind::LimitReached,
                format!(
                    "the reply is larger than a message of this node may be (message_bytes_max): {}",
                    status.message()
                ),
            )),
            (None, Code::DeadlineExceeded) => CallError::Unanswered(self.unavailable(status.message())),
            (None, _) => {
                let reason = StdError::source(status).map_or_else(|| status.message().to_owned(), chain);
                CallError::Unanswered(self.unavailable(format!("the reply was cut off: {reason}")))
            }
        }
    }
}

/// Returns an error with its causes, each once.
pub(super) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
