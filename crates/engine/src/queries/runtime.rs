//! The units of a partition at work.

use std::collections::BTreeMap;
use std::io::Read;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemill_flow::EvalError;
use tidemill_flow::explain::QueryReport;
use tidemill_flow::io::LogSink;
use tidemill_flow::late::{AppRunner, LateEvent, RetractionHandler};
use tidemill_flow::runtime::{OutputHandler, StreamBatch};
use tidemill_flow::snapshot::{self, FrozenState, RestoreMode};
use tidemill_flow::{Batch, Column};
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

use super::{LogLines, Queries, Unit};
use crate::directory::log_id::LogId;
use crate::document_tables;
use crate::document_tables::DocumentSlot;

/// Query state of one partition.
///
/// Behind a lock of its own: windows can be sent from thread to thread, but not looked at by several at once. The owner
/// of the partition changes it and needs no lock for that.
pub struct QueryState(Mutex<QueryRuntimes>);

/// The units of a partition.
#[derive(Default)]
pub struct QueryRuntimes {
    /// By position of the unit; `None` for one that runs elsewhere.
    pub units: Vec<Option<UnitRuntime>>,
    /// Counts of each query, by file and name.
    pub counts: QueryCountsByFile,
    /// Access of tables to the documents of the partition.
    pub documents: DocumentSlot,
    /// Why a record could not be processed to its end.
    interruption: Option<String>,
}

/// By file and query.
pub type QueryCountsByFile = BTreeMap<String, BTreeMap<String, QueryCounts>>;

/// Makes `to`, an earlier copy of `from`, equal to it.
pub fn copy_counts(from: &QueryCountsByFile, to: &mut QueryCountsByFile) {
    let pairs = || from.values().zip(to.values());
    // queries are only added, so equal numbers mean the same queries
    if from.len() != to.len() || pairs().any(|(from, to)| from.len() != to.len()) {
        to.clone_from(from);
        return;
    }
    let counts = from.values().flat_map(BTreeMap::values);
    for (to, from) in to.values_mut().flat_map(BTreeMap::values_mut).zip(counts) {
        to.clone_from(from);
    }
}

/// Counts of a query since its file was deployed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueryCounts {
    /// Events that it emitted.
    pub emitted: u64,
    /// Calls that it could not process.
    pub errors: u64,
    /// Why not, the last time.
    pub last_error: Option<String>,
    /// Of these calls those whose events went to a fault stream: nothing was lost by them.
    #[serde(default)]
    pub kept: u64,
}

/// A unit at work.
pub struct UnitRuntime {
    app: AppRunner,
    started: bool,
}

/// Saved state of a unit, as a checkpoint lists it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SavedUnit {
    /// The file.
    pub file: String,
    /// Hash of what the unit means.
    pub identity: u64,
    /// True if it had started.
    pub started: bool,
    /// Bytes of its state.
    pub bytes: u64,
}

/// State of a unit at a moment, to be written later.
pub struct FrozenUnit {
    file: String,
    identity: u64,
    started: bool,
    state: FrozenState,
}

impl FrozenUnit {
    /// Appends the state to `bytes`.
    ///
    /// Errors: `Internal` when it cannot be saved.
    pub fn write(self, bytes: &mut Vec<u8>) -> Result<SavedUnit> {
        let Self { file, identity, started, state } = self;
        let before = bytes.len();
        state.write_to(bytes).map_err(|e| cannot_save(&file, e))?;
        Ok(SavedUnit { file, identity, started, bytes: (bytes.len() - before) as u64 })
    }
}

fn cannot_save(file: &str, error: snapshot::Error) -> Error {
    Error::internal(format!("the state of {file} cannot be saved")).with_source(error)
}

/// Events that came out of a unit on one of its streams.
pub struct UnitOutput {
    /// The stream of the plan.
    pub stream: String,
    /// The events.
    pub events: Batch,
    /// True if they came out before and are taken back.
    pub retracted: bool,
}

impl QueryState {
    /// Units that have not started.
    pub fn new(queries: &Queries, partition: PartitionId) -> Self {
        let tables = &queries.document_tables;
        let documents = DocumentSlot::new(!tables.is_empty());
        let units = (0..queries.units.len()).map(|number| {
            let app = || {
                let mut app = AppRunner::new(queries.units[number].plan.clone());
                let file = queries.file_name(number);
                let opened =
                    app.open_own_stores(&mut |table| document_tables::open(table, file, tables, &documents));
                if let Err(e) = opened {
                    // the compiler has opened it before; each use of the table reports an error
                    tracing::error!("{file}: {e}");
                }
                app.seed(&format!("{}, unit {number}, partition {partition}", queries.file_name(number)));
                app
            };
            queries.runs_in(number, partition).then(|| UnitRuntime { app: app(), started: false })
        });
        let units = units.collect();
        Self(Mutex::new(QueryRuntimes { units, documents, ..QueryRuntimes::default() }))
    }

