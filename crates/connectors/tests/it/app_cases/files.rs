//! Files below a directory of the case, `${DIR}`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::ends::End;

/// The directory.
pub struct Files(PathBuf);

impl Files {
    pub fn new(dir: &Path) -> Self {
        let dir = dir.join("files");
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }
}

impl End for Files {
    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("DIR", self.0.display().to_string())]
    }

    fn send(&mut self, name: &str, lines: &[String]) {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(self.0.join(name)).unwrap();
        lines.iter().for_each(|line| writeln!(file, "{line}").unwrap());
    }

    /// Returns the lines of a file, with `${DIR}` for the name of the directory.
    fn read(&mut self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.0.join(name)).unwrap_or_default();
        let text = text.replace(&*self.0.to_string_lossy(), "${DIR}");
        text.lines().map(Into::into).collect()
    }
}
