//! All blocks of a session, within `sql.hot_bytes`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, BooleanArray};
use datafusion::common::{Result, internal_err};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use tidemill_zones::TableSnapshot;

use super::block::{Block, Bound, BoundBlock};
use super::column::HotColumn;
use super::keys::MergedKeys;
use super::layout::Layout;
use super::reader::TabletReader;
use super::scan::HotScan;
use super::table::HotTable;

/// Rows without cells up to which an aggregate over all keys is answered key by key. Beyond that, as in a table with few rows
/// per key, reading the rows in batches is faster.
const ROWS_WITHOUT_CELLS_MAX: usize = 262_144;

/// Blocks that one query decodes at the same time.
const LOADS: usize = 2;

/// Decoded columns of event tables, shared by all queries of a session.
///
/// Bounds: `bytes_max` for all blocks together; those that were used least recently are dropped beyond it. Blocks that
/// a running query reads stay alive until it ends.
#[derive(Debug)]
pub(crate) struct HotStore {
    bytes_max: usize,
    tables: Mutex<HashMap<Arc<str>, Arc<HotTable>>>,
    uses: AtomicU64,
}

/// Blocks of a scan, at one snapshot.
#[derive(Debug)]
pub(crate) struct BoundScan {
    pub blocks: Vec<BoundBlock>,
    pub keys: Arc<MergedKeys>,
    /// For each block which of its keys are selected; `None` if all are.
    selected: Option<Vec<BooleanArray>>,
}

impl BoundScan {
    /// Returns the places of a key in the blocks in which it is selected.
    pub(super) fn selected_places(&self, key: usize) -> Vec<(usize, usize)> {
        let places = self.keys.places(key);
        match &self.selected {
            None => places.to_vec(),
            Some(selected) => {
                let chosen = |(block, key): &&(usize, usize)| {
                    selected.get(*block).is_some_and(|keys| keys.is_valid(*key) && keys.value(*key))
                };
                places.iter().filter(chosen).copied().collect()
            }
        }
    }
}

impl HotStore {
    /// Creates an empty store; `None` if nothing is to be kept.
    pub fn new(bytes_max: usize) -> Option<Arc<Self>> {
        let store = Self { bytes_max, tables: Mutex::default(), uses: AtomicU64::new(0) };
        (bytes_max > 0).then(|| Arc::new(store))
    }

    /// Returns the maximum bytes of all blocks.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the bytes of text up to which the columns of a block, or of a small table, are decoded: larger ones are read
    /// in batches.
    pub fn column_bytes_max(&self) -> usize {
        self.bytes_max / 8
    }

    /// Returns the blocks of `snapshot` for `scan` if all columns are in memory.
    pub fn bind_resident(&self, scan: &HotScan, snapshot: &TableSnapshot) -> Result<Option<Arc<BoundScan>>> {
        let Some(blocks) = self.blocks(scan, snapshot) else { return Ok(None) };
        let mut bound = Vec::with_capacity(blocks.len());
        for block in &blocks {
            match block.bound(scan) {
                Bound::Ready(block) => bound.push(block),
                Bound::Missing | Bound::Unservable => return Ok(None),
            }
        }
        self.finish(scan, &blocks, bound).map(Some)
    }

    /// Returns the blocks of `snapshot` for `scan`, and decodes what is missing; `None` if they cannot serve it: the
    /// table changed since the query was planned, its columns need more than all memory for blocks, its values have to be
    /// read row by row, or its rows are so few per key that there are no cells.
    ///
    /// Errors: those of the object store; `Corrupt` for a damaged tablet.
    pub async fn bind(
        &self,
        scan: &HotScan,
        snapshot: &TableSnapshot,
        reader: &TabletReader,
    ) -> Result<Option<Arc<BoundScan>>> {
        let Some(blocks) = self.blocks(scan, snapshot) else { return Ok(None) };
        let rows = blocks.iter().map(|block| block.rows()).fold(0, usize::saturating_add);
        if rows.saturating_mul(scan.bytes_per_row()) > self.bytes_max
            || rows > scan.rows_max()
            || lacks_cells(scan, &blocks)
        {
            return Ok(None);
        }
        let missing = blocks.iter().filter(|block| matches!(block.bound(scan), Bound::Missing));
        let new_rows = missing.map(|block| block.rows()).fold(0, usize::saturating_add);
        self.make_room(new_rows.saturating_mul(scan.bytes_per_row()));
        let mut loaded = false;
        let loads = stream::iter(blocks.clone()).map(|block| async move {
            match block.bound(scan) {
                Bound::Missing => block.load(scan, reader).await.map(|bound| (bound, true)),
                bound => Ok((bound, false)),
            }
        });
        let loads: Vec<(Bound, bool)> = loads.buffered(LOADS).try_collect().await?;
        let mut bound = Vec::with_capacity(loads.len());
        for (block, new) in loads {
            loaded |= new;
            match block {
                Bound::Ready(block) => bound.push(block),
                Bound::Unservable => return Ok(None),
                Bound::Missing => return internal_err!("a block lacks columns that it has just decoded"),
            }
        }
        if loaded {
            self.make_room(0);
        }
        if lacks_cells(scan, &blocks) {
            return Ok(None);
        }
        self.finish(scan, &blocks, bound).map(Some)
    }

