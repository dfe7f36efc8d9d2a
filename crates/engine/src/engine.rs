//! The engine as its callers see it.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use arrow_array::RecordBatch;
use crossbeam_channel::Receiver;
use parking_lot::Mutex;
use tidemill_types::{Error, EventId, Offset, PartitionId, Result, StreamSchema, did_you_mean};

use crate::apply::ApplyReply;
use crate::core::Core;
use crate::datadir::DataDir;
use crate::entry::{Entry, Events, RejectedRow};
use crate::ingest::{self, BadRow, DecodedRows, InterleavedBatches};
use crate::queries::{Partitioner, timer_thread};
use crate::{
    Analytics, App, BodyFormat, Health, RowError, SendOptions, SendReply, aggregate_rules, clock::Clock,
    deploy, environment::Environment, maintenance, partition, recover, source, transfers,
};

/// Most bytes of one log record; larger requests are cut into several.
const ROWS_PER_RECORD_MAX: usize = 16_384;

/// Areas of problems with which writes are refused or not applied.
const WRITE_PROBLEM_AREAS: [&str; 3] = ["apply", "disk", "log"];

/// Areas of problems that keep records from being applied until somebody makes room or mends a disk.
const DISK_PROBLEM_AREAS: [&str; 3] = ["log", "tables", "disk"];

/// How long a stop waits when a disk is in the way.
const STOP_WAIT_STUCK: Duration = Duration::from_secs(1);

/// How long a stop waits for records that are written to be applied.
const STOP_WAIT: Duration = Duration::from_secs(30);

/// A running engine on one data directory.
pub struct Engine {
    pub(crate) core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    owners: Mutex<Vec<JoinHandle<()>>>,
    forwarders: Mutex<Vec<JoinHandle<()>>>,
    sources: Mutex<Vec<JoinHandle<()>>>,
    data: Mutex<Option<DataDir>>,
    /// What recovery did.
    pub recovery: recover::StartupReport,
}

fn no_app(dir: &Path) -> Error {
    let dir = dir.display();
    Error::not_found(format!("{dir}: no app is deployed in it; start with `tidemill run APP --data {dir}`"))
}

impl Engine {
    /// Opens `dir`, recovers it, deploys `app` (or goes on with the app deployed there) and starts applying.
    /// Sources start with [`Self::start_sources`].
    ///
    /// An app that cannot be deployed changes nothing: the directory opens with the one before.
    ///
    /// Errors: `Conflict` when another process holds the directory or what is stored does not fit the app, `Invalid` when
    /// the app does not compile, `Corrupt` with file and place when stored data is damaged, `NotFound` when there is no app.
    pub fn open(dir: &Path, app: Option<App>) -> Result<Self> {
        Self::open_in(dir, app, Environment::default())
    }

    /// [`Self::open`] with another clock.
    pub fn open_with(dir: &Path, app: Option<App>, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::open_in(dir, app, Environment { clock, ..Environment::default() })
    }

    /// [`Self::open`] in another environment.
    pub fn open_in(dir: &Path, app: Option<App>, environment: Environment) -> Result<Self> {
        if app.is_none() && !DataDir::has_app(dir) {
            return Err(no_app(dir));
        }
        let data = DataDir::open(
            dir,
            app.as_ref().map_or_else(Default::default, |a| a.settings.clone()).partitions,
        )?;
        let (core, recovery) = deploy::open(&data, app, &environment)?;
        Self::run(core, Some(data), recovery)
    }

    pub(crate) fn run(
        core: Arc<Core>,
        data: Option<DataDir>,
        recovery: recover::StartupReport,
    ) -> Result<Self> {
        let partition::PartitionThreads { owners, forwarders } = partition::start(&core)?;
        let mut threads = Vec::new();
        let bodies = [
            ("maintain", maintenance::run as fn(&Core)),
            ("insights", aggregate_rules::run),
            ("ticks", timer_thread::run),
        ];
        for (name, body) in bodies {
            let core = core.clone();
            let thread = std::thread::Builder::new().name(name.into()).spawn(move || body(&core));
            threads.push(thread.map_err(|e| Error::unavailable("cannot start a thread").with_source(e))?);
        }
        Ok(Self {
            core,
            threads: Mutex::new(threads),
            owners: Mutex::new(owners),
            forwarders: Mutex::new(forwarders),
            sources: Mutex::default(),
            data: Mutex::new(data),
            recovery,
        })
    }

