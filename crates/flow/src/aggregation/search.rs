//! Search: the rows of the buckets in a time range.

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;
use tidemill_types::FieldType;

use super::bucket::Bucket;
use super::groups::write_value;
use super::{Aggregation, calendar};
use crate::catalog::ROW;
use crate::column::Column;
use crate::eval_error::EvalError;
use crate::expr::{BucketQuery, Expr, Frame, NoContext, Node, RowRef};
use crate::table::equal_to;
use crate::value::Value;

/// Buckets to merge into one bucket of the result.
type BucketParts<'a> = SmallVec<[&'a Bucket; 2]>;

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
        let (mut range, level) = read.eval(&self.plan, frame)?;
        let mut found: BTreeMap<i64, BucketParts<'_>> = BTreeMap::new();
        if self.plan.time_column.is_some() {
            range = self.split_partial_ends(level, range, &mut found);
        }
        let closed = self.levels[level].closed().range(range.clone());
        found.extend(closed.map(|(start, bucket)| (*start, BucketParts::from_slice(&[bucket]))));
        let unit = self.levels[level].unit;
        // from coarse to fine: the finer bucket has the later events, which decide `last` among equal times
        for (start, bucket) in self.levels[..=level].iter().rev().filter_map(|finer| finer.open()) {
            let start = calendar::bucket_range(unit, start).map_err(EvalError::argument)?.start;
            if range.contains(&start) {
                found.entry(start).or_default().push(bucket);
            }
        }
        let group = condition.map_or(Ok(None), |c| self.group_of(c, slot, frame))?;
        for (start, parts) in found {
            let columns = self.visit_rows(start, &parts, group.as_ref())?;
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

    /// Adds the buckets at both ends that lie only partly in the range, as parts of finer granularities;
    /// returns the range of the buckets that lie in it as a whole.
    fn split_partial_ends<'a>(
        &'a self,
        level: usize,
        range: Range<i64>,
        found: &mut BTreeMap<i64, BucketParts<'a>>,
    ) -> Range<i64> {
        let Some(finer) = level.checked_sub(1) else { return range };
        let whole = self.whole_buckets(level, &range);
        let mut cut = |stretch: Range<i64>| {
            let mut parts = BucketParts::new();
            self.collect_parts(finer, stretch.clone(), &mut parts);
            let start =
                calendar::bucket_range(self.levels[level].unit, stretch.start).map(|bucket| bucket.start);
            if let (Ok(start), false) = (start, parts.is_empty()) {
                found.insert(start, parts);
            }
        };
        cut(range.start..whole.start);
        cut(whole.end..range.end);
        whole
    }

    /// Returns the range of the buckets of a level that lie within `stretch` as a whole. If there is none, an
    /// empty range at a bucket boundary or at the start of `stretch`.
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
    fn collect_parts<'a>(&'a self, level: usize, stretch: Range<i64>, parts: &mut BucketParts<'a>) {
        if stretch.is_empty() {
            return;
        }
        let finer = level.checked_sub(1);
        let whole = if finer.is_some() { self.whole_buckets(level, &stretch) } else { stretch.clone() };
        finer.into_iter().for_each(|finer| self.collect_parts(finer, stretch.start..whole.start, parts));
        parts.extend(self.levels[level].closed().range(whole.clone()).map(|(_, bucket)| bucket));
        let open = self.levels[..=level].iter().rev().filter_map(|level| level.open());
        parts.extend(open.filter(|(start, _)| whole.contains(start)).map(|(_, bucket)| bucket));
        finer.into_iter().for_each(|finer| self.collect_parts(finer, whole.end..stretch.end, parts));
    }

    /// Returns the id of the only group that can satisfy the condition, if it compares all grouped columns
    /// for equality. `Some(None)` if no such group exists.
    fn group_of(
        &self,
        condition: &Expr,
        slot: usize,
        frame: &Frame<'_>,
    ) -> Result<Option<Option<u32>>, EvalError> {
        if self.plan.group_by.is_empty() {
            return Ok(None);
        }
        let mut key = Vec::new();
        for (column, (_, ty)) in self.plan.group_by.iter().enumerate() {
            let shown = self.plan.items.iter().position(|(_, item)| is_column(item, column));
            let value = shown.and_then(|item| equal_to(condition, slot, item + 1));
            let Some(value) = value.filter(|value| value.ty == *ty && has_exact_keys(*ty)) else {
                return Ok(None);
            };
            match value.eval(frame)? {
                // no value equals null
                Value::Null => return Ok(Some(None)),
                value => write_value(&mut key, &value),
            }
        }
        Ok(Some(self.groups.find(&key)))
    }

    /// Builds the rows of a bucket, or only that of the given group.
    fn visit_rows(
        &self,
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
                rows.clone().for_each(|row| column.push(self.value(bucket, row, of)));
            } else {
                let all = all.get_or_insert_with(|| self.rows_as_columns(bucket, rows.clone()));
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
    fn value(&self, bucket: &Bucket, row: usize, column: usize) -> Value {
        let groups = self.plan.group_by.len();
        match column.checked_sub(groups) {
            None => self.groups.value(bucket.groups()[row], column),
            Some(cell) => bucket.columns()[cell].value(self.plan.accumulators[cell].kind, row),
        }
    }

    fn rows_as_columns(&self, bucket: &Bucket, rows: Range<usize>) -> Vec<Column> {
        let types = self
            .plan
            .group_by
            .iter()
            .map(|(_, ty)| *ty)
            .chain(self.plan.accumulators.iter().map(|cell| cell.ty));
        let column = |(i, ty)| {
            let mut column = Column::new(ty);
            rows.clone().for_each(|row| column.push(self.value(bucket, row, i)));
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
