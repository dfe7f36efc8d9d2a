//! The files of a directory.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::source::Seen;

/// Returns the files of a directory whose names are wanted, in order of their names. Symbolic links are followed.
///
/// Errors: the directory cannot be read. What is wrong with single files is added to `problems`.
pub(super) fn list(
    dir: &Path,
    is_wanted: &dyn Fn(&[u8]) -> bool,
    problems: &mut Vec<String>,
) -> io::Result<Vec<Seen>> {
    let mut names = vec![];
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        if is_wanted(name.as_bytes()) {
            names.push(name);
        }
    }
    names.sort_unstable();
    let mut found = vec![];
    for name in names {
        let path = dir.join(&name);
        if name.to_str().is_none() {
            problems.push(format!("the name of {} is not UTF-8; rename the file", path.display()));
            continue;
        }
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(metadata) => match check_regular(&path, &metadata) {
                Ok(()) => found.push(Seen::new(path, &metadata)),
                Err(problem) => problems.push(problem),
            },
            Err(e) if e.kind() == ErrorKind::NotFound && fs::symlink_metadata(&path).is_ok() => {
                problems.push(format!("{} is a symbolic link to a file that does not exist", path.display()));
            }
            // it is gone by now
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => problems.push(format!("{}: {e}", path.display())),
        }
    }
    Ok(found)
}

/// Checks that a file is a regular one: reading a pipe would wait for its writer.
///
/// Errors: what is wrong.
pub(super) fn check_regular(path: &Path, metadata: &Metadata) -> Result<(), String> {
    match (metadata.is_file(), metadata.is_dir()) {
        (true, _) => Ok(()),
        (_, true) => Err(format!("{} is a directory; write its name as `dir.uri`", path.display())),
        _ => Err(format!("{} is no regular file", path.display())),
    }
}
