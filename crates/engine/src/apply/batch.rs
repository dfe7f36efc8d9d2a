//! The events of a record handed to a unit of queries together.
//!
//! The output is the same as for one event after the other, though a unit processes all events before the
//! next unit gets them, and emits them stream by stream. So this is done only where the difference cannot be
//! seen: where nothing reads what comes out, each stream has one writer, and at most one stream travels to
//! another partition. Everything of this follows from the record and the app, so that a replay does the same.

use std::collections::BTreeSet;

use arrow_buffer::BooleanBuffer;
use tidemill_flow::Column;
use tidemill_flow::late::LateEvent;
use tidemill_flow::runtime::StreamBatch;
use tidemill_types::Result;

use super::cascade::Cascade;
use super::input::{QueryInput, for_each_arrival};
use crate::entry::Events;
use crate::queries::{GLOBAL_PARTITION, LatePolicy, LateRule, Unit};

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
                travelling += usize::from(self.is_forwarded(stream) || self.may_repartition(unit, stream));
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
    pub(super) fn dispatch_batch(&mut self, parts: &[QueryInput], arrivals: &ArrivalOrder) -> Result<()> {
        for (part, row) in arrivals {
            if let Some(stream) = parts[*part].forward_stream {
                self.forwarded.push(stream, &parts[*part].batch, *row);
            }
        }
        let units: BTreeSet<usize> =
            parts.iter().flat_map(|p| p.units.iter().map(|(unit, ..)| *unit)).collect();
        for unit in units {
            self.send_batch(unit, parts, arrivals)?;
        }
        Ok(())
    }

    fn send_batch(&mut self, unit: usize, parts: &[QueryInput], arrivals: &ArrivalOrder) -> Result<()> {
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
        self.propagate(unit, out, 1)
    }

    /// Returns whether events of a stream travel to another partition, where they are wanted.
    pub(super) fn is_forwarded(&self, stream: usize) -> bool {
        self.record.here.0 != GLOBAL_PARTITION && self.queries.is_read_globally(stream)
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
