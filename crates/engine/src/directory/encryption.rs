//! The key ring of a data directory: `keys.json`, and the one beside tables that are elsewhere.
//!
//! The ring of the directory has all keys. Tables in an object store have a ring beside them with their keys, so that every
//! node with these tables can read what the others have written.

use std::path::Path;
use std::sync::Arc;

use tidemill_encryption::{KeyRing, KeySource, OpenKeyRing, Purpose, WrappingKeys};
use tidemill_log::EncryptedDisk;
use tidemill_log::disk::{Disk, OsDisk};
use tidemill_types::{Error, Result};
use tidemill_zones::SharedFile;

use crate::app::App;
use crate::app::settings::Settings;
use crate::directory::datadir;
use crate::directory::datadir::{DataDir, StoppedDir};
use crate::directory::tables_location::{runtime, shared_file, stopped_shared_file};
use crate::process::json_file::{read_json, write_json};
use crate::process::private_files;

/// File with the key ring, in the data directory and beside tables elsewhere.
pub const KEY_RING_FILE: &str = "keys.json";
/// Directories whose files are encrypted as a whole.
const ENCRYPTED_DIRS: [&str; 3] = ["checkpoints", "ids", "set_aside"];
/// Attempts to write the ring beside the tables while other nodes do.
const ATTEMPTS: u32 = 5;

/// Opens the keys that the settings lead to; `None` without encryption. Creates missing keys, and wraps keys again that an
/// earlier wrapping key has wrapped.
///
/// Errors: `Invalid` for keys that do not fit the data, and for encrypted data without keys; `Corrupt` for a key ring that
/// is damaged or missing; `Unavailable`.
pub fn open(data: &DataDir, settings: &Settings) -> Result<Option<OpenKeyRing>> {
    let disk = &**data.disk();
    let Some(wrapping) = wrapping_keys(disk, data.path(), settings)? else { return Ok(None) };
    if let Some(KeySource::File(path)) = settings.encryption.source() {
        warn_of_access(&path);
    }
    let stored = stored_ring(disk, data.path())?;
    if stored.is_none() && data.is_encrypted() {
        return Err(missing_ring(data.path()));
    }
    let mut keys = match &stored {
        Some(ring) => open_ring(ring, &wrapping, data.path())?,
        None => OpenKeyRing::default(),
    };
    let shared = shared_file(data, settings)?;
    let mut is_changed = stored.as_ref().is_none_or(|ring| ring.needs_rotation(&wrapping));
    if let Some(shared) = &shared {
        is_changed |= join(&mut keys, shared, &wrapping)?;
    }
    is_changed |= keys.complete(&Purpose::ALL)?;
    if is_changed {
        write_json(disk, &data.path().join(KEY_RING_FILE), &keys.wrap(&wrapping)?)?;
    }
    data.mark_encrypted()?;
    if let Some(shared) = &shared {
        share(&mut keys, shared, &wrapping)?;
    }
    if stored.is_none() {
        tracing::info!(
            "new data is encrypted from now on; what was stored before stays as it is until it is written again"
        );
    }
    Ok(Some(keys))
}

/// Opens the keys of a data directory or a backup that no program has open, and changes nothing.
///
/// Errors: as [`open`].
pub fn read(dir: &Path, settings: &Settings) -> Result<Option<OpenKeyRing>> {
    let Some(wrapping) = wrapping_keys(&OsDisk, dir, settings)? else { return Ok(None) };
    match stored_ring(&OsDisk, dir)? {
        Some(ring) => open_ring(&ring, &wrapping, dir).map(Some),
        None if datadir::read_meta(&OsDisk, dir).is_ok_and(|meta| meta.encrypted) => Err(missing_ring(dir)),
        None => Ok(None),
    }
}

/// Outcome of wrapping the keys of a data directory again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRotation {
    /// Names of the keys that wrapped the ring before.
    pub before: Vec<String>,
    /// Name of the key that wraps it now.
    pub now: String,
}

/// Wraps the keys of a data directory that no program has open again, with the first of the wrapping keys.
///
/// Errors: `NotFound` when the directory has no app or is not encrypted; `Conflict` while a program has it open; those of
/// the keys.
pub fn rotate_keys(dir: &Path) -> Result<KeyRotation> {
    let stopped = StoppedDir::lock(dir)?;
    let app = datadir::deployed_app(dir)?
        .ok_or_else(|| Error::not_found(format!("{}: no app is deployed in it", dir.display())))?;
    let (Some(wrapping), Some(ring)) =
        (wrapping_keys(&OsDisk, dir, &app.settings)?, stored_ring(&OsDisk, dir)?)
    else {
        return Err(Error::not_found(format!(
            "{}: is not encrypted: set key_file or key_command in the section [settings.encryption] and start it once",
            dir.display()
        )));
    };
    let before = ring.wrapped_by().into_iter().map(str::to_owned).collect();
    let mut keys = open_ring(&ring, &wrapping, dir)?;
    write_json(&OsDisk, &dir.join(KEY_RING_FILE), &keys.wrap(&wrapping)?)?;
    if let Some(shared) = stopped_shared_file(stopped.meta(), &app.settings)? {
        share(&mut keys, &shared, &wrapping)?;
    }
    Ok(KeyRotation { before, now: wrapping.current().0.to_owned() })
}

