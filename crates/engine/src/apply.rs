//! One record applied to one partition: duplicates dropped, rules run, documents changed, rows joined to tails.
//!
//! Everything in here follows from the record, its time and the partition's state, so replay repeats it exactly.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::{BooleanArray, Int32Array, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow_buffer::BooleanBuffer;
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use tidemill_docs::{Command, CommandOutcome};
use tidemill_rules::Outbound;
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{Error, EventId, Offset, PartitionId, Result, StreamSchema, Timestamp, event_json};
use tidemill_zones::Table;

use crate::EmittedEvent;
use crate::apply_queue::PendingRecord;
use crate::core::Core;
use crate::dedupe::row_id;
use crate::entry::{Entry, Events, RejectedRow};
use crate::outbox::{Emission, Replies};
use crate::queries;
use crate::queries::cascade::{Cascade, CascadeOutput, RecordContext};
use crate::state::PartitionState;

/// What became of one record, for whoever waits.
#[derive(Debug, Default)]
pub struct ApplyReply {
    /// Events stored, in order of arrival.
    pub stored: Vec<EventId>,
    /// Events dropped as duplicates.
    pub duplicates: u64,
    /// Events that rules emitted.
    pub emitted: Vec<EmittedEvent>,
    /// Firings that failed.
    pub rule_errors: Vec<String>,
    /// For document writes: what they did.
    pub outcome: Option<CommandOutcome>,
}

/// What a round of records leaves to do once the state is released.
#[derive(Default)]
pub struct ApplyEffects {
    /// Emitted events that belong to other partitions.
    pub emissions: Vec<Emission>,
    /// Stored batches that subscribers want.
    pub published: Vec<(String, RecordBatch)>,
    /// Answers.
    pub replies: Replies,
}

/// Applies records in order.
///
/// Errors: a table or the store broke a promise; the partition must stop where it is.
pub fn apply(
    core: &Core,
    id: PartitionId,
    state: &mut PartitionState,
    items: Vec<PendingRecord>,
) -> Result<ApplyEffects> {
    let mut round = ApplyEffects::default();
    for item in items {
        let mut turn = RecordApplier { core, id, offset: item.offset, time: item.time, effects: &mut round };
        let reply = match item.entry {
            Entry::Events(events) => turn.events(state, events, item.reply.is_some()).map(Ok)?,
            Entry::Command(command) => turn.command(state, &command),
            Entry::LoadDocuments { source, collection, documents } => {
                if let Some((name, position)) = source {
                    advance_source(state, name, position);
                }
                turn.load_documents(state, &collection, &documents)
            }
            Entry::Tick { jumps } => turn.tick(state, &jumps).map(Ok)?,
            Entry::OnDemand { file, text } => turn.on_demand(state, &file, &text),
        };
        state.next = item.offset.next();
        core.counts.records.fetch_add(1, Ordering::Relaxed);
        if let Some(sender) = item.reply {
            round.replies.push((sender, reply));
        }
    }
    Ok(round)
}

fn advance_source(state: &mut PartitionState, source: String, position: u64) {
    let at = state.sources.entry(source).or_default();
    *at = position.max(*at);
}

struct RecordApplier<'c> {
    core: &'c Core,
    id: PartitionId,
    offset: Offset,
    time: Timestamp,
    effects: &'c mut ApplyEffects,
}

impl<'c> RecordApplier<'c> {
    fn command(&mut self, state: &mut PartitionState, command: &Bytes) -> Result<ApplyReply> {
        let command = Command::from_bytes(command)?;
        let outcome = state.store.apply(&command, self.time)?;
        Ok(ApplyReply { outcome: Some(outcome), ..ApplyReply::default() })
    }

    /// Documents that replace the one with their `_id`, or are new.
    fn load_documents(
        &mut self,
        state: &mut PartitionState,
        collection: &str,
        documents: &Bytes,
    ) -> Result<ApplyReply> {
        let mut outcome = CommandOutcome::default();
        let target = state.store.require(collection)?;
        let mut at = 0;
        let mut index = 0;
        while at < documents.len() {
            let doc = document_at(documents, at)?;
            at += doc.len();
            // shared memory would keep the whole record alive for as long as one of its documents lives
            let doc = Bytes::copy_from_slice(&doc);
            match target.replace(doc.clone()).and_then(|done| match done.before {
                Some(_) => Ok(false),
                None => target.insert(doc).map(|_| true),
            }) {
                Ok(true) => outcome.inserted += 1,
                Ok(false) => outcome.modified += 1,
                Err(error) => outcome.errors.push(tidemill_docs::DocumentError { index, error }),
            }
            index += 1;
        }
        if let Some(first) = outcome.errors.first() {
            self.core.report_source_problem(
                collection,
                &Error::invalid(format!("document {}: {}", first.index, first.error)),
            );
        }
        Ok(ApplyReply { outcome: Some(outcome), ..ApplyReply::default() })
    }

