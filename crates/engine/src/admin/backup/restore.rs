//! A data directory from a backup.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidemill_log::disk::{Disk, OsDisk};
use tidemill_types::{Error, ErrorKind, Result};

use super::lies_inside;
use super::manifest::{FileEntry, MANIFEST, Manifest};
use super::write::{FileCopy, NewDirectory, check_room, create_parents};
use crate::directory::datadir;
use crate::directory::datadir::RestoredFrom;
use crate::process::disk_files::unreadable;
use crate::sinks;

/// Damaged files that an error names; the others are counted.
const NAMED_MAX: usize = 20;

/// Summary of a restore.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RestoreReport {
    /// The new data directory.
    pub path: PathBuf,
    /// Name of the deployed app.
    pub app: Option<String>,
    /// When the backup was taken, RFC 3339.
    pub time: String,
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sinks that write to files and other systems. What the original has written since the backup is there already.
    pub sinks: Vec<String>,
    /// Location of the tables of the original; those of the copy are in its own directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables_location: Option<String>,
    /// Id of the cluster, if the backup is one of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

/// Makes the new data directory `to` from the backup in `from`.
///
/// The new directory gets an id of its own, so that other systems tell its events from those that the original has sent
/// them since.
///
/// Errors: `NotFound` when `from` is not a finished backup; `Corrupt` naming all damaged and missing files;
/// `Invalid` when `to` has content; `Unavailable`. Nothing is left at `to` then.
pub fn restore(from: &Path, to: &Path) -> Result<RestoreReport> {
    let manifest = Manifest::read(&OsDisk, from)?;
    if lies_inside(from, to)? {
        return Err(Error::invalid(format!(
            "{}: lies inside the backup {}, which would not be as it was any more: name a directory outside of it",
            to.display(),
            from.display()
        )));
    }
    let target = NewDirectory::create(to)?;
    check_room(target.dir(), manifest.files.iter().map(|file| file.bytes).sum())?;
    let mut directories = BTreeSet::new();
    let mut damaged = Vec::new();
    for file in &manifest.files {
        match copy(from, file, target.dir(), &mut directories) {
            Ok(None) => {}
            Ok(Some(problem)) => damaged.push(format!("{}: {problem}", from.join(&file.path).display())),
            Err(e) => return Err(e.context(from.join(&file.path).display())),
        }
    }
    if !damaged.is_empty() {
        return Err(damage(from, &damaged));
    }
    let origin = RestoredFrom {
        id: manifest.data_directory.clone().or(manifest.cluster.clone()),
        time: manifest.time.clone(),
        tables: manifest.tables_location.clone(),
    };
    datadir::give_new_identity(&OsDisk, target.dir(), origin)
        .map_err(|e| e.context(format!("{}: the backup is not one of a data directory", from.display())))?;
    for directory in &directories {
        OsDisk.sync_dir(directory).map_err(|e| unreadable(directory, e))?;
    }
    let sinks = sinks::names(&OsDisk, target.dir())?;
    Ok(RestoreReport {
        path: target.finish()?,
        app: manifest.app,
        time: manifest.time,
        files: manifest.files.len() as u64,
        bytes: manifest.files.iter().map(|file| file.bytes).sum(),
        sinks,
        tables_location: manifest.tables_location,
        cluster: manifest.cluster,
    })
}

/// Copies a file of a backup. Returns what is wrong with it, if it is not the one in the manifest.
fn copy(
    from: &Path,
    file: &FileEntry,
    to: &Path,
    directories: &mut BTreeSet<PathBuf>,
) -> Result<Option<String>> {
    let source = from.join(&file.path);
    let input = match OsDisk.open(&source) {
        Ok(input) => input,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Some("it is missing".to_owned())),
        Err(e) => return Err(unreadable(&source, e)),
    };
    let bytes = input.len().map_err(|e| unreadable(&source, e))?;
    if bytes != file.bytes {
        return Ok(Some(format!("it has {bytes} bytes, and {} in {MANIFEST}", file.bytes)));
    }
    let path = to.join(&file.path);
    create_parents(&OsDisk, to, &path, directories)?;
    let mut copy = FileCopy::create(&OsDisk, path, &|| true)?;
    match copy.write_from(&input, bytes) {
        Err(e) if e.kind() == ErrorKind::Corrupt => return Ok(Some(e.message().to_owned())),
        done => done?,
    }
    let written = copy.finish(&file.path)?;
    Ok((written.crc32c != file.crc32c)
        .then(|| format!("its checksum is {}, and {} in {MANIFEST}", written.crc32c, file.crc32c)))
}

fn damage(from: &Path, damaged: &[String]) -> Error {
    let mut shown: Vec<String> =
        damaged.iter().take(NAMED_MAX).map(|problem| format!("  {problem}")).collect();
    if damaged.len() > NAMED_MAX {
        shown.push(format!("  and {} more, which `tidemill verify --from` names", damaged.len() - NAMED_MAX));
    }
    Error::corrupt(format!(
        "{}: {} files of the backup are damaged or missing; nothing was restored. Bring them from another copy of this \
         backup, or restore another backup\n{}",
        from.display(),
        damaged.len(),
        shown.join("\n")
    ))
}
