//! Expected results: files `SET.digests.json` in one directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// Result of one statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its rows.
    pub rows: usize,
    /// First digits of the SHA-256 of its lines.
    pub sha256_16: String,
}

/// Results that a data set must give.
#[derive(Debug)]
pub struct Expected {
    path: PathBuf,
    outcomes: BTreeMap<String, Outcome>,
}

impl Expected {
    /// Reads the results of the data set `set` from a directory.
    ///
    /// Errors: there is no such file, or it has another form.
    pub fn read(dir: &Path, set: &str) -> Result<Self> {
        let path = file(dir, set);
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let outcomes = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        Ok(Self { path, outcomes })
    }

    /// Checks the result of a statement. One without a bound of time has the result of the one with it.
    ///
    /// Errors: the result differs, with what was expected.
    pub fn check(&self, statement: &str, found: &Outcome) -> Result<()> {
        let name = statement.trim_end_matches("-nobound");
        let expected = self
            .outcomes
            .get(name)
            .with_context(|| format!("{}: no result of `{name}`", self.path.display()))?;
        if expected != found {
            bail!(
                "{statement}: expected {} rows with the digest {}, found {} rows with {}",
                expected.rows,
                expected.sha256_16,
                found.rows,
                found.sha256_16
            );
        }
        Ok(())
    }

    /// Writes results as expected ones.
    pub fn write(dir: &Path, set: &str, outcomes: &BTreeMap<String, Outcome>) -> Result<()> {
        std::fs::create_dir_all(dir)?;
        let path = file(dir, set);
        let text = serde_json::to_string_pretty(outcomes)?;
        std::fs::write(&path, format!("{text}\n")).with_context(|| path.display().to_string())
    }
}

fn file(dir: &Path, set: &str) -> PathBuf {
    dir.join(format!("{set}.digests.json"))
}