    /// Gives the engine SQL, which aggregate rules run through.
    pub fn set_analytics(&self, analytics: Arc<dyn Analytics>) {
        if self.core.analytics.set(analytics).is_err() {
            tracing::warn!("the engine has SQL already; the second one is not used");
        }
    }

    /// Starts reading the app's documents and sources, each from where it stopped.
    pub fn start_sources(&self) -> Result<()> {
        let mut sources = self.sources.lock();
        if sources.is_empty() {
            *sources = source::start(&self.core)?;
        }
        Ok(())
    }

    /// Waits until all sources have ended and everything they brought is applied, or until the engine is stopping.
    pub fn wait_idle(&self) {
        for thread in self.sources.lock().drain(..) {
            // a source that panicked has been reported by the panic itself; what it brought is applied all the same
            let _ = thread.join();
        }
        self.core.in_flight.wait_until_drained_or(|| self.core.is_stopping());
    }

    /// Whether sources are still being read.
    pub fn sources_running(&self) -> bool {
        self.sources.lock().iter().any(|t| !t.is_finished())
    }

    /// The deployed app.
    pub fn app(&self) -> &App {
        &self.core.app
    }

    /// The data directory.
    pub fn data_dir(&self) -> &Path {
        &self.core.dir
    }

    /// The stream called `name`.
    ///
    /// Errors: `NotFound` with the names there are.
    pub fn stream_schema(&self, name: &str) -> Result<&Arc<StreamSchema>> {
        self.core.streams.get(name).map(|(schema, _)| schema).ok_or_else(|| {
            let known = self.core.streams.keys().map(String::as_str);
            Error::not_found(format!("no stream `{name}`{}", did_you_mean(name, known)))
        })
    }

    /// Sends a request body with events of `stream`: good rows go on, bad ones come back with their reasons and are
    /// kept in `system.rejected`.
    pub fn send_json(
        &self,
        stream: &str,
        body: &[u8],
        format: BodyFormat,
        options: &SendOptions,
    ) -> Result<SendReply> {
        let schema = self.stream_schema(stream)?;
        let decoded = match ingest::decode_body(schema, body, format, self.core.clock.now()) {
            Ok(decoded) => decoded,
            Err(e) => {
                let bad = BadRow::of_body(stream, e.to_string(), body);
                self.send(DecodedRows { rejected: vec![bad], ..DecodedRows::default() }, stream, options)?;
                return Err(e);
            }
        };
        self.send(decoded, stream, options)
    }

    /// Sends a batch of `stream` ([`StreamSchema::batch_schema`]).
    pub fn send_batch(&self, stream: &str, batch: RecordBatch, options: &SendOptions) -> Result<SendReply> {
        let schema = self.stream_schema(stream)?;
        if batch.schema_ref().fields() != schema.batch_schema().fields() {
            return Err(Error::invalid(format!(
                "batch for stream `{stream}`: expected the columns {:?}, found {:?}",
                schema.batch_schema().fields(),
                batch.schema_ref().fields()
            )));
        }
        let places = (0..batch.num_rows() as u64).collect();
        let rows = InterleavedBatches { parts: vec![(schema.clone(), batch)], order: None };
        self.send(DecodedRows { rows, rejected: Vec::new(), row_numbers: places }, stream, options)
    }

    fn send(&self, decoded: DecodedRows, stream: &str, options: &SendOptions) -> Result<SendReply> {
        let core = &self.core;
        let durability = options.durability.unwrap_or(core.settings.durability);
        let accepted = decoded.rows.len() as u64;
        let rejected: Vec<RowError> = decoded
            .rejected
            .iter()
            .map(|b| RowError { row: b.row_number, reason: b.reason.clone() })
            .collect();
        let places =
            if options.wait { record_positions(&decoded.rows, &core.partitioner) } else { Vec::new() };
        let records = self.records(decoded, stream, &options.origin)?;
        core.check_disk_space()?;
        let (sender, receiver) = crossbeam_channel::unbounded();
        let timeout = Duration::from_micros(core.settings.send_timeout.0.unsigned_abs());
        for (p, _) in &records {
            core.partitions()[*p].apply_queue.wait_for_room(timeout)?;
        }
        let mut written = Vec::new();
        for (p, events) in records {
            let reply = options.wait.then(|| sender.clone());
            written.push((p, core.partitions()[p].write(core, Entry::Events(events), durability, reply)?));
        }
        drop(sender);
        for (p, offset) in &written {
            core.log.sync(core.partitions()[*p].id, *offset, durability)?;
        }
        core.counts.accepted.fetch_add(accepted, Ordering::Relaxed);
        let mut reply = SendReply {
            accepted,
            rejected,
            durability: durability.name().to_owned(),
            duplicates: None,
            events: None,
            emitted: None,
            rule_errors: Vec::new(),
        };
        if options.wait {
            collect_replies(&receiver, &written, &places, &mut reply)?;
        }
        Ok(reply)
    }

