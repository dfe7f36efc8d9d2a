//! Where the tables are, and how they are opened there.

use tidemill_types::Result;
use tidemill_zones::{Zones, ZonesOptions, store_options};

use crate::Settings;
use crate::datadir::DataDir;

/// Returns the location of the tables: a directory or a URL.
pub fn tables_location(data: &DataDir, settings: &Settings) -> String {
    settings.tables.clone().unwrap_or_else(|| data.path().join("tables").to_string_lossy().into_owned())
}

/// Opens the tables where the settings say, with the credentials of the environment.
///
/// Errors: those of [`store_options`] and [`Zones::open`].
pub async fn open_zones(data: &DataDir, settings: &Settings, options: ZonesOptions) -> Result<Zones> {
    let location = tables_location(data, settings);
    let store = store_options(&location, &settings.tables_store, std::env::vars())?;
    Zones::open(&location, data.epoch(), options, &store).await
}
