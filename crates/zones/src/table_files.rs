//! The files of a table, independently of the app: those of one version, for a copy, and whether they are as they were
//! written.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::Schema;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use tidemill_types::{Error, ErrorKind, Result};

use crate::delta::files::{check_files, version_files};
use crate::delta::replay::{TableState, replay};
use crate::error::store_error;
use crate::open::{StoreContext, check_name};
use crate::stores::location::Location;
use crate::stores::object_directory::ObjectDirectory;
use crate::stores::retry::Retry;
use crate::tablets::encryption::reader_options;
use crate::tablets::tablet::Tablet;

/// Maximum number of attempts to read the files of a version, because a Delta checkpoint may remove some
/// meanwhile.
const ATTEMPTS: u32 = 5;

/// The files of one version of a table.
#[derive(Debug, Clone)]
pub struct TableVersion {
    /// Name of the table.
    pub name: String,
    /// Version in the Delta log.
    pub version: u64,
    /// Rows of the tablets.
    pub rows: u64,
    /// The files of the Delta log with their content, by their paths below the table.
    pub log: Vec<(String, Bytes)>,
    /// The tablets. They stay until `zones.removed_retention_s` after they were replaced.
    pub tablets: Vec<TabletFile>,
}

/// A tablet as the Delta log describes it.
#[derive(Debug, Clone)]
pub struct TabletFile {
    /// Path below the table.
    pub name: String,
    /// Path in the store.
    pub path: Path,
    /// Size in bytes.
    pub size: u64,
}

/// Content of a table, and the damage of its files.
#[derive(Debug, Clone, Default)]
pub struct TableInspection {
    /// Name of the table.
    pub name: String,
    /// Version in the Delta log; `None` if the log cannot be read.
    pub version: Option<u64>,
    /// Number of tablets.
    pub tablets: u64,
    /// Rows that the Delta log says they have.
    pub rows: u64,
    /// Bytes of the tablets.
    pub tablet_bytes: u64,
    /// Number of files of the Delta log.
    pub log_files: u64,
    /// Bytes of the files of the Delta log.
    pub log_bytes: u64,
    /// Damaged and missing tablets, and what is wrong with each.
    pub damaged_tablets: Vec<(String, String)>,
    /// Damaged and missing files of the Delta log, and what is wrong with each.
    pub damaged_log: Vec<(String, String)>,
}

/// Returns the names of the tables at a location.
pub(crate) async fn table_names(around: &StoreContext) -> Result<Vec<String>> {
    let place = &around.location;
    let listed = Retry::new(&around.options)
        .run(|| place.store.list_with_delimiter(Some(&place.prefix)))
        .await
        .map_err(|e| store_error(format!("{} cannot be listed", place.url), e))?;
    let names = listed.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned));
    let mut names: Vec<String> = names.filter(|name| check_name(name).is_ok()).collect();
    names.sort();
    Ok(names)
}

/// Returns the files of the newest version of the table `name`, or `None` if the table does not exist.
pub(crate) async fn newest_version(around: &StoreContext, name: &str) -> Result<Option<TableVersion>> {
    let place = around.location.table(name);
    let retry = Retry::new(&around.options);
    let mut attempt = 1;
    loop {
        let Some(state) = replay(&place, name, retry).await? else { return Ok(None) };
        match version_files(&place, name, retry, &state).await {
            Ok(log) => {
                let live = live_tablets(&place, name, &state)?;
                let rows = live.iter().map(|tablet| tablet.rows).sum();
                let tablets =
                    live.into_iter().map(|Tablet { name, path, size, .. }| TabletFile { name, path, size });
                let tablets = tablets.collect();
                return Ok(Some(TableVersion {
                    name: name.to_owned(),
                    version: state.version,
                    rows,
                    log,
                    tablets,
                }));
            }
            Err(e) if e.kind() == ErrorKind::NotFound && attempt < ATTEMPTS => attempt += 1,
            Err(e) => return Err(e),
        }
    }
}

fn live_tablets(place: &Location, table: &str, state: &TableState) -> Result<Vec<Tablet>> {
    // without columns, as the bounds are not used
    let schema = Schema::empty();
    let tablet =
        |(name, add)| Tablet::from_add(add, String::clone(name), place.path(name), &schema, table, None);
    state.live.iter().map(tablet).collect()
}

/// Reads all files of the table `name` and compares them with their checksums and with the Delta log; `None` if there is
/// no such table.
pub(crate) async fn inspect_table(around: &StoreContext, name: &str) -> Result<Option<TableInspection>> {
    let place = around.location.table(name);
    let retry = Retry::new(&around.options);
    let (log_files, log_bytes, damaged_log) = check_files(&place, name, retry).await?;
    let mut found = TableInspection {
        name: name.to_owned(),
        log_files,
        log_bytes,
        damaged_log,
        ..TableInspection::default()
    };
    let state = match replay(&place, name, retry).await {
        Ok(Some(state)) => state,
        Ok(None) if log_files == 0 => return Ok(None),
        Ok(None) => return Ok(Some(found)),
        Err(e) if e.kind() == ErrorKind::Unavailable => return Err(e),
        Err(e) => {
            // a damaged entry is named already
            if found.damaged_log.is_empty() {
                found.damaged_log.push((place.display(&place.path("_delta_log")), e.message().to_owned()));
            }
            return Ok(Some(found));
        }
    };
    found.version = Some(state.version);
    for tablet in live_tablets(&place, name, &state)? {
        found.tablets += 1;
        found.rows += tablet.rows;
        found.tablet_bytes += tablet.size;
        if let Err(problem) = check_tablet(&place, name, retry, &tablet).await? {
            found.damaged_tablets.push((place.display(&tablet.path), problem));
        }
    }
    Ok(Some(found))
}

