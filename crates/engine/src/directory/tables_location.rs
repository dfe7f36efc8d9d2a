//! Where the tables are, and how they are opened there.

use std::collections::BTreeMap;
use std::path::Path;

use tidemill_types::{Error, Result};
use tidemill_zones::{SharedFile, Zones, ZonesOptions, store_options};

use crate::app::App;
use crate::app::settings::Settings;
use crate::directory::datadir::{DataDir, DataDirMeta};
use crate::directory::encryption::KEY_RING_FILE;

/// Returns the location of the tables: a directory or a URL.
pub fn tables_location(data: &DataDir, settings: &Settings) -> String {
    data.tables_elsewhere(settings).unwrap_or_else(|| in_directory(data.path()))
}

fn in_directory(data: &Path) -> String {
    data.join("tables").to_string_lossy().into_owned()
}

/// Opens the tables where the settings say, with the credentials of the environment.
///
/// Errors: those of [`store_options`] and [`Zones::open`].
pub async fn open_zones(data: &DataDir, settings: &Settings, options: ZonesOptions) -> Result<Zones> {
    let location = tables_location(data, settings);
    let store = options_at(&location, data.tables_elsewhere(settings).is_some(), settings)?;
    let options = ZonesOptions { keys: settings.encryption.of_tablets(), ..options };
    Zones::open(&location, data.epoch(), options, &store).await
}

/// Opens the tables of a data directory that no program has open, to read their files; `None` if it has none.
///
/// Errors: as [`open_zones`].
pub fn stopped_tables(data: &Path, meta: &DataDirMeta, app: Option<&App>) -> Result<Option<Zones>> {
    let settings = app.map(|app| app.settings.clone()).unwrap_or_default();
    let elsewhere = meta.tables_elsewhere(&settings);
    let location = elsewhere.clone().unwrap_or_else(|| in_directory(data));
    let store = options_at(&location, elsewhere.is_some(), &settings)?;
    let options = ZonesOptions { keys: settings.encryption.of_tablets(), ..settings.zones };
    Zones::open_read_only(&location, options, &store)
}

/// Returns the key ring beside the tables; `None` when they are in the data directory, whose ring has their keys.
///
/// Errors: as [`open_zones`].
pub fn shared_file(data: &DataDir, settings: &Settings) -> Result<Option<SharedFile>> {
    shared_file_at(data.tables_elsewhere(settings), settings)
}

/// Like [`shared_file`], for a data directory that no program has open.
///
/// Errors: as [`open_zones`].
pub fn stopped_shared_file(meta: &DataDirMeta, settings: &Settings) -> Result<Option<SharedFile>> {
    shared_file_at(meta.tables_elsewhere(settings), settings)
}

fn shared_file_at(elsewhere: Option<String>, settings: &Settings) -> Result<Option<SharedFile>> {
    let Some(location) = elsewhere else { return Ok(None) };
    let store = options_at(&location, true, settings)?;
    SharedFile::at(&location, &store, KEY_RING_FILE).map(Some)
}

/// Returns the options of the store at `location`. Those of the settings are for the location in the settings.
fn options_at(location: &str, is_setting: bool, settings: &Settings) -> Result<Vec<(String, String)>> {
    let none = BTreeMap::new();
    let options = if is_setting { &settings.tables_store } else { &none };
    store_options(location, options, std::env::vars())
}

/// Creates the runtime that reads tables of a directory that no program has open.
///
/// Errors: `Unavailable`.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::unavailable("cannot start the object store's thread").with_source(e))
}
