//! What a verification has found.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Outcome of a verification: a summary of the files that were read, and the damage.
#[derive(Debug, Clone, Serialize)]
pub struct Verification {
    /// The directory.
    pub path: PathBuf,
    /// Summary of the files that were read, by kind.
    pub kinds: Vec<KindSummary>,
    /// Damaged and missing files.
    pub damaged: Vec<Damage>,
    /// Remarks worth knowing that are not damage.
    pub notes: Vec<String>,
}

/// Summary of the files of one kind.
#[derive(Debug, Clone, Serialize)]
pub struct KindSummary {
    /// The kind, such as `log`.
    pub kind: String,
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Content of the files, such as `120 records`.
    pub content: String,
    /// Damaged and missing files among them.
    pub damaged: u64,
}

/// A file that is not as it was written, or that is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// Kind of the file.
    pub kind: String,
    /// Its path, or its URL in an object store.
    pub path: String,
    /// Description of the damage.
    pub problem: String,
    /// Consequence of the damage.
    pub meaning: String,
    /// Recommended action.
    pub remedy: String,
}

/// Consequence of damage to files of one kind, and the recommended action.
#[derive(Clone, Copy)]
pub struct Consequence {
    /// Consequence of the damage.
    pub meaning: &'static str,
    /// Recommended action.
    pub remedy: &'static str,
}

impl Verification {
    /// Creates one that has found nothing yet.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), kinds: Vec::new(), damaged: Vec::new(), notes: Vec::new() }
    }

    /// Returns whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.damaged.is_empty()
    }

    /// Adds what was read of a kind, and the damaged files with what is wrong with each.
    pub fn add(
        &mut self,
        kind: &str,
        (files, bytes): (u64, u64),
        content: String,
        damaged: Vec<(String, String)>,
        consequence: Consequence,
    ) {
        let paths: BTreeSet<&String> = damaged.iter().map(|(path, _)| path).collect();
        self.kinds.push(KindSummary {
            kind: kind.to_owned(),
            files,
            bytes,
            content,
            damaged: paths.len() as u64,
        });
        for (path, problem) in damaged {
            self.damaged.push(Damage {
                kind: kind.to_owned(),
                path,
                problem,
                meaning: consequence.meaning.to_owned(),
                remedy: consequence.remedy.to_owned(),
            });
        }
    }

    /// Returns whether a file has been found damaged.
    pub fn is_damaged(&self, path: &str) -> bool {
        self.damaged.iter().any(|damage| damage.path == path)
    }
}
