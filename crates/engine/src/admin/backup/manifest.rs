//! Manifest of a backup: its files, and the moment at which it was taken.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tidemill_log::disk::Disk;
use tidemill_types::{Error, Offset, Result};

pub use crate::directory::datadir::BACKUP_MANIFEST as MANIFEST;
use crate::process::json_file::{read_json, write_json};

/// Format of backups that this version writes and reads.
pub const FORMAT: u32 = 1;

/// Content of the manifest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    /// Format of the backup.
    pub format: u32,
    /// Version of the program that wrote it.
    pub version: String,
    /// When it began, RFC 3339.
    pub time: String,
    /// Id of the data directory; `None` for one that was created without.
    pub data_directory: Option<String>,
    /// Name of the deployed app; `None` when none is deployed.
    pub app: Option<String>,
    /// Start and end of the log of each partition.
    pub partitions: Vec<PartitionRange>,
    /// Tables, each at one version.
    pub tables: Vec<TableCopy>,
    /// Location of the tables, if they were not in the data directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables_location: Option<String>,
    /// Id of the cluster, if the backup is one of a cluster. It has no id of a data directory then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// All files but the manifest.
    pub files: Vec<FileEntry>,
    /// Checksum of the file, which [`read_json`] has compared.
    #[serde(default, skip_serializing)]
    crc32c: Option<String>,
}

/// Range of the log of one partition that a backup contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRange {
    /// Id of the partition.
    pub partition: u32,
    /// First record.
    pub log_start: Offset,
    /// Offset after the last record. All records before it were on the disk.
    pub log_end: Offset,
}

/// A table of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableCopy {
    /// Name.
    pub name: String,
    /// Version in its Delta log.
    pub version: u64,
    /// Rows of its tablets; others are in the log.
    pub rows: u64,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path below the backup, with `/`.
    pub path: String,
    /// Size.
    pub bytes: u64,
    /// CRC-32C of the content, eight hexadecimal digits.
    pub crc32c: String,
}

impl Manifest {
    /// Creates a manifest without files.
    pub fn new(time: String, data_directory: Option<String>, app: Option<String>) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time,
            data_directory,
            app,
            partitions: Vec::new(),
            tables: Vec::new(),
            tables_location: None,
            cluster: None,
            files: Vec::new(),
            crc32c: None,
        }
    }

    /// Reads the manifest of the backup in `dir`.
    ///
    /// Errors: `NotFound` when the directory has no finished backup; `Corrupt` when the manifest is damaged;
    /// `Invalid` for a backup of another format.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Self> {
        let path = dir.join(MANIFEST);
        let Some(manifest) = read_json::<Self>(disk, &path)? else {
            return Err(Error::not_found(format!(
                "{}: is not a finished backup: it has no {MANIFEST}, which is written last. Name a directory that `tidemill \
                 backup` has reported as done",
                dir.display()
            )));
        };
        if manifest.format != FORMAT {
            return Err(Error::invalid(format!(
                "{}: format {}; this version reads format {FORMAT}. Restore with version {} of Tidemill",
                path.display(),
                manifest.format,
                manifest.version
            )));
        }
        if manifest.crc32c.is_none() {
            return Err(Error::corrupt(format!(
                "{}: its line `crc32c` is missing or damaged",
                path.display()
            )));
        }
        if let Some(file) = manifest.files.iter().find(|file| !is_below(&file.path)) {
            return Err(Error::corrupt(format!(
                "{}: `{}` is no path below the backup",
                path.display(),
                file.path
            )));
        }
        Ok(manifest)
    }

    /// Writes the manifest durably.
    ///
    /// Errors: `Unavailable`.
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> Result<()> {
        write_json(disk, &dir.join(MANIFEST), self)
    }
}

/// Returns whether a path stays below the directory that it is relative to.
fn is_below(path: &str) -> bool {
    !path.is_empty() && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Returns a checksum as the manifest has it.
pub fn checksum_text(crc: u32) -> String {
    format!("{crc:08x}")
}

#[cfg(test)]
mod tests {
    use tidemill_log::disk::OsDisk;
    use tidemill_types::ErrorKind;

    use super::*;

    #[test]
    fn a_manifest_that_is_damaged_or_leads_out_of_the_backup_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let read = || Manifest::read(&OsDisk, dir.path());
        assert_eq!(read().unwrap_err().kind(), ErrorKind::NotFound);
        let mut manifest = Manifest::new("2013-01-01T00:00:00Z".into(), Some("a".into()), None);
        manifest.write(&OsDisk, dir.path()).unwrap();
        assert_eq!(read().unwrap().data_directory.as_deref(), Some("a"));
        let path = dir.path().join(MANIFEST);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("2013", "2014")).unwrap();
        assert_eq!(read().unwrap_err().kind(), ErrorKind::Corrupt);
        let without = text.replace("\"crc32c\"", "\"crc32d\"");
        std::fs::write(&path, without).unwrap();
        assert!(read().unwrap_err().message().contains("crc32c"));
        for leads_out in ["../a", "/etc/passwd", "log/../../a", ""] {
            let entry = FileEntry { path: leads_out.into(), bytes: 0, crc32c: checksum_text(0) };
            manifest.files = vec![entry];
            manifest.write(&OsDisk, dir.path()).unwrap();
            assert!(read().unwrap_err().message().contains("no path below"), "{leads_out}");
        }
        manifest.files.clear();
        manifest.format = 2;
        manifest.write(&OsDisk, dir.path()).unwrap();
        assert_eq!(read().unwrap_err().kind(), ErrorKind::Invalid);
    }
}
