//! All tables below one location.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use object_store::ObjectStore;
use tidemill_types::{Error, PartitionId, Result, StreamSchema, Timestamp};
use tokio::sync::Mutex;
use url::Url;

use crate::ZonesOptions;
use crate::cache::{CacheOptions, CacheStats, TabletCache};
use crate::open::{StoreContext, StoredTable, open, read_stored_table};
use crate::options::Clock;
use crate::owner_epochs::OwnerEpochs;
use crate::stores::location::Location;
use crate::stores::object_directory::ObjectDirectory;
use crate::stores::retry::Retry;
use crate::table::Table;
use crate::table_files::{self, TableInspection, TableVersion};
use crate::tablets::encryption::TabletKeys;

/// The event store: one Delta table per stored stream, all below one location, written by one owner.
///
/// Needs a tokio runtime with time enabled; every `async` function must be called inside it.
pub struct Zones {
    context: StoreContext,
    tables: Mutex<HashMap<String, Arc<Table>>>,
}

impl Zones {
    /// Opens `location`: a local directory, created if it does not exist, or a URL: `file:///…`,
    /// `memory:///`, `s3://bucket/prefix`, `gs://…`, `az://…`. `epoch` identifies this owner and must
    /// increase at every start. `store_options` are passed to the object store's client (`region`,
    /// `endpoint`, `access_key_id`, …).
    ///
    /// Errors: `Invalid` for an invalid location, setting or option, and for an object store that ignores conditions of
    /// writes; `Unavailable` when the location cannot be used.
    pub async fn open(
        location: &str,
        epoch: u64,
        options: ZonesOptions,
        store_options: &[(String, String)],
    ) -> Result<Self> {
        let mut place = Location::open(location, store_options)?;
        options.validate()?;
        if !matches!(place.url.scheme(), "file" | "memory") {
            place.check_conditional_put(Retry::new(&options)).await?;
            if options.cache_memory_bytes > 0 {
                let cache = CacheOptions {
                    memory_bytes: options.cache_memory_bytes,
                    disk_bytes: options.cache_disk_bytes,
                    dir: options.cache_dir.clone(),
                };
                place.cache = Some(TabletCache::open(&cache).await?);
            }
        }
        Self::build(place, epoch, options, Arc::new(system_time))
    }

    /// Opens `location` for [`Self::table_names`], [`Self::newest_version`], [`Self::inspect_table`] and [`Self::read_file`],
    /// which create and change nothing; `None` for a local directory that does not exist.
    ///
    /// Errors: as [`Self::open`].
    pub fn open_read_only(
        location: &str,
        options: ZonesOptions,
        store_options: &[(String, String)],
    ) -> Result<Option<Self>> {
        let place = table_files::read_only(location, store_options)?;
        place.map(|place| Self::build(place, 0, options, Arc::new(system_time))).transpose()
    }

    /// Returns the names of all tables at the location, those of streams that no app declares included.
    ///
    /// Errors: `Unavailable`.
    pub async fn table_names(&self) -> Result<Vec<String>> {
        table_files::table_names(&self.context).await
    }

    /// Returns the files of the newest version of the stored table `name`, or `None` if the table does not
    /// exist.
    ///
    /// Errors: `Corrupt` naming a damaged file of its Delta log; `Unavailable`.
    pub async fn newest_version(&self, name: &str) -> Result<Option<TableVersion>> {
        table_files::newest_version(&self.context, name).await
    }

    /// Reads all files of the stored table `name` and compares them with their checksums and with the Delta
    /// log; `None` if the table does not exist.
    ///
    /// Errors: `Unavailable`; damage is in the result.
    pub async fn inspect_table(&self, name: &str) -> Result<Option<TableInspection>> {
        table_files::inspect_table(&self.context, name).await
    }

    /// Reads the file at `path` in parts and hands them to `write`.
    ///
    /// Errors: those of `write`; `NotFound`; `Unavailable`.
    pub async fn read_file(
        &self,
        path: &object_store::path::Path,
        write: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        table_files::read_file(&self.context, path, write).await
    }

    /// Writes the files of a table at one version to `to`, where they are a table of a location there. Tablets of `present`, names below `to` with
    /// sizes, are not written again.
    ///
    /// Errors: `Conflict` if `to` has another file of the Delta log; `Unavailable`.
    pub async fn copy_table(
        &self,
        version: &TableVersion,
        to: &ObjectDirectory,
        present: &BTreeMap<String, u64>,
    ) -> Result<()> {
        table_files::copy_table(&self.context, version, to, present).await
    }

    /// Opens the location `url` in the given store, with the given clock.
    ///
    /// Errors: `Invalid` for an invalid URL or setting.
    pub async fn with_store(
        store: Arc<dyn ObjectStore>,
        url: Url,
        epoch: u64,
        options: ZonesOptions,
        clock: Clock,
    ) -> Result<Self> {
        Self::build(Location::at(store, url)?, epoch, options, clock)
    }

    fn build(mut place: Location, epoch: u64, options: ZonesOptions, clock: Clock) -> Result<Self> {
        options.validate()?;
        place.keys = options.keys.clone();
        if i64::try_from(epoch).is_err() {
            return Err(Error::invalid(format!("the owner epoch is {epoch}: expected at most {}", i64::MAX)));
        }
        let epochs = Arc::new(OwnerEpochs::of_all(epoch));
        let around = StoreContext { location: place, epochs, options: Arc::new(options), clock };
        Ok(Self { context: around, tables: Mutex::default() })
    }