    /// For the owner.
    pub fn get_mut(&mut self) -> &mut QueryRuntimes {
        self.0.get_mut()
    }

    /// Returns whether a unit that runs here gains anything from getting events of a stream of its plan together.
    pub fn supports_batches(&self, unit: usize, stream: usize) -> bool {
        self.with_runtimes(|flow| {
            let running = flow.units.get(unit).and_then(Option::as_ref);
            running.is_some_and(|running| running.app.app().row_at_a_time_reason_of(stream).is_none())
        })
    }

    /// For others, between two rounds of the owner.
    pub fn with_runtimes<T>(&self, look: impl FnOnce(&mut QueryRuntimes) -> T) -> T {
        look(&mut self.0.lock())
    }
}

impl QueryRuntimes {
    /// Opens the stores of tables in other systems. Without it every use of such a table fails.
    ///
    /// Errors: `Invalid` if a store refuses its options.
    pub fn open_stores(&mut self, queries: &Queries, log_id: &LogId) -> Result<()> {
        for (running, unit) in self.units.iter_mut().zip(&queries.units) {
            if let Some(running) = running {
                let writer = log_id.qualify(&queries.files[unit.file].name);
                running.app.open_stores(&writer, &queries.stores)?;
            }
        }
        Ok(())
    }

    /// Says which record is processed next: what it writes to tables in other systems is written once.
    pub fn set_record(&mut self, partition: PartitionId, offset: Offset, time: Timestamp) {
        self.documents.set_record(partition, offset, time);
        for running in self.units.iter_mut().flatten() {
            running.app.set_record(partition, offset);
        }
    }

    /// Fails if the last record was not processed to its end.
    ///
    /// Errors: `Unavailable`: another system was not reached before the engine had to stop.
    pub fn check_interruption(&mut self) -> Result<()> {
        self.interruption.take().map_or(Ok(()), |message| Err(Error::unavailable(message)))
    }

    /// Returns when the next timer of apps on the machine's clock is due, in milliseconds: `i64::MIN` for an
    /// app that has not started, `i64::MAX` without a timer.
    pub fn next_timer(&self, queries: &Queries) -> i64 {
        let units = queries.units.iter().enumerate().filter(|(_, unit)| !unit.plan.playback);
        let due = units.filter_map(|(number, _)| match self.is_not_started(number) {
            true => Some(i64::MIN),
            false => self.next_due(number),
        });
        due.min().unwrap_or(i64::MAX)
    }

    /// Returns whether a unit that runs here has not started.
    pub fn is_not_started(&self, unit: usize) -> bool {
        matches!(self.units.get(unit), Some(Some(running)) if !running.started)
    }

    /// The clock of a unit that has started, milliseconds.
    pub fn now(&self, unit: usize) -> Option<i64> {
        self.units.get(unit)?.as_ref().filter(|r| r.started).map(|r| r.app.now())
    }

    /// When a unit that has started is due next, milliseconds.
    pub fn next_due(&self, unit: usize) -> Option<i64> {
        self.units.get(unit)?.as_ref().filter(|r| r.started)?.app.next_due()
    }

    /// Calls `take` for each unit that runs here with its clock and the time at which it is due next, in milliseconds; `None` before it has
    /// started.
    pub fn for_each_clock(&self, mut take: impl FnMut(Option<i64>, Option<i64>)) {
        for running in self.units.iter().flatten() {
            match running.started {
                true => take(Some(running.app.now()), running.app.next_due()),
                false => take(None, None),
            }
        }
    }

    /// Starts a unit with its clock at `now`.
    pub fn start(&mut self, queries: &Queries, unit: usize, now: i64, out: &mut Vec<UnitOutput>) {
        let Some(Some(running)) = self.units.get_mut(unit) else { return };
        running.started = true;
        let plan = &queries.units[unit];
        running.app.start_with_event(
            now,
            &mut OutputCollector::new(queries, plan, (&mut self.counts, &mut self.interruption), out),
        );
    }

    /// The clock of a unit is going to `to` after it may have stood still; see [`tidemill_flow::runtime::AppRuntime::skip_triggers`].
    pub fn skip_triggers(&mut self, unit: usize, to: i64, standstill: i64) {
        if let Some(Some(running)) = self.units.get_mut(unit) {
            running.app.skip_triggers(to, standstill);
        }
    }

