//! Interface to the SQL engine, on which this crate does not depend.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tidemill_types::{Error, Result, Timestamp, Value, did_you_mean};

/// Output format of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// One JSON array of objects.
    Json,
    /// One JSON object per line.
    Ndjson,
    /// CSV with a header line.
    Csv,
    /// A table for people.
    Table,
}

impl Format {
    /// All formats, the default first.
    pub const ALL: [Self; 4] = [Self::Json, Self::Ndjson, Self::Csv, Self::Table];

    /// Returns the name used in `?format=`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Csv => "csv",
            Self::Table => "table",
        }
    }

    /// Returns the content type of the output.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Table => "text/plain; charset=utf-8",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|f| f.name() == text).ok_or_else(|| {
            let hint = did_you_mean(text, Self::ALL.iter().map(|f| f.name()));
            Error::invalid(format!("`{text}` is not an output format{hint}"))
        })
    }
}

/// Formatted rows of a query.
pub struct SqlReply {
    /// Content type of the rows, usually [`Format::content_type`].
    pub content_type: &'static str,
    /// Output in chunks. The first `Err` ends it; dropping the stream cancels the query.
    pub body: BoxStream<'static, Result<Bytes>>,
}

/// A statement that runs, or one of the last that have ended.
#[derive(Debug, Clone)]
pub struct StatementInfo {
    /// Its number.
    pub id: u64,
    /// Its text, perhaps cut.
    pub statement: String,
    /// Who sent it.
    pub origin: String,
    /// What it does, or how it has ended.
    pub phase: String,
    /// When it arrived.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Rows of its result so far.
    pub rows: u64,
    /// Why it has failed, or who has cancelled it.
    pub error: Option<String>,
}

/// SQL engine. The server does not know the language or the implementation.
pub trait Sql: Send + Sync + 'static {
    /// Starts a query; `parameters` are the values of `$1`, `$2`, … in its text. Errors in its text are returned here, later
    /// ones through the stream.
    ///
    /// Bounds: the implementation limits memory; the server limits time ([`crate::ServerOptions`]).
    fn query(
        &self,
        sql: &str,
        parameters: Vec<Value<'static>>,
        format: Format,
    ) -> BoxFuture<'static, Result<SqlReply>>;

    /// Returns the statements that run and the last that have ended, by number. Does not wait.
    fn statements(&self) -> Vec<StatementInfo>;

    /// Cancels a statement that runs; `by` completes "was cancelled by" in its error. Does not wait.
    ///
    /// Errors: `NotFound` if no statement with this number runs.
    fn cancel(&self, id: u64, by: &str) -> Result<()>;
}
