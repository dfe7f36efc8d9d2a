//! The blocks of one table.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{SchemaRef, TimestampMicrosecondType};
use object_store::path::Path;
use parking_lot::Mutex;
use tidemill_zones::{TableSnapshot, Tablet};

use super::block::{Block, BlockSource};
use super::keys::MergedKeys;
use super::layout::Layout;
use super::scan::Roles;

/// Rows from which a batch of the tail is a block of its own. Smaller ones are soon merged by the tail, and share one
/// block.
const ROWS_PER_TAIL_BLOCK: usize = 4_096;

/// Maximum number of merged key orders that are kept.
const MERGED_MAX: usize = 8;

/// Identity of a block among those of its table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum BlockId {
    Tablet(Path),
    Batches(Vec<BatchId>),
}

/// Identity of a batch: the address of its times, and its rows. Valid as long as a block keeps the batch alive.
type BatchId = (usize, usize);

/// Blocks of one table. Those of tablets and batches that the table no longer has are dropped by the next query.
#[derive(Debug, Default)]
pub(super) struct HotTable(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Columns and roles of the blocks; a table that was declared anew starts with no blocks.
    shape: Option<(SchemaRef, Roles)>,
    blocks: HashMap<BlockId, Arc<Block>>,
    /// Blocks of the last snapshot, in its order.
    last: Option<Last>,
    merged: Vec<(Vec<Arc<Block>>, Arc<MergedKeys>)>,
    /// Columns that a scan of rows has asked for.
    asked: HashSet<usize>,
}

#[derive(Debug)]
struct Last {
    tablets: Arc<[Arc<Tablet>]>,
    tail: Vec<BatchId>,
    blocks: Arc<[Arc<Block>]>,
}

impl HotTable {
    /// Returns the blocks of `snapshot`: those of the tablets, then those of the tail; `None` if the table has other
    /// columns than when the query was planned, with `schema` and `roles`.
    pub fn blocks(
        &self,
        schema: &SchemaRef,
        roles: Roles,
        snapshot: &TableSnapshot,
    ) -> Option<Arc<[Arc<Block>]>> {
        let same = |schema: &SchemaRef| Arc::ptr_eq(schema, &snapshot.schema) || *schema == snapshot.schema;
        if roles != Roles::of(snapshot) || !same(schema) {
            return None;
        }
        let tail: Vec<BatchId> =
            snapshot.tail.iter().map(|b| batch_id(b, roles.time)).collect::<Option<_>>()?;
        let mut state = self.0.lock();
        if !state.shape.as_ref().is_some_and(|(schema, old)| *old == roles && same(schema)) {
            *state = State { shape: Some((snapshot.schema.clone(), roles)), ..State::default() };
        }
        if let Some(last) = &state.last
            && Arc::ptr_eq(&last.tablets, &snapshot.tablets)
            && last.tail == tail
        {
            return Some(last.blocks.clone());
        }
        let sources = sources(snapshot, &tail);
        let mut blocks = HashMap::with_capacity(sources.len());
        let mut list = Vec::with_capacity(sources.len());
        for (id, source) in sources {
            let block = match state.blocks.get(&id) {
                Some(block) => block.clone(),
                None => Arc::new(Block::new(source, snapshot.schema.clone(), roles)),
            };
            blocks.insert(id, block.clone());
            list.push(block);
        }
        let list: Arc<[Arc<Block>]> = list.into();
        state.blocks = blocks;
        state.merged.clear();
        state.last = Some(Last { tablets: snapshot.tablets.clone(), tail, blocks: list.clone() });
        Some(list)
    }

    /// Returns whether earlier scans of rows have asked for all of these columns, and remembers that one does now.
    pub fn was_asked_for(&self, columns: &[usize]) -> bool {
        let mut state = self.0.lock();
        let new = columns.iter().filter(|column| state.asked.insert(**column)).count();
        new == 0
    }

    /// Returns the keys of `blocks` in one order.
    pub fn merged_keys(
        &self,
        blocks: &[Arc<Block>],
        layouts: impl FnOnce() -> Vec<Arc<Layout>>,
    ) -> Arc<MergedKeys> {
        let same = |known: &[Arc<Block>]| {
            known.len() == blocks.len() && known.iter().zip(blocks).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        if let Some((_, keys)) = self.0.lock().merged.iter().find(|(known, _)| same(known)) {
            return keys.clone();
        }
        let keys = Arc::new(MergedKeys::new(&layouts()));
        let mut state = self.0.lock();
        if state.merged.len() >= MERGED_MAX {
            state.merged.remove(0);
        }
        state.merged.push((blocks.to_vec(), keys.clone()));
        keys
    }

    /// Returns all blocks.
    pub fn all(&self) -> Vec<Arc<Block>> {
        self.0.lock().blocks.values().cloned().collect()
    }

    /// Forgets a block. The next query that needs its rows decodes them again.
    pub fn remove(&self, block: &Arc<Block>) {
        let mut state = self.0.lock();
        state.blocks.retain(|_, other| !Arc::ptr_eq(other, block));
        state.merged.clear();
        state.last = None;
    }
}

/// Returns the origins of the blocks of a snapshot, in its order.
fn sources(snapshot: &TableSnapshot, tail: &[BatchId]) -> Vec<(BlockId, BlockSource)> {
    let tablets = snapshot.tablets.iter();
    let mut sources: Vec<(BlockId, BlockSource)> =
        tablets.map(|t| (BlockId::Tablet(t.path.clone()), BlockSource::Tablet(t.clone()))).collect();
    let (mut small, mut batches) = (Vec::new(), Vec::new());
    for (batch, id) in snapshot.tail.iter().zip(tail).filter(|(batch, _)| batch.num_rows() > 0) {
        if batch.num_rows() >= ROWS_PER_TAIL_BLOCK {
            sources.push((BlockId::Batches(vec![*id]), BlockSource::Batches(vec![batch.clone()])));
        } else {
            small.push(*id);
            batches.push(batch.clone());
        }
    }
    if !small.is_empty() {
        sources.push((BlockId::Batches(small), BlockSource::Batches(batches)));
    }
    sources
}

fn batch_id(batch: &RecordBatch, time: usize) -> Option<BatchId> {
    let times = batch.columns().get(time)?.as_primitive_opt::<TimestampMicrosecondType>()?;
    Some((times.values().as_ptr() as usize, times.len()))
}
