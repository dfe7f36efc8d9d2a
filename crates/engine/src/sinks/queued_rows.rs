//! Rows of one record in the queue of a sink, and their bytes in its files.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::{Buf, BufMut, Bytes};
use tidemill_types::ipc::{BatchEncoder, decode_batch};
use tidemill_types::{Error, EventId, Offset, PartitionId, Result};

/// Bytes before the numbers of the rows.
const HEADER_BYTES: usize = 16;

/// Rows of one record.
#[derive(Clone)]
pub struct QueuedRows {
    pub partition: PartitionId,
    pub offset: Offset,
    /// Row of each in the record.
    pub rows: Vec<u32>,
    pub batch: RecordBatch,
    pub bytes: usize,
    /// True if they are in the files.
    pub stored: bool,
    /// Place among the rows of all partitions of the sink, as they came; 0 for those that were read from the files.
    pub arrival: u64,
}

impl QueuedRows {
    /// Returns the id of a row.
    pub fn id(&self, row: u32) -> EventId {
        EventId { partition: self.partition, offset: self.offset, row }
    }

    /// Drops the rows up to `known`. Returns the last of them and their number, if there are some.
    pub fn drop_known(&mut self, known: Option<EventId>) -> Option<(EventId, usize)> {
        let known = known?;
        let count = self.rows.partition_point(|row| self.id(*row) <= known);
        let last = self.id(*self.rows[..count].last()?);
        self.drop_first(count);
        Some((last, count))
    }

    /// Drops the first `count` rows.
    pub fn drop_first(&mut self, count: usize) {
        self.rows.drain(..count);
        self.batch = self.batch.slice(count, self.batch.num_rows() - count);
    }

    /// Encodes rows: partition, offset, number of rows, row numbers, length of the message, message, data.
    ///
    /// Errors: those of [`BatchEncoder::encode`].
    pub fn encode(&self, encoder: &mut BatchEncoder) -> Result<Bytes> {
        let batch = encoder.encode(&self.batch)?;
        let bytes = HEADER_BYTES + 4 + 4 * self.rows.len() + batch.message.len() + batch.data.len();
        let mut out = Vec::with_capacity(bytes);
        out.put_u32_le(self.partition.0);
        out.put_u64_le(self.offset.0);
        out.put_u32_le(self.rows.len() as u32);
        self.rows.iter().for_each(|row| out.put_u32_le(*row));
        out.put_u32_le(batch.message.len() as u32);
        out.extend_from_slice(&batch.message);
        out.extend_from_slice(&batch.data);
        Ok(out.into())
    }

    /// Decodes rows with the columns of `schema`.
    ///
    /// Errors: `Corrupt` for other bytes.
    pub fn decode(payload: Bytes, schema: SchemaRef) -> Result<Self> {
        let mut rest = payload;
        let RowNumbers { partition, offset, rows } = RowNumbers::decode(&mut rest)?;
        if rest.remaining() < 4 {
            return Err(damaged());
        }
        let message = rest.get_u32_le() as usize;
        if rest.remaining() < message {
            return Err(damaged());
        }
        let message = rest.split_to(message);
        let batch = decode_batch(&message, rest, schema)?;
        if batch.num_rows() != rows.len() {
            return Err(damaged());
        }
        let bytes = batch.get_array_memory_size();
        Ok(Self { partition, offset, rows, batch, bytes, stored: true, arrival: 0 })
    }
}

/// Place and numbers of the rows of a record, which stand before their values.
pub struct RowNumbers {
    pub partition: PartitionId,
    pub offset: Offset,
    pub rows: Vec<u32>,
}

impl RowNumbers {
    /// Reads them from the beginning of encoded rows.
    ///
    /// Errors: `Corrupt` for other bytes.
    pub fn decode(rest: &mut Bytes) -> Result<Self> {
        if rest.remaining() < HEADER_BYTES {
            return Err(damaged());
        }
        let (partition, offset) = (PartitionId(rest.get_u32_le()), Offset(rest.get_u64_le()));
        let count = rest.get_u32_le() as usize;
        if rest.remaining() < count.saturating_mul(4) {
            return Err(damaged());
        }
        let rows = (0..count).map(|_| rest.get_u32_le()).collect();
        Ok(Self { partition, offset, rows })
    }

    /// Returns the number of rows behind `known`.
    pub fn count_after(&self, known: Option<EventId>) -> u64 {
        let id = |row: &u32| EventId { partition: self.partition, offset: self.offset, row: *row };
        self.rows.iter().filter(|row| known.is_none_or(|known| id(row) > known)).count() as u64
    }
}

fn damaged() -> Error {
    Error::corrupt("it is not a batch of events")
}
