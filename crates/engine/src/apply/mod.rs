//! Application of one log record to the state of one partition.
//!
//! [`apply`] drops duplicates, runs rules and queries and changes documents. It is a function of the deployment,
//! the state and the record: it reads no clock, writes no table, appends to no log. So a replay repeats it exactly, and
//! its caller decides what becomes of the result. A part of the state, ids of events long ago, is in files.

mod batch;
mod cascade;
mod documents;
mod input;
mod late_events;
mod mismatches;
mod outbound;
mod redelivery;
mod rejected;
mod rule_context;
mod transaction;

pub use transaction::first_refused;

use std::sync::Arc;

use arrow_array::{BooleanArray, Int32Array, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow_buffer::BooleanBuffer;
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use tidemill_docs::{CommandOutcome, DocumentCommand, Sequence};
use tidemill_types::budget::Budget;
use tidemill_types::{Error, EventId, Offset, PartitionId, Result, StreamSchema, Timestamp};

use crate::commit::Decision;
use crate::dedupe::row_key;
use crate::deployment::{Deployment, TableRef};
use crate::digest::EffectDigest;
use crate::document_tables::gathering_partition;
use crate::entry::{ArrivalKind, Emission, Entry, Events, SourcePosition, UNDELIVERED};
use crate::planted_bugs::{PlantedBug, is_planted};
use crate::state::PartitionState;
use cascade::{Cascade, CascadeOutput, RecordContext};
use rejected::RejectedRows;

/// Decoded log record.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// Offset in the log of the partition.
    pub offset: Offset,
    /// Time of the append.
    pub time: Timestamp,
    /// Decoded payload.
    pub entry: Entry,
    /// The decision on a transaction of several partitions.
    pub decision: Option<Decision>,
}

/// Effects of a record besides the changed state.
#[derive(Default)]
pub struct Applied {
    /// Rows to store, with the schema of their table, in the order of their `_row` within each table.
    pub rows: Vec<(TableRef, RecordBatch)>,
    /// Rows that go to a sink again, by its name.
    pub redelivered: Vec<(String, RecordBatch)>,
    /// Name of a sink, and the offset and row of the last event that its other side has.
    pub delivered: Option<(String, (Offset, u32))>,
    /// Events for other partitions.
    pub emissions: Vec<Emission>,
    /// Number of events applied, emitted ones included.
    pub events: u64,
    /// Documents of a load that the store rejected: the collection, and the first error.
    pub document_error: Option<(String, Error)>,
    /// The entry that runs a record again whose rules and queries were left out.
    pub set_aside: Option<Entry>,
    /// Answer to the caller that appended the record; an error only if the record changed nothing.
    pub reply: Option<Result<ApplyReply>>,
}

/// Outcome of a record for the caller that waits for it.
#[derive(Debug, Clone, Default)]
pub struct ApplyReply {
    /// Ids of the events stored, in order of arrival.
    pub stored: Vec<EventId>,
    /// Number of events dropped as duplicates.
    pub duplicates: u64,
    /// Events that rules and queries emitted, by stream.
    pub emitted: Vec<(Arc<StreamSchema>, RecordBatch)>,
    /// Messages of rule firings that failed.
    pub rule_errors: Vec<String>,
    /// Outcome of a document command.
    pub outcome: Option<CommandOutcome>,
}

