//! Encodes rows of a tail as sorted Parquet files.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::interleave::interleave_record_batch;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression as ParquetCompression, Encoding, ZstdLevel};
use parquet::file::metadata::{ParquetMetaData, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnPath;
use tidemill_types::{FieldType, Result, StreamSchema, Timestamp, Value, column};

use crate::error::internal;
use crate::row_order::row_order;
use crate::tablet::{ColumnStats, ceil_ms, floor_ms};
use crate::{Compression, ZonesOptions};

/// Columns whose values increase in small steps or repeat: delta encoding takes a fraction of the space and
/// time of a dictionary.
const DELTA_ENCODED: [&str; 4] = [column::TIME, column::RECEIVED, column::OFFSET, column::ROW];

/// Rows of a block of the [`RowLocator`].
const LOCATOR_BLOCK: usize = 256;

/// Encodes tablets of one table.
#[derive(Debug)]
pub(crate) struct Encoder {
    schema: SchemaRef,
    /// The key's column, if the stream has a key.
    key: Option<usize>,
    /// The column `_time`.
    time: usize,
    /// Columns whose smallest and largest value are kept.
    bounded: Vec<bool>,
    properties: WriterProperties,
    tablet_rows_max: usize,
    row_group_rows: usize,
}

/// Content of a tablet and the statistics for its Delta entry.
pub(crate) struct EncodedFile {
    pub bytes: Bytes,
    pub rows: u64,
    pub columns: Box<[ColumnStats]>,
}

impl Encoder {
    /// Creates an encoder for the table of `stream`.
    pub fn new(stream: &StreamSchema, options: &ZonesOptions) -> Result<Self> {
        let schema = stream.table_schema();
        let index = |name: &str| schema.index_of(name).map_err(|e| internal("a table column is missing", e));
        let mut sorting: Vec<usize> = stream.key.into_iter().collect();
        for name in [column::TIME, column::PARTITION, column::OFFSET, column::ROW] {
            sorting.push(index(name)?);
        }
        let sorting = sorting.into_iter().map(|i| SortingColumn {
            column_idx: i as i32,
            descending: false,
            nulls_first: true,
        });
        let compression = match options.compression {
            Compression::Snappy => ParquetCompression::SNAPPY,
            Compression::Zstd => ParquetCompression::ZSTD(
                ZstdLevel::try_new(1).map_err(|e| internal("zstd has no level 1", e))?,
            ),
        };
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("tidemill version ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(compression)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_max_row_group_row_count(Some(options.row_group_rows))
            .set_data_page_row_count_limit(options.page_rows)
            .set_write_batch_size(options.page_rows.min(1024))
            .set_sorting_columns(Some(sorting.collect()));
        for name in DELTA_ENCODED {
            properties = properties
                .set_column_dictionary_enabled(ColumnPath::from(name), false)
                .set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED);
        }
        for index in stream.key.iter().chain(&stream.id) {
            let name = schema.field(*index).name().as_str();
            properties = properties.set_column_bloom_filter_enabled(ColumnPath::from(name), true);
        }
        let bounded = schema.fields().iter().map(|f| has_bounds(stream, f.name(), f.data_type())).collect();
        Ok(Self {
            key: stream.key,
            time: index(column::TIME)?,
            bounded,
            properties: properties.build(),
            tablet_rows_max: options.tablet_rows_max,
            row_group_rows: options.row_group_rows,
            schema,
        })
    }

    /// Sorts the rows of `batches` by (key, `_time`, `_partition`, `_offset`, `_row`) and encodes them as
    /// tablets of nearly equal size, none above the limit.
    ///
    /// Shape: the batches are ordered by (`_partition`, `_offset`, `_row`), so that rows with equal key and
    /// time only have to keep their order.
    /// Bounds: in addition to input and output, memory for the sort keys and one row group.
    pub fn encode(&self, batches: &[RecordBatch]) -> Result<Vec<EncodedFile>> {
        let locator = RowLocator::new(batches);
        let order = row_order(batches, self.key, self.time)?;
        let tablets = order.len().div_ceil(self.tablet_rows_max).max(1);
        let rows = order.len().div_ceil(tablets).max(1);
        order.chunks(rows).map(|part| self.tablet(batches, &locator, part)).collect()
    }

    fn tablet(&self, batches: &[RecordBatch], locator: &RowLocator, order: &[u32]) -> Result<EncodedFile> {
        let failed = |e| internal("a tablet cannot be written", e);
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, self.schema.clone(), Some(self.properties.clone()))
            .map_err(failed)?;
        let mut nan = vec![false; self.schema.fields().len()];
        for rows in order.chunks(self.row_group_rows) {
            for group in locator.rows(batches, rows)? {
                for (nan, column) in nan.iter_mut().zip(group.columns()) {
                    *nan = *nan || has_nan(column);
                }
                writer.write(&group).map_err(failed)?;
            }
        }
        let metadata = writer.close().map_err(failed)?;
        let columns = (0..nan.len()).map(|i| self.column_stats(&metadata, i, nan[i])).collect();
        Ok(EncodedFile { bytes: Bytes::from(bytes), rows: order.len() as u64, columns })
    }

    /// Merges the statistics of the Parquet writer over all row groups.
    ///
    /// A column that contains NaN has no bounds: engines order NaN differently, and JSON cannot represent it.
    fn column_stats(&self, metadata: &ParquetMetaData, column: usize, nan: bool) -> ColumnStats {
        let field = self.schema.field(column);
        let mut total = ColumnStats { null_count: Some(0), ..ColumnStats::default() };
        let mut bounded = !nan && self.bounded[column];
        for group in metadata.row_groups() {
            let Some(stats) = group.column(column).statistics() else { return ColumnStats::default() };
            total.null_count = total.null_count.zip(stats.null_count_opt()).map(|(a, b)| a + b);
            if stats.null_count_opt() == Some(group.num_rows() as u64) {
                continue;
            }
            match bounds(field.data_type(), stats) {
                Some((min, max)) => {
                    total.min = Some(widen(total.min.take(), min, std::cmp::Ordering::Less));
                    total.max = Some(widen(total.max.take(), max, std::cmp::Ordering::Greater));
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

/// Finds the batch of a row by its number, counted through all batches.
struct RowLocator {
    /// Row number of the first row of each batch.
    starts: Vec<usize>,
    /// For each block of [`LOCATOR_BLOCK`] rows, the batch of its first row.
    blocks: Vec<u32>,
}

impl RowLocator {
    fn new(batches: &[RecordBatch]) -> Self {
        let next = |start: &mut usize, batch: &RecordBatch| {
            Some(std::mem::replace(start, *start + batch.num_rows()))
        };
        let starts: Vec<usize> = batches.iter().scan(0, next).collect();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let first = (0..rows).step_by(LOCATOR_BLOCK);
        let blocks = first.map(|row| starts.partition_point(|start| *start <= row) as u32 - 1).collect();
        Self { starts, blocks }
    }

    /// Returns the batch that contains the row, and the row's index in it. Skips empty batches.
    fn locate(&self, row: u32) -> (usize, usize) {
        let row = row as usize;
        let mut batch = self.blocks[row / LOCATOR_BLOCK] as usize;
        while self.starts.get(batch + 1).is_some_and(|start| *start <= row) {
            batch += 1;
        }
        (batch, row - self.starts[batch])
    }

    /// Returns the rows with these numbers, as slices of the batches if the numbers are consecutive.
    fn rows(&self, batches: &[RecordBatch], rows: &[u32]) -> Result<Vec<RecordBatch>> {
        if !rows.windows(2).all(|pair| pair[0] + 1 == pair[1]) {
            let sources: Vec<&RecordBatch> = batches.iter().collect();
            let places: Vec<(usize, usize)> = rows.iter().map(|row| self.locate(*row)).collect();
            let gathered = interleave_record_batch(&sources, &places);
            return Ok(vec![gathered.map_err(|e| internal("rows cannot be gathered", e))?]);
        }
        let mut slices = Vec::new();
        let mut taken = 0;
        while let Some(row) = rows.get(taken) {
            let (batch, row) = self.locate(*row);
            let len = (batches[batch].num_rows() - row).min(rows.len() - taken);
            slices.push(batches[batch].slice(row, len));
            taken += len;
        }
        Ok(slices)
    }
}

fn has_nan(column: &ArrayRef) -> bool {
    match column.data_type() {
        DataType::Float32 => column.as_primitive::<Float32Type>().iter().flatten().any(f32::is_nan),
        DataType::Float64 => column.as_primitive::<Float64Type>().iter().flatten().any(f64::is_nan),
        _ => false,
    }
}

/// Returns whether bounds are stored: Delta has none for booleans, and those of JSON strings are useless.
fn has_bounds(stream: &StreamSchema, name: &str, ty: &DataType) -> bool {
    let json =
        name == column::EXTRA || stream.fields.iter().any(|f| f.name == name && f.ty == FieldType::Object);
    !json && *ty != DataType::Boolean
}

fn widen(old: Option<Value<'static>>, new: Value<'static>, wanted: std::cmp::Ordering) -> Value<'static> {
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

#[cfg(test)]
mod tests;
