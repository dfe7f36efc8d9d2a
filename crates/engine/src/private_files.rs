//! Files and directories that only their owner may read, because events and documents are confidential.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Creates an empty file; replaces an existing one.
pub fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Restricts a directory that all users of the machine could access to its owner. Returns its former mode if it was changed.
///
/// A directory that only its group can access stays so, because somebody must have chosen that.
pub fn restrict_access(dir: &Path) -> io::Result<Option<u32>> {
    let mode = fs::metadata(dir)?.mode() & 0o777;
    if mode & 0o007 == 0 {
        return Ok(None);
    }
    fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    Ok(Some(mode))
}
