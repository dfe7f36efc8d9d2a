//! Content of a backup: files that are open or no longer change, in the order in which they were looked at.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemill_log::disk::{Disk, DiskFile, FileReader};
use tidemill_log::{LogFile, LogFileContent};
use tidemill_types::{PartitionId, Result};
use tidemill_zones::TableVersion;

use super::manifest::{PartitionRange, TableCopy};
use crate::checkpoint;
use crate::directory::partition_store::PublishedFile;
use crate::process::disk_files::{list, unreadable};

/// Files and moments of a data directory. Nothing of it is copied yet.
#[derive(Default)]
pub struct BackupContent {
    /// The files.
    pub files: Vec<BackupFile>,
    /// Ranges of the log that the files contain.
    pub partitions: Vec<PartitionRange>,
    /// The versions of the tables.
    pub tables: Vec<TableCopy>,
}

/// A file of a backup.
pub struct BackupFile {
    /// Path below the data directory, with `/`.
    pub name: String,
    /// Source of the content.
    pub content: FileContent,
}

/// Source of the content of a file.
pub enum FileContent {
    /// It is here.
    Written(Vec<u8>),
    /// The beginning of an open file, which stays readable when it is removed.
    Open {
        /// The file.
        file: Arc<dyn DiskFile>,
        /// Number of bytes.
        bytes: u64,
    },
    /// A file that never changes and is not removed while the backup is being taken.
    Path(PathBuf),
    /// A tablet in the store of the tables, of this size.
    Tablet(object_store::path::Path, u64),
    /// A file of the state that the owner of a partition has published.
    Published(PublishedFile),
}

impl BackupContent {
    /// Adds a file.
    pub fn add(&mut self, name: String, content: FileContent) {
        self.files.push(BackupFile { name, content });
    }

    /// Adds a file that is small and replaced as a whole, as it is now. A file that is not there is left out.
    ///
    /// Errors: `Unavailable`.
    pub fn add_small(&mut self, disk: &dyn Disk, data: &Path, name: &str) -> Result<()> {
        let path = data.join(name);
        let mut bytes = Vec::new();
        match disk.open(&path).and_then(|file| FileReader::new(file).read_to_end(&mut bytes)) {
            Ok(_) => self.add(name.to_owned(), FileContent::Written(bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(unreadable(&path, e)),
        }
        Ok(())
    }

    /// Adds the files `*.json` of a directory, as they are now.
    ///
    /// Errors: `Unavailable`.
    pub fn add_small_files(&mut self, disk: &dyn Disk, data: &Path, dir: &str) -> Result<()> {
        for name in list(disk, &data.join(dir))?.iter().filter(|name| name.ends_with(".json")) {
            self.add_small(disk, data, &format!("{dir}/{name}"))?;
        }
        Ok(())
    }

    /// Adds a file as it is now, which is open from now on.
    ///
    /// Errors: `Unavailable`.
    pub fn add_open(&mut self, disk: &dyn Disk, data: &Path, name: String) -> Result<()> {
        let path = data.join(&name);
        let file = disk.open(&path).map_err(|e| unreadable(&path, e))?;
        let bytes = file.len().map_err(|e| unreadable(&path, e))?;
        self.add(name, FileContent::Open { file, bytes });
        Ok(())
    }

    /// Adds the checkpoints of a partition, what `why` can explain, and the files with ids that the checkpoints name. `disk`
    /// decrypts them to read what they name; `stored` has them as they are.
    ///
    /// Errors: `Corrupt` naming a checkpoint that cannot be read; `Unavailable`.
    pub fn add_checkpoints(
        &mut self,
        disk: &dyn Disk,
        stored: &dyn Disk,
        data: &Path,
        partition: PartitionId,
    ) -> Result<()> {
        let directory = format!("checkpoints/p{:05}", partition.0);
        let mut named = BTreeSet::new();
        for (_, path) in checkpoint::list(disk, &data.join(&directory))? {
            let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            for (stream, runs) in checkpoint::inspect::id_runs(disk, &path)? {
                named.extend(runs.into_iter().map(|run| (stream.clone(), run.file)));
            }
            self.add_open(stored, data, format!("{directory}/{file_name}"))?;
        }
        for name in list(disk, &data.join(&directory))?.iter().filter(|name| name.ends_with(".why")) {
            self.add_open(stored, data, format!("{directory}/{name}"))?;
        }
        for (stream, file) in named {
            let name = format!("ids/p{:05}/{stream}/{file}", partition.0);
            let path = data.join(&name);
            self.add(name, FileContent::Path(path));
        }
        Ok(())
    }

    /// Adds the files of a log to the directory `dir`.
    pub fn add_log(&mut self, dir: &str, files: Vec<LogFile>) {
        for LogFile { name, content } in files {
            let content = match content {
                LogFileContent::Stored { file, bytes } => FileContent::Open { file, bytes },
                LogFileContent::Written(bytes) => FileContent::Written(bytes),
            };
            self.add(format!("{dir}/{name}"), content);
        }
    }

    /// Adds the files of a table at one version.
    pub fn add_table(&mut self, table: TableVersion) {
        let TableVersion { name, version, rows, log, tablets } = table;
        let dir = format!("tables/{name}");
        for (file, bytes) in log {
            self.add(format!("{dir}/{file}"), FileContent::Written(bytes.to_vec()));
        }
        for tablet in tablets {
            self.add(format!("{dir}/{}", tablet.name), FileContent::Tablet(tablet.path, tablet.size));
        }
        self.tables.push(TableCopy { name, version, rows });
    }

    /// Returns the bytes of all files.
    ///
    /// Errors: `Corrupt` naming a file that is missing; `Unavailable`.
    pub fn bytes(&self, disk: &dyn Disk) -> Result<u64> {
        self.files.iter().map(|file| file.bytes(disk)).sum()
    }
}

impl BackupFile {
    fn bytes(&self, disk: &dyn Disk) -> Result<u64> {
        match &self.content {
            FileContent::Written(bytes) => Ok(bytes.len() as u64),
            FileContent::Open { bytes, .. } | FileContent::Tablet(_, bytes) => Ok(*bytes),
            FileContent::Published(file) => Ok(file.bytes),
            FileContent::Path(path) => {
                disk.open(path).and_then(|file| file.len()).map_err(|e| unreadable(path, e))
            }
        }
    }
}
