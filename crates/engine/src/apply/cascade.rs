//! Consequences of a record: rules and queries, each reading what the other emits.
//!
//! The order, depth first: an event goes to the rules first, which run on what they emit here as well,
//! breadth first as always; then what they emitted goes to the queries, event by event; then the event itself
//! goes to each unit of queries in order. What a unit emits is processed in the same way, each event with all
//! that follows from it, before the next unit gets the event. Where neither looks at what the other emits,
//! the rules run over the whole record at once; it makes no difference.

use std::collections::BTreeMap;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_buffer::BooleanBuffer;
use arrow_select::take::take_record_batch;
use tidemill_flow::{Batch, Column};
use tidemill_rules::{Effects, Outbound, RecordPosition, Route, StreamPart, key_text};
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{Error, Offset, PartitionId, Result, StreamSchema, Timestamp};

use super::batch::arrival_order;
use super::input::{QueryInput, for_each_arrival, times};
use super::rule_context::{RuleContext, route};
use crate::dedupe::values_key;
use crate::deployment::Deployment;
use crate::directory::partitioning::HomeRule;
use crate::entry::Events;
use crate::queries::output::{ForwardedEvents, StreamOutput};
use crate::queries::runtime::UnitOutput;
use crate::queries::{OutputMapping, Queries, convert};
use crate::state::PartitionState;

/// Maximum depth at which events may lead to further ones, from queries to rules and back.
pub const DEPTH_MAX: u32 = 16;
/// Most events that may follow from one record.
pub const EVENTS_MAX: u32 = 1_000_000;

/// Fewer emitted events than these are stored row by row: a batch of their own would cost more.
const COLUMNAR_ROWS_MIN: u32 = 32;

/// A trigger that has been due for longer was due while nothing ran: ticks come within milliseconds.
const STANDSTILL_MS: i64 = 60_000;

/// Consequences of a record, besides the changes of state.
#[derive(Default)]
pub struct CascadeOutput {
    /// Events for this partition: stream, events, their rows.
    pub emitted: Vec<(usize, RecordBatch, Vec<i32>)>,
    /// Events that were there already, by stream.
    pub duplicates: BTreeMap<usize, u64>,
    /// Events that belong to other partitions.
    pub outbound: Vec<Outbound>,
    /// Events of this partition for queries in the homes of their files, by home.
    pub forwarded: Vec<(PartitionId, Events)>,
    /// Firings that failed.
    pub errors: Vec<String>,
    /// Events that came too late for queries: stream, reason, event.
    pub late: Vec<(usize, String, String)>,
}

/// Place and time at which a record is applied.
#[derive(Clone, Copy)]
pub struct RecordContext {
    /// The partition.
    pub here: PartitionId,
    /// The record.
    pub offset: Offset,
    /// When it was appended.
    pub time: Timestamp,
}

/// A record at work.
pub struct Cascade<'t> {
    pub(super) deployment: &'t Deployment,
    pub(super) queries: &'t Queries,
    pub(super) state: &'t mut PartitionState,
    pub(super) record: RecordContext,
    /// The clock of apps without playback, milliseconds.
    pub(super) now: i64,
    /// The row of the first event that is emitted.
    first_emitted_row: u32,
    /// Number of emitted events.
    emitted_count: u32,
    outputs: BTreeMap<usize, StreamOutput>,
    pub(super) forwarded: ForwardedEvents,
    pub(super) output: CascadeOutput,
}

impl<'t> Cascade<'t> {
    /// Nothing followed yet from a record with so many `rows`.
    pub fn new(
        deployment: &'t Deployment,
        state: &'t mut PartitionState,
        place: RecordContext,
        rows: usize,
    ) -> Self {
        Self {
            deployment,
            queries: &deployment.queries,
            state,
            record: place,
            now: convert::time_ms(place.time),
            first_emitted_row: u32::try_from(rows).unwrap_or(u32::MAX),
            emitted_count: 0,
            outputs: BTreeMap::new(),
            forwarded: ForwardedEvents::default(),
            output: CascadeOutput::default(),
        }
    }