    /// Splits rows by partition and size; the bad rows go along with the first record of their stream's partition.
    fn records(&self, decoded: DecodedRows, stream: &str, origin: &str) -> Result<Vec<(usize, Events)>> {
        let homes = &self.core.partitioner;
        let mut records = Vec::new();
        for rows in decoded.rows.chunks(ROWS_PER_RECORD_MAX) {
            for (p, rows) in rows.split(homes)?.into_iter().enumerate() {
                if let Some(rows) = rows {
                    records.push((p, Events { parts: rows.parts, order: rows.order, ..Events::default() }));
                }
            }
        }
        if !decoded.rejected.is_empty() {
            let rejected = decoded.rejected.into_iter().map(|b| b.into_rejected(stream, origin)).collect();
            let home = homes.for_stream(stream).0 as usize;
            match records.iter_mut().find(|(p, _)| *p == home) {
                Some((_, events)) => events.rejected = rejected,
                None => records.push((home, Events { rejected, ..Events::default() })),
            }
        }
        Ok(records)
    }

    /// Batches of `stream` as they are applied from now on.
    ///
    /// Errors: `NotFound` for an unknown stream.
    pub fn subscribe(&self, stream: &str) -> Result<Receiver<RecordBatch>> {
        self.stream_schema(stream)?;
        Ok(self.core.subscribers.subscribe(stream))
    }

    /// Flushes tails into tablets now, and looks which queries lose events.
    pub fn flush(&self) -> Result<()> {
        maintenance::report_lossy_queries(&self.core);
        maintenance::flush(&self.core)
    }

    /// Takes a checkpoint now.
    pub fn checkpoint(&self) -> Result<()> {
        maintenance::checkpoint(&self.core)
    }

    /// Problems of the app's sources: a file that is missing or broken off, documents that were refused.
    pub fn source_problems(&self) -> Vec<String> {
        self.core.source_problems()
    }

    /// Rows of sources that were refused since the start, by source and stream.
    pub fn source_rejections(&self) -> Vec<crate::RejectionSummary> {
        self.core.source_rejections.summaries()
    }

    /// What the sinks `@sink(type='log')` print. Whoever asks prints it; it is dropped when nobody takes it.
    pub fn log_lines(&self) -> Arc<crate::LogLines> {
        self.core.queries.log_lines.clone()
    }

    /// Events applied since the start, emitted ones included.
    pub fn events_applied(&self) -> u64 {
        self.core.counts.applied.load(Ordering::Relaxed)
    }

    /// Whether all is well. Room on the disk is judged now, as it is for a write: the thread that looks for room may be
    /// busy with a slow store.
    pub fn health(&self) -> Health {
        match self.core.check_disk_space() {
            Ok(()) => self.core.clear_problem("disk"),
            Err(e) => self.core.report_problem("disk", e.to_string()),
        }
        let mut problems = self.recovery.warnings.clone();
        problems.extend(self.core.problems());
        problems.extend(transfers::find_duplicated(&self.core));
        let blocked = WRITE_PROBLEM_AREAS.iter().any(|area| self.core.has_problem(area));
        Health { ready: !self.core.is_stopping() && !blocked, problems }
    }

    /// Stops in order: sources, senders, owners, then a last flush and checkpoint. A second call does nothing.
    ///
    /// Errors: when the last flush or checkpoint failed; nothing acknowledged is lost, the next start replays it.
    pub fn stop(&self) -> Result<()> {
        if !self.stop_threads(STOP_WAIT) {
            return Ok(());
        }
        let result =
            maintenance::checkpoint(&self.core).and_then(|()| maintenance::truncate_idle_logs(&self.core));
        let closed = self.core.log.close();
        self.data.lock().take();
        result.and(closed)
    }

