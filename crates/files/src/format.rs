//! File formats.

use std::path::Path;

use tidemill_types::{Error, Result, did_you_mean};

/// Format of a file of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// Avro object containers. The codec applies to written files; a file that is read names its own.
    Avro(Codec),
    /// One JSON object, or an array of them, per line. Each may be wrapped in an object with the only key
    /// `event`.
    Json,
    /// Comma-separated values.
    Csv {
        /// True if the first row names the columns. Without it the columns are the fields in order.
        header: bool,
        /// Column separator.
        delimiter: u8,
    },
    /// Parquet; written files are compressed with Snappy.
    Parquet,
}

/// Compression of the blocks of an Avro container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    /// No compression.
    #[default]
    Null,
    /// Deflate.
    Deflate,
    /// Snappy.
    Snappy,
}

impl Codec {
    /// All names, in the order shown to users.
    pub const NAMES: [&'static str; 3] = ["null", "deflate", "snappy"];

    /// Returns the codec called `name`, as in the header of a container.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::Null,
            "deflate" => Self::Deflate,
            "snappy" => Self::Snappy,
            _ => return None,
        })
    }
}

impl Format {
    /// All names, in the order shown to users.
    pub const NAMES: [&'static str; 4] = ["avro", "json", "csv", "parquet"];

    /// Returns the format called `name` with its defaults: no compression, no header, commas.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "avro" => Self::Avro(Codec::Null),
            "json" => Self::Json,
            "csv" => Self::Csv { header: false, delimiter: b',' },
            "parquet" => Self::Parquet,
            _ => return None,
        })
    }

    /// Returns the format for the extension of a file: `.avro`, `.json`, `.jsonl`, `.ndjson`, `.csv` (with a
    /// header), `.parquet`. Extensions of text formats may be followed by `.gz` or `.zst`.
    ///
    /// Errors: `Invalid` for other extensions.
    pub fn from_path(path: &Path) -> Result<Self> {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_lowercase();
        let plain = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
        let ending = plain.rsplit('.').next().unwrap_or_default();
        match ending {
            "jsonl" | "ndjson" => Ok(Self::Json),
            "csv" => Ok(Self::Csv { header: true, delimiter: b',' }),
            _ => Self::parse(ending).ok_or_else(|| {
                let hint = did_you_mean(ending, Self::NAMES);
                Error::invalid(format!("{}: no format ends in `.{ending}`{hint}", path.display()))
            }),
        }
    }

    /// Returns whether its files are lines of text, which can be read from a stream and appended to.
    pub fn is_text(&self) -> bool {
        matches!(self, Self::Json | Self::Csv { .. })
    }
}
