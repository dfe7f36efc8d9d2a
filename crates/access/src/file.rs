//! The file of users and tokens.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind as IoErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tidemill_types::{Error, Result};

use crate::accounts::Accounts;

/// Name in the data directory.
const NAME: &str = "access.json";
/// File that a process locks while it changes users and tokens. It stays, empty.
const LOCK_NAME: &str = "access.lock";
/// New content, until it replaces the file.
const NEW_NAME: &str = "access.json.new";

/// The file of users and tokens of a data directory, `access.json`. Without the file there are none.
///
/// It is replaced as a whole, so that readers see the content before a change or after it; a lock makes changes of several
/// processes one after the other.
#[derive(Debug, Clone)]
pub struct AccessFile {
    directory: PathBuf,
}

/// Identity of one content of the file: device, inode, seconds and nanoseconds of the last change, and length.
pub(crate) type FileIdentity = Option<(u64, u64, i64, i64, u64)>;

impl AccessFile {
    /// Returns the file of a data directory, which need not be there.
    pub fn in_directory(data: &Path) -> Self {
        Self { directory: data.to_owned() }
    }

    /// Returns the path.
    pub fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }

    /// Reads the file.
    ///
    /// Errors: `Corrupt` with path, line and column; `Unavailable` if it cannot be read.
    pub fn read(&self) -> Result<Accounts> {
        let path = self.path();
        match fs::read(&path) {
            Ok(text) => Accounts::parse(&text).map_err(|e| e.context(path.display())),
            Err(e) if e.kind() == IoErrorKind::NotFound => Ok(Accounts::default()),
            Err(e) => Err(self.failed(&path, "cannot be read", e)),
        }
    }

    /// Changes users and tokens. What `change` returns an error for leaves the file as it was.
    ///
    /// Waits while another process changes the file. Errors: those of [`Self::read`] and of `change`; `Unavailable` if the file
    /// cannot be written.
    pub fn update<T>(&self, change: impl FnOnce(&mut Accounts) -> Result<T>) -> Result<T> {
        let lock_path = self.directory.join(LOCK_NAME);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock_path);
        let lock = lock.map_err(|e| self.failed(&lock_path, "cannot be opened", e))?;
        keep_owner(&self.directory, &lock).map_err(|e| self.failed(&lock_path, "cannot be changed", e))?;
        // it is unlocked when it is closed
        lock.lock().map_err(|e| self.failed(&lock_path, "cannot be locked", e))?;
        let mut accounts = self.read()?;
        let result = change(&mut accounts)?;
        let path = self.path();
        self.replace(&accounts.to_text()?).map_err(|e| self.failed(&path, "cannot be written", e))?;
        Ok(result)
    }

    fn replace(&self, text: &str) -> std::io::Result<()> {
        let new = self.directory.join(NEW_NAME);
        // the mode holds for files that are created only
        match fs::remove_file(&new) {
            Err(e) if e.kind() != IoErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        keep_owner(&self.directory, &file)?;
        file.sync_all()?;
        fs::rename(&new, self.path())?;
        File::open(&self.directory)?.sync_all()
    }

    /// Returns what distinguishes the present content.
    ///
    /// Errors: `Unavailable` if that cannot be found out.
    pub(crate) fn stamp(&self) -> Result<FileIdentity> {
        let path = self.path();
        match fs::metadata(&path) {
            Ok(found) => Ok(Some((found.dev(), found.ino(), found.ctime(), found.ctime_nsec(), found.len()))),
            Err(e) if e.kind() == IoErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.failed(&path, "cannot be read", e)),
        }
    }

    /// Returns a warning if other users of the machine can read the file.
    pub(crate) fn warning(&self) -> Option<String> {
        let mode = fs::metadata(self.path()).ok()?.permissions().mode() & 0o777;
        (mode & 0o077 != 0).then(|| {
            format!(
                "{}: other users of this machine can read it (mode {mode:04o}) and guess passwords: chmod 600 it",
                self.path().display()
            )
        })
    }

    fn failed(&self, path: &Path, what: &str, cause: std::io::Error) -> Error {
        Error::unavailable(format!("{} {what}", path.display())).with_source(cause)
    }
}

/// Gives a file the owner of the data directory, for a command that another user runs, as an administrator of the machine does: the
/// server has to read it.
fn keep_owner(directory: &Path, file: &File) -> std::io::Result<()> {
    let (wanted, found) = (fs::metadata(directory)?, file.metadata()?);
    match (wanted.uid(), wanted.gid()) == (found.uid(), found.gid()) {
        true => Ok(()),
        false => std::os::unix::fs::fchown(file, Some(wanted.uid()), Some(wanted.gid())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_several_writers_are_all_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = AccessFile::in_directory(dir.path());
        assert_eq!(file.read().unwrap(), Accounts::default());
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let file = file.clone();
                scope.spawn(move || {
                    for number in 0..10 {
                        let name = format!("user-{writer}-{number}");
                        file.update(|accounts| accounts.add_user(&name, vec![], None)).unwrap();
                    }
                });
            }
        });
        assert_eq!(file.read().unwrap().users().count(), 40);
        let mode = fs::metadata(file.path()).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode, file.warning()), (0o600, None));
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(file.warning().unwrap().contains("mode 0644"));
    }

    #[test]
    fn a_change_that_fails_leaves_the_file_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let file = AccessFile::in_directory(dir.path());
        file.update(|accounts| accounts.add_user("ana", vec![], None)).unwrap();
        let before = fs::read(file.path()).unwrap();
        let failed = file.update(|accounts| {
            accounts.add_user("eva", vec![], None)?;
            accounts.add_user("ana", vec![], None)
        });
        assert!(failed.is_err());
        assert_eq!(fs::read(file.path()).unwrap(), before);
        fs::write(file.path(), "{").unwrap();
        let error = file.update(|accounts| accounts.add_user("eva", vec![], None)).unwrap_err().to_string();
        assert!(error.contains("access.json: line 1, column 1"), "{error}");
        assert_eq!(fs::read(file.path()).unwrap(), b"{");
    }
}
