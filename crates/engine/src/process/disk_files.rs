//! Directories and files of a disk, with errors that name them.

use std::io;
use std::path::Path;

use tidemill_log::disk::Disk;
use tidemill_types::{Error, Result};

/// Returns the names in a directory in order; none if the directory does not exist.
///
/// Errors: `Unavailable`.
pub fn list(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>> {
    match disk.list(dir) {
        Ok(mut names) => {
            names.sort();
            Ok(names)
        }
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(e) => Err(Error::unavailable(format!("{}: cannot be listed", dir.display())).with_source(e)),
    }
}

/// Returns the error for a file that cannot be read.
pub fn unreadable(path: &Path, e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::NotFound => Error::corrupt(format!("{}: the file is missing", path.display())),
        // what was encrypted is not what was written
        io::ErrorKind::InvalidData => Error::corrupt(format!("{}: {e}", path.display())),
        _ => Error::unavailable(format!("{}: cannot be read", path.display())).with_source(e),
    }
}
