//! What a deploy changes besides rules and queries.

use tidemill_types::{Error, Result};
use tidemill_zones::Zones;

use crate::datadir::DataDir;
use crate::queries::load::Compiled;
use crate::{App, Settings};

/// What is different in settings and sources, in words. Nothing is changed.
///
/// Errors: `Conflict` when the tables would be looked for where they are not.
pub fn changes(data: &DataDir, old: &App, new: &App, compiled: &Compiled) -> Result<Vec<String>> {
    let mut changes = Vec::new();
    if location(data, &old.settings) != location(data, &new.settings) {
        tables_moved(data, old, new, compiled)?;
        changes.push(format!("app.toml: the tables are in {} now", location(data, &new.settings)));
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

/// Where the tables are: a directory or a URL.
pub fn location(data: &DataDir, settings: &Settings) -> String {
    settings.tables.clone().unwrap_or_else(|| data.path().join("tables").to_string_lossy().into_owned())
}

/// Refuses another place for tables unless they have been moved there.
fn tables_moved(data: &DataDir, old: &App, new: &App, compiled: &Compiled) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::unavailable("cannot start the object store's thread").with_source(e))?;
    let rows = |settings: &Settings, stream: &str| -> Result<u64> {
        let options = settings.zones.clone();
        let zones = runtime.block_on(Zones::open(&location(data, settings), data.epoch(), options, &[]))?;
        Ok(runtime.block_on(zones.stored(stream))?.map_or(0, |table| table.rows))
    };
    for stream in compiled.program.streams().iter().map(|s| s.name.as_str()).chain(["system.rejected"]) {
        let (there, here) = (rows(&new.settings, stream)?, rows(&old.settings, stream)?);
        if there < here {
            return Err(Error::conflict(format!(
                "app.toml: tables = \"{}\" has {there} rows of {stream}, and {here} are stored in {}; nothing was changed. \
                 Stop Tidemill and move that directory first, or leave the setting as it was",
                location(data, &new.settings),
                location(data, &old.settings)
            )));
        }
    }
    Ok(())
}
