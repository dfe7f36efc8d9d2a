//! The formats that there are.

use std::path::Path;

use tidemill_types::{Error, Result, did_you_mean};

/// How events lie in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// Avro object containers. The codec is that of files that are written; a file that is read says its own.
    Avro(Codec),
    /// A JSON object a line; also an array of them, also inside an object with the only key `event`.
    Json,
    /// Rows of texts.
    Csv {
        /// Whether the first row names the columns. Without it they are the fields in order.
        header: bool,
        /// What stands between two columns.
        delimiter: u8,
    },
    /// Parquet; compressed with Snappy when it is written.
    Parquet,
}

/// How the blocks of an Avro container are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Codec {
    /// Not at all.
    #[default]
    Null,
    /// Deflate.
    Deflate,
    /// Snappy.
    Snappy,
}

impl Codec {
    /// All names, in the order they are listed to people.
    pub const NAMES: [&'static str; 3] = ["null", "deflate", "snappy"];

    /// The codec called `name`, as in the header of a container.
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
    /// All names, in the order they are listed to people.
    pub const NAMES: [&'static str; 4] = ["avro", "json", "csv", "parquet"];

    /// The format called `name`, with what it has when nothing is said: no compression, no header, commas.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "avro" => Self::Avro(Codec::Null),
            "json" => Self::Json,
            "csv" => Self::Csv { header: false, delimiter: b',' },
            "parquet" => Self::Parquet,
            _ => return None,
        })
    }

    /// The format that the name of a file tells: `.avro`, `.json`, `.jsonl`, `.ndjson`, `.csv` (with a header), `.parquet`, of which
    /// the texts may also end in `.gz`.
    ///
    /// Errors: `Invalid` where it tells none.
    pub fn from_path(path: &Path) -> Result<Self> {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_lowercase();
        let ending = name.trim_end_matches(".gz").rsplit('.').next().unwrap_or_default();
        match ending {
            "jsonl" | "ndjson" => Ok(Self::Json),
            "csv" => Ok(Self::Csv { header: true, delimiter: b',' }),
            _ => Self::parse(ending).ok_or_else(|| {
                let hint = did_you_mean(ending, Self::NAMES);
                Error::invalid(format!("{}: no format ends in `.{ending}`{hint}", path.display()))
            }),
        }
    }

    /// Whether files of it can be read from a stream and continued at their end: lines of text.
    pub fn is_text(&self) -> bool {
        matches!(self, Self::Json | Self::Csv { .. })
    }
}
