//! Writes one tablet.

use std::cmp::Ordering;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::DataType;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::statistics::Statistics;
use tidemill_types::{Result, Timestamp, Value};

use crate::error::internal;
use crate::tablets::tablet::{ColumnStats, EncodedFile, ceil_ms, floor_ms};
use crate::tablets::tablet_layout::TabletLayout;

/// A tablet that is being written, in memory.
pub(crate) struct TabletWriter<'l> {
    layout: &'l TabletLayout,
    writer: ArrowWriter<Vec<u8>>,
    /// Columns that have a NaN.
    nan: Vec<bool>,
    rows: u64,
}

impl<'l> TabletWriter<'l> {
    /// Begins a tablet.
    pub fn new(layout: &'l TabletLayout) -> Result<Self> {
        let mut properties = layout.properties.clone();
        if let Some(keys) = &layout.keys {
            properties = properties.with_file_encryption_properties(keys.new_file()?);
        }
        let properties = properties.build();
        let writer = ArrowWriter::try_new(Vec::new(), layout.schema.clone(), Some(properties));
        let writer = writer.map_err(|e| internal("a tablet cannot be begun", e))?;
        Ok(Self { layout, writer, nan: vec![false; layout.bounded.len()], rows: 0 })
    }

    /// Appends rows, which continue the order of those before.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        for (nan, column) in self.nan.iter_mut().zip(batch.columns()) {
            *nan = *nan || has_nan(column);
        }
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch).map_err(|e| internal("a tablet cannot be written", e))
    }

    /// Ends the tablet.
    pub fn finish(mut self) -> Result<EncodedFile> {
        let metadata = self.writer.finish().map_err(|e| internal("a tablet cannot be ended", e))?;
        let columns = (0..self.nan.len()).map(|i| self.column_stats(&metadata, i)).collect();
        let (rows, schema) = (self.rows, self.layout.schema.clone());
        let bytes = Bytes::from(std::mem::take(self.writer.inner_mut()));
        Ok(EncodedFile { bytes, rows, schema, columns })
    }

    /// Merges the statistics of the Parquet writer over all row groups.
    ///
    /// A column that contains NaN has no bounds: engines order NaN differently, and JSON cannot represent it.
    fn column_stats(&self, metadata: &ParquetMetaData, column: usize) -> ColumnStats {
        let field = self.layout.schema.field(column);
        let mut total = ColumnStats { null_count: Some(0), ..ColumnStats::default() };
        let mut bounded = !self.nan[column] && self.layout.bounded[column];
        for group in metadata.row_groups() {
            let Some(stats) = group.column(column).statistics() else { return ColumnStats::default() };
            total.null_count = total.null_count.zip(stats.null_count_opt()).map(|(a, b)| a + b);
            if stats.null_count_opt() == Some(group.num_rows() as u64) {
                continue;
            }
            match bounds(field.data_type(), stats) {
                Some((min, max)) => {
                    total.min = Some(widen(total.min.take(), min, Ordering::Less));
                    total.max = Some(widen(total.max.take(), max, Ordering::Greater));
                }
                None => bounded = false,
            }
        }
        if !bounded {
            (total.min, total.max) = (None, None);
        }
        total
    }
}

fn has_nan(column: &ArrayRef) -> bool {
    match column.data_type() {
        DataType::Float32 => column.as_primitive::<Float32Type>().iter().flatten().any(f32::is_nan),
        DataType::Float64 => column.as_primitive::<Float64Type>().iter().flatten().any(f64::is_nan),
        _ => false,
    }
}

fn widen(old: Option<Value<'static>>, new: Value<'static>, wanted: Ordering) -> Value<'static> {
    match old {
        Some(old) if new.compare(&old) != Some(wanted) => old,
        _ => new,
    }
}

/// Returns the bounds of a row group, rounded outwards; `None` when either is unknown.
fn bounds(ty: &DataType, stats: &Statistics) -> Option<(Value<'static>, Value<'static>)> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(|s| Value::Str(s.to_owned().into()));
    // Zeros of either sign are equal in readers that compare according to IEEE 754.
    let float = |min: f64, max: f64| {
        let (min, max) = (if min == 0.0 { -0.0 } else { min }, if max == 0.0 { 0.0 } else { max });
        (Value::Float(min), Value::Float(max))
    };
    Some(match (ty, stats) {
        (DataType::Timestamp(_, _), Statistics::Int64(s)) => {
            let (min, max) = (floor_ms(*s.min_opt()?), ceil_ms(*s.max_opt()?)?);
            (Value::Time(Timestamp(min)), Value::Time(Timestamp(max)))
        }
        (_, Statistics::Int64(s)) => (Value::Int(*s.min_opt()?), Value::Int(*s.max_opt()?)),
        (_, Statistics::Int32(s)) => (Value::Int((*s.min_opt()?).into()), Value::Int((*s.max_opt()?).into())),
        (_, Statistics::Float(s)) => float((*s.min_opt()?).into(), (*s.max_opt()?).into()),
        (_, Statistics::Double(s)) => float(*s.min_opt()?, *s.max_opt()?),
        (DataType::Utf8, Statistics::ByteArray(s)) => {
            (text(s.min_opt()?.data())?, text(s.max_opt()?.data())?)
        }
        _ => return None,
    })
}