    /// Moves the clock of a unit.
    pub fn advance(&mut self, queries: &Queries, unit: usize, to: i64, out: &mut Vec<UnitOutput>) {
        let Some(Some(running)) = self.units.get_mut(unit) else { return };
        let plan = &queries.units[unit];
        running.app.advance(
            to,
            &mut OutputCollector::new(queries, plan, (&mut self.counts, &mut self.interruption), out),
        );
    }

    /// Hands an event to a unit. Errors: it does not fit.
    pub fn send(
        &mut self,
        queries: &Queries,
        unit: usize,
        stream: usize,
        columns: Vec<Column>,
        time: i64,
        out: &mut Vec<UnitOutput>,
    ) -> Result<(), EvalError> {
        let Some(Some(running)) = self.units.get_mut(unit) else { return Ok(()) };
        let plan = &queries.units[unit];
        let mut outlet = OutputCollector::new(queries, plan, (&mut self.counts, &mut self.interruption), out);
        match running.app.send(stream, columns, vec![time], &mut outlet)?.first() {
            None => Ok(()),
            // who hands events in has looked before
            Some(late) => {
                Err(EvalError::request(format!("an event came {} ms behind the clock", late.behind)))
            }
        }
    }

    /// Hands events to a unit, each by itself, with the results of one after the other. Returns those that
    /// came too late for one that corrects what it has emitted. Errors: they do not fit, and none was taken.
    pub fn send_batch(
        &mut self,
        queries: &Queries,
        unit: usize,
        parts: Vec<StreamBatch>,
        order: &[u16],
        out: &mut Vec<UnitOutput>,
    ) -> Result<Vec<LateEvent>, EvalError> {
        let Some(Some(running)) = self.units.get_mut(unit) else { return Ok(vec![]) };
        let plan = &queries.units[unit];
        let mut outlet = OutputCollector::new(queries, plan, (&mut self.counts, &mut self.interruption), out);
        running.app.send_batch(parts, Some(order), &mut outlet)
    }

    /// Works late events into a unit that corrects what it has emitted.
    pub fn apply_corrections(&mut self, queries: &Queries, unit: usize, out: &mut Vec<UnitOutput>) {
        let Some(Some(running)) = self.units.get_mut(unit) else { return };
        let plan = &queries.units[unit];
        let settled = running.app.apply_corrections(&mut OutputCollector::new(
            queries,
            plan,
            (&mut self.counts, &mut self.interruption),
            out,
        ));
        if let Err(failure) = settled {
            self.count_failure(&queries.files[plan.file].name, "late events", &failure.to_string());
        }
    }

    /// Runs an on-demand query in a unit.
    ///
    /// Errors: `Invalid` when it cannot be read or run.
    pub fn on_demand(&mut self, unit: usize, text: &str) -> Result<Batch> {
        let Some(Some(running)) = self.units.get_mut(unit) else {
            return Err(Error::internal("a query for a unit that runs elsewhere"));
        };
        running.app.on_demand(text).map_err(Error::from)
    }

    /// Why a query of a unit puts nothing out; `None` for a unit that runs elsewhere.
    ///
    /// Errors: those of [`tidemill_flow::runtime::AppRuntime::why`].
    pub fn why(&self, unit: usize, query: &str, key: Option<&str>) -> Option<Result<QueryReport>> {
        let running = self.units.get(unit)?.as_ref()?;
        Some(running.app.why(query, key))
    }

    /// Counts something that went wrong outside of the queries themselves.
    pub fn count_failure(&mut self, file: &str, query: &str, message: &str) {
        update_counts(&mut self.counts, file, query, |counts| {
            counts.errors += 1;
            counts.last_error = Some(message.to_owned());
        });
    }

    /// Returns the states of all units, to be written while the owner continues, after [`Self::save_keys`] has saved all keys.
    ///
    /// Errors: `Internal` when a unit cannot be saved.
    pub fn freeze(&mut self, queries: &Queries) -> Result<Vec<FrozenUnit>> {
        let mut frozen = Vec::new();
        for (running, unit) in self.units.iter_mut().zip(&queries.units) {
            let Some(running) = running else { continue };
            let file = queries.files[unit.file].name.clone();
            let state = running.app.freeze().map_err(|e| cannot_save(&file, e))?;
            frozen.push(FrozenUnit { file, identity: unit.identity, started: running.started, state });
        }
        Ok(frozen)
    }

