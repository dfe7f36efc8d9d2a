//! Runs the rules of a stream over a batch of events.

mod actions;
mod context;
mod effects;
pub(crate) mod matching;

use std::collections::{BTreeMap, VecDeque};

use arrow_array::RecordBatch;
use arrow_buffer::BooleanBuffer;
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

pub(crate) use actions::id_of;
use actions::{NewEvent, PreparedFiring};
pub use context::{ExecutionContext, Route, key_text};
pub use effects::{Counters, ERRORS_MAX, Effects, EmittedBatch, Outbound, RuleCounters, RuleError};
pub use matching::MATCHES_MAX;
use matching::{DocumentMatches, MatchProgress, MatchSearch};

use crate::expr::block::{ROWS, RowBlock, word};
use crate::expr::{Bindings, Columns, Row};
use crate::index::CandidateRules;
use crate::program::Program;
use crate::why::Trace;

/// Limit on the length of a chain of emitted events that cause further events.
pub const DEPTH_MAX: u32 = 16;
/// Limit on the events that the rules may emit in one run.
pub const EMITTED_MAX: u32 = 1_000_000;

/// Events of one stream in a record.
#[derive(Debug, Clone, Copy)]
pub struct StreamPart<'b> {
    /// Index of the stream.
    pub stream: usize,
    /// The events, in the stream's batch schema.
    pub batch: &'b RecordBatch,
    /// Rows to process, all when `None`. Used to skip rows that were dropped as duplicates.
    pub keep: Option<&'b BooleanBuffer>,
}

/// Position in the log of the events that rules run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPosition {
    /// Partition of the record.
    pub partition: PartitionId,
    /// Offset of the record.
    pub offset: Offset,
    /// Row of the first event.
    pub first_row: u32,
    /// Row that the first emitted event gets.
    pub first_emitted_row: u32,
}

/// Runs rules over the records of one partition. It holds counters and scratch space only, nothing that
/// affects rule results: two executors over equal stores behave identically.
#[derive(Debug)]
pub struct Executor {
    counters: Counters,
    selection: CandidateRules,
    hits: Vec<u64>,
    emitted_selection: CandidateRules,
    matches: DocumentMatches,
    progress: MatchProgress,
}

/// State of one run, that is one call of [`Executor::apply_at`].
struct RuleRun<'t, H> {
    program: &'t Program,
    host: &'t mut H,
    trace: &'t mut Trace,
    effects: Effects,
    /// Row that the first emitted event gets.
    first_emitted_row: u32,
    /// Emitted events by stream.
    emitted: Vec<Vec<RuleEmission>>,
    /// Emitted events whose rules have not run yet: stream, and index in `emitted[stream]`.
    queue: VecDeque<(usize, usize)>,
    duplicates: BTreeMap<usize, u64>,
    emitted_count: u32,
    prepared: PreparedFiring,
}

struct RuleEmission {
    cells: Vec<FieldValue>,
    time: i64,
    source_row: u32,
    number: u32,
    depth: u32,
}

/// The event that a rule runs on.
#[derive(Clone, Copy)]
struct TriggerEvent<'r> {
    row: Row<'r>,
    /// Row in the record of this event, or of the event that caused it.
    source_row: u32,
    /// Row of this event; rows of emitted events follow those of the record.
    own_row: u32,
    depth: u32,
}

impl Executor {
    /// Creates an executor for the rules of `program` with all counters at 0.
    pub fn new(program: &Program) -> Self {
        Self::with_counters(program, &Counters::default())
    }

    /// Creates an executor that continues with the counters from before a restart or from another program.
    /// Counters of rules that no longer exist are dropped.
    pub fn with_counters(program: &Program, counters: &Counters) -> Self {
        Self {
            counters: Counters::new(program.plans().iter().map(|r| r.name.as_ref()), counters),
            selection: CandidateRules::default(),
            hits: Vec::new(),
            emitted_selection: CandidateRules::default(),
            matches: DocumentMatches::default(),
            progress: MatchProgress::default(),
        }
    }

