//! Formats of results.

use std::fmt;
use std::str::FromStr;

use tidemill_types::{Error, Result, did_you_mean};

/// Format of a result as bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Aligned columns with a row count, as psql prints them. Nulls are empty.
    Table,
    /// An array of objects.
    Json,
    /// One object per line.
    Ndjson,
    /// A header and rows as in RFC 4180, lines ending with LF. Nulls are empty.
    Csv,
    /// Arrow IPC stream: the schema, then batches.
    Arrow,
    /// Parquet file, whose row groups come while the statement runs and whose metadata comes last.
    Parquet,
}

impl Format {
    /// All names, in the order in which messages list them.
    pub const NAMES: [&'static str; 6] = ["table", "json", "ndjson", "csv", "arrow", "parquet"];

    /// Returns the name that users type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Csv => "csv",
            Self::Arrow => "arrow",
            Self::Parquet => "parquet",
        }
    }

    /// Returns the media type of the output.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Table => "text/plain; charset=utf-8",
            Self::Json => "application/json",
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Arrow => "application/vnd.apache.arrow.stream",
            Self::Parquet => "application/vnd.apache.parquet",
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

    fn from_str(name: &str) -> Result<Self> {
        let all = [Self::Table, Self::Json, Self::Ndjson, Self::Csv, Self::Arrow, Self::Parquet];
        all.into_iter().find(|f| f.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            Error::invalid(format!("`{name}` is not an output format{}", did_you_mean(name, Self::NAMES)))
        })
    }
}