/// Compares a tablet with its description. The inner error says what is wrong with it.
async fn check_tablet(
    place: &Location,
    table: &str,
    retry: Retry,
    tablet: &Tablet,
) -> Result<Result<(), String>> {
    let fetched = retry.run(|| async { place.store.get(&tablet.path).await?.bytes().await }).await;
    let bytes = match fetched {
        Ok(bytes) => bytes,
        Err(StoreError::NotFound { .. }) => {
            return Ok(Err(format!("it is missing, with {} rows", tablet.rows)));
        }
        Err(e) => {
            let path = place.display(&tablet.path);
            return Err(store_error(format!("table `{table}`: {path} cannot be read"), e));
        }
    };
    Ok(check_content(tablet, bytes, reader_options(place.keys.as_ref())?))
}

fn check_content(tablet: &Tablet, bytes: Bytes, options: ArrowReaderOptions) -> Result<(), String> {
    if bytes.len() as u64 != tablet.size {
        return Err(format!("it has {} bytes, and {} in the Delta log", bytes.len(), tablet.size));
    }
    if let Some(sums) = &tablet.checksums {
        let differ = |at: std::ops::Range<u64>| {
            format!(
                "bytes {} to {} are not what was written: their checksum in the Delta log differs",
                at.start, at.end
            )
        };
        sums.check(0, &bytes).map_err(differ)?;
    }
    let footer = ParquetRecordBatchReaderBuilder::try_new_with_options(bytes, options)
        .map_err(|e| format!("its footer: {e}"))?;
    let rows = footer.metadata().file_metadata().num_rows();
    if u64::try_from(rows) != Ok(tablet.rows) {
        return Err(format!("it has {rows} rows, and {} in the Delta log", tablet.rows));
    }
    Ok(())
}

/// Reads a tablet in parts and hands them to `write`.
pub(crate) async fn read_file(
    around: &StoreContext,
    path: &Path,
    mut write: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let place = &around.location;
    let failed = |e| store_error(format!("{} cannot be read", place.display(path)), e);
    let retry = Retry::new(&around.options);
    let size = retry.run(|| place.store.head(path)).await.map_err(failed)?.size;
    let mut at = 0;
    while at < size {
        let range = at..(at + READ_BYTES).min(size);
        let part = retry.run(|| place.store.get_range(path, range.clone())).await.map_err(failed)?;
        if part.is_empty() {
            return Err(Error::unavailable(format!("{} became shorter", place.display(path))));
        }
        write(&part)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Writes the files of a table at one version below the directory of its name in `to`. Tablets that are there with their size, by `present`, are not
/// written again; the Delta log comes last, so that a table is there with all of its tablets or not at all.
pub(crate) async fn copy_table(
    around: &StoreContext,
    version: &TableVersion,
    to: &ObjectDirectory,
    present: &BTreeMap<String, u64>,
) -> Result<()> {
    let place = &around.location;
    let retry = Retry::new(&around.options);
    let name_of = |file: &str| format!("{}/{file}", version.name);
    for tablet in &version.tablets {
        let name = name_of(&tablet.name);
        if present.get(&name) == Some(&tablet.size) {
            continue;
        }
        let failed = |e| store_error(format!("{} cannot be read", place.display(&tablet.path)), e);
        let mut at = 0;
        let next = async |most: usize| {
            let range = at..(at + most as u64).min(tablet.size);
            if range.is_empty() {
                return Ok(Bytes::new());
            }
            at = range.end;
            retry.run(|| place.store.get_range(&tablet.path, range.clone())).await.map_err(failed)
        };
        to.upload_pieces(&name, next).await?;
    }
    for (file, bytes) in &version.log {
        let name = name_of(file);
        if !to.create(&name, bytes).await? && to.read(&name).await?.as_ref() != Some(bytes) {
            return Err(Error::conflict(format!(
                "{}: there is another file of that name",
                to.display(&name)
            )));
        }
    }
    Ok(())
}

/// Bytes that are read of a file at a time.
const READ_BYTES: u64 = 8 << 20;

/// Returns a location for reading: nothing is created there.
pub(crate) fn read_only(location: &str, store_options: &[(String, String)]) -> Result<Option<Location>> {
    let dir = match url::Url::parse(location) {
        Ok(url) if url.scheme() == "file" => url.to_file_path().ok(),
        Ok(_) if location.contains("://") => None,
        _ => Some(std::path::PathBuf::from(location)),
    };
    let Some(dir) = dir else { return Location::open(location, store_options).map(Some) };
    if !dir.is_dir() {
        return Ok(None);
    }
    let failed = |e: std::io::Error| {
        Error::unavailable(format!("the table directory {} cannot be read", dir.display())).with_source(e)
    };
    let dir = dir.canonicalize().map_err(failed)?;
    let url = url::Url::from_directory_path(&dir)
        .map_err(|()| Error::invalid(format!("the table directory {} is not a valid path", dir.display())))?;
    Location::at(Arc::new(object_store::local::LocalFileSystem::new()), url).map(Some)
}
