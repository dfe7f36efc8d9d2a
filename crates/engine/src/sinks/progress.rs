//! How far a sink has come, on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_connect::SinkPosition;
use tidemill_log::disk::{Disk, create_dir_durably};
use tidemill_types::{Error, Offset, Result};

use crate::process::json_file::{read_json, write_json};

/// Committed progress of a file of a sink: the file `sinks/HASH.json` of the data directory, HASH being that of the sink's name; for a sink
/// with a file for each partition `deliveries/p00003/HASH.json`.
pub struct SinkProgress {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Position of the sink; `None` before its first commit.
    pub position: Option<SinkPosition>,
    /// By partition, the offset below which all events are written.
    pub offsets: BTreeMap<u32, Offset>,
}

/// Content of the file.
#[derive(Serialize, Deserialize)]
struct ProgressFile {
    sink: String,
    /// Position in hexadecimal digits.
    position: String,
    offsets: BTreeMap<u32, Offset>,
}

impl SinkProgress {
    /// Reads the progress of the sink `name`.
    ///
    /// Errors: `Corrupt` if the file is damaged, `Unavailable` if it cannot be read.
    pub fn read(disk: Arc<dyn Disk>, dir: &Path, name: &str) -> Result<Self> {
        let path = dir.join(file_name(name));
        let Some(file) = read_json::<ProgressFile>(&*disk, &path)? else {
            return Ok(Self { disk, path, position: None, offsets: BTreeMap::new() });
        };
        let position = from_hex(&file.position)
            .ok_or_else(|| Error::corrupt(format!("{}: the position is not hexadecimal", path.display())))?;
        Ok(Self { disk, path, position: Some(SinkPosition(position)), offsets: file.offsets })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the progress, durably.
    ///
    /// Errors: `Unavailable` if the file cannot be written; the old progress then stays.
    pub fn commit(
        &mut self,
        name: &str,
        position: SinkPosition,
        offsets: BTreeMap<u32, Offset>,
    ) -> Result<()> {
        if let Some(dir) = self.path.parent() {
            create_dir_durably(&*self.disk, dir).map_err(|e| {
                Error::unavailable(format!("{}: cannot be created", dir.display())).with_source(e)
            })?;
        }
        let digits = position.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = ProgressFile { sink: name.to_owned(), position: digits, offsets };
        write_json(&*self.disk, &self.path, &file)?;
        (self.position, self.offsets) = (Some(position), file.offsets);
        Ok(())
    }
}

/// Removes the progress of all sinks but these.
///
/// Errors: `Unavailable` if a file cannot be removed.
pub fn retain<'n>(disk: &dyn Disk, dir: &Path, names: impl Iterator<Item = &'n str>) -> Result<()> {
    let failed =
        |path: &Path, e| Error::unavailable(format!("{}: cannot be removed", path.display())).with_source(e);
    let kept: BTreeSet<String> = names.map(file_name).collect();
    let found = match disk.list(dir) {
        Ok(found) => found,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed(dir, e)),
    };
    let others = found.iter().filter(|name| name.ends_with(".json") && !kept.contains(*name));
    for path in others.map(|name| dir.join(name)) {
        disk.remove(&path).map_err(|e| failed(&path, e))?;
    }
    Ok(())
}

/// Returns the names of the sinks that have progress in `dir`.
///
/// Errors: `Corrupt` for damaged progress; `Unavailable` if a file cannot be read.
pub fn names(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>> {
    let files = crate::process::disk_files::list(disk, dir)?;
    let files = files.iter().filter(|name| name.ends_with(".json"));
    let read = |name: &String| Ok(read_json::<ProgressFile>(disk, &dir.join(name))?.map(|file| file.sink));
    let names = files.map(read).collect::<Result<Vec<_>>>()?;
    Ok(names.into_iter().flatten().collect())
}

fn file_name(name: &str) -> String {
    format!("{:016x}.json", xxhash_rust::xxh3::xxh3_64(name.as_bytes()))
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.as_bytes().chunks(2).map(byte).collect()
}
