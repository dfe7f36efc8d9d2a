//! Files that `@source(type='file')` and `@sink(type='file')` name.

use std::path::PathBuf;

use tidemill_files::{Codec, Format};
use tidemill_flow::io::file::FileMapper;
use tidemill_types::{Error, Result};

use super::QueryFile;
use crate::app::App;

/// Returns the path of a file that an annotation names; relative paths start at the directory of the app's
/// file.
pub fn file_path(app: &App, file: &QueryFile, path: &str) -> PathBuf {
    let dir = app.dir.join(&file.name);
    dir.parent().map_or_else(|| PathBuf::from(path), |dir| dir.join(path))
}

/// Returns the format that a mapper stands for.
///
/// Errors: `Invalid` for an unknown codec.
pub fn file_format(mapper: &FileMapper) -> Result<Format> {
    Ok(match mapper {
        FileMapper::Avro(codec) => Format::Avro(
            Codec::parse(codec).ok_or_else(|| Error::invalid(format!("there is no codec `{codec}`")))?,
        ),
        FileMapper::Json { .. } => Format::Json,
        FileMapper::Csv { header, delimiter } => Format::Csv { header: *header, delimiter: *delimiter },
        FileMapper::Parquet => Format::Parquet,
    })
}
