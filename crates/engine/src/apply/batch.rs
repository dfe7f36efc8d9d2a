//! The events of a record handed to a unit of queries together.
//!
//! The output is the same as for one event after the other, though a unit processes all events before the
//! next unit gets them, and emits them stream by stream. So this is done only where the difference cannot be
//! seen: where nothing reads what comes out, each stream has one writer, and at most one stream travels to
//! another partition. Everything of this follows from the record and the app, so that a replay does the same.

use std::collections::BTreeSet;

use arrow_array::RecordBatch;
use arrow_buffer::BooleanBuffer;
use tidemill_flow::Column;
use tidemill_flow::late::LateEvent;
use tidemill_flow::runtime::StreamBatch;
use tidemill_types::Result;

use super::cascade::Cascade;
use super::input::{QueryInput, for_each_arrival};
use crate::directory::partitioning::HomeRule;
use crate::entry::Events;
use crate::queries::{LatePolicy, LateRule, Unit};

/// The events of a record that are not duplicates, in order of arrival: part and row.
pub type ArrivalOrder = Vec<(usize, usize)>;

/// See [`ArrivalOrder`].
pub fn arrival_order(events: &Events, keep: &[Option<BooleanBuffer>]) -> Result<ArrivalOrder> {
    let mut all = Vec::new();
    for_each_arrival(events, |part, row| {
        if keep[part].as_ref().is_none_or(|k| k.value(row)) {
            all.push((part, row));
        }
        Ok(())
    })?;
    Ok(all)
}

