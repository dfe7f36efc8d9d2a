//! Events that were checked and are not sent yet, and their acknowledgement.

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use arrow_select::concat::concat_batches;
use tidemill_access::Principal;
use tidemill_types::{
    BadRow, DecodedRows, Error, EventId, InterleavedBatches, Result, StreamSchema, Timestamp,
};

/// Bytes with which a batch or a refused row is counted beside its values.
const ITEM_BYTES: usize = 256;

/// Stream to which events may be sent.
#[derive(Clone)]
pub struct OpenStream {
    /// Its fields.
    pub schema: Arc<StreamSchema>,
    /// Clock of the engine: the time of events that have none.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl fmt::Debug for OpenStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenStream").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// Treatment of rows that do not fit their stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BadRows {
    /// One of them refuses the whole statement, and nothing is stored.
    #[default]
    Refuse,
    /// They are stored in `system.rejected`, and the others in their stream.
    Keep,
}

/// Events whose values were checked, in order, and the rows that were refused. They are not sent yet.
#[derive(Debug, Clone, Default)]
pub struct CheckedEvents {
    parts: Vec<(Arc<StreamSchema>, RecordBatch)>,
    rejected: Vec<BadRow>,
    rows: usize,
    bytes: usize,
}

impl CheckedEvents {
    /// Adds rows of one stream, with the columns of [`StreamSchema::batch_schema`].
    pub fn push(&mut self, stream: Arc<StreamSchema>, batch: RecordBatch) {
        if batch.num_rows() > 0 {
            self.rows += batch.num_rows();
            self.bytes += batch.get_array_memory_size() + ITEM_BYTES;
            self.parts.push((stream, batch));
        }
    }

    /// Adds rows that were refused, and are to be kept in `system.rejected`.
    pub fn reject(&mut self, rejected: Vec<BadRow>) {
        self.bytes +=
            rejected.iter().map(|bad| bad.text.len() + bad.message.len() + ITEM_BYTES).sum::<usize>();
        self.rejected.extend(rejected);
    }

    /// Adds the events of another list behind the present ones.
    pub fn append(&mut self, other: Self) {
        self.parts.extend(other.parts);
        self.rejected.extend(other.rejected);
        self.rows += other.rows;
        self.bytes += other.bytes;
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Returns whether there are neither events nor refused rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0 && self.rejected.is_empty()
    }

    /// Returns the bytes of memory that they take, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the rows that were refused.
    pub fn rejected(&self) -> &[BadRow] {
        &self.rejected
    }

    /// Returns the streams of the events, and of the rows that were refused, each at least once.
    pub fn streams(&self) -> impl Iterator<Item = &str> {
        let rejected = self.rejected.iter().filter_map(|bad| bad.stream.as_deref());
        self.parts.iter().map(|(stream, _)| stream.name.as_str()).chain(rejected)
    }

    /// Returns the fields that the events had when they were checked, by stream.
    pub fn schemas(&self) -> impl Iterator<Item = &Arc<StreamSchema>> {
        self.parts.iter().map(|(stream, _)| stream)
    }

    /// Returns the events as one list of rows, in which each stream has one batch.
    ///
    /// Errors: `LimitReached` for more than 65,535 streams, and for a stream whose texts have more than 2 GiB.
    pub fn into_rows(self) -> Result<DecodedRows> {
        let mut streams: Vec<(Arc<StreamSchema>, Vec<RecordBatch>)> = Vec::new();
        let mut order = Vec::with_capacity(self.rows);
        for (stream, batch) in self.parts {
            let at = match streams.iter().position(|(known, _)| known.name == stream.name) {
                Some(at) => at,
                None => {
                    streams.push((stream, Vec::new()));
                    streams.len() - 1
                }
            };
            let number = u16::try_from(at)
                .map_err(|_| Error::limit("events of more than 65,535 streams: send fewer at once"))?;
            order.extend(std::iter::repeat_n(number, batch.num_rows()));
            streams[at].1.push(batch);
        }
        let merged = streams.into_iter().map(|(stream, batches)| match batches.as_slice() {
            [one] => Ok((stream, one.clone())),
            all => {
                let schema = all[0].schema();
                concat_batches(&schema, all).map(|batch| (stream, batch)).map_err(|e| too_large(&e))
            }
        });
        let parts = merged.collect::<Result<Vec<_>>>()?;
        let order = (parts.len() > 1).then_some(order);
        let row_numbers = (0..self.rows as u64).collect();
        Ok(DecodedRows { rows: InterleavedBatches { parts, order }, row_numbers, rejected: self.rejected })
    }
}

fn too_large(error: &ArrowError) -> Error {
    Error::limit(format!("the events of a stream are too large together ({error}): send fewer at once"))
}

/// Checked events that are to be sent.
#[derive(Debug, Clone)]
pub struct AppendRequest {
    /// Events of one or several streams.
    pub events: CheckedEvents,
    /// Sender, as `system.rejected` names it.
    pub origin: &'static str,
    /// Caller, who needs the right to write each of the streams.
    pub principal: Principal,
    /// True if the reply has to tell which events were stored. It comes when they are applied, not when they are durable.
    pub reports_stored: bool,
}

/// Acknowledgement of events that were appended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppendReceipt {
    /// Number of events.
    pub accepted: u64,
    /// Address of each event in the order of the request, `None` for one whose id was seen before; `None` if it was not asked for.
    pub stored: Option<Vec<Option<EventId>>>,
}

#[cfg(test)]
mod tests {
    use tidemill_types::decode::{BatchBuilder, CellValue};
    use tidemill_types::{Field, FieldType};

    use super::*;

    fn part(stream: &str, numbers: &[i64]) -> (Arc<StreamSchema>, RecordBatch) {
        let fields = vec![Field::new("n", FieldType::Long)];
        let schema =
            Arc::new(StreamSchema { name: stream.into(), fields, key: None, id: vec![], time: None });
        let mut rows = BatchBuilder::new(schema.clone());
        numbers.iter().for_each(|n| rows.push_cells([("n", CellValue::Int(*n))], Timestamp(1)).unwrap());
        (schema, rows.finish())
    }

    #[test]
    fn rows_keep_their_order_among_streams() {
        let mut events = CheckedEvents::default();
        for (stream, numbers) in [("A", &[1, 2][..]), ("B", &[3]), ("A", &[]), ("A", &[4])] {
            let (schema, batch) = part(stream, numbers);
            events.push(schema, batch);
        }
        assert_eq!((events.len(), events.streams().collect::<Vec<_>>()), (4, vec!["A", "B", "A"]));
        let rows = events.into_rows().unwrap();
        let counts: Vec<_> = rows.rows.parts.iter().map(|(s, b)| (s.name.as_str(), b.num_rows())).collect();
        assert_eq!(counts, [("A", 3), ("B", 1)]);
        assert_eq!(rows.rows.order, Some(vec![0, 0, 1, 0]));
        let (schema, batch) = part("A", &[1]);
        let mut one = CheckedEvents::default();
        one.push(schema, batch);
        assert_eq!(one.into_rows().unwrap().rows.order, None);
    }
}
