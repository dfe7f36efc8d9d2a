//! Errors of databases, by what the caller has to do.

use std::fmt;

use tidemill_types::Error;

/// Kind of an error, by what the caller has to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DbErrorKind {
    /// Nothing is wrong with the request: connect again and repeat it. The connection was lost, or the server chose
    /// this transaction as the victim of a deadlock, or has no room at present.
    Unavailable,
    /// The database refuses the values of a row: they do not fit their columns, or violate a constraint.
    RowRefused,
    /// The statement cannot work: no such table, no permission, wrong password.
    Invalid,
}

/// Error of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DbError {
    /// Kind, by what the caller has to do.
    pub kind: DbErrorKind,
    /// SQLSTATE of PostgreSQL or error number of the other servers; empty if the error is not the server's.
    pub code: String,
    /// Message for users, without confidential values.
    pub message: String,
}

impl DbError {
    /// Creates an error that is not the server's.
    pub fn new(kind: DbErrorKind, message: impl Into<String>) -> Self {
        Self { kind, code: String::new(), message: message.into() }
    }

    /// Creates an error of [`DbErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(DbErrorKind::Invalid, message)
    }

    /// Creates an error of [`DbErrorKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(DbErrorKind::Unavailable, message)
    }

    /// Prepends `context: ` to the message.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.code.is_empty() {
            true => Ok(()),
            false => write!(f, " ({})", self.code),
        }
    }
}

impl std::error::Error for DbError {}

impl From<DbError> for Error {
    fn from(error: DbError) -> Self {
        match error.kind {
            DbErrorKind::Unavailable => Self::unavailable(error.to_string()),
            DbErrorKind::RowRefused | DbErrorKind::Invalid => Self::invalid(error.to_string()),
        }
    }
}