    /// Returns the table of `schema`, creating it if it does not exist. Repeated calls return the same table;
    /// a call with another schema or number of partitions reopens the table, which requires an empty tail.
    ///
    /// Fields may be added to a stream: stored rows have nulls there. Fields may be removed: new rows have
    /// nulls there.
    ///
    /// Errors: `Invalid` when the declaration does not fit the stored table, with a remedy; `Corrupt` naming
    /// damaged or missing files; `Conflict` when a later owner has written to the table or the tail is not
    /// empty; `Unavailable`.
    pub async fn table(&self, schema: &Arc<StreamSchema>, partitions: u32) -> Result<Arc<Table>> {
        let mut tables = self.tables.lock().await;
        if let Some(table) = tables.get(&schema.name) {
            if table.stream() == schema && table.tails.len() == partitions as usize {
                return Ok(table.clone());
            }
            close_table(table, false).await?;
            tables.remove(&schema.name);
        }
        let table = Arc::new(open(&self.context, schema, partitions).await?);
        tables.insert(schema.name.clone(), table.clone());
        Ok(table)
    }

    /// Returns columns and row count of the stored table `table`, independently of the app; `None` if the
    /// table does not exist. The table need not be open, nothing is written, and rows in its tail are not
    /// counted.
    ///
    /// Errors: `Corrupt` naming a damaged entry of its Delta log; `Unavailable`.
    pub async fn stored_table(&self, table: &str) -> Result<Option<StoredTable>> {
        read_stored_table(&self.context, table).await
    }

    /// Closes the table `name`; [`Zones::table`] then reopens it as after a restart. Rows in its tail are
    /// dropped: they are in the log, and `committed` of the new table reports the offset to continue from.
    /// Holders of the old table get `Conflict`. Does nothing if the table is not open.
    pub async fn close(&self, name: &str) {
        let table = self.tables.lock().await.remove(name);
        if let Some(table) = table {
            // With rows in the tail allowed, closing cannot fail.
            let _ = close_table(&table, true).await;
        }
    }

    /// Returns the open tables, sorted by name.
    pub async fn tables(&self) -> Vec<Arc<Table>> {
        let mut tables: Vec<_> = self.tables.lock().await.values().cloned().collect();
        tables.sort_by(|a, b| a.name().cmp(b.name()));
        tables
    }

    /// Returns the keys of tablets, if they are encrypted.
    pub fn tablet_keys(&self) -> Option<&TabletKeys> {
        self.context.location.keys.as_ref()
    }

    /// Returns the store of all tables: rooted at `/` for local files, the bucket otherwise.
    pub fn object_store(&self) -> Arc<dyn ObjectStore> {
        self.context.location.store.clone()
    }

    /// Returns the store for queries. Tablets of a remote store are read through the cache, if `cache_memory_bytes` is not 0.
    pub fn query_store(&self) -> Arc<dyn ObjectStore> {
        self.context.location.query_store()
    }

    /// Returns the counters of the cache of tablets, or `None` without a cache.
    pub fn cache_stats(&self) -> Option<CacheStats> {
        self.context.location.cache.as_ref().map(|cache| cache.stats())
    }

    /// Writes what is on its way to the disk of the cache, before the process ends. The cache must not be used afterwards.
    pub async fn close_cache(&self) {
        if let Some(cache) = &self.context.location.cache {
            cache.close().await;
        }
    }

    /// Returns the location as a URL ending with `/`. Its scheme and host identify the store in a query
    /// engine.
    pub fn root_url(&self) -> &Url {
        &self.context.location.url
    }

    /// Formats a store path for messages: an absolute file path, or a URL.
    pub fn display_path(&self, path: &object_store::path::Path) -> String {
        self.context.location.display(path)
    }

    /// Says that this process owns no partition but those that [`Self::own`] gives it.
    pub fn disown_all(&self) {
        self.context.epochs.give_up_all();
    }

    /// Says that this process owns a partition in `epoch`, which is greater than those of all owners before it.
    pub fn own(&self, partition: PartitionId, epoch: u64) {
        self.context.epochs.set(partition, Some(epoch));
    }

    /// Says that this process does not own a partition any more: tables take no rows of it from here.
    pub fn disown(&self, partition: PartitionId) {
        self.context.epochs.set(partition, None);
    }
}

/// Marks a table as closed in this process; from then on its holders get `Conflict`.
async fn close_table(table: &Table, with_rows: bool) -> Result<()> {
    // Wait for an active flush.
    let _writer = table.writer.lock().await;
    // Concurrent pushes block here and check `closed` afterwards.
    let _tails: Vec<_> = table.tails.iter().map(|tail| tail.lock()).collect();
    if !with_rows && table.pending_rows() > 0 {
        return Err(Error::conflict(format!(
            "table `{}` cannot be opened with another schema while {} rows are in its tail: flush it first",
            table.name(),
            table.pending_rows()
        )));
    }
    table.closed.store(true, Ordering::Release);
    Ok(())
}

fn system_time() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
