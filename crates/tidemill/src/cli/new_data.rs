//! Data directories that a command makes.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A data directory before a command opens it: one that the command makes is removed again when it fails before anything is
/// stored, so that the next attempt finds what this one found.
pub struct NewData {
    dir: PathBuf,
    state: DirState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DirState {
    Missing,
    Empty,
    InUse,
}

impl NewData {
    /// Looks at the directory.
    pub fn look(dir: &Path) -> Self {
        let state = match std::fs::read_dir(dir) {
            Ok(mut entries) => {
                if entries.next().is_none() {
                    DirState::Empty
                } else {
                    DirState::InUse
                }
            }
            Err(e) if e.kind() == ErrorKind::NotFound => DirState::Missing,
            Err(_) => DirState::InUse,
        };
        Self { dir: dir.to_owned(), state }
    }

    /// Removes what was made in it, if it was new. The command has closed it. What cannot be removed is
    /// reported and stays.
    pub fn discard(self) {
        let removed = match self.state {
            DirState::InUse => return,
            DirState::Missing => std::fs::remove_dir_all(&self.dir),
            DirState::Empty => remove_content(&self.dir),
        };
        match removed {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                eprintln!("warning: {}: what was made there stays: {e}", self.dir.display());
            }
            _ => {}
        }
    }
}

fn remove_content(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => std::fs::remove_dir_all(entry.path())?,
            false => std::fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_not_there_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let fill = |path: &Path| {
            std::fs::create_dir_all(path.join("log")).unwrap();
            std::fs::write(path.join("log/a"), "a").unwrap();
            std::fs::write(path.join("lock"), "1").unwrap();
        };
        let (missing, empty, full) =
            (dir.path().join("missing"), dir.path().join("empty"), dir.path().join("full"));
        std::fs::create_dir(&empty).unwrap();
        fill(&full);
        for path in [&missing, &empty, &full] {
            let new = NewData::look(path);
            fill(path);
            new.discard();
        }
        assert!(!missing.exists());
        assert!(empty.read_dir().unwrap().next().is_none());
        assert!(full.join("log/a").exists());
    }
}
