//! Search: the rows of the buckets in a time range.

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;
use tidemill_types::FieldType;

use super::bucket::Bucket;
use super::groups::{FoundGroups, GroupValues};
use super::{Aggregation, calendar};
use crate::catalog::ROW;
use crate::columns::column::Column;
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::{BucketQuery, Expr, Frame, NoContext, Node, RowRef};
use crate::table::equal_to;

/// Buckets to merge into one bucket of the result.
type BucketParts<'a> = SmallVec<[&'a Bucket; 2]>;

/// Buckets of a granularity to read.
struct BucketRange {
    level: usize,
    /// Range of their starts.
    range: Range<i64>,
    /// True if they are buckets of the result, and not parts of these.
    is_whole: bool,
}

impl Aggregation {
    /// Visits the rows that `read` selects and that satisfy `condition`, which reads a row from slot `slot`.
    /// Order: by bucket start, within a bucket by first occurrence of the group. Columns: see
    /// [`super::AggregationPlan::attributes`].
    ///
    /// Errors: `within` or `per` is not readable, or the condition fails.
    pub fn search(
        &self,
        read: &BucketQuery,
        slot: usize,
        condition: Option<&Expr>,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(&[Column], usize),
    ) -> Result<(), EvalError> {
        let (range, level) = read.eval(&self.plan, frame)?;
        let group = condition.map_or(Ok(None), |c| self.group_of(c, slot, frame))?;
        let mut pieces = Vec::new();
        let whole = match self.plan.time_column {
            Some(_) => self.split_partial_ends(level, range, &mut pieces),
            None => range,
        };
        pieces.push(BucketRange { level, range: whole, is_whole: true });
        let mut groups = FoundGroups::new(&self.groups);
        let stored = pieces.iter().map(|piece| self.read_stored(piece, group.as_ref(), &mut groups));
        let stored: Vec<BTreeMap<i64, Bucket>> = stored.collect::<Result<_, _>>()?;
        let unit = self.levels[level].unit;
        let mut found: BTreeMap<i64, BucketParts<'_>> = BTreeMap::new();
        for (piece, stored) in pieces.iter().zip(&stored) {
            let closed = self.levels[piece.level].closed().range(piece.range.clone());
            for (start, bucket) in stored.iter().chain(closed) {
                let start = calendar::bucket_range(unit, *start).map_err(EvalError::argument)?.start;
                found.entry(start).or_default().push(bucket);
            }
            // from coarse to fine: the finer bucket has the later events, which decide `last` among equal times
            for (open, bucket) in self.levels[..=piece.level].iter().rev().filter_map(|finer| finer.open()) {
                let start = calendar::bucket_range(unit, open).map_err(EvalError::argument)?.start;
                if piece.range.contains(if piece.is_whole { &start } else { &open }) {
                    found.entry(start).or_default().push(bucket);
                }
            }
        }
        let group = group.map(|values| values.and_then(|values| groups.find(&values)));
        for (start, parts) in found {
            let columns = self.visit_rows(&groups, start, &parts, group.as_ref())?;
            let mut rows: SmallVec<[RowRef<'_>; 8]> = frame.rows.iter().copied().collect();
            rows.resize(rows.len().max(slot + 1), None);
            for row in 0..columns[0].len() {
                let matches = match condition {
                    None => true,
                    Some(condition) => {
                        rows[slot] = Some((columns.as_slice(), row));
                        let frame = Frame { rows: &rows, time: frame.time, now: frame.now, host: frame.host };
                        condition.is_true(&frame)?
                    }
                };
                if matches {
                    visit(&columns, row);
                }
            }
        }
        Ok(())
    }

    /// Adds the buckets at both ends that lie only partly in the range, as buckets of finer granularities;
    /// returns the range of the buckets that lie in it as a whole.
    fn split_partial_ends(
        &self,
        level: usize,
        range: Range<i64>,
        pieces: &mut Vec<BucketRange>,
    ) -> Range<i64> {
        let Some(finer) = level.checked_sub(1) else { return range };
        let whole = self.whole_buckets(level, &range);
        self.collect_pieces(finer, range.start..whole.start, pieces);
        self.collect_pieces(finer, whole.end..range.end, pieces);
        whole
    }

    /// Returns the range of the buckets of a level that lie within `stretch` as a whole. If no bucket does,
    /// an empty range at a bucket boundary or at the start of `stretch`.
    fn whole_buckets(&self, level: usize, stretch: &Range<i64>) -> Range<i64> {
        let bucket = |time| calendar::bucket_range(self.levels[level].unit, time).ok();
        let start = bucket(stretch.start).map_or(stretch.start, |first| match first.start < stretch.start {
            true => first.end.min(stretch.end),
            false => first.start,
        });
        start..bucket(stretch.end).map_or(stretch.end, |last| last.start).max(start)
    }

    /// Collects the buckets of a level and of finer ones that cover `stretch`; of the finest level, those
    /// that start in it.
    fn collect_pieces(&self, level: usize, stretch: Range<i64>, pieces: &mut Vec<BucketRange>) {
        if stretch.is_empty() {
            return;
        }
        let finer = level.checked_sub(1);
        let whole = if finer.is_some() { self.whole_buckets(level, &stretch) } else { stretch.clone() };
        finer.into_iter().for_each(|finer| self.collect_pieces(finer, stretch.start..whole.start, pieces));
        pieces.push(BucketRange { level, range: whole.clone(), is_whole: false });
        finer.into_iter().for_each(|finer| self.collect_pieces(finer, whole.end..stretch.end, pieces));
    }

    /// Reads the buckets of a piece that are only in the store, of all groups or of one.
    fn read_stored(
        &self,
        piece: &BucketRange,
        group: Option<&Option<Box<[Value]>>>,
        groups: &mut FoundGroups<'_>,
    ) -> Result<BTreeMap<i64, Bucket>, EvalError> {
        let mut buckets = BTreeMap::new();
        let level = &self.levels[piece.level];
        let (Some(store), Some(stored)) = (&self.plan.store, &level.stored) else { return Ok(buckets) };
        let range = piece.range.start..stored.kept_from.unwrap_or(i64::MAX).min(piece.range.end);
        let group = match group {
            _ if range.is_empty() => return Ok(buckets),
            Some(None) => return Ok(buckets),
            Some(Some(values)) => Some(&**values),
            None => None,
        };
        let Some(open) = self.stores.get(piece.level) else {
            return match stored.last_written {
                None => Ok(buckets),
                Some(_) => Err(EvalError::request(format!(
                    "old buckets of `{}` are in another system, which is only asked where the app runs",
                    self.plan.name
                ))),
            };
        };
        let rows = open.read(&self.plan, store, range, group)?;
        for row in 0..rows.len() {
            let bucket =
                buckets.entry(rows.starts[row]).or_insert_with(|| Bucket::new(&self.plan.accumulators));
            bucket.merge_row(groups.id_or_insert(&rows.groups[row]), &rows.columns, row);
        }
        Ok(buckets)
    }

    /// Returns the values of the only group that can satisfy the condition, if it compares all grouped columns
    /// for equality. `Some(None)` if no such group exists.
    fn group_of(
        &self,
        condition: &Expr,
        slot: usize,
        frame: &Frame<'_>,
    ) -> Result<Option<Option<Box<[Value]>>>, EvalError> {
        if self.plan.group_by.is_empty() {
            return Ok(None);
        }
        let mut values = Vec::with_capacity(self.plan.group_by.len());
        for (column, (_, ty)) in self.plan.group_by.iter().enumerate() {
            let shown = self.plan.items.iter().position(|(_, item)| is_column(item, column));
            let value = shown.and_then(|item| equal_to(condition, slot, item + 1));
            let Some(value) = value.filter(|value| value.ty == *ty && has_exact_keys(*ty)) else {
                return Ok(None);
            };
            match value.eval(frame)? {
                // no value equals null
                Value::Null => return Ok(Some(None)),
                value => values.push(value),
            }
        }
        Ok(Some(Some(values.into())))
    }

    /// Builds the rows of a bucket, or only that of the given group.
    fn visit_rows(
        &self,
        groups: &dyn GroupValues,
        start: i64,
        parts: &[&Bucket],
        group: Option<&Option<u32>>,
    ) -> Result<Vec<Column>, EvalError> {
        let merged;
        let bucket = match parts {
            [one] => *one,
            parts => {
                let mut all = Bucket::new(&self.plan.accumulators);
                parts.iter().for_each(|part| all.merge(part));
                merged = all;
                &merged
            }
        };
        let rows = match group {
            None => 0..bucket.len(),
            Some(group) => group.and_then(|group| bucket.row(group)).map_or(0..0, |row| row..row + 1),
        };
        let mut starts = Column::new(FieldType::Long);
        rows.clone().for_each(|_| starts.push(Value::Long(start)));
        let mut columns = vec![starts];
        let mut all: Option<Vec<Column>> = None;
        for (_, item) in &self.plan.items {
            let mut column = Column::new(item.ty);
            if let Node::Column { column: of, .. } = item.node {
                rows.clone().for_each(|row| column.push(self.value(groups, bucket, row, of)));
            } else {
                let all = all.get_or_insert_with(|| {
                    self.rows_as_columns(groups, bucket, &rows.clone().collect::<Vec<_>>())
                });
                for row in 0..rows.len() {
                    let rows = [Some((all.as_slice(), row))];
                    column.push(item.eval(&Frame {
                        rows: &rows,
                        time: start,
                        now: start,
                        host: &NoContext,
                    })?);
                }
            }
            columns.push(column);
        }
        Ok(columns)
    }

    /// Returns a value of a row: of its group or of an accumulator.
    fn value(&self, groups: &dyn GroupValues, bucket: &Bucket, row: usize, column: usize) -> Value {
        match column.checked_sub(self.plan.group_by.len()) {
            None => groups.value(bucket.groups()[row], column),
            Some(cell) => bucket.columns()[cell].value(self.plan.accumulators[cell].kind, row),
        }
    }

    /// Returns rows as columns: the values of their groups, then those of their accumulators.
    pub(super) fn rows_as_columns(
        &self,
        groups: &dyn GroupValues,
        bucket: &Bucket,
        rows: &[usize],
    ) -> Vec<Column> {
        let types = self
            .plan
            .group_by
            .iter()
            .map(|(_, ty)| *ty)
            .chain(self.plan.accumulators.iter().map(|cell| cell.ty));
        let column = |(i, ty)| {
            let mut column = Column::new(ty);
            rows.iter().for_each(|row| column.push(self.value(groups, bucket, *row, i)));
            column
        };
        types.enumerate().map(column).collect()
    }
}

fn is_column(item: &Expr, column: usize) -> bool {
    matches!(item.node, Node::Column { slot: ROW, column: of } if of == column)
}

/// Returns whether equal values of this type always have equal keys, and vice versa.
fn has_exact_keys(ty: FieldType) -> bool {
    matches!(ty, FieldType::Int | FieldType::Long | FieldType::String | FieldType::Bool)
}
