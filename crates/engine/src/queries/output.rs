//! Events that come out of a turn, gathered into batches.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use arrow_select::interleave::interleave_record_batch;
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{Error, Offset, PartitionId, Result, StreamSchema, Timestamp};

use crate::entry::Events;

/// Emitted events of one stream, in order.
pub struct StreamOutput {
    batches: Vec<RecordBatch>,
    open: BatchBuilder,
    rows: Vec<i32>,
    schema: Arc<StreamSchema>,
}

impl StreamOutput {
    /// None so far.
    pub fn new(schema: &Arc<StreamSchema>) -> Self {
        let open = BatchBuilder::new(schema.clone());
        Self { batches: Vec::new(), open, rows: Vec::new(), schema: schema.clone() }
    }

    /// Adds an event.
    pub fn push_event(&mut self, cells: &[FieldValue], time: Timestamp, row: i32) -> Result<()> {
        self.open.push_values(cells, time)?;
        self.rows.push(row);
        Ok(())
    }

    /// Adds several.
    pub fn push_batch(&mut self, batch: &RecordBatch, rows: impl Iterator<Item = i32>) {
        self.close_batch();
        self.batches.push(batch.clone());
        self.rows.extend(rows);
    }

    fn close_batch(&mut self) {
        if !self.open.is_empty() {
            self.batches.push(self.open.finish());
        }
    }

    /// All of them, and their rows.
    pub fn finish(mut self) -> Result<(RecordBatch, Vec<i32>)> {
        self.close_batch();
        let batch = match self.batches.as_slice() {
            [one] => one.clone(),
            all => concat_batches(&self.schema.batch_schema(), all).map_err(failed)?,
        };
        Ok((batch, self.rows))
    }
}

/// Batches that are looked through for the one that an event is in.
const RECENT_BATCHES: usize = 8;

/// Events on their way to other partitions, for the queries there.
#[derive(Default)]
pub struct ForwardedEvents {
    homes: BTreeMap<PartitionId, EventsForHome>,
}

/// Events on their way to one partition.
#[derive(Default)]
struct EventsForHome {
    parts: BTreeMap<usize, RowRefs>,
    /// For each event its stream.
    order: Vec<usize>,
    /// Greatest depth of an event.
    depth: u8,
}

/// Events of one stream: where each lies.
#[derive(Default)]
struct RowRefs {
    batches: Vec<RecordBatch>,
    rows: Vec<(usize, usize)>,
}

impl ForwardedEvents {
    /// Adds row `row` of a batch to what travels to `home`.
    pub fn push(&mut self, home: PartitionId, stream: usize, batch: &RecordBatch, row: usize, depth: u8) {
        self.homes.entry(home).or_default().push(stream, batch, row, depth);
    }

    /// Returns a body of a record for each partition that gets events, in order of partitions.
    pub fn finish(
        self,
        streams: &[Arc<StreamSchema>],
        from: (PartitionId, Offset),
    ) -> Result<Vec<(PartitionId, Events)>> {
        self.homes.into_iter().map(|(home, events)| Ok((home, events.finish(streams, from)?))).collect()
    }
}

impl EventsForHome {
    fn push(&mut self, stream: usize, batch: &RecordBatch, row: usize, depth: u8) {
        let part = self.parts.entry(stream).or_default();
        let recent = part.batches.iter().enumerate().rev().take(RECENT_BATCHES);
        let at = recent.into_iter().find(|(_, b)| is_same_batch(b, batch)).map(|(at, _)| at).unwrap_or_else(
            || {
                part.batches.push(batch.clone());
                part.batches.len() - 1
            },
        );
        part.rows.push((at, row));
        self.order.push(stream);
        self.depth = self.depth.max(depth);
    }

    fn finish(self, streams: &[Arc<StreamSchema>], from: (PartitionId, Offset)) -> Result<Events> {
        let present: Vec<usize> = self.parts.keys().copied().collect();
        let parts = self.parts.into_iter().map(|(stream, part)| {
            let batches: Vec<&RecordBatch> = part.batches.iter().collect();
            let batch = interleave_record_batch(&batches, &part.rows).map_err(failed)?;
            Ok((streams[stream].clone(), batch))
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let part = |stream: &usize| present.binary_search(stream).unwrap_or_default() as u16;
        let order = (parts.len() > 1).then(|| self.order.iter().map(part).collect());
        let provenance = Some(from);
        Ok(Events { provenance, forwarded: true, depth: self.depth, parts, order, ..Events::default() })
    }
}

/// Returns whether two batches are the same: they share their columns.
fn is_same_batch(a: &RecordBatch, b: &RecordBatch) -> bool {
    a.num_rows() == b.num_rows()
        && a.columns().first().zip(b.columns().first()).is_some_and(|(a, b)| Arc::ptr_eq(a, b))
}

fn failed(e: arrow_schema::ArrowError) -> Error {
    Error::internal("events could not be put together").with_source(e)
}