/// Applies a record to the state of its partition. `wants_reply` says whether a caller waits for the outcome;
/// without it [`Applied::reply`] stays empty. `set_aside` says that the record stopped its partition before: its events
/// are stored, but nothing follows from them, and a record without events changes nothing.
///
/// Errors: the state is inconsistent with the record; it may be half changed, so the partition must stop.
pub fn apply(
    deployment: &Deployment,
    state: &mut PartitionState,
    record: LogEntry,
    wants_reply: bool,
    set_aside: bool,
) -> Result<Applied> {
    let LogEntry { offset, time, entry, decision } = record;
    let time = state.time.max(time);
    state.time = time;
    state.store.set_record(offset.0, time);
    let id = state.partition;
    state.query_state.get_mut().set_record(id, offset, time);
    let mut digest = state.digest.take();
    if let Some(digest) = &mut digest {
        digest.begin(offset, time, set_aside);
    }
    let applied = Applied::default();
    let mut applier = RecordApplier { deployment, id, offset, time, wants_reply, set_aside, applied, digest };
    let reply = match entry {
        entry if is_of_former_reader(state, &entry) => {
            applier.former_reader();
            Ok(ApplyReply::default())
        }
        Entry::ClaimSources { epoch } => {
            applier.claim_sources(state, epoch);
            Ok(ApplyReply::default())
        }
        Entry::Delivered { sink, last } => {
            applier.applied.delivered = Some((sink, last));
            Ok(ApplyReply::default())
        }
        Entry::Events(events) => Ok(applier.events(state, events)?),
        entry if set_aside => {
            if let Some(source) = entry.source() {
                applier.advance_source(state, source);
            }
            applier.applied.set_aside = Some(entry);
            Ok(ApplyReply::default())
        }
        Entry::Rerun(events) => Ok(applier.rerun(state, &events)?),
        Entry::Command(command) => applier.command(state, &command),
        Entry::SessionCommand { session, command } => applier.session_command(state, &session, &command),
        Entry::LoadDocuments { source, collection, documents } => {
            if let Some(source) = &source {
                applier.advance_source(state, source);
            }
            applier.load_documents(state, &collection, &documents)
        }
        Entry::Tick { jumps } => Ok(applier.tick(state, &jumps)?),
        Entry::OnDemand { file, text } => applier.on_demand(state, &file, &text),
        Entry::CollectChanges => {
            state.store.collect_changes(true);
            Ok(ApplyReply::default())
        }
        Entry::OrderTransaction(parts) => {
            applier.order_transaction(state, parts);
            Ok(ApplyReply::default())
        }
        Entry::Transaction(part) if applier.is_repeated(state, &part) => Ok(ApplyReply::default()),
        Entry::Transaction(part) => {
            if let (Some(digest), Some(decision)) = (&mut applier.digest, &decision) {
                digest.decision(decision);
            }
            applier.transaction(state, &part, decision)?
        }
        Entry::Redeliver { ids } => applier.redeliver(state, &ids),
    };
    state.query_state.get_mut().check_interruption()?;
    state.check_ids()?;
    state.next = offset.next();
    let (applied, digest) = applier.finish(state, &reply);
    state.digest = digest;
    Ok(Applied { reply: wants_reply.then_some(reply), ..applied })
}

/// Returns whether a node has read the rows of the entry after another one has claimed the sources: that one reads them again.
fn is_of_former_reader(state: &PartitionState, entry: &Entry) -> bool {
    let epoch = entry.source().and_then(|source| source.epoch);
    epoch.is_some_and(|epoch| epoch < state.source_epoch)
}

/// Refuses an insert into a partition that the documents of the collection have left.
fn check_place(deployment: &Deployment, state: &PartitionState, command: &DocumentCommand) -> Result<()> {
    if let Some(part) = state.store.collection(command.collection())
        && part.spec().gathered
        && command.may_insert()
        && state.partition != gathering_partition(part.spec(), deployment.partitions())
    {
        return Err(Error::unavailable(format!(
            "the documents of `{}` have just got another partition: send the command again",
            command.collection()
        )));
    }
    Ok(())
}

/// Steps that a document command may take in one partition, about a second of work. A replay decides as the first run did, so this counts
/// steps instead of time, and changing it changes what a log means.
const DOCUMENT_STEPS_MAX: u64 = 10_000_000;
/// Bytes that its expressions may hold at once.
const DOCUMENT_BYTES_MAX: u64 = 1 << 30;

/// Returns the budget of a record with a document command, or with documents.
fn document_budget() -> Budget {
    Budget::deterministic(DOCUMENT_STEPS_MAX, DOCUMENT_BYTES_MAX)
}

struct RecordApplier<'d> {
    deployment: &'d Deployment,
    id: PartitionId,
    offset: Offset,
    time: Timestamp,
    wants_reply: bool,
    set_aside: bool,
    applied: Applied,
    /// Digest of the partition, if it is computed.
    digest: Option<Box<EffectDigest>>,
}

