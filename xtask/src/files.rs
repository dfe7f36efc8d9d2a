//! Files of a source tree.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Returns the files below `dir` with this extension, sorted.
pub fn files(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files(&path, extension)?),
            false if path.extension().is_some_and(|e| e == extension) => found.push(path),
            false => {}
        }
    }
    found.sort();
    Ok(found)
}
