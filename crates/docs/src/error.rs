//! What can go wrong with a document, with MongoDB's number for it.

use tidemill_types::{Error, ErrorKind};

/// The result of document operations.
pub type Result<T, E = DocsError> = std::result::Result<T, E>;

/// A refused operation: MongoDB's error code and a message for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DocsError {
    code: ErrorCode,
    message: String,
}

/// MongoDB's error codes, as far as document operations use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum ErrorCode {
    /// A value that an operator cannot work with.
    BadValue = 2,
    /// A filter, update, projection or sort that is not well formed.
    FailedToParse = 9,
    /// A value of another type than the operator needs.
    TypeMismatch = 14,
    /// Nested deeper than the limit.
    Overflow = 15,
    /// Bytes that are not BSON.
    InvalidBson = 22,
    /// No such collection.
    NamespaceNotFound = 26,
    /// No such index.
    IndexNotFound = 27,
    /// A path that runs into a value that has no fields.
    PathNotViable = 28,
    /// Two operators of one update want the same path.
    ConflictingUpdateOperators = 40,
    /// The collection is there already, with another definition.
    NamespaceExists = 48,
    /// A field name or path that may not be used.
    EmptyFieldName = 56,
    /// A change to `_id` or to the shard key.
    ImmutableField = 66,
    /// An index definition that cannot be used.
    CannotCreateIndex = 67,
    /// An index of that name is there already, with other keys.
    IndexOptionsConflict = 85,
    /// Two arrays in one compound index entry.
    CannotIndexParallelArrays = 171,
    /// A sort that needs more memory than allowed.
    SortMemoryExceeded = 292,
    /// The store, or a part of it, is as large as it may become.
    StoreFull = 14031,
    /// A document larger than allowed.
    DocumentTooLarge = 10334,
    /// Two paths of a projection inside one another.
    PathCollision = 31249,
    /// An inclusion in an exclusion projection.
    InclusionInExclusion = 31253,
    /// An exclusion in an inclusion projection.
    ExclusionInInclusion = 31254,
    /// A value that is there already under a unique key.
    DuplicateKey = 11000,
    /// A damaged checkpoint.
    DataCorruption = 10032,
    /// Reading or writing a checkpoint failed; it may work later.
    Io = 96,
}

impl ErrorCode {
    /// What the caller can do about it.
    pub fn kind(self) -> ErrorKind {
        match self {
            Self::NamespaceNotFound | Self::IndexNotFound => ErrorKind::NotFound,
            Self::DuplicateKey | Self::NamespaceExists | Self::IndexOptionsConflict => ErrorKind::Conflict,
            Self::SortMemoryExceeded | Self::StoreFull | Self::DocumentTooLarge => ErrorKind::LimitReached,
            Self::DataCorruption => ErrorKind::Corrupt,
            Self::Io => ErrorKind::Unavailable,
            _ => ErrorKind::Invalid,
        }
    }
}

impl DocsError {
    /// An error of `code` that says `message`.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn bad_value(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadValue, message)
    }

    pub(crate) fn parse(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::FailedToParse, message)
    }

    pub(crate) fn type_mismatch(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::TypeMismatch, message)
    }

    /// MongoDB's number for it, for example 11000.
    pub fn code(&self) -> i32 {
        self.code as i32
    }

    /// The code as an enum, for matching.
    pub fn error_code(&self) -> ErrorCode {
        self.code
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.code.kind()
    }

    /// The message for people.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl From<DocsError> for Error {
    fn from(e: DocsError) -> Self {
        Error::new(e.kind(), e.message)
    }
}