    fn events(&mut self, state: &mut PartitionState, events: Events, reply: bool) -> Result<ApplyReply> {
        if let Some((partition, offset)) = events.provenance {
            // a replaying partition emits again what is here already
            let seen = if events.forwarded { &mut state.forwarded } else { &mut state.provenance };
            if seen.get(&partition.0).is_some_and(|last| *last >= offset) {
                return Ok(ApplyReply::default());
            }
            seen.insert(partition.0, offset);
            *state.transfers.received.entry(partition.0).or_default() += events.rows() as u64;
        }
        if events.forwarded {
            return self.forwarded_events(state, &events);
        }
        if let Some((name, position)) = events.source.clone() {
            advance_source(state, name, position);
        }
        let mut refused = RejectedRows::default();
        for row in &events.rejected {
            let ledger = state.ledger_entry(&row.stream);
            ledger.received += 1;
            ledger.rejected += 1;
            refused.rows.push(row.clone());
        }
        let arrivals = arrival_positions(&events);
        let keep = self.filter_duplicates(state, &events, &arrivals, &mut refused);
        let mut followed = self.cascade(state, events.rows()).events(&events, &keep, &arrivals)?;
        refused.rows.extend(self.take_late_rows(&mut followed));
        let mut answer = ApplyReply { duplicates: refused.duplicates, ..ApplyReply::default() };
        for (part, (stream, batch)) in events.parts.iter().enumerate() {
            let rows = batch.num_rows() as u64;
            let stored = keep[part].as_ref().map_or(rows, |k| k.count_set_bits() as u64);
            let ledger = state.ledger_entry(&stream.name);
            ledger.received += rows;
            ledger.stored += stored;
            ledger.duplicate += rows - stored;
            self.store_rows(stream, batch, keep[part].as_ref(), &arrivals[part])?;
            self.core.counts.applied.fetch_add(rows, Ordering::Relaxed);
            if reply {
                let kept = (0..batch.num_rows()).filter(|r| keep[part].as_ref().is_none_or(|k| k.value(*r)));
                answer.stored.extend(kept.map(|r| self.event_id(arrivals[part][r])));
            }
        }
        answer.stored.sort_unstable_by_key(|id| id.row);
        self.apply_cascade_output(state, followed, reply, &mut answer)?;
        self.store_rejected(refused)?;
        Ok(answer)
    }