    /// Events of a record: rules and queries.
    pub fn events(
        mut self,
        events: &Events,
        keep: &[Option<BooleanBuffer>],
        arrivals: &[Vec<i32>],
    ) -> Result<CascadeOutput> {
        if self.queries.is_empty() {
            let effects = self.run_record_rules(events, keep)?;
            self.absorb_effects(&effects);
            return self.finish();
        }
        self.advance_clocks()?;
        if events.forwarded {
            self.run_record_queries(events, keep)?;
        } else if self.queries.rules_and_queries_interact {
            self.run_row_at_a_time(events, keep, arrivals)?;
        } else {
            let effects = self.run_record_rules(events, keep)?;
            self.absorb_effects(&effects);
            self.run_record_queries(events, keep)?;
        }
        self.apply_corrections()?;
        self.finish()
    }

    /// The clock moves though nothing came. `jumps`: files with playback, and where their clocks go.
    pub fn tick(mut self, jumps: &[(String, i64)]) -> Result<CascadeOutput> {
        self.advance_clocks()?;
        for (file, to) in jumps {
            for (number, unit) in self.queries.units.iter().enumerate() {
                if self.queries.files[unit.file].name == *file
                    && self.state.query_state.get_mut().now(number).is_some_and(|now| now < *to)
                {
                    let mut out = Vec::new();
                    self.state.with_queries(|flow| flow.advance(self.queries, number, *to, &mut out));
                    self.propagate(number, out, 1)?;
                }
            }
        }
        self.apply_corrections()?;
        self.finish()
    }

    fn finish(mut self) -> Result<CascadeOutput> {
        for (stream, made) in self.outputs {
            let (batch, rows) = made.finish()?;
            self.output.emitted.push((stream, batch, rows));
        }
        let streams = self.deployment.program.streams();
        self.output.forwarded = self.forwarded.finish(streams, (self.record.here, self.record.offset))?;
        Ok(self.output)
    }

    /// Apps without playback go by the record's time. Their clocks stop at each instant at which something is due, so
    /// that it makes no difference when the engine noticed that it was.
    fn advance_clocks(&mut self) -> Result<()> {
        for (number, unit) in self.queries.units.iter().enumerate() {
            if unit.plan.playback {
                continue;
            }
            let mut out = Vec::new();
            let flow = self.state.query_state.get_mut();
            if flow.is_not_started(number) {
                self.state.with_queries(|flow| flow.start(self.queries, number, self.now, &mut out));
                self.propagate(number, out, 1)?;
                continue;
            }
            flow.skip_triggers(number, self.now, STANDSTILL_MS);
            let mut last = i64::MIN;
            while let Some(due) =
                self.state.query_state.get_mut().next_due(number).filter(|due| *due <= self.now)
            {
                // what is due at one instant is processed at once; should it not be, the clock advances all
                // the same
                let to = if due > last { due } else { self.now };
                last = due;
                let mut out = Vec::new();
                self.state.with_queries(|flow| flow.advance(self.queries, number, to, &mut out));
                self.propagate(number, out, 1)?;
                if to == self.now {
                    break;
                }
            }
        }
        Ok(())
    }

    fn run_record_rules(&mut self, events: &Events, keep: &[Option<BooleanBuffer>]) -> Result<Effects> {
        let program = &self.deployment.program;
        let parts = events.parts.iter().zip(keep).filter_map(|((stream, batch), keep)| {
            Some(StreamPart { stream: program.stream_index(&stream.name)?, batch, keep: keep.as_ref() })
        });
        let parts: Vec<StreamPart<'_>> = parts.collect();
        self.run_rules(&parts, events.order.as_deref(), 0)
    }

