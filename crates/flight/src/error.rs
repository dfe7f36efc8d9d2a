//! Errors as clients get them: a code of gRPC and a message.

use tidemill_types::{Error, ErrorKind};
use tonic::{Code, Status};

/// Result of a call.
pub(crate) type Result<T, E = Status> = std::result::Result<T, E>;

/// Maximum characters of a message. It travels in a header, and clients refuse long ones.
const MESSAGE_CHARS_MAX: usize = 1_500;

/// Returns the status for an error of the database.
pub(crate) fn status(error: Error) -> Status {
    let message = error.to_string();
    if matches!(error.kind(), ErrorKind::Internal | ErrorKind::Corrupt) {
        tracing::error!(kind = error.kind().name(), %error, "a call failed");
    }
    Status::new(code(error.kind(), &message), cut(message))
}

/// Returns the status for a request that is wrong.
pub(crate) fn invalid(message: impl Into<String>) -> Status {
    Status::invalid_argument(cut(message.into()))
}

/// Returns the status for a part of the protocol that there is not.
pub(crate) fn unsupported(message: impl Into<String>) -> Status {
    Status::unimplemented(cut(message.into()))
}

fn code(kind: ErrorKind, message: &str) -> Code {
    match kind {
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Conflict if message.contains("cancelled") => Code::Cancelled,
        ErrorKind::Conflict => Code::Aborted,
        ErrorKind::LimitReached if message.contains("took longer") => Code::DeadlineExceeded,
        ErrorKind::LimitReached => Code::ResourceExhausted,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Corrupt => Code::DataLoss,
        ErrorKind::Forbidden => Code::PermissionDenied,
        ErrorKind::Internal => Code::Internal,
    }
}

fn cut(mut message: String) -> String {
    if let Some((end, _)) = message.char_indices().nth(MESSAGE_CHARS_MAX) {
        message.truncate(end);
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_code_and_messages_fit_a_header() {
        let codes = ErrorKind::ALL.map(|kind| status(Error::new(kind, "why")).code());
        let distinct: std::collections::HashSet<_> = codes.iter().map(|code| *code as i32).collect();
        assert_eq!(distinct.len(), ErrorKind::ALL.len());
        assert_eq!(status(Error::conflict("the statement was cancelled")).code(), Code::Cancelled);
        assert_eq!(status(Error::limit("it took longer than 1 s")).code(), Code::DeadlineExceeded);
        let long = status(Error::invalid("ü".repeat(5_000)));
        assert_eq!(long.message().chars().count(), MESSAGE_CHARS_MAX + 1);
    }
}