impl<'d> RecordApplier<'d> {
    fn advance_source(&mut self, state: &mut PartitionState, source: &SourcePosition) {
        let SourcePosition { name, position, .. } = source;
        let sources = Arc::make_mut(&mut state.sources);
        let current = sources.get(name).map_or(*position, |current| *current.max(position));
        if let Some(digest) = &mut self.digest {
            digest.source(name, current);
        }
        sources.insert(name.clone(), current);
    }

    fn claim_sources(&mut self, state: &mut PartitionState, epoch: u64) {
        state.source_epoch = state.source_epoch.max(epoch);
        if let Some(digest) = &mut self.digest {
            digest.source_epoch(state.source_epoch);
        }
    }

    /// Adds to the digest that the record does not count.
    fn former_reader(&mut self) {
        if let Some(digest) = &mut self.digest {
            digest.former_reader();
        }
    }

    /// Adds the reply and the changed state to the digest, and returns that and the other effects.
    fn finish(
        mut self,
        state: &PartitionState,
        reply: &Result<ApplyReply>,
    ) -> (Applied, Option<Box<EffectDigest>>) {
        if let Some(digest) = &mut self.digest {
            if let Some(written) = state.store.write_digest() {
                digest.documents(written);
            }
            match reply {
                Ok(reply) => digest.reply(reply.duplicates, &reply.rule_errors, reply.outcome.as_ref()),
                Err(error) => digest.refusal(error),
            }
            state.query_state.with_runtimes(|flow| flow.for_each_clock(|now, due| digest.clock(now, due)));
            digest.end();
        }
        (self.applied, self.digest)
    }

    fn command(&self, state: &mut PartitionState, command: &Bytes) -> Result<ApplyReply> {
        let command = DocumentCommand::from_bytes(command)?;
        let budget = match command {
            // it was applied once, whatever it took
            DocumentCommand::BeforeIdentity(_) => Budget::unlimited(),
            _ => document_budget(),
        };
        let _entered = budget.enter();
        let tables = &self.deployment.queries.document_tables;
        let command = tables.checked(command)?;
        check_place(self.deployment, state, &command)?;
        if !self.wants_reply && is_planted(PlantedBug::DependOnCaller) {
            state.store.set_sequence(Sequence::default());
        }
        let outcome = state.store.apply(&command, self.time)?;
        Ok(ApplyReply { outcome: Some(outcome), ..ApplyReply::default() })
    }

