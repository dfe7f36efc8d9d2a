//! A batch of events for the other side of a sink, taken from the queues of several partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use tidemill_connect::RefusedRow;
use tidemill_types::{Error, EventId, PartitionId, Result};

use super::partition_queue::PartitionQueue;

/// Events to deliver.
pub struct DueEvents {
    /// The events.
    pub rows: RecordBatch,
    /// Their ids.
    pub ids: Vec<EventId>,
    queues: Vec<Arc<PartitionQueue>>,
}

impl DueEvents {
    /// Joins the rows that were taken from queues; `None` if there are none. The rows of a queue stay in their order, those of several are
    /// in the order in which they came, as far as that is known.
    ///
    /// Errors: `Internal` if they have different columns.
    pub fn of(sink: &str, schema: &SchemaRef, mut queues: Vec<Arc<PartitionQueue>>) -> Result<Option<Self>> {
        let mut parts = Vec::new();
        queues.retain(|queue| {
            let before = parts.len();
            queue.with(|inner| {
                let mut arrival = 0;
                for queued in inner.in_flight() {
                    // rows that went through the files came before those behind them
                    arrival = arrival.max(queued.arrival);
                    let ids: Vec<EventId> = queued.rows.iter().map(|row| queued.id(*row)).collect();
                    parts.push((arrival, queued.batch.clone(), ids));
                }
            });
            parts.len() > before
        });
        parts.sort_by_key(|(arrival, ..)| *arrival);
        let rows = match parts.as_slice() {
            [] => return Ok(None),
            [(_, only, _)] => only.clone(),
            several => concat_batches(schema, several.iter().map(|(_, batch, _)| batch))
                .map_err(|e| Error::internal(format!("sink {sink}: rows cannot be joined")).with_source(e))?,
        };
        let ids = parts.into_iter().flat_map(|(_, _, ids)| ids).collect();
        Ok(Some(Self { rows, ids, queues }))
    }

    /// Keeps the first `rows_max` events.
    pub fn truncate(&mut self, rows_max: usize) {
        self.ids.truncate(rows_max);
        self.rows = self.rows.slice(0, self.ids.len());
    }

    /// Begins to deliver them. Returns false if a partition was given up meanwhile: they are to be taken anew.
    pub fn begin(&self) -> bool {
        self.queues.iter().all(|queue| queue.set_delivering(true))
    }

    /// Notes that the first `delivered` events are with the other side, which refused those of `refused`.
    pub fn mark_delivered(&self, delivered: usize, refused: &[RefusedRow]) {
        let mut counts: BTreeMap<PartitionId, (usize, usize)> = BTreeMap::new();
        self.ids[..delivered].iter().for_each(|id| counts.entry(id.partition).or_default().0 += 1);
        for refused in refused {
            counts.entry(self.ids[refused.row].partition).or_default().1 += 1;
        }
        for queue in &self.queues {
            if let Some((delivered, failed)) = counts.get(&queue.partition()) {
                queue.with(|inner| inner.mark_delivered(*delivered, *failed));
            }
        }
    }

    /// Makes durable how far these partitions have come.
    ///
    /// Errors: the disk is full or fails.
    pub fn store_progress(&self) -> Result<()> {
        self.queues.iter().try_for_each(|queue| queue.with(|inner| inner.store_progress()))
    }
}

impl Drop for DueEvents {
    fn drop(&mut self) {
        self.queues.iter().for_each(|queue| _ = queue.set_delivering(false));
    }
}