    fn cascade<'t>(&self, state: &'t mut PartitionState, rows: usize) -> Cascade<'t>
    where
        'c: 't,
    {
        let place = RecordContext { here: self.id, offset: self.offset, time: self.time };
        Cascade::new(self.core, state, place, rows)
    }

    /// Events that are stored in another partition, for the queries that run here.
    fn forwarded_events(&mut self, state: &mut PartitionState, events: &Events) -> Result<ApplyReply> {
        let keep = vec![None; events.parts.len()];
        let mut followed = self.cascade(state, events.rows()).events(events, &keep, &[])?;
        let late = self.take_late_rows(&mut followed);
        let mut answer = ApplyReply::default();
        self.apply_cascade_output(state, followed, false, &mut answer)?;
        self.store_rejected(RejectedRows { rows: late, duplicates: 0 })?;
        Ok(answer)
    }

    /// The clocks of the queries move.
    fn tick(&mut self, state: &mut PartitionState, jumps: &[(String, i64)]) -> Result<ApplyReply> {
        let mut followed = self.cascade(state, 0).tick(jumps)?;
        let late = self.take_late_rows(&mut followed);
        let mut answer = ApplyReply::default();
        self.apply_cascade_output(state, followed, false, &mut answer)?;
        self.store_rejected(RejectedRows { rows: late, duplicates: 0 })?;
        Ok(answer)
    }

    /// An on-demand query that changes something.
    fn on_demand(&self, state: &mut PartitionState, file: &str, text: &str) -> Result<ApplyReply> {
        let unit = self.core.queries.global_unit(file)?;
        state.query_state.get_mut().on_demand(unit, text).map(|_| ApplyReply::default())
    }

    /// Events that came too late for queries: they are stored, and told of here.
    fn take_late_rows(&self, followed: &mut CascadeOutput) -> Vec<RejectedRow> {
        let late = std::mem::take(&mut followed.late);
        let row = |(stream, reason, raw): (usize, String, String)| RejectedRow {
            stream: self.core.program.streams()[stream].name.clone(),
            kind: "late".into(),
            reason,
            raw,
            origin: "queries".into(),
        };
        late.into_iter().map(row).collect()
    }

    fn event_id(&self, row: i32) -> EventId {
        EventId { partition: self.id, offset: self.offset, row: row.unsigned_abs() }
    }

    /// Which rows are no duplicates, by part; `None` when all are kept. In order of arrival, over all parts.
    fn filter_duplicates(
        &self,
        state: &mut PartitionState,
        events: &Events,
        arrivals: &[Vec<i32>],
        refused: &mut RejectedRows,
    ) -> Vec<Option<BooleanBuffer>> {
        let mut keep = Vec::with_capacity(events.parts.len());
        for (part, (stream, batch)) in events.parts.iter().enumerate() {
            let Some(seen) = state.dedupe.get_mut(&stream.name) else {
                keep.push(None);
                continue;
            };
            let kept: Vec<bool> = (0..batch.num_rows())
                .map(|row| row_id(stream, batch, row).is_none_or(|id| seen.admit(id)))
                .collect();
            if kept.iter().all(|k| *k) {
                keep.push(None);
                continue;
            }
            for row in (0..batch.num_rows()).filter(|r| !kept[*r]) {
                let arrival = arrivals[part][row];
                refused.push_duplicate(
                    stream,
                    batch,
                    row,
                    events.source.as_ref().map(|s| s.0.as_str()),
                    arrival,
                );
            }
            keep.push(Some(BooleanBuffer::from(kept)));
        }
        keep
    }

    /// Rows of a stream join its tail.
    fn store_rows(
        &mut self,
        stream: &Arc<StreamSchema>,
        batch: &RecordBatch,
        keep: Option<&BooleanBuffer>,
        rows: &[i32],
    ) -> Result<()> {
        let Some(table) = self.core.program.stream_index(&stream.name).map(|i| &self.core.tables[i]) else {
            return Err(Error::internal(format!("stream `{}` has no table", stream.name)));
        };
        let full = self.table_batch(table.schema(), batch, rows)?;
        let kept = match keep {
            Some(keep) => {
                filter_record_batch(&full, &BooleanArray::new(keep.clone(), None)).map_err(arrow_failed)?
            }
            None => full,
        };
        self.push_rows(table, &stream.name, kept)
    }

    fn push_rows(&mut self, table: &Table, stream: &str, batch: RecordBatch) -> Result<()> {
        if self.core.subscribers.has_subscribers(stream) && batch.num_rows() > 0 {
            self.effects.published.push((stream.to_owned(), batch.clone()));
        }
        table.push(self.id, self.offset, batch).map(|_| ())
    }

    /// The batch with `_received`, `_partition`, `_offset`, `_row`.
    fn table_batch(&self, schema: &SchemaRef, batch: &RecordBatch, rows: &[i32]) -> Result<RecordBatch> {
        let n = batch.num_rows();
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(TimestampMicrosecondArray::from_value(self.time.0, n).with_timezone("UTC")));
        columns.push(Arc::new(Int32Array::from_value(self.id.0 as i32, n)));
        columns.push(Arc::new(Int64Array::from_value(self.offset.0 as i64, n)));
        columns.push(Arc::new(Int32Array::from(rows.to_vec())));
        RecordBatch::try_new(schema.clone(), columns).map_err(arrow_failed)
    }

    /// Emitted events join their tails here or go on to other partitions.
    fn apply_cascade_output(
        &mut self,
        state: &mut PartitionState,
        followed: CascadeOutput,
        reply: bool,
        answer: &mut ApplyReply,
    ) -> Result<()> {
        for (stream, batch, rows) in &followed.emitted {
            let stream = &self.core.program.streams()[*stream];
            let ledger = state.ledger_entry(&stream.name);
            ledger.received += rows.len() as u64;
            ledger.stored += rows.len() as u64;
            self.store_rows(stream, batch, None, rows)?;
            self.core.counts.applied.fetch_add(rows.len() as u64, Ordering::Relaxed);
            if reply {
                answer.emitted.extend((0..batch.num_rows()).map(|row| EmittedEvent {
                    stream: stream.name.clone(),
                    event: event_json(stream, batch, row).into(),
                }));
            }
        }
        for (stream, count) in &followed.duplicates {
            let ledger = state.ledger_entry(&self.core.program.streams()[*stream].name);
            ledger.received += count;
            ledger.duplicate += count;
        }
        if !followed.outbound.is_empty() {
            self.emit_outbound(state, &followed.outbound, reply, answer)?;
        }
        if let Some(events) = followed.forwarded {
            self.emit(state, PartitionId(queries::GLOBAL_PARTITION), events);
        }
        if reply {
            answer.rule_errors = followed.errors;
        }
        Ok(())
    }

    fn emit(&mut self, state: &mut PartitionState, target: PartitionId, events: Events) {
        *state.transfers.sent.entry(target.0).or_default() += events.rows() as u64;
        self.effects.emissions.push(Emission { target, events });
    }

    /// One record per partition, its events in the order in which they were emitted.
    fn emit_outbound(
        &mut self,
        state: &mut PartitionState,
        emitted: &[Outbound],
        reply: bool,
        answer: &mut ApplyReply,
    ) -> Result<()> {
        let mut targets: Vec<PartitionId> = emitted.iter().map(|e| e.partition).collect();
        targets.sort_unstable();
        targets.dedup();
        for target in targets {
            let mut builders: Vec<(usize, BatchBuilder)> = Vec::new();
            let mut order = Vec::new();
            for event in emitted.iter().filter(|e| e.partition == target) {
                let part = match builders.iter().position(|(stream, _)| *stream == event.stream) {
                    Some(part) => part,
                    None => {
                        let schema = self.core.program.streams()[event.stream].clone();
                        builders.push((event.stream, BatchBuilder::new(schema)));
                        builders.len() - 1
                    }
                };
                builders[part].1.push_values(&event.cells, event.time)?;
                order.push(part as u16);
            }
            let parts: Vec<_> = builders
                .into_iter()
                .map(|(stream, mut builder)| (self.core.program.streams()[stream].clone(), builder.finish()))
                .collect();
            if reply {
                answer.emitted.extend(parts.iter().flat_map(|(stream, batch)| {
                    (0..batch.num_rows()).map(|row| EmittedEvent {
                        stream: stream.name.clone(),
                        event: event_json(stream, batch, row).into(),
                    })
                }));
            }
            let order = (parts.len() > 1).then_some(order);
            let events =
                Events { provenance: Some((self.id, self.offset)), parts, order, ..Events::default() };
            self.emit(state, target, events);
        }
        Ok(())
    }

    /// Refused rows join `system.rejected`.
    fn store_rejected(&mut self, refused: RejectedRows) -> Result<()> {
        if refused.rows.is_empty() {
            return Ok(());
        }
        let mut builder = BatchBuilder::new(self.core.rejected_schema.clone());
        for row in refused.rows {
            let cells = [row.stream, row.kind, row.reason, row.raw, row.origin].map(FieldValue::Text);
            builder.push_values(&cells, self.time)?;
        }
        let batch = builder.finish();
        let rows: Vec<i32> = (0..batch.num_rows() as i32).collect();
        let table = &self.core.rejected;
        let full = self.table_batch(table.schema(), &batch, &rows)?;
        let name = self.core.rejected_schema.name.clone();
        self.push_rows(table, &name, full)
    }
}

