//! Changes of a deploy other than in rules and queries.

use std::collections::BTreeSet;

use tidemill_types::{Error, Result};
use tidemill_zones::ZonesOptions;

use crate::app::App;
use crate::app::settings::Settings;
use crate::directory::datadir::{DataDir, DeploymentRecord};
use crate::directory::tables_location::{open_zones, tables_location};
use crate::queries::compile::{CompiledApp, compile_app_for};

/// Describes the differences in settings and sources. Changes nothing.
///
/// Errors: `Conflict` when the tables are not at the new location.
pub fn settings_changes(
    data: &DataDir,
    deployed: &DeploymentRecord,
    new: &App,
    compiled: &CompiledApp,
) -> Result<Vec<String>> {
    let mut changes = Vec::new();
    let old = &deployed.app;
    if tables_location(data, &old.settings) != tables_location(data, &new.settings) {
        check_tables_location(data, deployed, new, compiled)?;
        changes.push(format!("app.toml: the tables are in {} now", tables_location(data, &new.settings)));
    }
    for source in &new.sources {
        if let Some(before) = old.sources.iter().find(|s| s.name == source.name)
            && before.path != source.path
        {
            changes.push(format!(
                "app.toml: source `{}` reads {} from the line at which it had arrived in {}; with another name it begins \
                 at the first line",
                source.name,
                source.path.display(),
                before.path.display()
            ));
        }
    }
    Ok(changes)
}

/// Rejects a new location of tables unless the tables have been moved there, including those of streams that
/// only the deployed app or an earlier one declared.
fn check_tables_location(
    data: &DataDir,
    deployed: &DeploymentRecord,
    new: &App,
    compiled: &CompiledApp,
) -> Result<()> {
    let old = &deployed.app;
    // if the deployed app no longer compiles, its streams are unknown
    let before = compile_app_for(old, data.partitioning()).ok();
    let declared = before.iter().chain([compiled]).flat_map(|c| c.program.streams());
    let former = deployed.former.keys().map(String::as_str);
    let streams: BTreeSet<&str> =
        declared.map(|s| s.name.as_str()).chain(former).chain(["system.rejected"]).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::unavailable("cannot start the object store's thread").with_source(e))?;
    let rows = |settings: &Settings, stream: &str| -> Result<u64> {
        // The files of the cache belong to the running engine.
        let options = ZonesOptions { cache_memory_bytes: 0, ..settings.zones.clone() };
        let zones = runtime.block_on(open_zones(data, settings, options))?;
        Ok(runtime.block_on(zones.stored_table(stream))?.map_or(0, |table| table.rows))
    };
    for stream in streams {
        let (there, here) = (rows(&new.settings, stream)?, rows(&old.settings, stream)?);
        if there < here {
            return Err(Error::conflict(format!(
                "app.toml: tables = \"{}\" has {there} rows of {stream}, and {here} are stored in {}; nothing was changed. \
                 Stop Tidemill and move that directory first, or leave the setting as it was",
                tables_location(data, &new.settings),
                tables_location(data, &old.settings)
            )));
        }
    }
    Ok(())
}
