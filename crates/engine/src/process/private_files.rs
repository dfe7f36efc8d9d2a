//! Files and directories that only their owner may read, because events and documents are confidential.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Creates an empty file; replaces an existing one.
pub fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Returns the mode of a file that all users of the machine can read or write; `None` for others.
pub fn mode_for_all(path: &Path) -> Option<u32> {
    let mode = fs::metadata(path).ok()?.mode() & 0o777;
    (mode & 0o006 != 0).then_some(mode)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_all_can_read_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        create_file(&path).unwrap();
        assert_eq!(mode_for_all(&path), None);
        for (mode, expected) in [(0o644, Some(0o644)), (0o640, None), (0o602, Some(0o602)), (0o600, None)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(mode_for_all(&path), expected, "{mode:o}");
        }
        assert_eq!(mode_for_all(&dir.path().join("none")), None);
    }
}
