//! What happens to a file that was read.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::identity::FileKey;

/// Action on a file that was processed or has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileAction {
    Keep,
    Delete,
    Move {
        dir: PathBuf,
        /// True if a file of the same name in that directory is replaced; otherwise the new name gets an id.
        overwrites: bool,
    },
}

impl FileAction {
    /// Does it, unless the path is another file by now. A symbolic link is deleted or moved itself.
    pub(super) fn apply(&self, path: &Path, key: FileKey) -> Result<(), String> {
        let is_same = || match fs::metadata(path) {
            Ok(metadata) => FileKey::of(&metadata) == key,
            Err(_) => false,
        };
        match self {
            Self::Keep => Ok(()),
            _ if !is_same() => Ok(()),
            Self::Delete => {
                fs::remove_file(path).map_err(|e| format!("{} cannot be deleted: {e}", path.display()))
            }
            Self::Move { dir, overwrites } => move_file(path, dir, *overwrites)
                .map_err(|e| format!("{} cannot be moved to {}: {e}", path.display(), dir.display())),
        }
    }
}

fn move_file(path: &Path, dir: &Path, overwrites: bool) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let name = path.file_name().unwrap_or_default();
    let mut target = dir.join(name);
    if !overwrites && fs::symlink_metadata(&target).is_ok() {
        let mut with_id = name.to_os_string();
        with_id.push(format!("-{}", Uuid::new_v4()));
        target = dir.join(with_id);
    }
    match fs::rename(path, &target) {
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => copy_and_remove(path, &target),
        moved => moved,
    }
}

/// Moves a file to another file system: it is there completely before it goes here.
fn copy_and_remove(path: &Path, target: &Path) -> io::Result<()> {
    let mut partial = target.as_os_str().to_os_string();
    partial.push(".part");
    let partial = PathBuf::from(partial);
    fs::copy(path, &partial)?;
    File::open(&partial)?.sync_all()?;
    fs::rename(&partial, target)?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &Path) -> FileKey {
        FileKey::of(&fs::metadata(path).unwrap())
    }

    #[test]
    fn files_of_the_same_name_are_kept_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a.txt"), dir.path().join("done/deep"));
        for (overwrites, count) in [(false, 1), (false, 2), (true, 2)] {
            fs::write(&from, format!("{overwrites}")).unwrap();
            let action = FileAction::Move { dir: to.clone(), overwrites };
            action.apply(&from, key(&from)).unwrap();
            assert!(!from.exists());
            assert_eq!(fs::read_dir(&to).unwrap().count(), count);
        }
        assert_eq!(fs::read_to_string(to.join("a.txt")).unwrap(), "true");
    }

    #[test]
    fn another_file_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        fs::write(&path, "old").unwrap();
        let old = key(&path);
        fs::write(dir.path().join("b.txt"), "new").unwrap();
        fs::rename(dir.path().join("b.txt"), &path).unwrap();
        FileAction::Delete.apply(&path, old).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        FileAction::Delete.apply(&path, key(&path)).unwrap();
        assert!(!path.exists());
        FileAction::Delete.apply(&path, old).unwrap();
    }

    #[test]
    fn a_move_over_file_systems_copies() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&from, "x").unwrap();
        copy_and_remove(&from, &to).unwrap();
        assert_eq!((from.exists(), fs::read_to_string(&to).unwrap()), (false, "x".into()));
    }
}
