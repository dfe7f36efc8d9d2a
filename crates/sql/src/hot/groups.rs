//! Aggregates per key and time bin: whole cells from their synopsis, the rest from rows.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int64Array, TimestampMicrosecondArray, new_null_array};
use arrow::compute::{cast, interleave};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::Result;

use super::aggregate::{Aggregation, GroupColumn, HotAggregate};
use super::block::BoundBlock;
use super::parts::{PartRows, cut};
use super::scan::{HotScan, TimeRange};
use super::stats::{Stat, StatKind, Stats};
use super::store::BoundScan;

/// Aggregation in progress: returns the groups key by key, in their order.
pub(super) struct Aggregator {
    scan: Arc<HotScan>,
    bound: Arc<BoundScan>,
    next_key: usize,
    done: bool,
}

impl Aggregator {
    pub fn new(scan: Arc<HotScan>, bound: Arc<BoundScan>) -> Self {
        Self { scan, bound, next_key: 0, done: false }
    }

    /// Returns the next groups: at least `rows` if there are as many and they are by key; `None` at the end.
    ///
    /// `reserve` is called with the bytes that the groups take.
    pub fn next(
        &mut self,
        aggregation: &Aggregation,
        rows: usize,
        mut reserve: impl FnMut(usize) -> Result<()>,
    ) -> Result<Option<RecordBatch>> {
        if self.done {
            return Ok(None);
        }
        let mut groups = Groups::new(&self.scan);
        let keys = self.bound.keys.len();
        while self.next_key < keys && !(aggregation.by_key && groups.bins.len() >= rows) {
            let places = self.bound.selected_places(self.next_key);
            self.next_key += 1;
            groups.add_key(aggregation, self.scan.selection.times, &self.bound, &places);
            reserve(groups.bytes())?;
        }
        self.done = self.next_key == keys;
        if aggregation.groups.is_empty() && groups.bins.is_empty() {
            groups.push((0, 0), 0);
        }
        groups.batch(aggregation, &self.scan.schema, &self.bound).map(Some)
    }
}

/// Part of the rows of a key in a block that falls into one bin.
struct Part {
    bin: i64,
    block: usize,
    rows: PartRows,
}

/// Groups that are being aggregated.
struct Groups {
    /// Place of the key of each group.
    keys: Vec<(usize, usize)>,
    bins: Vec<i64>,
    rows: Vec<u64>,
    stats: Vec<Stats>,
    /// Groups by bin, if they are not by key.
    by_bin: HashMap<i64, usize>,
}

impl Groups {
    fn new(scan: &HotScan) -> Self {
        let stats = scan.columns.iter().map(|c| Stats::new(StatKind::of(&c.ty)));
        Self { keys: vec![], bins: vec![], rows: vec![], stats: stats.collect(), by_bin: HashMap::new() }
    }

    fn bytes(&self) -> usize {
        self.stats.iter().map(Stats::bytes).sum::<usize>() + 32 * self.bins.len() + 24 * self.by_bin.len()
    }

    fn push(&mut self, key: (usize, usize), bin: i64) -> usize {
        self.keys.push(key);
        self.bins.push(bin);
        self.rows.push(0);
        self.stats.iter_mut().for_each(Stats::push_empty);
        self.bins.len() - 1
    }

    /// Adds the rows of one key, which is at `places`.
    fn add_key(
        &mut self,
        aggregation: &Aggregation,
        times: TimeRange,
        bound: &BoundScan,
        places: &[(usize, usize)],
    ) {
        let mut parts = Vec::new();
        for (block, key) in places {
            cut(&bound.blocks[*block].layout, *key, aggregation.bin, times, |bin, rows| {
                parts.push(Part { bin, block: *block, rows });
            });
        }
        if places.len() > 1 {
            parts.sort_by_key(|part| part.bin);
        }
        let first = self.bins.len();
        for part in &parts {
            let slot = match aggregation.by_key {
                // parts are in the order of bins: the group is the last one, or new
                true => match self.bins.len().checked_sub(1).filter(|last| *last >= first) {
                    Some(last) if self.bins[last] == part.bin => last,
                    _ => self.push(places[0], part.bin),
                },
                false => match self.by_bin.get(&part.bin) {
                    Some(slot) => *slot,
                    None => {
                        let slot = self.push(places[0], part.bin);
                        self.by_bin.insert(part.bin, slot);
                        slot
                    }
                },
            };
            self.add_part(slot, &bound.blocks[part.block], &part.rows);
        }
    }

    fn add_part(&mut self, slot: usize, block: &BoundBlock, rows: &PartRows) {
        let cells = block.layout.cells.as_ref();
        match (rows, cells) {
            (PartRows::Cells(range), Some(cells)) => {
                self.rows[slot] += (cells.start(range.end) - cells.start(range.start)) as u64;
                for (stats, column) in self.stats.iter_mut().zip(&block.columns) {
                    stats.merge(slot, column.stats(cells), range.clone());
                }
            }
            (PartRows::Rows(range), _) => {
                self.rows[slot] += range.len() as u64;
                for (stats, column) in self.stats.iter_mut().zip(&block.columns) {
                    stats.add_rows(slot, &column.values, range.clone());
                }
            }
            // `cut` returns cells only for blocks that have some
            (PartRows::Cells(_), None) => {}
        }
    }