    fn events(&mut self, state: &mut PartitionState, events: Events) -> Result<ApplyReply> {
        if let Some((partition, offset)) = events.provenance {
            // a partition that replays its log emits again what has arrived here already
            let kind = if events.forwarded { ArrivalKind::Forwarded } else { ArrivalKind::Stored };
            let known = !state.note_arrival(kind, (partition, offset));
            if let Some(digest) = &mut self.digest {
                digest.arrival(known);
            }
            if known {
                return Ok(ApplyReply::default());
            }
            *Arc::make_mut(&mut state.transfers).received.entry(partition.0).or_default() +=
                events.rows() as u64;
        }
        if events.forwarded {
            if self.set_aside {
                self.applied.set_aside = Some(Entry::Rerun(events));
                return Ok(ApplyReply::default());
            }
            return self.forwarded_events(state, &events);
        }
        if let Some(source) = &events.source {
            self.advance_source(state, source);
        }
        let mut rejected = RejectedRows::default();
        for row in &events.rejected {
            // what a sink could not deliver was counted when it arrived
            if row.kind != UNDELIVERED {
                let ledger = state.ledger_entry(&row.stream);
                ledger.received += 1;
                ledger.rejected += 1;
            }
            rejected.push(row.clone());
        }
        let arrivals = arrival_positions(&events);
        let keep = self.filter_duplicates(state, &events, &arrivals, &mut rejected);
        let mut output = match self.set_aside {
            true => CascadeOutput::default(),
            false => self.cascade(state, events.rows()).events(&events, &keep, &arrivals)?,
        };
        if self.set_aside {
            self.applied.set_aside = Some(Entry::Rerun(events.kept(&keep)?));
        }
        rejected.extend(self.take_late_rows(&mut output));
        let mut reply = ApplyReply { duplicates: rejected.duplicates(), ..ApplyReply::default() };
        for (part, (stream, batch)) in events.parts.iter().enumerate() {
            let rows = batch.num_rows() as u64;
            let stored = keep[part].as_ref().map_or(rows, |k| k.count_set_bits() as u64);
            let ledger = state.ledger_entry(&stream.name);
            ledger.received += rows;
            ledger.stored += stored;
            ledger.duplicate += rows - stored;
            let mismatched = mismatches::count(stream, batch, keep[part].as_ref());
            ledger.mismatched += mismatched;
            if let Some(digest) = &mut self.digest {
                let kept = keep[part].as_ref().map(|keep| keep.set_indices().map(|row| arrivals[part][row]));
                digest.input(part, kept, mismatched);
            }
            self.store_rows(stream, batch, keep[part].as_ref(), &arrivals[part])?;
            self.applied.events += rows;
            if self.wants_reply {
                let kept = (0..batch.num_rows()).filter(|r| keep[part].as_ref().is_none_or(|k| k.value(*r)));
                reply.stored.extend(kept.map(|r| self.event_id(arrivals[part][r])));
            }
        }
        reply.stored.sort_unstable_by_key(|id| id.row);
        self.apply_cascade_output(state, output, &mut reply)?;
        self.store_rejected(rejected)?;
        Ok(reply)
    }

