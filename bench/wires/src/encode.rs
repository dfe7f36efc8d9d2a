//! Rows as each wire takes them. They are made before the time of a transfer begins.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float64Type, Int32Type, TimestampMicrosecondType};
use arrow::json::LineDelimitedWriter;
use bytes::{BufMut, Bytes, BytesMut};

/// Microseconds from 1970 to 2000, where PostgreSQL's times begin.
const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// Returns the columns of a batch as a list for `COPY`.
pub fn columns(batch: &RecordBatch) -> String {
    let schema = batch.schema();
    schema.fields().iter().map(|field| format!("\"{}\"", field.name())).collect::<Vec<_>>().join(", ")
}

/// Returns the data of `COPY … FROM STDIN (FORMAT binary)` for all batches, in pieces of one batch.
pub fn copy_binary<'a>(batches: impl Iterator<Item = &'a RecordBatch>) -> Result<Vec<Bytes>> {
    let mut pieces = Vec::new();
    for batch in batches {
        let mut out = BytesMut::new();
        if pieces.is_empty() {
            out.put_slice(SIGNATURE);
            out.put_u64(0);
        }
        for row in 0..batch.num_rows() {
            out.put_i16(i16::try_from(batch.num_columns())?);
            for column in batch.columns() {
                put_value(&mut out, column, row)?;
            }
        }
        pieces.push(out.freeze());
    }
    pieces.push(Bytes::from_static(&[0xff, 0xff]));
    Ok(pieces)
}

fn put_value(out: &mut BytesMut, column: &dyn Array, row: usize) -> Result<()> {
    if column.is_null(row) {
        out.put_i32(-1);
        return Ok(());
    }
    match column.data_type() {
        DataType::Int32 => {
            out.put_i32(4);
            out.put_i32(column.as_primitive::<Int32Type>().value(row));
        }
        DataType::Float64 => {
            out.put_i32(8);
            out.put_f64(column.as_primitive::<Float64Type>().value(row));
        }
        DataType::Timestamp(..) => {
            out.put_i32(8);
            out.put_i64(column.as_primitive::<TimestampMicrosecondType>().value(row) - POSTGRES_EPOCH_US);
        }
        DataType::Utf8 => {
            let text = column.as_string::<i32>().value(row);
            out.put_i32(i32::try_from(text.len())?);
            out.put_slice(text.as_bytes());
        }
        other => bail!("a column of type {other} is not of the data set"),
    }
    Ok(())
}

/// Returns the number of rows of what `COPY … TO STDOUT (FORMAT binary)` has sent.
///
/// Errors: it does not end where its trailer is.
pub fn count_copied(pieces: &[Bytes]) -> Result<usize> {
    let all = pieces.concat();
    let short = "the data of COPY is cut off";
    let number = |at: usize, bytes: usize| -> Result<i64> {
        let value = all.get(at..at + bytes).context(short)?;
        Ok(value.iter().fold(if value[0] > 127 { -1 } else { 0 }, |sum, byte| sum << 8 | i64::from(*byte)))
    };
    let mut at = SIGNATURE.len() + 8;
    let mut rows = 0;
    loop {
        let columns = number(at, 2)?;
        at += 2;
        if columns < 0 {
            anyhow::ensure!(at == all.len(), "bytes follow the trailer of COPY");
            return Ok(rows);
        }
        for _ in 0..columns {
            let bytes = number(at, 4)?;
            at += 4 + usize::try_from(bytes.max(0))?;
        }
        rows += 1;
    }
}

/// Returns the rows of a batch as lines of JSON.
pub fn ndjson(batch: &RecordBatch) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut writer = LineDelimitedWriter::new(&mut out);
    writer.write(batch)?;
    writer.finish()?;
    drop(writer);
    Ok(out)
}

/// Returns the rows of a batch in line protocol, with times in microseconds. A truck that is not named has no such field.
pub fn line_protocol(measurement: &str, batch: &RecordBatch) -> Result<Vec<u8>> {
    let schema = batch.schema();
    let mut out = String::new();
    for row in 0..batch.num_rows() {
        out.push_str(measurement);
        let (mut separator, mut time) = (' ', None);
        for (field, column) in schema.fields().iter().zip(batch.columns()) {
            if column.is_null(row) {
                continue;
            }
            let name = field.name();
            match column.data_type() {
                DataType::Timestamp(..) => {
                    time = Some(column.as_primitive::<TimestampMicrosecondType>().value(row));
                    continue;
                }
                DataType::Int32 => {
                    write!(out, "{separator}{name}={}i", column.as_primitive::<Int32Type>().value(row))?
                }
                DataType::Float64 => {
                    write!(out, "{separator}{name}={}", column.as_primitive::<Float64Type>().value(row))?
                }
                DataType::Utf8 => {
                    let text =
                        column.as_string::<i32>().value(row).replace('\\', "\\\\").replace('"', "\\\"");
                    write!(out, "{separator}{name}=\"{text}\"")?;
                }
                other => bail!("a column of type {other} is not of the data set"),
            }
            separator = ',';
        }
        match time {
            Some(time) => writeln!(out, " {time}")?,
            None => out.push('\n'),
        }
    }
    Ok(out.into_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, Int32Array, StringArray, TimestampMicrosecondArray};

    use super::*;

    fn batch() -> RecordBatch {
        let times = TimestampMicrosecondArray::from(vec![1_451_606_400_000_000, 1_451_606_410_000_000]);
        let columns: [(&str, ArrayRef); 4] = [
            ("time", Arc::new(times.with_timezone("UTC"))),
            ("tags_id", Arc::new(Int32Array::from(vec![Some(7), None]))),
            ("velocity", Arc::new(Float64Array::from(vec![Some(1.5), Some(-2.0)]))),
            ("name", Arc::new(StringArray::from(vec![Some("a \"b\""), None]))),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
    }

    #[test]
    fn rows_are_written_for_each_wire() {
        let pieces = copy_binary([batch(), batch()].iter()).unwrap();
        assert_eq!((pieces.len(), count_copied(&pieces).unwrap()), (3, 4));
        assert!(count_copied(&pieces[..2]).is_err());
        assert_eq!(columns(&batch()), "\"time\", \"tags_id\", \"velocity\", \"name\"");
        let lines = String::from_utf8(line_protocol("readings", &batch()).unwrap()).unwrap();
        assert_eq!(
            lines,
            "readings tags_id=7i,velocity=1.5,name=\"a \\\"b\\\"\" 1451606400000000\nreadings velocity=-2 1451606410000000\n"
        );
        let json = String::from_utf8(ndjson(&batch()).unwrap()).unwrap();
        assert_eq!(json.lines().count(), 2);
        assert!(json.starts_with("{\"time\":\"2016-01-01T00:00:00Z\",\"tags_id\":7,"), "{json}");
    }
}
