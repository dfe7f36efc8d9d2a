//! Column statistics of tablets, from the Delta log, in DataFusion's terms.
//!
//! Minimum and maximum are only bounds: times are rounded to milliseconds and strings may be truncated. They
//! prove that a value is not in a tablet, but they need not be the smallest and largest value, so `min(x)` is
//! never answered from them.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use arrow::datatypes::{DataType, Schema, SchemaRef, TimeUnit};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::stats::Precision;
use datafusion::common::{Column, ColumnStatistics, Result, ScalarValue, Statistics};
use tidemill_types::Value;
use tidemill_zones::{ColumnStats, Tablet};

/// Pruning statistics of a table, with one container per tablet.
pub(super) struct TabletBounds<'t> {
    pub schema: &'t SchemaRef,
    pub tablets: &'t [Arc<Tablet>],
}

impl TabletBounds<'_> {
    fn values(
        &self,
        column: &Column,
        pick: impl Fn(&ColumnStats) -> Option<&Value<'static>>,
    ) -> Option<ArrayRef> {
        let index = self.schema.index_of(&column.name).ok()?;
        let ty = self.schema.field(index).data_type();
        let null = ScalarValue::try_from(ty).ok()?;
        let bound = |t: &Tablet| t.columns.get(index).and_then(&pick).and_then(|v| scalar(v, ty));
        ScalarValue::iter_to_array(self.tablets.iter().map(|t| bound(t).unwrap_or_else(|| null.clone()))).ok()
    }
}

impl PruningStatistics for TabletBounds<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.values(column, |s| s.min.as_ref())
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.values(column, |s| s.max.as_ref())
    }

    fn num_containers(&self) -> usize {
        self.tablets.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let index = self.schema.index_of(&column.name).ok()?;
        let counts = self.tablets.iter().map(|t| t.columns.get(index).and_then(|s| s.null_count));
        Some(Arc::new(counts.collect::<UInt64Array>()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(UInt64Array::from_iter_values(self.tablets.iter().map(|t| t.rows))))
    }

    /// Returns `None`: Bloom filters are in the files, and the Parquet scan evaluates them.
    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// Returns the statistics of one file.
///
/// The bounds are declared exact because readers ignore inexact ones. Readers use them to skip the file, and
/// to treat a column with equal bounds and no nulls as constant; rounded bounds are correct for both.
pub(super) fn statistics(tablet: &Tablet, schema: &Schema) -> Statistics {
    let columns = schema.fields().iter().enumerate().map(|(index, field)| {
        let Some(stats) = tablet.columns.get(index) else { return ColumnStatistics::new_unknown() };
        let bound = |value: &Option<Value<'static>>| match value
            .as_ref()
            .and_then(|v| scalar(v, field.data_type()))
        {
            Some(scalar) => Precision::Exact(scalar),
            None => Precision::Absent,
        };
        let nulls = stats.null_count.and_then(|n| usize::try_from(n).ok());
        ColumnStatistics::new_unknown()
            .with_min_value(bound(&stats.min))
            .with_max_value(bound(&stats.max))
            .with_null_count(nulls.map_or(Precision::Absent, Precision::Exact))
    });
    Statistics {
        num_rows: Precision::Exact(usize::try_from(tablet.rows).unwrap_or(usize::MAX)),
        total_byte_size: Precision::Inexact(usize::try_from(tablet.size).unwrap_or(usize::MAX)),
        column_statistics: columns.collect(),
    }
}

/// Merges the statistics of several files: row and null counts are exact, bounds are estimates.
pub(super) fn merge_statistics(files: &[Statistics], schema: &Schema) -> Result<Statistics> {
    let mut total = Statistics::try_merge_iter(files, schema)?;
    for column in &mut total.column_statistics {
        column.min_value = std::mem::take(&mut column.min_value).to_inexact();
        column.max_value = std::mem::take(&mut column.max_value).to_inexact();
    }
    Ok(total)
}

/// Converts a bound to `ty`; `None` if the value does not fit the type.
fn scalar(value: &Value<'static>, ty: &DataType) -> Option<ScalarValue> {
    Some(match (value, ty) {
        (Value::Bool(b), DataType::Boolean) => ScalarValue::Boolean(Some(*b)),
        (Value::Int(n), DataType::Int32) => ScalarValue::Int32(Some(i32::try_from(*n).ok()?)),
        (Value::Int(n), DataType::Int64) => ScalarValue::Int64(Some(*n)),
        // the nearest f32 may be tighter than the bound: only values that convert back exactly are safe
        (Value::Float(x), DataType::Float32) if f64::from(*x as f32) == *x => {
            ScalarValue::Float32(Some(*x as f32))
        }
        (Value::Float(x), DataType::Float64) => ScalarValue::Float64(Some(*x)),
        (Value::Str(s), DataType::Utf8) => ScalarValue::Utf8(Some(s.to_string())),
        (Value::Time(t), DataType::Timestamp(TimeUnit::Microsecond, tz)) => {
            ScalarValue::TimestampMicrosecond(Some(t.micros()), tz.clone())
        }
        _ => return None,
    })
}