    fn cascade<'t>(&self, state: &'t mut PartitionState, rows: usize) -> Cascade<'t>
    where
        'd: 't,
    {
        let record = RecordContext { here: self.id, offset: self.offset, time: self.time };
        Cascade::new(self.deployment, state, record, rows)
    }

    /// Runs rules and queries on events that are stored already.
    fn rerun(&mut self, state: &mut PartitionState, events: &Events) -> Result<ApplyReply> {
        let keep = vec![None; events.parts.len()];
        let arrivals = arrival_positions(events);
        let output = self.cascade(state, events.rows()).events(events, &keep, &arrivals)?;
        self.apply_output_without_events(state, output)
    }

    /// Runs the queries of this partition on events that another partition stores.
    fn forwarded_events(&mut self, state: &mut PartitionState, events: &Events) -> Result<ApplyReply> {
        let keep = vec![None; events.parts.len()];
        let output = self.cascade(state, events.rows()).events(events, &keep, &[])?;
        self.apply_output_without_events(state, output)
    }

    /// Advances the clocks of the queries.
    fn tick(&mut self, state: &mut PartitionState, jumps: &[(String, i64)]) -> Result<ApplyReply> {
        let output = self.cascade(state, 0).tick(jumps)?;
        self.apply_output_without_events(state, output)
    }

    fn apply_output_without_events(
        &mut self,
        state: &mut PartitionState,
        mut output: CascadeOutput,
    ) -> Result<ApplyReply> {
        let late = self.take_late_rows(&mut output);
        let mut reply = ApplyReply::default();
        self.apply_cascade_output(state, output, &mut reply)?;
        self.store_rejected(RejectedRows::from(late))?;
        Ok(reply)
    }

    /// Runs an on-demand query that changes a table.
    fn on_demand(&self, state: &mut PartitionState, file: &str, text: &str) -> Result<ApplyReply> {
        let unit = self.deployment.queries.global_unit(file)?;
        state.with_queries(|flow| flow.on_demand(unit, text)).map(|_| ApplyReply::default())
    }

    fn event_id(&self, row: i32) -> EventId {
        EventId { partition: self.id, offset: self.offset, row: row.unsigned_abs() }
    }

    /// Returns which rows are no duplicates, by part; `None` if all of them are new. The ids of a stream are
    /// compared in order of arrival, over all parts.
    fn filter_duplicates(
        &self,
        state: &mut PartitionState,
        events: &Events,
        arrivals: &[Vec<i32>],
        rejected: &mut RejectedRows,
    ) -> Vec<Option<BooleanBuffer>> {
        let source = events.source.as_ref().map(|source| source.name.as_str());
        let mut keep = Vec::with_capacity(events.parts.len());
        for (part, (stream, batch)) in events.parts.iter().enumerate() {
            let Some(seen) = state.dedupe.get_mut(&stream.name) else {
                keep.push(None);
                continue;
            };
            let kept: Vec<bool> = (0..batch.num_rows())
                .map(|row| row_key(stream, batch, row).is_none_or(|key| seen.admit(key)))
                .collect();
            if kept.iter().all(|k| *k) {
                keep.push(None);
                continue;
            }
            for row in (0..batch.num_rows()).filter(|r| !kept[*r]) {
                rejected.push_duplicate(stream, batch, row, source, arrivals[part][row]);
            }
            keep.push(Some(BooleanBuffer::from(kept)));
        }
        keep
    }

    /// Adds rows of a stream to its table. `rows`: their numbers within the record.
    fn store_rows(
        &mut self,
        stream: &StreamSchema,
        batch: &RecordBatch,
        keep: Option<&BooleanBuffer>,
        rows: &[i32],
    ) -> Result<()> {
        let Some(index) = self.deployment.program.stream_index(&stream.name) else {
            return Err(Error::internal(format!("stream `{}` has no table", stream.name)));
        };
        let table = TableRef::Stream(index);
        let full = self.table_batch(table, batch, rows)?;
        let kept = match keep {
            Some(keep) => {
                filter_record_batch(&full, &BooleanArray::new(keep.clone(), None)).map_err(arrow_failed)?
            }
            None => full,
        };
        self.applied.rows.push((table, kept));
        Ok(())
    }

    /// Adds the columns `_received`, `_partition`, `_offset` and `_row`.
    fn table_batch(&self, table: TableRef, batch: &RecordBatch, rows: &[i32]) -> Result<RecordBatch> {
        let n = batch.num_rows();
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(TimestampMicrosecondArray::from_value(self.time.0, n).with_timezone("UTC")));
        columns.push(Arc::new(Int32Array::from_value(self.id.0 as i32, n)));
        columns.push(Arc::new(Int64Array::from_value(self.offset.0 as i64, n)));
        columns.push(Arc::new(Int32Array::from(rows.to_vec())));
        RecordBatch::try_new(self.deployment.table_schema(table).clone(), columns).map_err(arrow_failed)
    }

    /// Adds emitted events to their tables, or to the emissions if they belong to other partitions.
    fn apply_cascade_output(
        &mut self,
        state: &mut PartitionState,
        output: CascadeOutput,
        reply: &mut ApplyReply,
    ) -> Result<()> {
        for (stream, batch, rows) in output.emitted {
            let stream = &self.deployment.program.streams()[stream];
            let ledger = state.ledger_entry(&stream.name);
            ledger.received += rows.len() as u64;
            ledger.stored += rows.len() as u64;
            self.store_rows(stream, &batch, None, &rows)?;
            if let Some(digest) = &mut self.digest {
                digest.rows(&stream.name, &batch, &rows)?;
            }
            self.applied.events += rows.len() as u64;
            if self.wants_reply {
                reply.emitted.push((stream.clone(), batch));
            }
        }
        for (stream, count) in &output.duplicates {
            let ledger = state.ledger_entry(&self.deployment.program.streams()[*stream].name);
            ledger.received += count;
            ledger.duplicate += count;
        }
        if !output.outbound.is_empty() {
            self.emit_outbound(state, &output.outbound, reply)?;
        }
        for (home, events) in output.forwarded {
            self.emit(state, home, events)?;
        }
        reply.rule_errors = output.errors;
        Ok(())
    }
}

fn arrow_failed(e: arrow_schema::ArrowError) -> Error {
    Error::internal("a batch does not have the schema of its table").with_source(e)
}

/// Returns, for each part, the position of each of its rows in the order of arrival.
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

#[cfg(test)]
mod tests;
