//! The error type shared by all crates.

use std::error::Error as StdError;
use std::fmt;

/// Result type of fallible functions of all crates.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of an error; each kind calls for a different reaction of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is wrong: change it.
    Invalid,
    /// The named object does not exist: create it or correct the name.
    NotFound,
    /// Another writer was first (unique key, owner epoch, write conflict): read again, then decide.
    Conflict,
    /// A limit was reached: send less, wait, or raise the limit named in the message.
    LimitReached,
    /// A temporary failure (disk full, store unavailable, shutting down): try again.
    Unavailable,
    /// Stored bytes are damaged: the message names file and position.
    Corrupt,
    /// The caller is known and lacks a right: an administrator can grant it with the command in the message.
    Forbidden,
    /// A defect in Tidemill.
    Internal,
}

impl ErrorKind {
    /// Returns whether the unchanged request may succeed when it is sent again.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::LimitReached)
    }

    /// Returns the HTTP status of this kind.
    pub fn http_status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::LimitReached => 429,
            Self::Unavailable => 503,
            Self::Forbidden => 403,
            Self::Corrupt | Self::Internal => 500,
        }
    }

    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Invalid,
        Self::NotFound,
        Self::Conflict,
        Self::LimitReached,
        Self::Unavailable,
        Self::Corrupt,
        Self::Forbidden,
        Self::Internal,
    ];

    /// Returns the kind of a name as [`Self::name`] returns it; `None` for one that this version does not have.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the name used on the wire and in tables, in snake case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::LimitReached => "limit_reached",
            Self::Unavailable => "unavailable",
            Self::Corrupt => "corrupt",
            Self::Forbidden => "forbidden",
            Self::Internal => "internal",
        }
    }
}

/// An error with its kind, a message for users (location, expected value, remedy) and its cause.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    /// Names that were perhaps meant, as the end of the message.
    hint: String,
    /// MongoDB's code of an error of a document operation.
    document_code: Option<i32>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error without a cause.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: String::new(), document_code: None, source: None }
    }

    /// Adds the lower-level error that caused it.
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds MongoDB's code of an error of a document operation, for callers that speak its protocol.
    pub fn with_document_code(mut self, code: i32) -> Self {
        self.document_code = Some(code);
        self
    }

    /// Returns MongoDB's code if the error is that of a document operation.
    pub fn document_code(&self) -> Option<i32> {
        self.document_code
    }

    /// Adds the names of other objects to the end of the message, as [`crate::did_you_mean`] writes them. They are kept apart for a
    /// caller who may not know these objects.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Removes the names that [`Self::with_hint`] added.
    pub fn without_hint(mut self) -> Self {
        self.hint.clear();
        self
    }

    /// Prepends `context: ` to the message.
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Creates an error of [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Creates an error of [`ErrorKind::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// Creates an error of [`ErrorKind::Conflict`].
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    /// Creates an error of [`ErrorKind::LimitReached`].
    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::LimitReached, message)
    }

    /// Creates an error of [`ErrorKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// Creates an error of [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Creates an error of [`ErrorKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Returns the kind, which determines the caller's reaction.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the names that [`Self::with_hint`] added; empty without any.
    pub fn hint(&self) -> &str {
        &self.hint
    }

    /// Returns the message for users, without hint and causes.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        f.write_str(&self.hint)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_kind_leads_back_to_it() {
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(ErrorKind::from_name("of_a_newer_version"), None);
    }

    #[test]
    fn a_hint_ends_the_message_and_can_be_removed() {
        let error =
            || Error::not_found("no stream `a`").with_hint(". Known: b").context("app").with_source("cause");
        assert_eq!(error().to_string(), "app: no stream `a`. Known: b: cause");
        assert_eq!(error().without_hint().to_string(), "app: no stream `a`: cause");
    }
}