/// Returns a disk that decrypts the files of the data directory `dir` and encrypts new ones, if there are keys.
pub fn encrypted_disk(disk: Arc<dyn Disk>, dir: &Path, settings: &Settings) -> Arc<dyn Disk> {
    match settings.encryption.of_files() {
        Some(keys) => {
            let directories = ENCRYPTED_DIRS.map(|name| dir.join(name)).to_vec();
            Arc::new(EncryptedDisk::new(disk, keys, directories))
        }
        None => disk,
    }
}

/// Adds the keys to the settings of the app of a directory that no program has open.
///
/// Errors: as [`read`].
pub fn with_keys(dir: &Path, app: Option<App>) -> Result<Option<App>> {
    let Some(mut app) = app else { return Ok(None) };
    app.settings.encryption.keys = read(dir, &app.settings)?;
    Ok(Some(app))
}

/// Returns the disk of a directory that no program has open, with the keys of its app.
pub fn stopped_disk(dir: &Path, app: Option<&App>) -> Arc<dyn Disk> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    match app {
        Some(app) => encrypted_disk(disk, dir, &app.settings),
        None => disk,
    }
}

/// Warns of a key file that all users of the machine can read. Its mode stays: another program may own and need it.
fn warn_of_access(path: &Path) {
    if let Some(mode) = private_files::mode_for_all(path) {
        tracing::warn!(
            "key_file {}: all users of this machine can read the keys (mode {mode:04o}): chmod 600 it, and wrap the data with \
             a new key if somebody may have read it",
            path.display()
        );
    }
}

fn wrapping_keys(disk: &dyn Disk, dir: &Path, settings: &Settings) -> Result<Option<WrappingKeys>> {
    match settings.encryption.source() {
        Some(source) => source.read().map(Some).map_err(|e| e.context("the settings of encryption")),
        None if disk.open(&dir.join(KEY_RING_FILE)).is_ok() => Err(Error::invalid(format!(
            "{}: is encrypted, and no key is set: set key_file or key_command in the section [settings.encryption] of app.toml, \
             with the key that wraps its {KEY_RING_FILE}",
            dir.display()
        ))),
        None if datadir::read_meta(disk, dir).is_ok_and(|meta| meta.encrypted) => Err(missing_ring(dir)),
        None => Ok(None),
    }
}

fn stored_ring(disk: &dyn Disk, dir: &Path) -> Result<Option<KeyRing>> {
    read_json(disk, &dir.join(KEY_RING_FILE))
}

fn open_ring(ring: &KeyRing, wrapping: &WrappingKeys, dir: &Path) -> Result<OpenKeyRing> {
    ring.open(wrapping).map_err(|e| e.context(dir.join(KEY_RING_FILE).display()))
}

fn missing_ring(dir: &Path) -> Error {
    Error::corrupt(format!(
        "{}: is missing, and what is stored is encrypted with the keys in it: restore the file from a backup",
        dir.join(KEY_RING_FILE).display()
    ))
}

/// Reads the ring beside the tables and adds its keys; returns whether there was a new one.
fn join(keys: &mut OpenKeyRing, shared: &SharedFile, wrapping: &WrappingKeys) -> Result<bool> {
    match read_shared(shared, wrapping)? {
        Some((_, theirs, _)) => Ok(keys.add(&theirs, Purpose::Tables)),
        None => Ok(false),
    }
}

type SharedRing = (KeyRing, OpenKeyRing, object_store::UpdateVersion);

fn read_shared(shared: &SharedFile, wrapping: &WrappingKeys) -> Result<Option<SharedRing>> {
    let Some((bytes, version)) = runtime()?.block_on(shared.read())? else { return Ok(None) };
    let ring: KeyRing = serde_json::from_slice(&bytes)
        .map_err(|e| Error::corrupt(format!("{} cannot be read", shared.display())).with_source(e))?;
    let open = ring.open(wrapping).map_err(|e| e.context(shared.display()))?;
    Ok(Some((ring, open, version)))
}

/// Writes the keys of tables to the ring beside them, unless they are there already, wrapped by the current key.
fn share(keys: &mut OpenKeyRing, shared: &SharedFile, wrapping: &WrappingKeys) -> Result<()> {
    for _ in 0..ATTEMPTS {
        let theirs = read_shared(shared, wrapping)?;
        if let Some((ring, open, _)) = &theirs {
            keys.add(open, Purpose::Tables);
            let is_same = open.keys(Purpose::Tables) == keys.keys(Purpose::Tables);
            if is_same && !ring.needs_rotation(wrapping) {
                return Ok(());
            }
        }
        let ring = keys.only(Purpose::Tables).wrap(wrapping)?;
        let content = serde_json::to_vec_pretty(&ring)
            .map_err(|e| Error::internal("a key ring cannot be written as JSON").with_source(e))?;
        let version = theirs.map(|(_, _, version)| version);
        if runtime()?.block_on(shared.write(&content, version))? {
            return Ok(());
        }
    }
    Err(Error::unavailable(format!("{}: other nodes write it all the time", shared.display())))
}
