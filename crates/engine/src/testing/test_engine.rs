//! In-memory engine driven by one thread, with a clock that only tests advance.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use bson::raw::RawDocument;
use crossbeam_channel::Receiver;
use serde_json::{Map, Value as Json};
use tidemill_docs::DocumentCommand;
use tidemill_flow::Column;
use tidemill_flow::functions::json_text::to_json;
use tidemill_log::disk::OsDisk;
use tidemill_log::{Durability, LogClock, MemoryLog};
use tidemill_rules::expr::value::document_json;
use tidemill_rules::why::Selector;
use tidemill_types::{
    Duration, Error, EventId, Offset, PartitionId, Result, Timestamp, Value, column, event_json, row_value,
};
use tidemill_zones::{Zones, ZonesOptions};

use super::{Stored, TestOptions};
use crate::app::App;
use crate::app::settings::Settings;
use crate::deployment::Deployment;
use crate::entry::{Entry, Events};
use crate::host::Host;
use crate::ingest::partition_of_row;
use crate::jobs::timers;
use crate::node::Node;
use crate::partition::Partition;
use crate::process::clock::{Clock, ManualClock};
use crate::process::services::Process;
use crate::process::store_runtime::StoreRuntime;
use crate::queries::compile::CompiledApp;
use crate::running_app::RunningApp;
use crate::sinks::SinkSet;
use crate::sources;
use crate::state::PartitionState;
use crate::tables::TableSet;

/// Default start time of a test: 2000-01-01T00:00:00Z.
pub(super) const START_TIME: Timestamp = Timestamp(946_684_800_000_000);

/// In-memory engine of one test; see the module documentation.
pub(super) struct TestEngine {
    node: Node,
    clock: Arc<ManualClock>,
    /// Set once the test has set the clock.
    started: bool,
    stops_max: usize,
    rounds_max: usize,
    /// Receivers of stored batches, by stream.
    stored: Vec<Receiver<RecordBatch>>,
    /// Ids of events that the test sent, to tell them from derived ones.
    sent: HashSet<EventId>,
    /// Derived events, by stream.
    derived: Vec<Vec<DerivedEvent>>,
    /// Number of errors already reported, by rule or query.
    reported: BTreeMap<String, u64>,
}

/// Event that a rule or query emitted.
pub(super) struct DerivedEvent {
    pub event: Map<String, Json>,
    pub time: Timestamp,
}

impl TestEngine {
    /// Creates an engine in its initial state.
    pub fn new(app: &App, compiled: &CompiledApp, options: &TestOptions<'_>) -> Result<Self> {
        let clock = Arc::new(ManualClock::default());
        clock.set(START_TIME);
        let node = open_in_memory(app, compiled, clock.clone())?;
        let streams = node.app.deployment.program.streams();
        let stored = streams.iter().map(|stream| node.app.subscribers.subscribe(&stream.name)).collect();
        let made = streams.iter().map(|_| Vec::new()).collect();
        let (sent, told) = (HashSet::new(), BTreeMap::new());
        let TestOptions { stops_max, rounds_max, .. } = *options;
        Ok(Self {
            node,
            clock,
            started: false,
            stops_max,
            rounds_max,
            stored,
            sent,
            derived: made,
            reported: told,
        })
    }

    /// Returns the time of the clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns whether the test has set the clock.
    pub fn has_started(&self) -> bool {
        self.started
    }

    /// Inserts a document into its partition, or into all if the collection is replicated.
    ///
    /// Errors: it is not a document, or its key is taken.
    pub fn insert_document(&mut self, entity: usize, object: &Map<String, Json>) -> Result<()> {
        let collection = self.node.app.deployment.program.entities()[entity].name.clone();
        let text = Json::Object(object.clone()).to_string();
        let doc = sources::parse_document(&self.node, &collection, text.as_bytes())?;
        let raw = RawDocument::from_bytes(&doc)
            .map_err(|e| Error::internal("a document that was just made").with_source(e))?;
        let spec = self.node.collection_spec(&collection)?;
        let homes = match self.node.partition_of_document(&spec, raw) {
            Some(home) => vec![home],
            None => self.node.owned.all().iter().map(|p| p.id).collect(),
        };
        let command = DocumentCommand::Insert { collection, docs: vec![doc.clone()], ordered: true };
        for home in homes {
            let reply = self.write(home, Entry::Command(command.to_bytes()?))?;
            if let Some(error) = reply.outcome.and_then(|o| o.errors.into_iter().next()) {
                return Err(error.error.into());
            }
        }
        Ok(())
    }