fn arrow_failed(e: arrow_schema::ArrowError) -> Error {
    Error::internal("a batch could not be made ready for its table").with_source(e)
}

fn document_at(documents: &Bytes, at: usize) -> Result<Bytes> {
    let damaged = || Error::corrupt(format!("documents of a record are cut at byte {at}"));
    let head: [u8; 4] = documents.get(at..at + 4).and_then(|b| b.try_into().ok()).ok_or_else(damaged)?;
    let len = u32::from_le_bytes(head) as usize;
    if len < 5 || at + len > documents.len() {
        return Err(damaged());
    }
    Ok(documents.slice(at..at + len))
}

/// For each part, the place of each of its rows in the order of arrival.
fn arrival_positions(events: &Events) -> Vec<Vec<i32>> {
    let mut arrivals: Vec<Vec<i32>> =
        events.parts.iter().map(|(_, b)| Vec::with_capacity(b.num_rows())).collect();
    match &events.order {
        Some(order) => {
            for (arrival, part) in order.iter().enumerate() {
                arrivals[usize::from(*part)].push(arrival as i32);
            }
        }
        None => {
            let mut next = 0;
            for (part, (_, batch)) in arrivals.iter_mut().zip(&events.parts) {
                let end = next + batch.num_rows() as i32;
                part.extend(next..end);
                next = end;
            }
        }
    }
    arrivals
}

/// Rows on their way to `system.rejected`.
#[derive(Default)]
struct RejectedRows {
    rows: Vec<RejectedRow>,
    duplicates: u64,
}

impl RejectedRows {
    fn push_duplicate(
        &mut self,
        stream: &StreamSchema,
        batch: &RecordBatch,
        row: usize,
        source: Option<&str>,
        arrival: i32,
    ) {
        let fields: Vec<&str> = stream.id.iter().map(|i| stream.fields[*i].name.as_str()).collect();
        self.duplicates += 1;
        self.rows.push(RejectedRow {
            stream: stream.name.clone(),
            kind: "duplicate".into(),
            reason: format!("an event with the same {} is stored already", fields.join(", ")),
            raw: serde_json::Value::from(event_json(stream, batch, row)).to_string(),
            origin: source
                .map_or_else(|| format!("row {arrival}"), |s| format!("{s}: row {arrival} of its record")),
        });
    }
}