    /// Stops at once, without the last flush and checkpoint: the next start replays the log, as after a crash.
    pub fn abandon(&self) {
        if self.stop_threads(Duration::ZERO) {
            self.core.disable_checkpoints();
            // the log's own writers may still bring records to the disk; it makes no difference to what was promised
            let _ = self.core.log.close();
            self.data.lock().take();
        }
    }

    /// Waits until what is written is applied, but not for a disk that does not take it.
    fn wait_applied_for(&self, wait: Duration) {
        let deadline = std::time::Instant::now() + wait;
        let stuck = || DISK_PROBLEM_AREAS.iter().any(|area| self.core.has_problem(area));
        self.core.in_flight.wait_until_drained_for(wait.min(STOP_WAIT_STUCK));
        while !stuck() && std::time::Instant::now() < deadline && !self.core.in_flight.is_drained() {
            self.core.in_flight.wait_until_drained_for(STOP_WAIT_STUCK.min(wait));
        }
    }

    /// False when they are stopped already.
    fn stop_threads(&self, wait: Duration) -> bool {
        if self.owners.lock().is_empty() {
            return false;
        }
        self.core.set_sources_stopping();
        for thread in self.sources.lock().drain(..) {
            let _ = thread.join();
        }
        for partition in self.core.partitions() {
            partition.apply_queue.stop_accepting();
        }
        // what rules still emit for other partitions is applied as well; what a failing disk holds up stays in the log
        self.wait_applied_for(wait);
        self.core.set_stopping();
        for partition in self.core.partitions() {
            partition.apply_queue.close();
        }
        for thread in self.owners.lock().drain(..) {
            let _ = thread.join();
        }
        // the owners put nothing more in; what a failing disk kept here is in the last checkpoint
        for (reply, _) in self.core.partitions().iter().flat_map(|p| p.outbox.close()) {
            // a caller that no longer waits is no error
            let _ = reply.send(Err(Error::unavailable(
                "the events are in the log and applied, but the engine stopped before what they emitted was sent on",
            )));
        }
        for thread in self.forwarders.lock().drain(..) {
            let _ = thread.join();
        }
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
        true
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Err(e) = self.stop() {
            tracing::error!(error = %e, "the last checkpoint failed; the next start replays the log");
        }
    }
}

/// For each row in order of arrival the record that it goes into, by position, and its row there: as
/// [`Engine::records`] cuts them.
fn record_positions(rows: &InterleavedBatches, homes: &Partitioner) -> Vec<(usize, u32)> {
    let mut places = Vec::with_capacity(rows.len());
    let mut records = 0;
    for chunk in rows.row_partitions(homes).chunks(ROWS_PER_RECORD_MAX) {
        let mut present: Vec<PartitionId> = chunk.to_vec();
        present.sort_unstable();
        present.dedup();
        let mut next = vec![0; present.len()];
        for home in chunk {
            let Ok(at) = present.binary_search(home) else { continue };
            places.push((records + at, next[at]));
            next[at] += 1;
        }
        records += present.len();
    }
    places
}

/// `written`: the records, by partition and offset. `record_positions`: see [`record_positions`].
fn collect_replies(
    receiver: &Receiver<Result<ApplyReply>>,
    written: &[(usize, Offset)],
    places: &[(usize, u32)],
    reply: &mut SendReply,
) -> Result<()> {
    let (mut stored, mut emitted, mut duplicates) = (HashSet::new(), Vec::new(), 0);
    for _ in written {
        let turn = receiver.recv().map_err(|_| {
            Error::unavailable(
                "the events are in the log, but their partition stopped before they were applied",
            )
        })??;
        stored.extend(turn.stored);
        emitted.extend(turn.emitted);
        duplicates += turn.duplicates;
        reply.rule_errors.extend(turn.rule_errors);
    }
    let id = |(record, row): &(usize, u32)| {
        let (p, offset) = written.get(*record)?;
        let id = EventId { partition: PartitionId(*p as u32), offset: *offset, row: *row };
        stored.contains(&id).then(|| id.to_string())
    };
    reply.events = Some(places.iter().map(id).collect());
    reply.emitted = Some(emitted);
    reply.duplicates = Some(duplicates);
    Ok(())
}

impl BadRow {
    /// For `system.rejected`.
    pub fn into_rejected(self, stream: &str, origin: &str) -> RejectedRow {
        RejectedRow {
            stream: self.stream.unwrap_or_else(|| stream.to_owned()),
            kind: "malformed".into(),
            reason: self.reason,
            raw: self.raw,
            origin: format!("{origin}:{}", self.row_number),
        }
    }
}