    /// Changes a table by an on-demand query.
    pub fn change_table(&mut self, store: &Stored, text: String) -> Result<()> {
        let queries = &self.node.app.deployment.queries;
        let (home, file) = (queries.home(store.unit), queries.file_name(store.unit).to_owned());
        self.write(home, Entry::OnDemand { file, text }).map(|_| ())
    }

    /// Advances the clock to `at` and sends an event.
    pub fn send_event(&mut self, stream: usize, batch: RecordBatch, at: Timestamp) -> Result<()> {
        self.advance_clock(at, false)?;
        let schema = self.node.app.deployment.program.streams()[stream].clone();
        let home = partition_of_row(&schema, &batch, 0, self.node.app.deployment.partitioner.of_batch(0));
        let events = Events { parts: vec![(schema, batch)], ..Events::default() };
        self.write(home, Entry::Events(events)).map(|_| ())
    }

    /// Advances the clock to `to`, stopping at each instant at which a timer is due. The clocks of files with
    /// `@app:playback` that have started advance with it, as though an event had arrived.
    ///
    /// Errors: `Invalid` when `to` is in the past; `LimitReached` after too many stops.
    pub fn advance_to(&mut self, to: Timestamp) -> Result<()> {
        self.advance_clock(to, true)
    }

    /// Advances the clock by `span`, as [`Self::advance_to`] does.
    pub fn advance_by(&mut self, span: Duration) -> Result<()> {
        self.start(START_TIME)?;
        self.advance_clock(Timestamp(self.now().0.saturating_add(span.0)), true)
    }

    /// Sets the clock for the first time, and starts all timers at that time.
    fn start(&mut self, at: Timestamp) -> Result<()> {
        if std::mem::replace(&mut self.started, true) {
            return Ok(());
        }
        self.clock.set(at);
        self.node.owned.all().iter().for_each(|p| p.refresh_next_timer());
        self.tick(None)
    }

    fn advance_clock(&mut self, to: Timestamp, playback: bool) -> Result<()> {
        self.start(to)?;
        if to < self.now() {
            return Err(Error::invalid(format!(
                "it is {} already, and time does not go back to {to}",
                self.now()
            )));
        }
        let (mut last, mut stops) = (i64::MIN, 0);
        while let Some(due) = self.next_due(playback).filter(|due| *due <= ms(to)) {
            stops += 1;
            if stops > self.stops_max {
                return Err(Error::limit(format!(
                    "on the way to {to} the clock has stopped {} times because something was due: move it less far",
                    self.stops_max
                )));
            }
            // if a timer stays due, the clock advances by 1 ms anyway
            let due = if due > last { due } else { last + 1 };
            last = due;
            self.clock.set(self.now().max(Timestamp(due.saturating_mul(1000))).min(to));
            self.tick(playback.then_some(due))?;
        }
        self.clock.set(to);
        self.tick(playback.then_some(ms(to)))
    }

    /// Returns the time of the next timer, in milliseconds.
    fn next_due(&self, playback: bool) -> Option<i64> {
        let node = &self.node;
        let own = |partition: &Arc<Partition>| {
            let state = partition.state.read();
            state.query_state.with_runtimes(|flow| {
                let units = node.app.deployment.queries.units.iter().enumerate();
                let units = units.filter(|(_, unit)| {
                    !unit.plan.playback || (playback && !has_idle_advance(node, unit.file))
                });
                units.filter_map(|(number, _)| flow.next_due(number)).min()
            })
        };
        let owned = node.owned.all();
        let idle = owned.iter().filter_map(|p| timers::next_playback_advance(node, p));
        owned.iter().filter_map(own).chain(idle).min()
    }

    /// Processes timers at the current time. `jump` is the time to which the clocks of files with playback
    /// advance.
    fn tick(&mut self, jump: Option<i64>) -> Result<()> {
        for partition in self.node.owned.all() {
            timers::poll(&self.node, &partition);
            let files = self.node.app.deployment.queries.files.iter().enumerate();
            let files =
                files.filter(|(number, file)| file.plan.playback && !has_idle_advance(&self.node, *number));
            let jumps: Vec<_> = files.filter_map(|(_, file)| Some((file.name.clone(), jump?))).collect();
            if !jumps.is_empty() {
                let tick = Entry::Tick { jumps };
                self.node.host.append(partition.id, tick, Durability::Memory, None)?.wait()?;
            }
        }
        self.apply_all()
    }

