//! Verification of a data directory that no program has open, and of a backup: every file is read and compared with its
//! checksums, nothing is changed.

mod checkpoints;
mod files;
mod logs;
mod manifest;
mod report;
mod tables;

use std::path::Path;

use tidemill_log::disk::OsDisk;
use tidemill_types::{ErrorKind, Result};

use crate::admin::backup;
use crate::admin::backup::Manifest;
use crate::app::App;
use crate::directory::datadir;
use crate::directory::datadir::StoppedDir;
use crate::directory::encryption;
use crate::directory::tables_location::stopped_tables;
pub use report::{Damage, KindSummary, Verification};

/// Verifies the data directory `dir`. `log_elsewhere`: its log is not in files of the directory, whatever the app's setting
/// `log` says.
///
/// Errors: `NotFound` when it is not a data directory; `Conflict` while a program has it open; `Unavailable`
/// when files cannot be read. Damage is in the result.
pub fn verify_data(dir: &Path, log_elsewhere: bool) -> Result<Verification> {
    let stopped = match StoppedDir::lock(dir) {
        // a damaged meta.json is what the verification is to find
        Err(e) if e.kind() == ErrorKind::Corrupt => None,
        locked => Some(locked?),
    };
    let mut found = Verification::new(dir);
    files::check_settings(&OsDisk, dir, &mut found);
    let app = encryption::with_keys(dir, datadir::deployed_app(dir).ok().flatten())?;
    let zones = match &stopped {
        Some(stopped) => stopped_tables(dir, stopped.meta(), app.as_ref())?,
        None => backup::tables_in(&dir.join("tables"), app.as_ref())?,
    };
    match log_elsewhere || app.as_ref().is_some_and(|app| app.settings.log.is_some()) {
        true => found.notes.push("the log is not in the data directory and is not verified".to_owned()),
        false => logs::check(&OsDisk, dir, &mut found)?,
    }
    check_state(dir, app.as_ref(), zones.as_ref(), &mut found)?;
    Ok(found)
}

/// Verifies the backup in `dir`: its files against its manifest, and what they contain.
///
/// Errors: `NotFound` when it is not a finished backup; `Corrupt` when its manifest is damaged; `Unavailable`
/// when files cannot be read. Damage of other files is in the result.
pub fn verify_backup(dir: &Path) -> Result<Verification> {
    let manifest = Manifest::read(&OsDisk, dir)?;
    let mut found = Verification::new(dir);
    manifest::check(&OsDisk, dir, &manifest, &mut found)?;
    files::check_settings(&OsDisk, dir, &mut found);
    logs::check(&OsDisk, dir, &mut found)?;
    let app = encryption::with_keys(dir, datadir::deployed_app(dir).ok().flatten())?;
    let zones = backup::tables_in(&dir.join("tables"), app.as_ref())?;
    check_state(dir, app.as_ref(), zones.as_ref(), &mut found)?;
    Ok(found)
}

/// Verifies everything but settings and log.
fn check_state(
    dir: &Path,
    app: Option<&App>,
    zones: Option<&tidemill_zones::Zones>,
    found: &mut Verification,
) -> Result<()> {
    checkpoints::check(&*encryption::stopped_disk(dir, app), dir, found)?;
    if let Some(zones) = zones {
        tables::check(zones, found)?;
    }
    files::check_sinks(&OsDisk, dir, found)?;
    logs::check_changes(&OsDisk, dir, found)
}