    fn run_rules(&mut self, parts: &[StreamPart<'_>], order: Option<&[u16]>, first: u32) -> Result<Effects> {
        let PartitionState { store, dedupe, executor, trace, .. } = &mut *self.state;
        let program = &self.deployment.program;
        let mut host = RuleContext {
            store,
            dedupe,
            program,
            here: self.record.here,
            partitions: self.deployment.partitions(),
        };
        let emitted = self.first_emitted_row.saturating_add(self.emitted_count);
        let at = RecordPosition {
            partition: self.record.here,
            offset: self.record.offset,
            first_row: first,
            first_emitted_row: emitted,
        };
        executor.apply_at(program, &mut host, parts, order, at, trace)
    }

    /// Keeps what rules did.
    fn absorb_effects(&mut self, effects: &Effects) {
        self.emitted_count = self.emitted_count.saturating_add(effects.emitted_count);
        for emitted in &effects.emitted {
            let schema = &self.deployment.program.streams()[emitted.stream];
            let rows = emitted.rows.iter().map(|r| *r as i32);
            self.outputs
                .entry(emitted.stream)
                .or_insert_with(|| StreamOutput::new(schema))
                .push_batch(&emitted.batch, rows);
        }
        for (stream, count) in &effects.duplicates {
            *self.output.duplicates.entry(*stream).or_default() += count;
        }
        self.output.outbound.extend(effects.outbound.iter().cloned());
        self.output.errors.extend(effects.errors.iter().map(ToString::to_string));
    }

    /// The queries on the events of a record, in order of arrival.
    fn run_record_queries(&mut self, events: &Events, keep: &[Option<BooleanBuffer>]) -> Result<()> {
        let parts = self.query_inputs(events)?;
        let arrivals = arrival_order(events, keep)?;
        if arrivals.len() > 1 && self.can_batch(&parts) {
            return self.dispatch_batch(&parts, &arrivals, events.depth.into());
        }
        let depth = events.depth.into();
        arrivals.iter().try_for_each(|(part, row)| self.run_row_queries(&parts[*part], *row, depth))
    }

    /// Rules and queries on the events of a record, one event after the other.
    fn run_row_at_a_time(
        &mut self,
        events: &Events,
        keep: &[Option<BooleanBuffer>],
        arrivals: &[Vec<i32>],
    ) -> Result<()> {
        let parts = self.query_inputs(events)?;
        for_each_arrival(events, |part, row| {
            if keep[part].as_ref().is_some_and(|k| !k.value(row)) {
                return Ok(());
            }
            if let Some(stream) = parts[part].stream {
                let own = arrivals[part][row].unsigned_abs();
                self.run_event_rules(stream, &parts[part].batch.slice(row, 1), own, 0)?;
            }
            self.run_row_queries(&parts[part], row, 0)
        })
    }

    /// The rules on one event, and the queries on what they emit.
    fn run_event_rules(&mut self, stream: usize, one: &RecordBatch, own: u32, depth: u32) -> Result<()> {
        if self.deployment.program.stream_rules(stream).rules.is_empty() {
            return Ok(());
        }
        let effects = self.run_rules(&[StreamPart { stream, batch: one, keep: None }], None, own)?;
        self.absorb_effects(&effects);
        let mut emitted: Vec<(u32, usize, usize)> = Vec::new();
        for (i, e) in effects.emitted.iter().enumerate() {
            emitted.extend(e.rows.iter().enumerate().map(|(row, number)| (*number, i, row)));
        }
        emitted.sort_unstable();
        for (_, i, row) in emitted {
            let emitted = &effects.emitted[i];
            if !self.queries.readers(emitted.stream).is_empty() {
                let part = self.query_input(Some(emitted.stream), &emitted.batch.slice(row, 1), false)?;
                self.run_row_queries(&part, 0, depth + 1)?;
            }
        }
        Ok(())
    }

    /// The parts of a record as the queries here read them.
    fn query_inputs(&self, events: &Events) -> Result<Vec<QueryInput>> {
        let parts = events.parts.iter().map(|(stream, batch)| {
            self.query_input(self.deployment.program.stream_index(&stream.name), batch, events.forwarded)
        });
        parts.collect()
    }

    fn query_input(&self, stream: Option<usize>, batch: &RecordBatch, forwarded: bool) -> Result<QueryInput> {
        let mut units = Vec::new();
        for unit in stream.map_or(&[][..], |s| self.queries.readers(s)) {
            let wanted = self.queries.runs_in(*unit, self.record.here);
            // events that came from another partition were seen there by what runs everywhere
            if wanted && !(forwarded && self.queries.units[*unit].partitioned) {
                let input = stream.and_then(|s| self.queries.units[*unit].inputs.get(&s));
                let input = input.ok_or_else(|| Error::internal("a unit reads what it does not know"))?;
                units.push((*unit, input.stream, convert::input_columns(batch, input)?));
            }
        }
        let forward_stream = stream.filter(|s| self.is_forwarded(*s) && !forwarded);
        Ok(QueryInput { stream, units, forward_stream, times: times(batch)?, batch: batch.clone() })
    }

    fn run_row_queries(&mut self, part: &QueryInput, row: usize, depth: u32) -> Result<()> {
        if let Some(stream) = part.forward_stream {
            self.forward(stream, &part.batch, row, depth);
        }
        let time = part.times.value(row).div_euclid(1000);
        for (unit, stream, columns) in &part.units {
            if !self.handle_if_late(*unit, part, row, time, depth)? {
                self.send(*unit, *stream, convert::single_row(columns, row), time, depth)?;
            }
        }
        Ok(())
    }

    /// Hands an event to a unit; all that follows from it is worked off.
    fn send(&mut self, unit: usize, stream: usize, event: Vec<Column>, time: i64, depth: u32) -> Result<()> {
        let queries = self.queries;
        let time = if queries.units[unit].plan.playback { time } else { self.now };
        let mut out = Vec::new();
        self.state.with_queries(|flow| {
            if flow.is_not_started(unit) {
                flow.start(queries, unit, time, &mut out);
            }
            if let Err(failure) = flow.send(queries, unit, stream, event, time, &mut out) {
                let plan = &queries.units[unit];
                let name = &plan.plan.catalog.streams()[stream].name;
                flow.count_failure(&queries.files[plan.file].name, name, &failure.to_string());
            }
        });
        self.propagate(unit, out, depth + 1)
    }

    /// Propagates the output of a unit, event by event.
    pub(super) fn propagate(&mut self, unit: usize, out: Vec<UnitOutput>, depth: u32) -> Result<()> {
        let queries = self.queries;
        for out in &out {
            let Some(output) = queries.units[unit].output(out) else { continue };
            if self.emit_batch(unit, output, &out.events, depth)? {
                continue;
            }
            let schema = &self.deployment.program.streams()[output.stream];
            for row in 0..out.events.len() {
                let cells = convert::output_cells(schema, output, &out.events, row);
                let time = Timestamp(out.events.times[row].saturating_mul(1000));
                self.emit(Some(unit), output.stream, cells, time, depth)?;
            }
        }
        Ok(())
    }

    /// Stores and forwards events that a unit emitted in columns, with the result of [`Self::emit`] for each. Returns
    /// false, with nothing done, if they are few, or if something here has to see them one after the other.
    fn emit_batch(
        &mut self,
        unit: usize,
        output: &OutputMapping,
        events: &Batch,
        depth: u32,
    ) -> Result<bool> {
        let (deployment, here, rows) = (self.deployment, self.record.here, events.len() as u32);
        let stream = output.stream;
        let schema = &deployment.program.streams()[stream];
        let mut readers = self.queries.readers(stream).iter();
        let is_read = readers.any(|reader| *reader != unit && self.queries.runs_in(*reader, here))
            || !deployment.program.stream_rules(stream).rules.is_empty();
        if rows < COLUMNAR_ROWS_MIN
            || is_read
            || !schema.id.is_empty()
            || depth > DEPTH_MAX
            || self.emitted_count.saturating_add(rows) > EVENTS_MAX
        {
            return Ok(false);
        }
        let Some(batch) = convert::output_batch(schema, output, events)? else { return Ok(false) };
        let numbers = self.emitted_count..self.emitted_count + rows;
        self.emitted_count = numbers.end;
        let mut local = Vec::with_capacity(rows as usize);
        let partitions = deployment.partitions();
        match schema.key.filter(|_| self.may_repartition(&self.queries.units[unit], stream)) {
            None => local.extend(0..rows),
            Some(key) => {
                for (row, number) in (0..rows).zip(numbers.clone()) {
                    let key = convert::output_cell(schema, output, events, row as usize, key);
                    match route(here, partitions, Some(&key_text(&key))) {
                        Route::Local => local.push(row),
                        Route::Remote(partition) => {
                            let cells = convert::output_cells(schema, output, events, row as usize);
                            let time = Timestamp(events.times[row as usize].saturating_mul(1000));
                            self.output.outbound.push(Outbound {
                                partition,
                                stream,
                                cells,
                                time,
                                number,
                                source_row: 0,
                            });
                        }
                    }
                }
            }
        }
        if local.is_empty() {
            return Ok(true);
        }
        let batch = if local.len() == batch.num_rows() {
            batch
        } else {
            take_record_batch(&batch, &UInt32Array::from(local.clone()))
                .map_err(|e| Error::internal("emitted events cannot be split").with_source(e))?
        };
        let first = self.first_emitted_row.saturating_add(numbers.start);
        let own = local.iter().map(|row| first.saturating_add(*row) as i32);
        self.outputs.entry(stream).or_insert_with(|| StreamOutput::new(schema)).push_batch(&batch, own);
        if self.is_forwarded(stream) {
            (0..batch.num_rows()).for_each(|row| self.forward(stream, &batch, row, depth));
        }
        Ok(true)
    }

    /// Emits an event that came out of a unit, or that came too late and goes to another stream.
    pub(super) fn emit(
        &mut self,
        unit: Option<usize>,
        stream: usize,
        cells: Vec<FieldValue>,
        time: Timestamp,
        depth: u32,
    ) -> Result<()> {
        let (deployment, queries) = (self.deployment, self.queries);
        let schema = &deployment.program.streams()[stream];
        let problem = if depth > DEPTH_MAX {
            Some(format!("events that follow from an event are at most {DEPTH_MAX} deep: is there a loop?"))
        } else if self.emitted_count >= EVENTS_MAX {
            Some(format!("more than {EVENTS_MAX} events follow from one record"))
        } else {
            None
        };
        if let Some(problem) = problem {
            let file = unit.map_or("", |unit| queries.file_name(unit));
            self.state.query_state.get_mut().count_failure(file, &schema.name, &problem);
            return Ok(());
        }
        let number = self.emitted_count;
        self.emitted_count += 1;
        let here = self.record.here;
        let key = schema.key.map(|k| key_text(&cells[k]));
        let to = match unit.and_then(|unit| self.home_of_ids(unit, stream)) {
            Some(home) if home == here => Route::Local,
            Some(home) => Route::Remote(home),
            None => route(here, deployment.partitions(), key.as_deref()),
        };
        if let Route::Remote(part) = to {
            self.output.outbound.push(Outbound {
                partition: part,
                stream,
                cells,
                time,
                number,
                source_row: 0,
            });
            return Ok(());
        }
        if !self.admit(schema, &cells) {
            *self.output.duplicates.entry(stream).or_default() += 1;
            return Ok(());
        }
        let own = self.first_emitted_row.saturating_add(number);
        let made = self.outputs.entry(stream).or_insert_with(|| StreamOutput::new(schema));
        made.push_event(&cells, time, own as i32)?;
        let others = queries.readers(stream).iter().any(|u| Some(*u) != unit && queries.runs_in(*u, here));
        let ruled = !deployment.program.stream_rules(stream).rules.is_empty();
        if !others && !ruled && !self.is_forwarded(stream) {
            return Ok(());
        }
        let mut builder = BatchBuilder::new(schema.clone());
        builder.push_values(&cells, time)?;
        let one = builder.finish();
        self.run_event_rules(stream, &one, own, depth)?;
        let mut part = self.query_input(Some(stream), &one, false)?;
        part.units.retain(|(u, ..)| Some(*u) != unit);
        self.run_row_queries(&part, 0, depth)
    }

    /// Returns the partition that has the ids of a stream without a key, where a unit emits its events: units of several homes may emit
    /// into it, and duplicates are looked for in one partition.
    pub(super) fn home_of_ids(&self, unit: usize, stream: usize) -> Option<PartitionId> {
        let schema = &self.deployment.program.streams()[stream];
        let is_one = match self.queries.home_rule {
            HomeRule::First => false,
            HomeRule::ByName => !self.queries.units[unit].partitioned,
            HomeRule::Parallel => true,
        };
        (is_one && !schema.id.is_empty() && schema.key.is_none())
            .then(|| self.deployment.partitioner.for_stream(&schema.name))
    }

    fn admit(&mut self, schema: &StreamSchema, cells: &[FieldValue]) -> bool {
        if schema.id.is_empty() {
            return true;
        }
        let id: Vec<FieldValue> = schema.id.iter().map(|i| cells[*i].clone()).collect();
        match (self.state.dedupe.get_mut(&schema.name), values_key(schema, &id)) {
            (Some(seen), Some(key)) => seen.admit(key),
            _ => true,
        }
    }
}
