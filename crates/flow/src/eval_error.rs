//! The error of everything that is evaluated while events are processed.

use std::fmt;

use tidemill_types::{Error, ErrorKind};

/// Reason why an event, an expression or an on-demand query cannot be processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvalError {
    /// A store or an operator already holds as much as it may.
    Limit(Box<LimitReached>),
    /// The value that is named here is null, and must not be.
    Null(Box<str>),
    /// A function or an operator does not accept a value.
    Argument(Box<str>),
    /// A request of the caller does not fit the app: an unknown stream, wrong columns, a query with mistakes.
    Request(Box<str>),
    /// Saved state cannot be restored.
    State(Box<str>),
    /// Another system was not reached before the app had to stop. The app has to be restored.
    Interrupted(Box<str>),
    /// A defect in this crate.
    Internal(Box<str>),
}

/// Limit that an operation would exceed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitReached {
    /// Description of the full store or operator, such as ``table `T` ``.
    pub what: Box<str>,
    /// Maximum that it may hold.
    pub max: u64,
    /// Unit of `max`, such as `rows`.
    pub unit: &'static str,
    /// Advice for staying below the limit, if there is a way.
    pub remedy: Option<Box<str>>,
}

impl EvalError {
    /// Creates a [`Self::Limit`] without a remedy.
    pub fn limit(what: impl Into<Box<str>>, max: usize, unit: &'static str) -> Self {
        Self::Limit(Box::new(LimitReached { what: what.into(), max: max as u64, unit, remedy: None }))
    }

    /// Adds to a [`Self::Limit`] how an app keeps below it.
    pub fn with_remedy(mut self, remedy: impl Into<Box<str>>) -> Self {
        if let Self::Limit(limit) = &mut self {
            limit.remedy = Some(remedy.into());
        }
        self
    }

    /// Creates a [`Self::Null`].
    pub fn null(what: impl Into<Box<str>>) -> Self {
        Self::Null(what.into())
    }

    /// Creates a [`Self::Argument`].
    pub fn argument(message: impl Into<Box<str>>) -> Self {
        Self::Argument(message.into())
    }

    /// Creates a [`Self::Request`].
    pub fn request(message: impl Into<Box<str>>) -> Self {
        Self::Request(message.into())
    }

    /// Creates a [`Self::State`].
    pub fn state(message: impl Into<Box<str>>) -> Self {
        Self::State(message.into())
    }

    /// Creates a [`Self::Internal`].
    pub fn internal(message: impl Into<Box<str>>) -> Self {
        Self::Internal(message.into())
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(limit) => {
                write!(f, "{} full: limit of {} {}", limit.what, limit.max, limit.unit)?;
                limit.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
            }
            Self::Null(what) => write!(f, "{what} is null"),
            Self::Argument(message)
            | Self::Request(message)
            | Self::State(message)
            | Self::Interrupted(message) => f.write_str(message),
            Self::Internal(message) => write!(f, "internal error: {message}"),
        }
    }
}

impl std::error::Error for EvalError {}

impl From<Error> for EvalError {
    /// Errors of another system.
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Unavailable => Self::Interrupted(error.to_string().into()),
            _ => Self::Argument(error.to_string().into()),
        }
    }
}

impl From<EvalError> for Error {
    fn from(error: EvalError) -> Self {
        let message = error.to_string();
        match error {
            EvalError::Limit(_) => Self::limit(message),
            EvalError::Null(_) | EvalError::Argument(_) | EvalError::Request(_) => Self::invalid(message),
            EvalError::State(_) => Self::corrupt(message),
            EvalError::Interrupted(_) => Self::unavailable(message),
            EvalError::Internal(_) => Self::internal(message),
        }
    }
}
