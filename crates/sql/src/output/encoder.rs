//! A result as bytes, piece by piece.

use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_types::Result;

use super::{Format, Writer};
use crate::hot::array_bytes;

/// Bytes of values that are written at once, where a piece has more than one row.
const PIECE_BYTES: usize = 256 << 10;

/// Returns the bytes of the values of a batch.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(array_bytes).sum()
}

/// Cuts a batch into pieces of few bytes, in order.
pub(crate) fn pieces(batch: RecordBatch) -> impl Iterator<Item = RecordBatch> {
    let mut rest = vec![batch];
    std::iter::from_fn(move || {
        loop {
            let batch = rest.pop()?;
            let rows = batch.num_rows();
            if rows <= 1 || batch_bytes(&batch) <= PIECE_BYTES {
                return Some(batch);
            }
            rest.push(batch.slice(rows / 2, rows - rows / 2));
            rest.push(batch.slice(0, rows / 2));
        }
    })
}

/// Writer of a result whose bytes are taken while it is written.
pub(crate) struct Encoder {
    writer: Writer<Buffer>,
    written: Buffer,
}

impl Encoder {
    /// Errors: as [`Writer::new`].
    pub fn new(format: Format, schema: &SchemaRef) -> Result<Self> {
        let written = Buffer::default();
        Ok(Self { writer: Writer::new(format, schema, written.clone())?, written })
    }

    /// Returns the output of these rows, or a part of it: some formats look at the first rows before they write any.
    pub fn encode(&mut self, rows: &RecordBatch) -> Result<Bytes> {
        self.writer.write(rows)?;
        Ok(self.written.take())
    }

    /// Returns the end of the output.
    pub fn finish(self) -> Result<Bytes> {
        let Self { writer, written } = self;
        writer.finish()?;
        Ok(written.take())
    }
}

/// Output that was not taken yet.
#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn take(&self) -> Bytes {
        std::mem::take(&mut *self.0.lock()).into()
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, StringArray};

    use super::*;

    #[test]
    fn pieces_have_every_row_once_and_few_bytes() {
        let sizes = [1, 10, 300_000, 5, 1_000_000, 1, 1, 100_000, 100_000, 100_000, 2];
        let texts: Vec<String> =
            sizes.iter().enumerate().map(|(n, size)| n.to_string().repeat(*size)).collect();
        let column: ArrayRef = Arc::new(StringArray::from(texts.clone()));
        let batch = RecordBatch::try_from_iter([("text", column)]).expect("one column");
        let pieces: Vec<RecordBatch> = pieces(batch).collect();
        assert!(pieces.iter().all(|piece| piece.num_rows() == 1 || batch_bytes(piece) <= PIECE_BYTES));
        let rows = pieces.iter().flat_map(|piece| piece.column(0).as_string::<i32>().iter().flatten());
        assert!(rows.eq(texts.iter().map(String::as_str)));
    }
}