    /// Saves at most `count` keys of partitions for the states that were frozen last. Returns whether all are saved.
    pub fn save_keys(&mut self, count: usize) -> bool {
        self.units.iter_mut().flatten().all(|running| running.app.save_keys(count))
    }

    /// Restores the states of the units that are the same; others restart without state. Returns the files
    /// that lost something.
    ///
    /// Errors: `Corrupt` when a state is damaged; `Conflict` when it belongs to a unit that runs in another partition.
    pub fn restore(
        &mut self,
        queries: &Queries,
        partition: PartitionId,
        saved: &[SavedUnit],
        mut bytes: &[u8],
    ) -> Result<Vec<String>> {
        let mut lost = Vec::new();
        for state in saved {
            let len = usize::try_from(state.bytes).unwrap_or(usize::MAX).min(bytes.len());
            let (mut own, rest) = bytes.split_at(len);
            bytes = rest;
            let same =
                |unit: &Unit| unit.identity == state.identity && queries.files[unit.file].name == state.file;
            let Some(number) = queries.units.iter().position(same) else {
                lost.push(state.file.clone());
                continue;
            };
            let Some(Some(running)) = self.units.get_mut(number) else {
                return Err(Error::conflict(format!(
                    "partition {partition} has the state of {}, whose queries run in partition {} now: the meta.json of the data \
                     directory is not the one with which it was made; bring that back",
                    state.file,
                    queries.home(number)
                )));
            };
            let input: &mut dyn Read = &mut own;
            running.app.restore(input, RestoreMode::Exactly).map_err(|e| {
                Error::corrupt(format!("the state of {} cannot be read", state.file)).with_source(e)
            })?;
            running.started = state.started;
        }
        lost.sort();
        lost.dedup();
        Ok(lost)
    }
}

fn update_counts(
    counts: &mut QueryCountsByFile,
    file: &str,
    query: &str,
    change: impl FnOnce(&mut QueryCounts),
) {
    // entry() would allocate a key for each event
    if !counts.get(file).is_some_and(|f| f.contains_key(query)) {
        counts.entry(file.to_owned()).or_default().entry(query.to_owned()).or_default();
    }
    if let Some(counts) = counts.get_mut(file).and_then(|f| f.get_mut(query)) {
        change(counts);
    }
}

/// Takes what comes out of a unit.
struct OutputCollector<'a> {
    unit: &'a Unit,
    file: &'a str,
    log_lines: &'a LogLines,
    counts: &'a mut QueryCountsByFile,
    interruption: &'a mut Option<String>,
    out: &'a mut Vec<UnitOutput>,
    /// The query that failed last.
    failed: String,
}

impl<'a> OutputCollector<'a> {
    fn new(
        queries: &'a Queries,
        unit: &'a Unit,
        (counts, interruption): (&'a mut QueryCountsByFile, &'a mut Option<String>),
        out: &'a mut Vec<UnitOutput>,
    ) -> Self {
        let file = &queries.files[unit.file].name;
        Self { unit, file, log_lines: &queries.log_lines, counts, interruption, out, failed: String::new() }
    }
}

impl OutputHandler for OutputCollector<'_> {
    fn events(&mut self, stream: &str, events: &Batch) {
        if self.unit.outputs.contains_key(stream) {
            self.out.push(UnitOutput { stream: stream.to_owned(), events: events.clone(), retracted: false });
        }
    }

    /// They are stored already.
    fn sent(&mut self, _stream: &str, _events: &Batch) {}

    fn emission(&mut self, query: &str, emission: &Batch) {
        update_counts(self.counts, self.file, query, |counts| counts.emitted += emission.len() as u64);
    }

    fn failure(&mut self, query: &str, failure: &EvalError) {
        if matches!(failure, EvalError::Interrupted(_)) {
            *self.interruption = Some(failure.to_string());
        }
        update_counts(self.counts, self.file, query, |counts| {
            counts.errors += 1;
            counts.last_error = Some(failure.to_string());
        });
        query.clone_into(&mut self.failed);
    }

    fn failed_events(&mut self, _stream: &str, _events: &Batch, kept: bool) {
        if kept {
            update_counts(self.counts, self.file, &self.failed, |counts| counts.kept += 1);
        }
    }

    fn logged(&mut self, log: &LogSink, events: &Batch) {
        self.log_lines.write(log, events);
    }
}

impl RetractionHandler for OutputCollector<'_> {
    fn retracted(&mut self, stream: &str, events: &Batch) {
        if self.unit.retractions.contains_key(stream) {
            self.out.push(UnitOutput { stream: stream.to_owned(), events: events.clone(), retracted: true });
        }
    }
}