    /// Returns the number of blocks of `snapshot`, whatever their times; 0 if the table changed since the scan was planned.
    pub fn block_count(&self, scan: &HotScan, snapshot: &TableSnapshot) -> usize {
        let blocks = self.table(&scan.table).blocks(&scan.table_schema, scan.roles, snapshot);
        blocks.map_or(0, |blocks| blocks.len())
    }

    /// Returns the blocks that may have rows in the time range of the scan; `None` if the table changed since the scan
    /// was planned.
    fn blocks(&self, scan: &HotScan, snapshot: &TableSnapshot) -> Option<Vec<Arc<Block>>> {
        let blocks = self.table(&scan.table).blocks(&scan.table_schema, scan.roles, snapshot)?;
        let times = scan.selection.times;
        let in_range: Vec<Arc<Block>> =
            blocks.iter().filter(|block| block.may_contain(times)).cloned().collect();
        self.touch(&in_range);
        Some(in_range)
    }

    /// Returns the blocks of a table, which may be none yet.
    pub(super) fn table(&self, name: &Arc<str>) -> Arc<HotTable> {
        let mut tables = self.tables.lock();
        match tables.get(name) {
            Some(table) => table.clone(),
            None => tables.entry(name.clone()).or_default().clone(),
        }
    }

    /// Marks blocks as needed by a query now.
    pub(super) fn touch<'b>(&self, blocks: impl IntoIterator<Item = &'b Arc<Block>>) {
        let use_number = self.uses.fetch_add(1, Ordering::Relaxed);
        blocks.into_iter().for_each(|block| block.touch(use_number));
    }

    fn finish(
        &self,
        scan: &HotScan,
        blocks: &[Arc<Block>],
        bound: Vec<BoundBlock>,
    ) -> Result<Arc<BoundScan>> {
        let layouts = || bound.iter().map(|b| b.layout.clone()).collect::<Vec<Arc<Layout>>>();
        let table = self.tables.lock().get(&scan.table).cloned();
        let keys = match table {
            Some(table) => table.merged_keys(blocks, layouts),
            None => Arc::new(MergedKeys::new(&layouts())),
        };
        let selected = match &scan.selection.keys {
            None => None,
            Some(condition) => {
                let chosen = bound.iter().map(|b| b.layout.select_keys(condition.as_ref()));
                Some(chosen.collect::<Result<Vec<_>>>()?)
            }
        };
        Ok(Arc::new(BoundScan { blocks: bound, keys, selected }))
    }

    /// Drops the blocks that were used least recently, until the others leave room for `bytes` more.
    pub(super) fn make_room(&self, bytes: usize) {
        let most = self.bytes_max.saturating_sub(bytes);
        let tables: Vec<Arc<HotTable>> = self.tables.lock().values().cloned().collect();
        let mut blocks: Vec<(u64, usize, Arc<HotTable>, Arc<Block>)> = Vec::new();
        for table in tables {
            for block in table.all() {
                let used = block.used.load(Ordering::Relaxed);
                blocks.push((used, block.bytes(), table.clone(), block));
            }
        }
        let mut total: usize = blocks.iter().map(|(_, bytes, ..)| *bytes).sum();
        blocks.sort_by_key(|(used, ..)| *used);
        for (_, bytes, table, block) in blocks {
            if total <= most {
                return;
            }
            table.remove(&block);
            total -= bytes;
        }
    }
}

/// Returns whether a scan that needs cells would read many rows key by key, as far as the blocks are known.
fn lacks_cells(scan: &HotScan, blocks: &[Arc<Block>]) -> bool {
    let without =
        blocks.iter().filter_map(|block| block.layout.get()).filter(|layout| layout.cells.is_none());
    scan.needs_cells() && without.map(|layout| layout.rows).sum::<usize>() > ROWS_WITHOUT_CELLS_MAX
}

impl BoundBlock {
    /// Returns the column `column` of the scan.
    pub fn column(&self, column: usize) -> &HotColumn {
        &self.columns[column]
    }
}
