//! The rows of one group, and those between them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, UInt64Array};
use arrow::compute::{cast, take};
use arrow::datatypes::{Float64Type, Int64Type, SchemaRef};
use datafusion::common::Result;

use super::exec::FillSpec;
use super::node::FillKind;

/// Rows of one group in the order of their buckets, to which those of missing buckets are added.
///
/// A row without a bucket comes first and is not part of the series. Rows outside the range stay.
pub(super) struct Series {
    rows: RecordBatch,
    /// The bucket of each row.
    times: Int64Array,
    /// The next row.
    at: usize,
    /// The next bucket of the range.
    bucket: Option<i64>,
    values: Vec<FilledColumn>,
}

/// The next rows of a result, and how many of them are new.
pub(super) struct FilledRows {
    pub batch: RecordBatch,
    pub added: usize,
}

impl Series {
    pub fn new(rows: RecordBatch, spec: &FillSpec) -> Result<Self> {
        let times = cast(rows.column(spec.bucket), &arrow::datatypes::DataType::Int64)?;
        let first = rows.num_columns() - spec.fills.len();
        let columns = rows.columns()[first..].iter().zip(&spec.fills);
        let values = columns.map(|(column, kind)| FilledColumn::new(*kind, column.clone())).collect();
        let times = times.as_primitive::<Int64Type>().clone();
        Ok(Self { rows, times, at: 0, bucket: spec.buckets.start(), values })
    }

    /// Returns up to `most` further rows; `None` after the last.
    pub fn next(&mut self, spec: &FillSpec, schema: &SchemaRef, most: usize) -> Result<Option<FilledRows>> {
        let (mut places, mut buckets) = (Vec::new(), Vec::new());
        while places.len() < most {
            let Some((row, time)) = self.step(spec) else { break };
            for values in &mut self.values {
                values.push(row, self.at, time, &self.times);
            }
            places.push(row.map(|row| row as u64));
            buckets.push(time);
        }
        if places.is_empty() {
            return Ok(None);
        }
        let added = places.iter().filter(|place| place.is_none()).count();
        let columns = self.columns(spec, schema, places, buckets)?;
        Ok(Some(FilledRows { batch: RecordBatch::try_new(schema.clone(), columns)?, added }))
    }

    /// Moves to the next row or missing bucket: the row, if there is one, and its time.
    fn step(&mut self, spec: &FillSpec) -> Option<(Option<usize>, Option<i64>)> {
        let row = (self.at < self.times.len()).then_some(self.at);
        let time = row.and_then(|row| self.times.is_valid(row).then(|| self.times.value(row)));
        let row_is_next = match (row, time, self.bucket) {
            (None, _, None) => return None,
            (None, _, Some(_)) => false,
            (Some(_), Some(time), Some(bucket)) => time <= bucket,
            (Some(_), _, _) => true,
        };
        if row_is_next {
            self.at += 1;
            if time.is_some() && time == self.bucket {
                self.bucket = time.and_then(|time| spec.buckets.after(time));
            }
            return Some((row, time));
        }
        let bucket = self.bucket?;
        self.bucket = spec.buckets.after(bucket);
        Some((None, Some(bucket)))
    }

    fn columns(
        &mut self,
        spec: &FillSpec,
        schema: &SchemaRef,
        places: Vec<Option<u64>>,
        buckets: Vec<Option<i64>>,
    ) -> Result<Vec<ArrayRef>> {
        let count = places.len();
        let (places, same) = (UInt64Array::from(places), UInt64Array::from(vec![0; count]));
        let buckets: ArrayRef = Arc::new(Int64Array::from(buckets));
        let values = self.rows.num_columns() - self.values.len();
        let mut columns = Vec::with_capacity(self.rows.num_columns());
        for (index, column) in self.rows.columns().iter().enumerate() {
            columns.push(if index == spec.bucket {
                cast(&buckets, schema.field(index).data_type())?
            } else if spec.keys.contains(&index) {
                take(column, &same, None)?
            } else if index >= values {
                self.values[index - values].finish()?
            } else {
                take(column, &places, None)?
            });
        }
        Ok(columns)
    }
}

/// A column whose nulls are filled.
struct FilledColumn {
    kind: FillKind,
    column: ArrayRef,
    /// The last row with a value.
    before: Option<usize>,
    /// The first row with a value at or after the next row, when it was last needed.
    after: usize,
    /// The rows whose values are taken, of [`FillKind::Locf`].
    places: Vec<Option<u64>>,
    /// The values of [`FillKind::Interpolate`].
    numbers: Vec<Option<f64>>,
}

impl FilledColumn {
    fn new(kind: FillKind, column: ArrayRef) -> Self {
        Self { kind, column, before: None, after: 0, places: vec![], numbers: vec![] }
    }

    /// Adds the value of the next output row: of a row of the input or of a missing bucket. The rows from `at` on
    /// follow it.
    fn push(&mut self, row: Option<usize>, at: usize, time: Option<i64>, times: &Int64Array) {
        let valid = row.filter(|row| self.column.is_valid(*row));
        // a row without a time has no neighbours
        if time.is_some() {
            self.before = valid.or(self.before);
        }
        let place = if time.is_some() { self.before } else { valid };
        match self.kind {
            FillKind::Locf => self.places.push(place.map(|row| row as u64)),
            FillKind::Interpolate => {
                let number = match valid {
                    Some(row) => Some(self.number(row)),
                    None => time.and_then(|time| self.between(at, time, times)),
                };
                self.numbers.push(number);
            }
        }
    }

    fn number(&self, row: usize) -> f64 {
        self.column.as_primitive::<Float64Type>().value(row)
    }

    fn between(&mut self, at: usize, time: i64, times: &Int64Array) -> Option<f64> {
        let before = self.before?;
        self.after = self.after.max(at);
        while self.after < times.len() && self.column.is_null(self.after) {
            self.after += 1;
        }
        if self.after >= times.len() {
            return None;
        }
        let (from, to) = (times.value(before), times.value(self.after));
        let part = time.abs_diff(from) as f64 / to.abs_diff(from) as f64;
        let (first, last) = (self.number(before), self.number(self.after));
        // not first + (last - first) · part, whose difference may overflow
        Some(first * (1.0 - part) + last * part)
    }

    /// Returns the values of the rows that were added since the last call.
    fn finish(&mut self) -> Result<ArrayRef> {
        match self.kind {
            FillKind::Locf => {
                Ok(take(&self.column, &UInt64Array::from(std::mem::take(&mut self.places)), None)?)
            }
            FillKind::Interpolate => Ok(Arc::new(Float64Array::from(std::mem::take(&mut self.numbers)))),
        }
    }
}
