//! Files and directories that only their owner may read: events and documents are nobody else's business.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Makes an empty file, in place of one that may be there.
pub fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Makes a directory and those above it; one that exists is fine.
pub fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// [`create_dir`] that outlives a power failure: the directories above those that were made are synced.
pub fn create_dir_durably(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_dir_durably(parent)?;
    create_dir(path)?;
    File::open(parent)?.sync_all()
}

/// Shuts everybody out of a directory that all users of the machine could read. Returns what it was open as, if it was.
///
/// One that is open to its group alone stays so: nothing makes it that by itself.
pub fn restrict_access(dir: &Path) -> io::Result<Option<u32>> {
    let mode = fs::metadata(dir)?.mode() & 0o777;
    if mode & 0o007 == 0 {
        return Ok(None);
    }
    fs::set_permissions(dir, Permissions::from_mode(0o700))?;
    Ok(Some(mode))
}