    /// Appends an entry and applies it and all records that follow from it.
    fn write(&mut self, partition: PartitionId, entry: Entry) -> Result<crate::apply::ApplyReply> {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        self.node.host.append(partition, entry, Durability::Memory, Some(sender))?.wait()?;
        // the reply has the ids of the sent events; it must be read before stored events are collected, to
        // tell the sent from the derived ones
        if let Some(partition) = self.node.owned.get(partition) {
            partition.apply_pending();
        }
        let reply = receiver
            .try_recv()
            .unwrap_or_else(|_| Err(Error::internal(self.node.host.health.problems().join("\n"))))?;
        self.sent.extend(reply.stored.iter().copied());
        self.apply_all()?;
        Ok(reply)
    }

    /// Applies records until no partition has any left.
    fn apply_all(&mut self) -> Result<()> {
        self.collect_stored();
        for _ in 0..self.rounds_max {
            let Some(waiting) = self.node.owned.all().into_iter().find(|p| p.apply_pending()) else {
                let problems = self.node.host.health.problems();
                return if problems.is_empty() { Ok(()) } else { Err(Error::internal(problems.join("\n"))) };
            };
            tracing::trace!(partition = waiting.id.0, "applied what waited");
            self.collect_stored();
        }
        Err(Error::limit(format!(
            "events have led to further ones in other partitions {} times: is there a loop?",
            self.rounds_max
        )))
    }

    /// Collects the events stored since the last call.
    fn collect_stored(&mut self) {
        for (stream, stored) in self.stored.iter().enumerate() {
            let schema = &self.node.app.deployment.program.streams()[stream];
            for batch in stored.try_iter() {
                for row in 0..batch.num_rows() {
                    if event_id(&batch, row).is_none_or(|id| !self.sent.contains(&id)) {
                        let event = event_json(schema, &batch, row);
                        self.derived[stream].push(DerivedEvent { event, time: time_of(&batch, row) });
                    }
                }
            }
        }
    }

    /// Returns the derived events of a stream so far.
    pub fn derived(&self, stream: usize) -> &[DerivedEvent] {
        &self.derived[stream]
    }

    /// Returns the documents of an entity.
    pub fn documents(&self, entity: usize) -> Vec<Map<String, Json>> {
        let entity = &self.node.app.deployment.program.entities()[entity].name;
        let mut all = Vec::new();
        for partition in self.node.owned.all() {
            let state = partition.state.read();
            let Some(collection) = state.store.collection(entity) else { continue };
            all.extend(collection.iter().filter_map(|doc| {
                match document_json(RawDocument::from_bytes(doc.as_ref()).ok()?) {
                    Json::Object(object) => Some(object),
                    _ => None,
                }
            }));
            if collection.spec().replicated {
                break;
            }
        }
        all
    }

    /// Returns the rows of a table or named window.
    pub fn rows(&self, store: &Stored) -> Result<Vec<Map<String, Json>>> {
        let names: Vec<String> = store.attributes.iter().map(|(name, _)| format!("`{name}`")).collect();
        let query = format!("from `{}` select {}", store.name, names.join(", "));
        let queries = &self.node.app.deployment.queries;
        let partition = self.node.client(queries.home(store.unit))?;
        let found = partition.find_in_unit(&queries.unit_name(store.unit), &query)?;
        let row = |i: usize| {
            let cells = store.attributes.iter().zip(&found);
            cells.map(|((name, _), column)| (name.clone(), to_json(&column.get(i)))).collect()
        };
        Ok((0..found.first().map_or(0, Column::len)).map(row).collect())
    }

    /// Returns how often a rule fired.
    pub fn fired(&self, rule: &str) -> u64 {
        let owned = self.node.owned.all();
        owned.iter().map(|p| p.state.read().executor.counters().rule(rule).map_or(0, |r| r.fired)).sum()
    }

    /// Explains what a rule did with the last event of its stream, in each partition in which it runs.
    pub fn why(&self, rule: &str) -> Vec<String> {
        let Some(info) = self.node.app.deployment.program.rules().into_iter().find(|r| r.name == rule) else {
            return vec![];
        };
        let selector = Selector::Fields { stream: Some(info.stream), fields: vec![] };
        let explain = |p: &Arc<Partition>| {
            let state = p.state.read();
            state
                .trace
                .explain(&self.node.app.deployment.program, &selector, Some(rule))
                .ok()
                .map(|e| e.to_string())
        };
        self.node.owned.all().iter().filter_map(explain).collect()
    }