impl Cascade<'_> {
    /// Returns whether the events of a record may go to the units together.
    pub(super) fn can_batch(&self, parts: &[QueryInput]) -> bool {
        if self.queries.rules_and_queries_interact {
            return false;
        }
        let mut read = parts.iter().flat_map(|part| &part.units);
        if !read.any(|(unit, stream, _)| self.state.query_state.supports_batches(*unit, *stream)) {
            return false;
        }
        let units: BTreeSet<usize> =
            parts.iter().flat_map(|p| p.units.iter().map(|(unit, ..)| *unit)).collect();
        let mut travelling = parts.iter().filter(|part| part.forward_stream.is_some()).count();
        let mut written = BTreeSet::new();
        for number in &units {
            let unit = &self.queries.units[*number];
            let by_itself = |late: &LateRule| late.policy != LatePolicy::Correct;
            if unit.inputs.values().any(|input| input.late.as_ref().is_some_and(by_itself)) {
                return false;
            }
            for stream in unit.writes.iter().copied() {
                let mut readers = self.queries.readers(stream).iter();
                let read = readers.any(|u| u != number && self.queries.runs_in(*u, self.record.here));
                if read || !written.insert(stream) {
                    return false;
                }
                let moves = self.home_of_ids(*number, stream).is_some_and(|home| home != self.record.here);
                let repartitions = self.may_repartition(unit, stream);
                travelling += usize::from(self.is_forwarded(stream) || repartitions || moves);
            }
        }
        travelling <= 1
    }

    /// Returns whether events that a unit writes to `stream` may belong to another partition.
    pub(super) fn may_repartition(&self, unit: &Unit, stream: usize) -> bool {
        let schema = &self.deployment.program.streams()[stream];
        let Some(key) = schema.key.filter(|_| self.deployment.partitions() > 1) else { return false };
        let key = &schema.fields[key].name;
        let file = &self.queries.files[unit.file];
        let mut writers = file.placements.iter().filter(|placed| placed.partitioned == unit.partitioned);
        // an event stays where its key has brought what it follows from
        !unit.partitioned || writers.any(|placed| !placed.preserves_key(&schema.name, key))
    }

    /// The events of a record go to the units that read them, one unit after the other.
    pub(super) fn dispatch_batch(
        &mut self,
        parts: &[QueryInput],
        arrivals: &ArrivalOrder,
        depth: u32,
    ) -> Result<()> {
        for (part, row) in arrivals {
            if let Some(stream) = parts[*part].forward_stream {
                self.forward(stream, &parts[*part].batch, *row, depth);
            }
        }
        let units: BTreeSet<usize> =
            parts.iter().flat_map(|p| p.units.iter().map(|(unit, ..)| *unit)).collect();
        for unit in units {
            self.send_batch(unit, parts, arrivals, depth)?;
        }
        Ok(())
    }

    fn send_batch(
        &mut self,
        unit: usize,
        parts: &[QueryInput],
        arrivals: &ArrivalOrder,
        depth: u32,
    ) -> Result<()> {
        let queries = self.queries;
        let playback = queries.units[unit].plan.playback;
        // for each part of the record which one of the unit's it is
        let mut places: Vec<Option<u16>> = vec![None; parts.len()];
        let mut own: Vec<StreamBatch> = Vec::new();
        // for each of the unit's the record's, and the rows of that
        let mut taken: Vec<(usize, Vec<u32>)> = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            let Some((_, stream, columns)) = part.units.iter().find(|(u, ..)| *u == unit) else { continue };
            let rows: Vec<u32> =
                arrivals.iter().filter(|(p, _)| *p == number).map(|(_, row)| *row as u32).collect();
            let time = |row: &u32| match playback {
                true => part.times.value(*row as usize).div_euclid(1000),
                false => self.now,
            };
            places[number] = Some(own.len() as u16);
            own.push(StreamBatch {
                stream: *stream,
                columns: columns.iter().map(|column| take_rows(column, &rows)).collect(),
                times: rows.iter().map(time).collect(),
            });
            taken.push((number, rows));
        }
        let order: Vec<u16> = arrivals.iter().filter_map(|(part, _)| places[*part]).collect();
        let Some(first) = order.first() else { return Ok(()) };
        let begin = own[usize::from(*first)].times[0];
        let streams: Vec<usize> = own.iter().map(|part| part.stream).collect();
        let mut out = Vec::new();
        let plan = &queries.units[unit];
        let sent = self.state.with_queries(|flow| {
            if flow.is_not_started(unit) {
                flow.start(queries, unit, begin, &mut out);
            }
            flow.send_batch(queries, unit, own, &order, &mut out)
        });
        match sent {
            Ok(late) => {
                for LateEvent { part, row, behind } in late {
                    let (number, rows) = &taken[part];
                    let (part, allowed) = (&parts[*number], plan.plan.corrected.unwrap_or_default());
                    let Some(stream) = part.stream else { continue };
                    self.drop_late(unit, stream, &part.batch, rows[row] as usize, behind, allowed);
                }
            }
            Err(failure) => {
                let flow = self.state.query_state.get_mut();
                for stream in streams {
                    let name = &plan.plan.catalog.streams()[stream].name;
                    flow.count_failure(&queries.files[plan.file].name, name, &failure.to_string());
                }
            }
        }
        self.propagate(unit, out, depth + 1)
    }

    /// Returns whether events of a stream travel to other partitions, where they are wanted.
    pub(super) fn is_forwarded(&self, stream: usize) -> bool {
        self.queries.reader_homes(stream).iter().any(|home| *home != self.record.here)
    }

    /// Sends an event to the other partitions that want it. It carries its depth, so that files in several partitions that read each other
    /// come to the same end as those in one.
    pub(super) fn forward(&mut self, stream: usize, batch: &RecordBatch, row: usize, depth: u32) {
        let depth = match self.queries.home_rule {
            HomeRule::First => 0,
            HomeRule::ByName | HomeRule::Parallel => u8::try_from(depth).unwrap_or(u8::MAX),
        };
        for home in self.queries.reader_homes(stream).iter().filter(|home| **home != self.record.here) {
            self.forwarded.push(*home, stream, batch, row, depth);
        }
    }
}

/// These rows of a column.
fn take_rows(column: &Column, rows: &[u32]) -> Column {
    if rows.len() == column.len() && rows.iter().zip(0..).all(|(row, place)| *row == place) {
        return column.clone();
    }
    let mut picked = Column::new(column.ty());
    picked.gather(column, rows);
    picked
}
