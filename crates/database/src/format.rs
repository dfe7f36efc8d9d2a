//! Text formats of results.

use std::fmt;
use std::str::FromStr;

use tidemill_types::{Error, Result, did_you_mean};

/// Text format of a result.
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
}

impl Format {
    /// All names, in the order in which messages list them.
    pub const NAMES: [&'static str; 4] = ["table", "json", "ndjson", "csv"];

    /// Returns the name that users type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Csv => "csv",
        }
    }

    /// Returns the media type of the output.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Table => "text/plain; charset=utf-8",
            Self::Json => "application/json",
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
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
        let all = [Self::Table, Self::Json, Self::Ndjson, Self::Csv];
        all.into_iter().find(|f| f.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            Error::invalid(format!("`{name}` is not an output format{}", did_you_mean(name, Self::NAMES)))
        })
    }
}
