//! Opening a table: creates or replays it, checks it against the declaration and the store, and removes the
//! remains of a crash.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};

use arrow_schema::{Schema, SchemaRef};
use futures::TryStreamExt;
use object_store::{Error as StoreError, ObjectMeta, ObjectStoreExt};
use parking_lot::Mutex;
use tidemill_types::{Error, PartitionId, Result, StreamSchema};

use crate::delta::builder::CommitBuilder;
use crate::delta::commit::{DeltaWriter, committed};
use crate::delta::create::create;
use crate::delta::replay::{TableState, replay};
use crate::delta::schema::{DeltaSchema, StoredColumn, check_names, check_protocol, columns, evolve};
use crate::error::store_error;
use crate::old_files::{is_old_tablet, ms_before};
use crate::owner_epochs::OwnerEpochs;
use crate::stores::location::Location;
use crate::stores::retry::Retry;
use crate::table::{CommittedState, MissingFile, Table};
use crate::tablets::encode::TabletEncoder;
use crate::tablets::tablet::Tablet;
use crate::tablets::tablet_name::tablet_id;
use crate::tail::TableTail;
use crate::{Clock, ZonesOptions};

/// Maximum number of files named in an error; the rest is counted.
const LISTED_FILES_MAX: usize = 5;

/// Settings and dependencies that all tables of a location share.
#[derive(Clone)]
pub(crate) struct StoreContext {
    pub location: Location,
    pub epochs: Arc<OwnerEpochs>,
    pub options: Arc<ZonesOptions>,
    pub clock: Clock,
}

/// Opens the table of `stream`, creating it if it does not exist.
pub(crate) async fn open(
    around: &StoreContext,
    stream: &Arc<StreamSchema>,
    partitions: u32,
) -> Result<Table> {
    check_name(&stream.name)?;
    let place = around.location.table(&stream.name);
    let retry = Retry::new(&around.options);
    // Reject a schema that Delta does not support before anything is written.
    DeltaSchema::of(stream)?;
    let replay = replay_or_create(around, &place, stream, retry).await?;
    check_protocol(&stream.name, &replay.protocol, &replay.metadata)?;
    let held = LiveFileColumns::of(&replay, &place, &stream.name)?;
    let evolution = evolve(stream, &replay.metadata.schema_string, &|column| held.has_column(column))?;
    check_txns(&stream.name, &replay.txns, partitions, &around.epochs)?;

    let schema = stream.table_schema();
    let mut stored_schema = schema.fields().iter().cloned().collect::<Vec<_>>();
    stored_schema.extend(evolution.removed.into_iter().map(Arc::new));
    let stored_schema = Arc::new(Schema::new(stored_schema));
    let live = tablets(&replay, &place, &stored_schema, &stream.name)?;
    let stored = list_tablets(&place, &stream.name, retry).await?;
    let missing = find_missing(&place, &stream.name, &replay, &live, &stored, retry).await?;
    if !missing.is_empty() {
        report_missing(&stream.name, &missing, around.options.open_degraded)?;
    }
    remove_orphans(around, &place, &stream.name, &live, &replay, &stored).await;

    let checkpoint = replay.checkpoint.unwrap_or(0);
    let mut writer = DeltaWriter {
        table: stream.name.clone(),
        location: place,
        schema: stored_schema,
        epochs: around.epochs.clone(),
        retry,
        version: replay.version,
        txns: replay.txns,
        files: live,
        removed: replay.removed.into_iter().filter(|(name, _)| stored.contains_key(name)).collect(),
        metadata: replay.metadata,
        prepared: None,
        stale: None,
    };
    if let Some(text) = evolution.commit {
        change_columns(&mut writer, text, &around.clock).await?;
    }
    Table::assemble(around, stream.clone(), schema, partitions, writer, checkpoint, missing)
}

impl Table {
    fn assemble(
        around: &StoreContext,
        stream: Arc<StreamSchema>,
        schema: SchemaRef,
        partitions: u32,
        writer: DeltaWriter,
        checkpoint: u64,
        missing: Vec<MissingFile>,
    ) -> Result<Self> {
        let tails =
            (0..partitions).map(|p| Mutex::new(TableTail::after(committed(&writer.txns, PartitionId(p)))));
        let sound = writer.files.values().filter(|t| !missing.iter().any(|m| m.name == t.name));
        let shared = CommittedState {
            version: writer.version,
            tablets: sound.cloned().collect(),
            rows: writer.files.values().map(|t| t.rows).sum(),
            removed_rows: writer.removed_rows(),
        };
        Ok(Self {
            encoder: Arc::new(TabletEncoder::new(&stream, &around.options)?),
            tails: tails.collect(),
            location: writer.location.clone(),
            stream,
            schema,
            stored_schema: writer.schema.clone(),
            options: around.options.clone(),
            epochs: around.epochs.clone(),
            clock: around.clock.clone(),
            pending_rows: AtomicU64::new(0),
            pending_bytes: AtomicU64::new(0),
            committed_state: Mutex::new(shared),
            writer: tokio::sync::Mutex::new(writer),
            rewriting: tokio::sync::Mutex::default(),
            unmergeable: Mutex::default(),
            expired_before: AtomicI64::new(i64::MIN),
            checkpoint: AtomicU64::new(checkpoint),
            missing: missing.into(),
            closed: AtomicBool::new(false),
        })
    }
}

