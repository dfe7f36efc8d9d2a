//! Errors in the words of InfluxDB 1.

use std::fmt;

use tidemill_types::Error;

/// Error in the text of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError(String);

/// Line and character of a token, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub line: u32,
    pub character: u32,
}

/// Tokens that may stand in a place.
#[derive(Debug, Clone)]
pub(crate) struct Expected(String);

impl From<&str> for Expected {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<&[&str]> for Expected {
    fn from(words: &[&str]) -> Self {
        Self(words.join(", "))
    }
}

impl ParseError {
    /// Creates an error without a place.
    pub(crate) fn said(message: String) -> Self {
        Self(message)
    }

    pub(crate) fn unexpected(found: String, expected: Expected, place: Place) -> Self {
        Self(format!(
            "found {found}, expected {} at line {}, char {}",
            expected.0, place.line, place.character
        ))
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ParseError {}

/// Error of a statement, which stands in its result.
#[derive(Debug)]
pub struct StatementError(String);

impl StatementError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl From<Error> for StatementError {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for StatementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StatementError {}

/// Result of a statement's part.
pub(crate) type Outcome<T> = std::result::Result<T, StatementError>;

/// Returns an error of a statement.
pub(crate) fn refuse<T>(message: impl Into<String>) -> Outcome<T> {
    Err(StatementError::new(message))
}