    /// Returns the groups that have a selected row.
    fn batch(&self, aggregation: &Aggregation, schema: &SchemaRef, bound: &BoundScan) -> Result<RecordBatch> {
        let mut order: Vec<usize> = (0..self.bins.len()).collect();
        if let Some(column) = aggregation.selected.filter(|_| !aggregation.groups.is_empty()) {
            order.retain(|slot| self.stats[column].count(*slot) > 0);
        }
        if !aggregation.by_key {
            order.sort_by_key(|slot| self.bins[*slot]);
        }
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
        for (group, field) in aggregation.groups.iter().zip(schema.fields()) {
            columns.push(match group {
                GroupColumn::Key => {
                    let places: Vec<_> = order.iter().map(|slot| self.keys[*slot]).collect();
                    fit(bound.key_values(&places, field.data_type())?, field.data_type())?
                }
                GroupColumn::Bin(bin) => {
                    let starts = order.iter().map(|slot| bin.start(self.bins[*slot]));
                    let starts = TimestampMicrosecondArray::from_iter_values(starts).with_timezone("UTC");
                    fit(Arc::new(starts), field.data_type())?
                }
            });
        }
        let fields = schema.fields().iter().skip(aggregation.groups.len());
        for (function, field) in aggregation.functions.iter().zip(fields) {
            columns.push(self.column(*function, aggregation.selected, &order, field.data_type())?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(order.len()));
        Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
    }

    fn column(
        &self,
        function: HotAggregate,
        selected: Option<usize>,
        order: &[usize],
        ty: &DataType,
    ) -> Result<ArrayRef> {
        let values: ArrayRef = match function {
            HotAggregate::Rows => match selected {
                None => Arc::new(Int64Array::from_iter_values(order.iter().map(|s| self.rows[*s] as i64))),
                Some(column) => self.counts(column, order),
            },
            HotAggregate::Count(column) => self.counts(column, order),
            HotAggregate::Sum(c) | HotAggregate::Avg(c) | HotAggregate::Min(c) | HotAggregate::Max(c) => {
                match &self.stats[c] {
                    Stats::Float(stats) => {
                        let value = |s: &Stat<f64>| match function {
                            HotAggregate::Avg(_) => s.sum / s.count as f64,
                            HotAggregate::Min(_) => s.min,
                            HotAggregate::Max(_) => s.max,
                            _ => s.sum,
                        };
                        let values = order.iter().map(|slot| &stats[*slot]);
                        Arc::new(values.map(|s| (s.count > 0).then(|| value(s))).collect::<Float64Array>())
                    }
                    Stats::Int(stats) => integers(function, order.iter().map(|slot| &stats[*slot]), ty),
                    // functions of numbers are only planned for columns of numbers
                    Stats::Count(_) => new_null_array(ty, order.len()),
                }
            }
        };
        fit(values, ty)
    }

    fn counts(&self, column: usize, order: &[usize]) -> ArrayRef {
        let counts = order.iter().map(|slot| self.stats[column].count(*slot) as i64);
        Arc::new(Int64Array::from_iter_values(counts))
    }
}

fn integers<'s>(
    function: HotAggregate,
    stats: impl Iterator<Item = &'s Stat<i64>>,
    ty: &DataType,
) -> ArrayRef {
    let floats = matches!(function, HotAggregate::Avg(_)) || *ty == DataType::Float64;
    let sums = matches!(function, HotAggregate::Avg(_) | HotAggregate::Sum(_));
    if floats && sums {
        let value = |s: &Stat<i64>| match function {
            HotAggregate::Avg(_) => s.sum as f64 / s.count as f64,
            _ => s.sum as f64,
        };
        return Arc::new(stats.map(|s| (s.count > 0).then(|| value(s))).collect::<Float64Array>());
    }
    let value = |s: &Stat<i64>| match function {
        HotAggregate::Min(_) => s.min,
        HotAggregate::Max(_) => s.max,
        // DataFusion's sums wrap around
        _ => s.sum as i64,
    };
    Arc::new(stats.map(|s| (s.count > 0).then(|| value(s))).collect::<Int64Array>())
}

fn fit(values: ArrayRef, ty: &DataType) -> Result<ArrayRef> {
    match values.data_type() == ty {
        true => Ok(values),
        false => Ok(cast(&values, ty)?),
    }
}

impl BoundScan {
    /// Returns the keys at `places`; nulls for a table without a key.
    pub(super) fn key_values(&self, places: &[(usize, usize)], ty: &DataType) -> Result<ArrayRef> {
        let keys: Option<Vec<&dyn Array>> = self.blocks.iter().map(|b| b.layout.keys.as_deref()).collect();
        match keys.filter(|keys| !keys.is_empty()) {
            None => Ok(new_null_array(ty, places.len())),
            Some(keys) => Ok(interleave(&keys, places)?),
        }
    }
}