/// Columns and size of a stored table, independent of the app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredTable {
    /// All columns, including Tidemill's own (`_time`, …).
    pub columns: Vec<StoredColumn>,
    /// Number of rows of its live files.
    pub rows: u64,
}

/// Reads columns and row count of the stored table `table`; `None` if the table does not exist. Writes
/// nothing.
pub(crate) async fn read_stored_table(around: &StoreContext, table: &str) -> Result<Option<StoredTable>> {
    if check_name(table).is_err() {
        return Ok(None);
    }
    let place = around.location.table(table);
    let Some(replay) = replay(&place, table, Retry::new(&around.options)).await? else { return Ok(None) };
    let held = LiveFileColumns::of(&replay, &place, table)?;
    let columns = columns(table, &replay.metadata.schema_string, &|column| held.has_column(column))?;
    Ok(Some(StoredTable { columns, rows: held.rows }))
}

/// Columns that the live files contain according to their statistics.
struct LiveFileColumns {
    rows: u64,
    columns: HashSet<String>,
    /// True if a file was written by another program, whose statistics may omit columns.
    foreign: bool,
}

impl LiveFileColumns {
    /// Collects the columns. Errors: `Corrupt` for statistics that are not JSON.
    fn of(replay: &TableState, place: &Location, table: &str) -> Result<Self> {
        let mut held = Self { rows: 0, columns: HashSet::new(), foreign: false };
        for (name, add) in &replay.live {
            let stats: serde_json::Value = serde_json::from_str(add.stats.as_deref().unwrap_or("{}"))
                .map_err(|e| {
                    Error::corrupt(format!("table `{table}`: the statistics of file {name} cannot be read"))
                        .with_source(e)
                        .context(replay.file_origin(place, name))
                })?;
            held.rows += stats["numRecords"].as_u64().unwrap_or(0);
            match stats["nullCount"].as_object().filter(|_| tablet_id(name).is_some()) {
                Some(counts) => held.columns.extend(counts.keys().cloned()),
                None => held.foreign = true,
            }
        }
        Ok(held)
    }

    fn has_column(&self, name: &str) -> bool {
        self.foreign || self.columns.contains(name)
    }
}

/// Checks that a stream can be stored as a table: its name and those of its fields.
///
/// Errors: `Invalid` with the name and what a name may have.
pub fn check_stream(stream: &StreamSchema) -> Result<()> {
    check_name(&stream.name)?;
    check_names(stream)
}

/// Checks a table's name, which becomes a directory and a part of URLs. That of a fault stream begins with `!`.
pub(crate) fn check_name(stream: &str) -> Result<()> {
    let name = stream.strip_prefix('!').unwrap_or(stream);
    let fits = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    if fits && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "stream name `{stream}` cannot be a table: expected ASCII letters, digits, `_`, `-` and `.`, not starting with `-` \
         or `.`"
    )))
}

async fn replay_or_create(
    around: &StoreContext,
    place: &Location,
    stream: &StreamSchema,
    retry: Retry,
) -> Result<TableState> {
    if let Some(replay) = replay(place, &stream.name, retry).await? {
        return Ok(replay);
    }
    let now_ms = (around.clock)().micros().div_euclid(1_000);
    let created = create(place, stream, &around.options, now_ms).await;
    // This node or a concurrent one has created it: use the table that exists now.
    match replay(place, &stream.name, retry).await? {
        Some(replay) => Ok(replay),
        None => Err(created.err().unwrap_or_else(|| {
            Error::internal(format!("table `{}` was created and is not at {}", stream.name, place.url))
        })),
    }
}

/// Rejects a table that has more partitions than this node, or a later owner of one of its own.
fn check_txns(table: &str, txns: &HashMap<String, i64>, partitions: u32, epochs: &OwnerEpochs) -> Result<()> {
    for (id, version) in txns {
        let partition = |kind: &str| id.strip_prefix(kind).and_then(|p| p.parse::<u32>().ok());
        if let Some(p) = partition("log/")
            && p >= partitions
        {
            return Err(Error::invalid(format!(
                "table `{table}` has rows of partition {p}, but the number of partitions is {partitions}: it can only grow"
            )));
        }
        if let Some(p) = partition("owner/")
            && let Some(epoch) = epochs.of(PartitionId(p))
            && i128::from(*version) > i128::from(epoch)
        {
            return Err(Error::conflict(format!(
                "table `{table}`: partition {p} belongs to owner epoch {version}; this node's epoch is {epoch}: another node \
                 has taken over, or this node's data directory is older than the table"
            )));
        }
    }
    Ok(())
}