    /// Returns the counters of all rules.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Runs the rules over the events of one record in order of arrival, and over every event they emit here.
    ///
    /// `parts`: the record's events by stream. `order`: for each event, in order of arrival, the index of its
    /// part; `None` when the parts follow one another. `at`: partition and offset of the record, used in
    /// explanations. The row of an event is its position in order of arrival; rows of emitted events continue
    /// after the last one.
    ///
    /// Failures of single rules are reported in [`Effects::errors`] and do not stop other rules. Errors:
    /// `Internal` when a batch does not have its stream's schema, or when `order` or `keep` do not fit the
    /// batches; nothing was done then.
    pub fn apply<H: ExecutionContext>(
        &mut self,
        program: &Program,
        host: &mut H,
        parts: &[StreamPart<'_>],
        order: Option<&[u16]>,
        at: (PartitionId, Offset),
        trace: &mut Trace,
    ) -> Result<Effects> {
        let rows: usize = parts.iter().map(|p| p.batch.num_rows()).sum();
        let emitted = u32::try_from(rows).unwrap_or(u32::MAX);
        let at = RecordPosition { partition: at.0, offset: at.1, first_row: 0, first_emitted_row: emitted };
        self.apply_at(program, host, parts, order, at, trace)
    }

    /// Runs the rules like [`Self::apply`] over a part of a record, or over events that its events led to.
    pub fn apply_at<H: ExecutionContext>(
        &mut self,
        program: &Program,
        host: &mut H,
        parts: &[StreamPart<'_>],
        order: Option<&[u16]>,
        at: RecordPosition,
        trace: &mut Trace,
    ) -> Result<Effects> {
        let columns = parts.iter().map(|p| check_part(program, p)).collect::<Result<Vec<_>>>()?;
        let rows: usize = columns.iter().map(|c| c.rows).sum();
        let arrivals = match order {
            Some(order) if parts.len() > 1 || order.len() != rows => {
                Some(arrival_positions(&columns, order, at.first_row)?)
            }
            _ => None,
        };
        trace.begin_run(&at, parts, arrivals.as_deref());
        let mut turn = RuleRun {
            program,
            host,
            trace,
            effects: Effects::default(),
            first_emitted_row: at.first_emitted_row,
            emitted: (0..program.catalog().streams.len()).map(|_| Vec::new()).collect(),
            queue: VecDeque::new(),
            duplicates: BTreeMap::new(),
            emitted_count: 0,
            prepared: PreparedFiring::default(),
        };
        match (order, &arrivals) {
            (Some(order), Some(arrivals)) => {
                self.run_interleaved(&mut turn, parts, &columns, order, arrivals)
            }
            _ => {
                let mut first = at.first_row;
                for (part, columns) in parts.iter().zip(&columns) {
                    self.run_part(&mut turn, part, columns, first);
                    first += columns.rows as u32;
                }
            }
        }
        turn.finish()
    }

    /// Runs the rules over the events of one part in order. `first` is the row of its first event.
    fn run_part<H: ExecutionContext>(
        &mut self,
        turn: &mut RuleRun<'_, H>,
        part: &StreamPart<'_>,
        columns: &Columns<'_>,
        first: u32,
    ) {
        let index = turn.program.stream_rules(part.stream);
        if index.rules.is_empty() {
            return;
        }
        for start in (0..columns.rows).step_by(ROWS) {
            let len = (columns.rows - start).min(ROWS);
            let kept = part.keep.map_or(u64::MAX, |k| word(k, start, len));
            index.select(&RowBlock { columns, start, len }, kept, &mut self.selection);
            let hits = std::mem::replace(&mut self.selection.hits, std::mem::take(&mut self.hits));
            let mut rest = hits.as_slice();
            while let Some(hit) = rest.first() {
                let row = start + (hit >> 32) as usize;
                let same = rest.iter().position(|h| h >> 32 != hit >> 32).unwrap_or(rest.len());
                self.run_event(turn, part.stream, columns, row, first + row as u32, &rest[..same]);
                rest = &rest[same..];
            }
            self.hits = hits;
        }
    }

    /// Runs the rules over events of several streams in order of arrival. A block of rows is matched against
    /// the index when its first row is reached.
    fn run_interleaved<H: ExecutionContext>(
        &mut self,
        turn: &mut RuleRun<'_, H>,
        parts: &[StreamPart<'_>],
        columns: &[Columns<'_>],
        order: &[u16],
        arrivals: &[Vec<u32>],
    ) {
        let mut cursors: Vec<PartCursor> = parts.iter().map(|_| PartCursor::default()).collect();
        for part in order {
            let part = usize::from(*part);
            let (cursor, columns) = (&mut cursors[part], &columns[part]);
            let row = cursor.row;
            cursor.row += 1;
            let index = turn.program.stream_rules(parts[part].stream);
            if index.rules.is_empty() {
                continue;
            }
            if row.is_multiple_of(ROWS) {
                let len = (columns.rows - row).min(ROWS);
                let kept = parts[part].keep.map_or(u64::MAX, |k| word(k, row, len));
                index.select(&RowBlock { columns, start: row, len }, kept, &mut cursor.selection);
                cursor.next = 0;
            }
            let first = cursor.next;
            let hits = &cursor.selection.hits;
            while hits.get(cursor.next).is_some_and(|h| (h >> 32) as usize == row % ROWS) {
                cursor.next += 1;
            }
            if first < cursor.next {
                let hits = &hits[first..cursor.next];
                self.run_event(turn, parts[part].stream, columns, row, arrivals[part][row], hits);
            }
        }
    }

    /// Runs the rules that match one event, then the rules of the events that those emit.
    fn run_event<H: ExecutionContext>(
        &mut self,
        turn: &mut RuleRun<'_, H>,
        stream: usize,
        columns: &Columns<'_>,
        row: usize,
        own_row: u32,
        hits: &[u64],
    ) {
        let source = TriggerEvent { row: Row::Batch(columns, row), source_row: own_row, own_row, depth: 0 };
        for hit in hits {
            self.run_rule(turn, turn.program.stream_rules(stream).rules[*hit as u32 as usize], source);
        }
        if !turn.queue.is_empty() {
            self.run_emitted(turn);
        }
    }

    /// Runs the rules of emitted events, breadth first.
    fn run_emitted<H: ExecutionContext>(&mut self, turn: &mut RuleRun<'_, H>) {
        while let Some((stream, position)) = turn.queue.pop_front() {
            let event = &mut turn.emitted[stream][position];
            let cells = std::mem::take(&mut event.cells);
            let source = TriggerEvent {
                row: Row::Cells(&cells, event.time),
                source_row: event.source_row,
                own_row: turn.first_emitted_row.saturating_add(event.number),
                depth: event.depth,
            };
            let mut selection = std::mem::take(&mut self.emitted_selection);
            selection.hits.clear();
            let index = turn.program.stream_rules(stream);
            index.select_row(source.row, 0, &mut selection);
            for hit in &selection.hits {
                self.run_rule(turn, index.rules[*hit as u32 as usize], source);
            }
            self.emitted_selection = selection;
            turn.emitted[stream][position].cells = cells;
        }
    }

    /// Runs one rule on one event for which all conditions hold that need the event alone.
    fn run_rule<H: ExecutionContext>(
        &mut self,
        turn: &mut RuleRun<'_, H>,
        id: usize,
        source: TriggerEvent<'_>,
    ) {
        let program = turn.program;
        let rule = &program.plans()[id];
        self.counters.at(id).reached += 1;
        self.matches.clear(rule.slots.len());
        self.progress.enabled = turn.trace.is_on() && !rule.steps.is_empty();
        self.progress.deepest = None;
        let frame = Bindings::new(source.row);
        let mut search = MatchSearch {
            rule,
            catalog: program.catalog(),
            store: turn.host.store_ref(),
            matches: &mut self.matches,
            progress: &mut self.progress,
        };
        if search.run(0, &frame).is_err() {
            let message = format!(
                "more than {MATCHES_MAX} combinations of documents match: add conditions that select fewer"
            );
            turn.trace.error(source.own_row, id, &message, &[]);
            self.record_error(turn, id, source, message);
            return;
        }
        if self.matches.len() == 0 {
            self.counters.at(id).missed += 1;
            if let Some((step, filter)) = self.progress.deepest {
                turn.trace.missed(source.own_row, id, step, filter, &self.progress.docs);
            }
            return;
        }
        let matches = std::mem::take(&mut self.matches);
        for i in 0..matches.len() {
            let docs = matches.get(i);
            let frame = Bindings::bound(source.row, docs);
            let first = turn.emitted_count;
            match turn.fire(rule, &frame, source) {
                Ok(()) => {
                    self.counters.at(id).fired += 1;
                    turn.effects.fired += 1;
                    turn.trace.fired(
                        source.own_row,
                        id,
                        docs,
                        turn.first_emitted_row.saturating_add(first)
                            ..turn.first_emitted_row.saturating_add(turn.emitted_count),
                    );
                }
                Err(message) => {
                    turn.trace.error(source.own_row, id, &message, docs);
                    self.record_error(turn, id, source, message);
                }
            }
        }
        self.matches = matches;
    }

    fn record_error<H: ExecutionContext>(
        &mut self,
        turn: &mut RuleRun<'_, H>,
        id: usize,
        source: TriggerEvent<'_>,
        message: String,
    ) {
        let counters = self.counters.at(id);
        counters.errors += 1;
        if turn.effects.errors.len() == ERRORS_MAX {
            turn.effects.errors_more += 1;
            return;
        }
        counters.last_error = Some(message.clone());
        let rule = turn.program.plans()[id].name.to_string();
        turn.effects.errors.push(RuleError { rule, row: source.source_row, message });
    }
}

/// Progress through the events of a part.
#[derive(Default)]
struct PartCursor {
    row: usize,
    selection: CandidateRules,
    /// Index of the next of `selection.hits`.
    next: usize,
}

/// Checks a part and returns its columns. Errors: the batch does not fit its stream, or the selection the
/// batch.
fn check_part<'b>(program: &Program, part: &StreamPart<'b>) -> Result<Columns<'b>> {
    let Some(schema) = program.catalog().streams.get(part.stream) else {
        return Err(Error::internal(format!(
            "internal error: unknown stream {}, there are {} streams",
            part.stream,
            program.catalog().streams.len()
        )));
    };
    let columns = Columns::new(schema, part.batch)?;
    match part.keep {
        Some(keep) if keep.len() != columns.rows => Err(Error::internal(format!(
            "internal error: a selection of {} rows for a batch of {} rows of {}",
            keep.len(),
            columns.rows,
            schema.name
        ))),
        _ => Ok(columns),
    }
}

/// Returns for each part the position of its rows in order of arrival. Errors: the order does not name each
/// row once.
fn arrival_positions(columns: &[Columns<'_>], order: &[u16], first: u32) -> Result<Vec<Vec<u32>>> {
    let mut arrivals: Vec<Vec<u32>> = columns.iter().map(|c| Vec::with_capacity(c.rows)).collect();
    for (place, part) in (first..).zip(order) {
        match arrivals.get_mut(usize::from(*part)) {
            Some(rows) => rows.push(place),
            None => {
                return Err(Error::internal(format!(
                    "internal error: the record has {} parts, the order refers to part {part}",
                    columns.len()
                )));
            }
        }
    }
    for (rows, columns) in arrivals.iter().zip(columns) {
        if rows.len() != columns.rows {
            return Err(Error::internal(format!(
                "internal error: the order names {} rows of a part that has {}",
                rows.len(),
                columns.rows
            )));
        }
    }
    Ok(arrivals)
}

impl<H: ExecutionContext> RuleRun<'_, H> {
    /// Executes one firing: all of its actions, or none. Errors: the reason, as a message for the user.
    fn fire(
        &mut self,
        rule: &crate::plan::RulePlan,
        frame: &Bindings<'_>,
        source: TriggerEvent<'_>,
    ) -> Result<(), String> {
        let catalog = self.program.catalog();
        let mut prepared = std::mem::take(&mut self.prepared);
        let done = prepared.compute(rule, catalog, frame).and_then(|()| {
            if !prepared.events.is_empty() && source.depth == DEPTH_MAX {
                return Err(format!(
                    "more than {DEPTH_MAX} levels of events caused by one event: do the rules emit for each other in a loop?"
                ));
            }
            if self.emitted_count.saturating_add(prepared.events.len() as u32) > EMITTED_MAX {
                return Err(format!("the rules emit more than {EMITTED_MAX} events for one batch"));
            }
            prepared.apply_changes(self.host, catalog, source.row.now())
        });
        let result = done.map(|changed| {
            self.effects.changed_documents += changed;
            for event in prepared.events.drain(..) {
                self.emit(event, source);
            }
        });
        self.prepared = prepared;
        result
    }

    fn emit(&mut self, event: NewEvent, source: TriggerEvent<'_>) {
        let NewEvent { stream, cells, time } = event;
        let schema = &self.program.catalog().streams[stream];
        let number = self.emitted_count;
        self.emitted_count += 1;
        let key = schema.key.map(|k| key_text(&cells[k]));
        if let Route::Remote(part) = self.host.route(stream, key.as_deref()) {
            let source_row = source.source_row;
            self.effects.outbound.push(Outbound {
                partition: part,
                stream,
                cells,
                time: Timestamp(time),
                number,
                source_row,
            });
            return;
        }
        if !schema.id.is_empty() {
            let id: Vec<FieldValue> = schema.id.iter().map(|i| cells[*i].clone()).collect();
            if !self.host.admit(stream, &id) {
                *self.duplicates.entry(stream).or_default() += 1;
                return;
            }
        }
        if !self.program.stream_rules(stream).rules.is_empty() {
            self.queue.push_back((stream, self.emitted[stream].len()));
        }
        let depth = source.depth + 1;
        self.emitted[stream].push(RuleEmission { cells, time, source_row: source.source_row, number, depth });
    }

    /// Converts the emitted events to batches.
    fn finish(mut self) -> Result<Effects> {
        for (stream, events) in self.emitted.into_iter().enumerate() {
            if events.is_empty() {
                continue;
            }
            let mut builder = BatchBuilder::new(self.program.catalog().streams[stream].clone());
            for event in &events {
                builder.push_values(&event.cells, Timestamp(event.time))?;
            }
            let batch = builder.finish();
            let rows: Vec<u32> =
                events.iter().map(|e| self.first_emitted_row.saturating_add(e.number)).collect();
            self.trace.emitted(stream, &batch, &rows);
            let source_rows = events.iter().map(|e| e.source_row).collect();
            self.effects.emitted.push(EmittedBatch { stream, batch, rows, source_rows });
        }
        self.trace.end_run();
        self.effects.duplicates = self.duplicates.into_iter().collect();
        self.effects.emitted_count = self.emitted_count;
        Ok(self.effects)
    }
}
