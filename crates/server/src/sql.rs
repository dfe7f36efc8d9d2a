//! The seam to the SQL engine, so that it stays out of this crate.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tidemill_types::{Error, Result, did_you_mean};

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// One JSON array of objects.
    Json,
    /// One JSON object a line.
    Ndjson,
    /// CSV with a header line.
    Csv,
    /// A table for people.
    Table,
}

impl Format {
    /// All of them, the default first.
    pub const ALL: [Self; 4] = [Self::Json, Self::Ndjson, Self::Csv, Self::Table];

    /// The word in `?format=`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Csv => "csv",
            Self::Table => "table",
        }
    }

    /// The content type it is sent as.
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
            Error::invalid(format!("`{text}` is no format{hint}"))
        })
    }
}

/// The rows of a query, written as text.
pub struct SqlReply {
    /// The content type of the rows; [`Format::content_type`] unless the writer knows better.
    pub content_type: &'static str,
    /// The text in pieces. The first `Err` ends it; dropping the stream cancels the query.
    pub body: BoxStream<'static, Result<Bytes>>,
}

/// Answers SQL. The server knows nothing about the language or the engine behind it.
pub trait Sql: Send + Sync + 'static {
    /// Starts a query. Errors in the text are reported here, later ones in the stream.
    ///
    /// Bounds: the implementation bounds memory; the server bounds the time ([`crate::ServerOptions`]).
    fn query(&self, sql: &str, format: Format) -> BoxFuture<'static, Result<SqlReply>>;
}