pub(crate) fn tablets(
    replay: &TableState,
    place: &Location,
    schema: &SchemaRef,
    table: &str,
) -> Result<BTreeMap<String, Arc<Tablet>>> {
    let tablets = replay.live.iter().map(|(name, add)| {
        let keys = place.keys.as_ref();
        let tablet = Tablet::from_add(add, name.clone(), place.path(name), schema, table, keys)
            .map_err(|e| e.context(replay.file_origin(place, name)))?;
        Ok((name.clone(), Arc::new(tablet)))
    });
    tablets.collect()
}

/// Lists the files below `tablets/`, by their path below the table.
pub(crate) async fn list_tablets(
    place: &Location,
    table: &str,
    retry: Retry,
) -> Result<HashMap<String, ObjectMeta>> {
    let dir = place.path("tablets");
    let files: Vec<ObjectMeta> = retry
        .run(|| place.store.list(Some(&dir)).try_collect())
        .await
        .map_err(|e| store_error(format!("table `{table}`: {} cannot be listed", place.display(&dir)), e))?;
    Ok(files.into_iter().filter_map(|meta| Some((place.relative(&meta.location)?, meta))).collect())
}

/// Compares the live files with those in the store, by existence and length. Files outside `tablets/`, which
/// other programs wrote, are looked up one request each.
pub(crate) async fn find_missing(
    place: &Location,
    table: &str,
    replay: &TableState,
    live: &BTreeMap<String, Arc<Tablet>>,
    stored: &HashMap<String, ObjectMeta>,
    retry: Retry,
) -> Result<Vec<MissingFile>> {
    let mut missing = Vec::new();
    for (name, tablet) in live {
        let size = match stored.get(name) {
            Some(meta) => Some(meta.size),
            None if name.starts_with("tablets/") => None,
            None => match retry.run(|| place.store.head(&tablet.path)).await {
                Ok(meta) => Some(meta.size),
                Err(StoreError::NotFound { .. }) => None,
                Err(e) => {
                    return Err(store_error(
                        format!("table `{table}`: {} cannot be looked up", place.display(&tablet.path)),
                        e,
                    ));
                }
            },
        };
        let problem = match size {
            Some(size) if size == tablet.size => continue,
            Some(size) => {
                let named_by = replay.file_origin(place, name);
                format!("has {size} bytes instead of {} as in {named_by}", tablet.size)
            }
            None => format!("is missing, though named by {}", replay.file_origin(place, name)),
        };
        missing.push(MissingFile { name: name.clone(), rows: tablet.rows, problem });
    }
    Ok(missing)
}

fn report_missing(table: &str, missing: &[MissingFile], degraded: bool) -> Result<()> {
    let rows: u64 = missing.iter().map(|m| m.rows).sum();
    let shown: Vec<String> = missing
        .iter()
        .take(LISTED_FILES_MAX)
        .map(|m| format!("{} ({} rows) {}", m.name, m.rows, m.problem))
        .collect();
    let more = if missing.len() > LISTED_FILES_MAX {
        format!(" and {} more", missing.len() - LISTED_FILES_MAX)
    } else {
        String::new()
    };
    let message = format!(
        "table `{table}`: {} of its files are missing or damaged, with {rows} rows: {}{more}",
        missing.len(),
        shown.join("; ")
    );
    if degraded {
        tracing::warn!(table, rows, "{message}; opened without these rows");
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "{message}. Restore them from a copy of the table, or set zones.open_degraded = true to open it without these rows"
    )))
}

/// Removes tablets that a crash left between upload and commit. A file is removed only if it is certainly an
/// orphan: it has the name of a tablet, the log names it neither as live nor as removed, and it is older than
/// any commit that could still be in progress. A failure only costs space and is logged.
async fn remove_orphans(
    around: &StoreContext,
    place: &Location,
    table: &str,
    live: &BTreeMap<String, Arc<Tablet>>,
    replay: &TableState,
    stored: &HashMap<String, ObjectMeta>,
) {
    let before_ms = ms_before((around.clock)().micros() / 1_000, around.options.orphan_age_s);
    for (name, meta) in stored {
        let known = live.contains_key(name) || replay.removed.contains_key(name);
        if known || !is_old_tablet(name, meta, before_ms) {
            continue;
        }
        match place.store.delete(&meta.location).await {
            Ok(()) => tracing::info!(
                table,
                file = name,
                bytes = meta.size,
                "removed a file that was never committed"
            ),
            Err(error) => tracing::warn!(table, file = name, %error, "a file that was never committed stays"),
        }
    }
}

/// Commits the declared columns and the retained ones; stored rows have nulls in new columns.
async fn change_columns(writer: &mut DeltaWriter, schema_string: String, clock: &Clock) -> Result<()> {
    let mut metadata = writer.metadata.clone();
    metadata.schema_string = schema_string;
    let mut commit = CommitBuilder::new("ADD COLUMN", clock().micros().div_euclid(1_000));
    commit.metadata(metadata);
    let prepared = commit.build(0)?;
    writer.prepared = Some(Arc::new(prepared));
    writer.finish(false).await.map_err(|e| e.context(format!("new columns of table `{}`", writer.table)))?;
    Ok(())
}
