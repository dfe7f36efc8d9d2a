//! The data directory: who holds it, how many partitions it has, which app is deployed in it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tidemill_types::{Error, Result};

use crate::App;
use crate::app::AppSource;
use crate::space;

const FORMAT: u32 = 1;

/// A data directory held by this process.
pub struct DataDir {
    path: PathBuf,
    /// Unlocked when dropped.
    _lock: File,
    meta: Meta,
}

#[derive(Clone, Serialize, Deserialize)]
struct Meta {
    format: u32,
    partitions: u32,
    /// Larger at every start: a table's owner of an earlier start can no longer commit.
    epoch: u64,
}

impl DataDir {
    /// Takes hold of the directory, making it if it is not there. `partitions` counts for a new one only.
    ///
    /// Errors: `Conflict` while another process holds it; `Invalid` for a directory of another format.
    pub fn open(path: &Path, partitions: u32) -> Result<Self> {
        std::fs::create_dir_all(path).map_err(|e| failed(path, e))?;
        space::make_room_for_start(path);
        let lock = lock(path)?;
        let file = path.join("meta.json");
        let mut meta = match read_json::<Meta>(&file)? {
            Some(meta) if meta.format == FORMAT => meta,
            Some(meta) => {
                return Err(Error::invalid(format!(
                    "{}: format {}; this version reads format {FORMAT}",
                    file.display(),
                    meta.format
                )));
            }
            None => Meta { format: FORMAT, partitions, epoch: 0 },
        };
        meta.epoch += 1;
        write_json(&file, &meta)?;
        Ok(Self { path: path.to_owned(), _lock: lock, meta })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Partitions, fixed when the directory was made.
    pub fn partitions(&self) -> u32 {
        self.meta.partitions
    }

    /// This start's number.
    pub fn epoch(&self) -> u64 {
        self.meta.epoch
    }

    /// The app deployed here, if one is.
    pub fn app(&self) -> Result<Option<App>> {
        deployed(&self.path)
    }

    /// Makes `app` the deployed one.
    pub fn deploy(&self, app: &App) -> Result<()> {
        write_json(&self.path.join("app.json"), app.source())
    }
}

/// The app deployed in a data directory, if one is. Takes no hold of it.
pub fn deployed(dir: &Path) -> Result<Option<App>> {
    read_json::<AppSource>(&dir.join("app.json"))?.map(App::from_source).transpose()
}

fn lock(path: &Path) -> Result<File> {
    let file = File::create(path.join("lock")).map_err(|e| failed(path, e))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::conflict(format!(
            "{}: another Tidemill process has this data directory open; stop it first, or talk to it over HTTP",
            path.display()
        ))),
        Err(e) => Err(failed(path, e.into())),
    }
}

fn failed(path: &Path, e: std::io::Error) -> Error {
    Error::unavailable(format!("{}: cannot be opened", path.display())).with_source(e)
}

/// The file's content, or `None` when it is not there.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|e| Error::corrupt(format!("{}: cannot be read", path.display())).with_source(e)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed(path, e)),
    }
}

/// Replaces the file so that after a crash it holds the old content or the new.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let failed = |e: std::io::Error| {
        Error::unavailable(format!("{}: cannot be written", path.display())).with_source(e)
    };
    let temporary = path.with_extension("tmp");
    let mut file = File::create(&temporary).map_err(failed)?;
    let bytes = serde_json::to_vec_pretty(value).map_err(|e| failed(e.into()))?;
    file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&temporary, path).map_err(failed)?;
    let dir = path.parent().unwrap_or(Path::new("."));
    File::open(dir).and_then(|d| d.sync_all()).map_err(failed)
}
