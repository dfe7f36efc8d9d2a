//! The rows, as TPC-H's generator makes them and as the stream keeps them.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use tpchgen::generators::LineItemGenerator;
use tpchgen_arrow::LineItemArrow;

/// Returns the rows of a scale factor in batches.
pub fn generate(scale: f64, batch_rows: usize) -> LineItemArrow {
    LineItemArrow::new(LineItemGenerator::new(scale, 1, 1)).with_batch_size(batch_rows)
}

/// Converts decimals to doubles and dates to times.
pub fn for_stream(batch: &RecordBatch) -> Result<RecordBatch> {
    let column = |(i, column): (usize, &ArrayRef)| -> Result<(String, ArrayRef, bool)> {
        let converted = match column.data_type() {
            DataType::Decimal128(..) => cast(column, &DataType::Float64)?,
            DataType::Date32 => {
                cast(column, &DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())))?
            }
            _ => column.clone(),
        };
        Ok((batch.schema_ref().field(i).name().clone(), converted, true))
    };
    let columns = batch.columns().iter().enumerate().map(column).collect::<Result<Vec<_>>>()?;
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

/// Returns all batches as the stream keeps them.
pub fn stream_batches(scale: f64, batch_rows: usize) -> Result<Vec<RecordBatch>> {
    generate(scale, batch_rows).map(|batch| for_stream(&batch?)).collect()
}

/// Writes the rows with their decimals and dates as one Parquet file, compressed with zstd.
pub fn write_parquet(scale: f64, path: &Path) -> Result<()> {
    let rows = generate(scale, 10_000);
    let compression = Compression::ZSTD(ZstdLevel::try_new(1)?);
    let properties = WriterProperties::builder().set_compression(compression).build();
    let file = File::create(path).with_context(|| path.display().to_string())?;
    let mut writer = ArrowWriter::try_new(file, LineItemArrow::schema_ref(), Some(properties))?;
    for batch in rows {
        writer.write(&batch?)?;
    }
    writer.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_are_those_of_tpch() {
        let batches = stream_batches(0.001, 1000).unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 6005);
        let types: Vec<&DataType> = batches[0].columns().iter().map(|column| column.data_type()).collect();
        assert_eq!(types[4], &DataType::Float64);
        assert!(matches!(types[10], DataType::Timestamp(TimeUnit::Microsecond, Some(_))));
    }
}