    /// Returns the errors of rules and queries since the last call.
    pub fn errors(&mut self) -> Vec<String> {
        let mut found: BTreeMap<String, (u64, String)> = BTreeMap::new();
        let mut note = |what: String, errors: u64, last: Option<&String>| {
            let (count, message) = found.entry(what).or_default();
            *count += errors;
            if let Some(last) = last {
                message.clone_from(last);
            }
        };
        for partition in self.node.owned.all() {
            let state = partition.state.read();
            for plan in self.node.app.deployment.program.plans() {
                if let Some(rule) = state.executor.counters().rule(&plan.name).filter(|r| r.errors > 0) {
                    note(format!("rule {}", plan.name), rule.errors, rule.last_error.as_ref());
                }
            }
            state.query_state.with_runtimes(|flow| {
                for (file, queries) in &flow.counts {
                    for (query, counts) in queries.iter().filter(|(_, counts)| counts.errors > 0) {
                        note(format!("`{query}` of {file}"), counts.errors, counts.last_error.as_ref());
                    }
                }
            });
        }
        let mut errors = Vec::new();
        for (what, (count, message)) in found {
            let told = self.reported.entry(what.clone()).or_default();
            if count > std::mem::replace(told, count) {
                errors.push(format!("{what} failed on this event: {message}"));
            }
        }
        errors
    }
}

/// Returns whether the clock of a file advances by itself while no events arrive.
fn has_idle_advance(node: &Node, file: usize) -> bool {
    node.app.deployment.queries.files[file].idle.is_some()
}

fn ms(time: Timestamp) -> i64 {
    time.0.div_euclid(1000)
}

fn event_id(batch: &RecordBatch, row: usize) -> Option<EventId> {
    let number = |name: &str| match row_value(batch, batch.schema_ref().index_of(name).ok()?, row) {
        Value::Int(n) => Some(n),
        _ => None,
    };
    Some(EventId {
        partition: PartitionId(u32::try_from(number(column::PARTITION)?).ok()?),
        offset: Offset(u64::try_from(number(column::OFFSET)?).ok()?),
        row: u32::try_from(number(column::ROW)?).ok()?,
    })
}

/// Returns the event time of a row.
pub(super) fn time_of(batch: &RecordBatch, row: usize) -> Timestamp {
    let time = batch.schema_ref().index_of(column::TIME).ok();
    match time.filter(|_| row < batch.num_rows()).map(|i| row_value(batch, i, row)) {
        Some(Value::Time(time)) => time,
        _ => START_TIME,
    }
}

/// Opens all partitions of a node whose log and tables are in memory. They have no threads.
pub(crate) fn open_in_memory(app: &App, compiled: &CompiledApp, clock: Arc<ManualClock>) -> Result<Node> {
    let node = node_in_memory(app, compiled, clock)?;
    for p in 0..node.app.deployment.partitions() {
        let state = PartitionState::new(&node.app.deployment, PartitionId(p))?;
        let partition = Partition::new(state, node.host.clone(), node.app.clone());
        partition.start_consuming()?;
        node.owned.add(Arc::new(partition));
    }
    Ok(node)
}

/// Creates a node whose log and tables are in memory.
fn node_in_memory(app: &App, compiled: &CompiledApp, clock: Arc<ManualClock>) -> Result<Node> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::unavailable("cannot start the object store's threads").with_source(e))?;
    let partitions = app.settings.partitions;
    // tests explain failures with `why`, regardless of how many events the app's setting retains
    let mut app = app.clone();
    app.settings.why_events = Settings::default().why_events;
    // no disk is used, so no disk space has to be reserved
    app.settings.reserve_bytes = 0;
    let partitioner = compiled.queries.partitioner(&compiled.program, partitions);
    let deployment = Arc::new(Deployment::new(app, compiled.clone(), partitioner));
    let zones = runtime.block_on(Zones::open("memory:///", 1, ZonesOptions::default(), &[]))?;
    let runtime = StoreRuntime::new(runtime);
    let tables = TableSet::open(&deployment, &zones, &runtime)?;
    let log_clock = Arc::clone(&clock);
    let log = MemoryLog::new(partitions).with_clock(LogClock::new(move || log_clock.now()));
    let log = Arc::new(log);
    let settings = &deployment.settings;
    let process = Process::on_runtime(settings, clock, runtime);
    let host = Host::new(PathBuf::new(), Arc::new(OsDisk), settings, process, log, zones);
    Ok(Node::new(host, RunningApp::new(deployment, tables, SinkSet::default())))
}
