//! Errors of functions, with the codes that a driver gets.

use std::fmt;

use bson::raw::{RawBsonRef, RawDocument};

use crate::error::{Code, CommandError, code_name};

/// Result of a function of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Label of errors after which the whole transaction may be run again.
pub const TRANSIENT_TRANSACTION_ERROR: &str = "TransientTransactionError";
/// Label of errors after which the commit may be repeated.
pub const UNKNOWN_TRANSACTION_COMMIT_RESULT: &str = "UnknownTransactionCommitResult";

/// An error: MongoDB's code, and a message.
#[derive(Debug, Clone)]
pub struct Error(Box<ErrorContent>);

#[derive(Debug, Clone)]
struct ErrorContent {
    code: i32,
    message: String,
    labels: Vec<String>,
    write_errors: Vec<WriteError>,
}

/// The error of one document of [`Collection::insert_many`](super::Collection::insert_many).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteError {
    /// Position of the document among those that were given, from 0.
    pub index: usize,
    /// MongoDB's code.
    pub code: i32,
    /// Description of the error.
    pub message: String,
}

impl Error {
    fn new(code: i32, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(ErrorContent { code, message, labels: Vec::new(), write_errors: Vec::new() }))
    }

    /// Creates the error of an argument that no command is made of.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::BadValue as i32, message)
    }

    /// Creates the error of a session that is in another state.
    pub(super) fn session(message: &str) -> Self {
        Self::new(Code::NoSuchTransaction as i32, message)
    }

    /// Creates the error of a write from the errors of its documents, at least one.
    pub(super) fn of_writes(write_errors: Vec<WriteError>) -> Self {
        let (code, message) =
            write_errors.first().map(|first| (first.code, first.message.clone())).unwrap_or_default();
        Self(Box::new(ErrorContent { code, message, labels: Vec::new(), write_errors }))
    }

    /// Returns the error of an operation on one document: it is that of the operation.
    pub(super) fn without_documents(mut self) -> Self {
        self.0.write_errors.clear();
        self
    }

    /// Returns the error that a reply tells; `None` for the reply of a command that succeeded. Errors of single documents are not
    /// looked for.
    pub(super) fn of_reply(reply: &RawDocument) -> Option<Self> {
        if reply.get_f64("ok").is_ok_and(|ok| ok == 1.0) {
            return None;
        }
        let message = reply.get_str("errmsg").unwrap_or("the command failed");
        let mut error = Self::new(reply.get_i32("code").unwrap_or_default(), message);
        let labels = reply.get_array("errorLabels").ok().into_iter().flatten();
        error.0.labels = labels
            .filter_map(|label| match label {
                Ok(RawBsonRef::String(label)) => Some(label.to_owned()),
                _ => None,
            })
            .collect();
        Some(error)
    }

    /// Returns MongoDB's code, such as 11000 for a key that exists already. For several documents it is that of the first error.
    pub fn code(&self) -> i32 {
        self.0.code
    }

    /// Returns the name of the code, such as `DuplicateKey`; `Location` and the number for a code without a name.
    pub fn code_name(&self) -> String {
        code_name(self.0.code)
    }

    /// Returns what is wrong, in a sentence.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the labels, which tell what may be done again.
    pub fn labels(&self) -> &[String] {
        &self.0.labels
    }

    /// Returns whether the error has a label.
    pub fn contains_label(&self, label: impl AsRef<str>) -> bool {
        self.0.labels.iter().any(|own| own == label.as_ref())
    }

    /// Returns the errors of single documents of [`Collection::insert_many`](super::Collection::insert_many), in the order of their
    /// positions.
    pub fn write_errors(&self) -> &[WriteError] {
        &self.0.write_errors
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, code {})", self.0.message, self.code_name(), self.0.code)
    }
}

impl std::error::Error for Error {}

impl From<CommandError> for Error {
    fn from(error: CommandError) -> Self {
        Self::new(error.code, error.message)
    }
}

impl From<tidemill_types::Error> for Error {
    fn from(error: tidemill_types::Error) -> Self {
        CommandError::from(error).into()
    }
}

impl From<tidemill_docs::DocsError> for Error {
    fn from(error: tidemill_docs::DocsError) -> Self {
        CommandError::from(error).into()
    }
}

impl From<bson::error::Error> for Error {
    fn from(error: bson::error::Error) -> Self {
        CommandError::from(error).into()
    }
}
