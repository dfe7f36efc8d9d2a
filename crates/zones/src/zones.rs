//! All tables below one location.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use object_store::ObjectStore;
use tidemill_types::{Error, Result, StreamSchema, Timestamp};
use tokio::sync::Mutex;
use url::Url;

use crate::ZonesOptions;
use crate::location::Location;
use crate::open::{StoreContext, StoredTable, open, read_stored_table};
use crate::table::Table;

/// Where the time of commits comes from, and the age of files.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The event store: a Delta table per kept stream, all below one location, written by one owner.
///
/// Needs a tokio runtime with time enabled; every `async` function must be called inside it.
pub struct Zones {
    context: StoreContext,
    tables: Mutex<HashMap<String, Arc<Table>>>,
}

impl Zones {
    /// Opens `location`: a local directory, created when it is not there, or a URL: `file:///…`,
    /// `memory:///`, `s3://bucket/prefix`, `gs://…`, `az://…`. `epoch` is this owner's, larger at every
    /// start. `store_options` go to the object store's client (`region`, `endpoint`, `access_key_id`, …).
    ///
    /// Errors: `Invalid` for a location, setting or option that is wrong; `Unavailable` when it cannot be
    /// used.
    pub async fn open(
        location: &str,
        epoch: u64,
        options: ZonesOptions,
        store_options: &[(String, String)],
    ) -> Result<Self> {
        let place = Location::open(location, store_options)?;
        Self::build(place, epoch, options, Arc::new(system_time))
    }

    /// Opens the place `url` in a store that the caller made, with the caller's clock.
    ///
    /// Errors: `Invalid` for a URL or setting that is wrong.
    pub async fn with_store(
        store: Arc<dyn ObjectStore>,
        url: Url,
        epoch: u64,
        options: ZonesOptions,
        clock: Clock,
    ) -> Result<Self> {
        Self::build(Location::at(store, url)?, epoch, options, clock)
    }

    fn build(place: Location, epoch: u64, options: ZonesOptions, clock: Clock) -> Result<Self> {
        options.validate()?;
        if i64::try_from(epoch).is_err() {
            return Err(Error::invalid(format!("the owner epoch is {epoch}: expected at most {}", i64::MAX)));
        }
        let around = StoreContext { location: place, epoch, options: Arc::new(options), clock };
        Ok(Self { context: around, tables: Mutex::default() })
    }

    /// The table of `schema`, created when it is not there. Asking again gives the same table; asking with
    /// another schema opens it again, which its tail must be empty for.
    ///
    /// Fields may be added to a stream: stored rows have nulls there. Fields may be removed: new rows have nulls there.
    ///
    /// Errors: `Invalid` when the declaration does not fit what is stored, with what to do; `Corrupt` naming
    /// damaged or missing files; `Conflict` when a later owner has written to the table; `Unavailable`.
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

    /// What is stored under the name `table`, whatever the app says about it; `None` when there is no such table. It need
    /// not be open, nothing is written, and rows in its tail are not counted.
    ///
    /// Errors: `Corrupt` naming a damaged entry of its log; `Unavailable`.
    pub async fn stored_table(&self, table: &str) -> Result<Option<StoredTable>> {
        read_stored_table(&self.context, table).await
    }

    /// Closes the table `name`; asking for it again opens it anew, as after a restart. Rows in its tail are
    /// dropped: they are in the log, and `committed` of the new table says from where to push again. Whoever
    /// still holds the old one is told so. Nothing happens when it is not open.
    pub async fn close(&self, name: &str) {
        let table = self.tables.lock().await.remove(name);
        if let Some(table) = table {
            // with rows in the tail allowed there is no way to fail
            let _ = close_table(&table, true).await;
        }
    }

    /// The tables that are open, by name.
    pub async fn tables(&self) -> Vec<Arc<Table>> {
        let mut tables: Vec<_> = self.tables.lock().await.values().cloned().collect();
        tables.sort_by(|a, b| a.name().cmp(b.name()));
        tables
    }

    /// The store that all tables lie in: `/` for local files, the bucket elsewhere.
    pub fn object_store(&self) -> Arc<dyn ObjectStore> {
        self.context.location.store.clone()
    }

    /// The location as a URL, ending with `/`. Its scheme and host name the store to a query engine.
    pub fn root_url(&self) -> &Url {
        &self.context.location.url
    }

    /// `path` of the store as people write it: from the root of the file system, or as a URL.
    pub fn display_path(&self, path: &object_store::path::Path) -> String {
        self.context.location.display(path)
    }

    /// This owner's epoch.
    pub fn epoch(&self) -> u64 {
        self.context.epoch
    }
}

/// Ends a table's life in this process: from now on its holders are told to ask again.
async fn close_table(table: &Table, with_rows: bool) -> Result<()> {
    // a flush under way ends first
    let _writer = table.writer.lock().await;
    // pushes wait here, and look at `retired` when they go on
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
