//! Runtime of an app: its clock, streams and queries.

mod aggregations;
mod batch;
mod components;
mod partitions;
mod row;
mod snapshot;
mod triggers;
mod why;

pub(crate) use snapshot::check_same_app;

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemill_connect::StoreMonitor;
use tidemill_types::{Error, FieldType, Offset, PartitionId};

pub use batch::StreamBatch;
pub(crate) use batch::checked_order;

use crate::aggregation::Aggregation;
use crate::app_stores::{AppStores, DeterministicRng};
use crate::catalog::StoreOpener;
use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;
use crate::columns::row::Row;
use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::io::{DistributionStrategy, LogSink, TopicMessage, TopicSource};
use crate::models::Models;
use crate::named_window::NamedWindow;
use crate::on_demand;
use crate::partition::{KeyId, PartitionRuntime};
use crate::plan::{self, AppPlan, PlanElement, Trigger};
use crate::query::{Query, QueryPlan, Target};
use crate::statement_calls::StatementCalls;
use crate::table::{Table, create_store};
use components::Components;
use row::RowPath;

/// Maximum length of the way of an event from query to query. A query may feed itself, but not endlessly.
const DEPTH_MAX: usize = 500;

/// Remaining stack below which an event is delivered on a newly allocated stack, bytes.
const STACK_LEFT: usize = 256 << 10;
/// Size of that stack, bytes.
const STACK_MORE: usize = 1 << 20;

/// Calls `on` with enough stack: threads may have small stacks, and queries that feed themselves recurse
/// deeply.
fn with_stack_guard<R>(on: impl FnOnce() -> R) -> R {
    stacker::maybe_grow(STACK_LEFT, STACK_MORE, on)
}

/// Receiver of the output of an app.
pub trait OutputHandler {
    /// Receives events of a stream, in order; times and values are set.
    fn events(&mut self, stream: &str, events: &Batch);
    /// Receives, instead of [`Self::events`], the events from [`AppRuntime::send`], which no query, trigger
    /// or topic emitted.
    fn sent(&mut self, stream: &str, events: &Batch) {
        self.events(stream, events);
    }
    /// Receives the output of a query: current and expired events, as one emission.
    fn emission(&mut self, query: &str, emission: &Batch);
    /// Reports that a query could not process events.
    fn failure(&mut self, query: &str, failure: &EvalError);
    /// Receives the events of `stream` of the last [`Self::failure`]: they went to the fault stream of
    /// `stream` if `kept`; otherwise the query and those after it have lost them. A failed timer has no
    /// events.
    fn failed_events(&mut self, _stream: &str, _events: &Batch, _kept: bool) {}
    /// Returns whether single events come as rows, by [`Self::event_rows`], [`Self::sent_row`] and
    /// [`Self::emission_rows`], where the app has no batch of them. A handler that returns true must implement these,
    /// and still gets batches by the other functions.
    fn wants_rows(&self) -> bool {
        false
    }
    /// Receives events of a stream as [`Self::events`] does.
    fn event_rows(&mut self, _stream: &str, _rows: &[Row<'_>]) {}
    /// Receives an event as [`Self::sent`] does.
    fn sent_row(&mut self, stream: &str, row: Row<'_>) {
        self.event_rows(stream, &[row]);
    }
    /// Receives current events that a query emits, as [`Self::emission`] does.
    fn emission_rows(&mut self, _query: &str, _rows: &[Row<'_>]) {}
    /// Receives events of a stream that has a log sink.
    fn logged(&mut self, log: &LogSink, events: &Batch) {
        log.trace(events);
    }
}

/// Runtime of an app.
///
/// It has no clock of its own: the caller advances the clock ([`AppRuntime::advance`]) and sends events
/// ([`AppRuntime::send`]).
pub struct AppRuntime {
    plan: Arc<AppPlan>,
    pub(crate) queries: Vec<Query>,
    /// Tables, named windows and aggregations.
    pub(crate) stores: AppStores,
    pub(crate) partitions: Vec<PartitionRuntime>,
    /// Subscribers of each stream, in order.
    pub(crate) subscribers: Vec<Vec<Subscriber>>,
    /// The parts of the query graph that are processed in batches or row at a time, each for itself.
    components: Components,
    /// For each trigger, the time at which it fires next.
    triggers: Vec<Option<i64>>,
    /// Number of batches published by each round-robin sink.
    sink_turns: BTreeMap<usize, usize>,
    pub(crate) now: i64,
    /// The clock after the restore of a saved state, if there was one: event counts begin there.
    restored_at: Option<i64>,
    /// On-demand queries that were run recently.
    on_demand_cache: on_demand::Cache,
    /// The queries and partitions that may act without an event, in order.
    pub(crate) time_driven: Vec<PlanElement>,
    /// An empty batch, kept to reuse its memory.
    envelope: Batch,
    /// The row programs; `None` while they process an event, and if they are not used.
    row_path: Option<Box<RowPath>>,
    /// By stream, an empty batch for a row, kept to reuse its memory.
    row_batches: Vec<Option<Batch>>,
}

/// A reader of a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subscriber {
    /// A query, and the port to which the events go.
    Query(usize, usize),
    /// The partition with this index.
    Partition(usize),
}

/// The query that emitted events.
#[derive(Debug, Clone, Copy)]
enum Emitter {
    /// A query outside partitions.
    Query(usize),
    /// A query of a key.
    InPartition { partition: usize, key: KeyId, query: usize },
}

impl Emitter {
    fn plan(self, plan: &AppPlan) -> &QueryPlan {
        match self {
            Self::Query(query) => &plan.queries[query],
            Self::InPartition { partition, query, .. } => &plan.partitions[partition].queries[query],
        }
    }
}

impl AppRuntime {
    /// Opens the stores of tables and aggregations in other systems; `writer` is the name under which these remember
    /// what the app has written. Without it every use of such a table fails, and such an aggregation keeps all buckets in memory.
    ///
    /// Errors: `Invalid` if a store refuses its options.
    pub fn open_stores(&mut self, writer: &str, monitor: &Arc<StoreMonitor>) -> Result<(), Error> {
        let plan = self.plan.clone();
        let Some(catalog) = plan.registry.connectors().catalog() else { return Ok(()) };
        self.stores.statements.open(writer, catalog, monitor);
        for table in &mut self.stores.tables {
            let Table::External(table) = table else { continue };
            if !table.plan().is_elsewhere() {
                continue;
            }
            let store = create_store(table.plan(), writer, catalog, monitor);
            let store = store.map_err(|e| Error::invalid(e.to_string()))?;
            store.into_iter().for_each(|store| table.open(store));
        }
        for aggregation in self.stores.aggregations.iter_mut().filter(|a| a.is_elsewhere()) {
            aggregation.open_stores(&mut |table| {
                let store = create_store(table, writer, catalog, monitor);
                let store = store.map_err(|e| Error::invalid(e.to_string()))?;
                store.ok_or_else(|| Error::internal(format!("`{}` has no store", table.name)))
            })?;
        }
        Ok(())
    }

    /// Opens the tables and aggregations whose store is part of the program.
    pub fn open_own_stores(&mut self, open: &mut StoreOpener<'_>) -> Result<(), Error> {
        for table in &mut self.stores.tables {
            if let Table::External(table) = table
                && !table.plan().is_elsewhere()
            {
                let store = open(table.plan())?;
                table.open(store);
            }
        }
        for aggregation in self.stores.aggregations.iter_mut().filter(|a| !a.is_elsewhere()) {
            aggregation.open_stores(open)?;
        }
        Ok(())
    }

    /// Says which record of a log is processed next: what it writes to other systems is written once.
    pub fn set_record(&mut self, partition: PartitionId, offset: Offset) {
        self.stores.statements.set_record(partition, offset);
        for table in &mut self.stores.tables {
            if let Table::External(table) = table {
                table.set_record(partition, offset);
            }
        }
        self.stores.aggregations.iter_mut().for_each(|a| a.set_record(partition, offset));
    }

    /// Creates an app that has not started.
    pub fn new(plan: Arc<AppPlan>) -> Self {
        let plan = plan::rewrite_as_group_by(plan);
        let streams = plan.catalog.streams();
        let queries: Vec<Query> = plan.queries.iter().map(|q| Query::new(q.clone())).collect();
        let partitions = plan.partitions.iter().cloned().map(PartitionRuntime::new).collect();
        let mut readers = vec![Vec::new(); streams.len()];
        for element in &plan.elements {
            match *element {
                PlanElement::Query(i) => {
                    let reads = plan.queries[i].reads().into_iter();
                    reads.for_each(|(stream, port)| readers[stream].push(Subscriber::Query(i, port)));
                }
                PlanElement::Partition(i) => {
                    plan.partitions[i]
                        .reads()
                        .for_each(|stream| readers[stream].push(Subscriber::Partition(i)));
                }
            }
        }
        let limits = plan.limits();
        let table = |of| Table::new(of).with_rows_max(limits.table_rows);
        let window = |of| NamedWindow::new(of).with_rows_max(limits.window_rows);
        let aggregation = |of| {
            let aggregation = Aggregation::new(of).with_rows_max(limits.aggregation_rows);
            aggregation.with_closed_buckets_max(limits.aggregation_buckets)
        };
        let shared = AppStores {
            models: Models::default(),
            statements: StatementCalls::default(),
            tables: plan.catalog.tables().iter().cloned().map(table).collect(),
            windows: plan.windows.iter().cloned().map(window).collect(),
            aggregations: plan.catalog.aggregations().iter().cloned().map(aggregation).collect(),
            rng: DeterministicRng::seeded(plan.name.as_deref().unwrap_or_default()),
        };
        let triggers = vec![None; plan.triggers.len()];
        let components = Components::of(&plan);
        let (turns, asked) = (BTreeMap::new(), on_demand::Cache::default());
        let is_clocked = |element: &PlanElement| match *element {
            PlanElement::Query(i) => !plan.queries[i].schedulers().is_empty(),
            PlanElement::Partition(i) => !plan.partitions[i].schedulers().is_empty(),
        };
        let clocked = plan.elements.iter().copied().filter(is_clocked).collect();
        let mut app = Self {
            plan,
            queries,
            partitions,
            stores: shared,
            subscribers: readers,
            components,
            triggers,
            sink_turns: turns,
            now: 0,
            on_demand_cache: asked,
            time_driven: clocked,
            envelope: Batch::default(),
            restored_at: None,
            row_path: None,
            row_batches: vec![],
        };
        app.use_row_programs(true);
        app
    }

    /// Returns the compiled app.
    pub fn plan(&self) -> &AppPlan {
        &self.plan
    }

    /// Returns the compiled app, to be shared with another runtime.
    pub fn shared_plan(&self) -> Arc<AppPlan> {
        self.plan.clone()
    }

    /// Seeds random values (`UUID()`, `math:rand()`) with a string other than the app's name, because
    /// concurrent copies of an app must not draw the same values.
    pub fn seed(&mut self, text: &str) {
        self.stores.rng = DeterministicRng::seeded(text);
    }

    /// Returns the clock, milliseconds.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// Starts the app at `now`.
    pub fn start(&mut self, now: i64, sink: &mut dyn OutputHandler) {
        self.now = now;
        self.stores.windows.iter_mut().for_each(|w| w.operator.start(now));
        self.stores.aggregations.iter_mut().for_each(|a| a.start(now));
        self.queries.iter_mut().for_each(|q| q.start(now));
        self.partitions.iter_mut().for_each(|p| p.start(now));
        for i in 0..self.triggers.len() {
            match &self.plan.triggers[i].1 {
                Trigger::Start => self.fire_trigger(i, now, sink),
                other => self.triggers[i] = other.after(now),
            }
        }
    }

    /// Advances the clock to `to`, unless it is there already, and runs everything that is due until then.
    pub fn advance(&mut self, to: i64, sink: &mut dyn OutputHandler) {
        self.skip_purges(to);
        while let Some(at) = self.next_stop().filter(|at| *at <= to) {
            self.now = self.now.max(at);
            self.run_due_timers(sink);
            for i in 0..self.triggers.len() {
                if self.triggers[i] == Some(at) {
                    self.triggers[i] = self.plan.triggers[i].1.after(at);
                    self.fire_trigger(i, at, sink);
                }
            }
            self.purge_aggregations(at, sink);
            for i in 0..self.stores.windows.len() {
                if self.stores.windows[i].operator.next_scheduled(at - 1) == Some(at) {
                    let out = self.stores.windows[i].fire_schedule(at);
                    self.emit_window(i, out, 1, sink);
                }
            }
            for i in 0..self.time_driven.len() {
                match self.time_driven[i] {
                    PlanElement::Query(i) if self.queries[i].next_scheduled(at - 1) == Some(at) => {
                        let out = self.queries[i].fire_schedule(at, &self.stores);
                        self.emit(Emitter::Query(i), out, 0, sink);
                    }
                    PlanElement::Query(_) => {}
                    PlanElement::Partition(i) => self.run_partition_schedules(i, at, sink),
                }
            }
            self.partitions.iter_mut().for_each(|p| p.purge(at));
            self.skip_purges(to);
        }
        if to > self.now {
            self.now = to;
        }
        self.run_due_timers(sink);
    }

    /// Returns the next instant after the clock at which [`Self::advance`] must stop: for triggers, windows
    /// with a calendar schedule, and purges.
    pub(crate) fn next_stop(&self) -> Option<i64> {
        let triggers = self.triggers.iter().flatten().copied();
        let windows = self.stores.windows.iter().filter_map(|w| w.operator.next_scheduled(self.now));
        let queries = self.time_driven_queries().filter_map(|query| query.next_scheduled(self.now));
        let partitions = self.partitions.iter().filter_map(|p| p.next_scheduled(self.now));
        let aggregations = self.stores.aggregations.iter().filter_map(Aggregation::next_purge);
        let stops = triggers.chain(windows).chain(queries).chain(partitions).chain(aggregations).min();
        if self.plan.partitions.iter().all(|p| p.purge.is_none()) {
            return stops;
        }
        let due = self.next_timer();
        stops.into_iter().chain(self.partitions.iter().filter_map(|p| p.next_purge(self.now, due))).min()
    }

    fn next_timer(&self) -> Option<i64> {
        let windows = self.stores.windows.iter().filter_map(|w| w.operator.next_timer());
        let queries = self.time_driven_queries().filter_map(Query::next_timer);
        windows.chain(queries).chain(self.partitions.iter().filter_map(PartitionRuntime::next_timer)).min()
    }

    fn time_driven_queries(&self) -> impl Iterator<Item = &Query> {
        self.time_driven.iter().filter_map(|element| match *element {
            PlanElement::Query(i) => Some(&self.queries[i]),
            PlanElement::Partition(_) => None,
        })
    }

    fn run_due_timers(&mut self, sink: &mut dyn OutputHandler) {
        for i in 0..self.stores.windows.len() {
            while let Some(out) = self.stores.windows[i].fire_timer(self.now) {
                self.emit_window(i, out, 1, sink);
            }
        }
        for i in 0..self.time_driven.len() {
            match self.time_driven[i] {
                PlanElement::Query(i) => {
                    while let Some(out) = self.queries[i].fire_timer(self.now, &self.stores) {
                        self.emit(Emitter::Query(i), out, 0, sink);
                    }
                }
                PlanElement::Partition(i) => self.run_partition_timers(i, sink),
            }
        }
    }

    fn fire_trigger(&mut self, trigger: usize, at: i64, sink: &mut dyn OutputHandler) {
        let stream = self.plan.triggers[trigger].0;
        let mut events = Batch::new([FieldType::Long]);
        events.columns[0].push(Value::Long(at));
        events.times.push(at);
        events.kinds.push(EventKind::Current);
        events.end_chunk(self.now);
        self.deliver(stream, &events, 1, sink);
    }

    /// Returns the due time of the next timer, trigger or scheduled window, which may be the current time.
    pub fn next_due(&self) -> Option<i64> {
        self.next_timer().into_iter().chain(self.next_stop()).min()
    }

    /// Sends events to a stream as one chunk. First advances the clock to the time of the last event.
    ///
    /// `columns` are the stream's attributes in order. Errors: they are not, or the stream cannot be written
    /// from outside.
    pub fn send(
        &mut self,
        stream: usize,
        columns: Vec<Column>,
        times: Vec<i64>,
        sink: &mut dyn OutputHandler,
    ) -> Result<(), EvalError> {
        self.check(stream, &columns, times.len())?;
        let Some(last) = times.last().copied() else { return Ok(()) };
        let mut batch = Batch { columns, times, ..std::mem::take(&mut self.envelope) };
        batch.kinds.resize(batch.times.len(), EventKind::Current);
        let single = if batch.len() == 1 { self.send_single(stream, &mut batch, sink) } else { None };
        if single.is_none() {
            self.stores.rng.next_input();
            self.advance(last, sink);
            batch.end_chunk(self.now);
            self.deliver(stream, &batch, 0, sink);
        }
        (batch.columns, batch.times) = (vec![], vec![]);
        batch.clear();
        self.envelope = batch;
        Ok(())
    }

    /// Checks that these columns can be events of the stream: `rows` rows of its attributes, in order.
    pub(crate) fn check(&self, stream: usize, columns: &[Column], rows: usize) -> Result<(), EvalError> {
        let defined = self.plan.catalog.streams().get(stream);
        let defined = defined.ok_or_else(|| EvalError::request(format!("there is no stream {stream}")))?;
        let mut pairs = columns.iter().zip(&defined.attributes);
        let fits = columns.len() == defined.attributes.len()
            && pairs.all(|(c, (_, ty))| c.len() == rows && c.ty() == *ty);
        if !fits {
            return Err(EvalError::request(format!(
                "the columns do not match the attributes of `{}`",
                defined.name
            )));
        }
        if self.plan.catalog.window(stream).is_some() {
            return Err(EvalError::request(format!(
                "`{}` is a window: only queries can insert into it",
                defined.name
            )));
        }
        if self.plan.catalog.is_inner(stream) {
            return Err(EvalError::request(format!(
                "`{}` is an inner stream: only queries can insert into it",
                defined.name
            )));
        }
        Ok(())
    }

    /// Delivers events depth first: each subscriber and all that follows from it runs before the next
    /// subscriber.
    fn deliver(&mut self, stream: usize, events: &Batch, depth: usize, sink: &mut dyn OutputHandler) {
        with_stack_guard(|| self.deliver_to_subscribers(stream, events, depth, sink));
    }

    fn deliver_to_subscribers(
        &mut self,
        stream: usize,
        events: &Batch,
        depth: usize,
        sink: &mut dyn OutputHandler,
    ) {
        if depth > DEPTH_MAX {
            let message = format!(
                "more than {DEPTH_MAX} levels of events caused by one event: do the queries insert for each other in a loop?"
            );
            return sink.failure(&self.plan.catalog.streams()[stream].name, &EvalError::request(message));
        }
        if let Some(failure) = self.aggregate(stream, events, sink) {
            self.send_to_fault_stream(stream, events, &failure, depth, sink);
            return;
        }
        for i in 0..self.subscribers[stream].len() {
            let failure = match self.subscribers[stream][i] {
                Subscriber::Query(query, _) if events.len() > 1 && self.is_self_join(query) => {
                    let earlier = &self.subscribers[stream][..i];
                    let is_first =
                        !earlier.iter().any(|s| matches!(s, Subscriber::Query(q, _) if *q == query));
                    match is_first {
                        true => self.run_self_join(query, stream, events, depth, sink),
                        false => None,
                    }
                }
                Subscriber::Query(query, port) => {
                    let out = self.queries[query].push(port, events, &self.stores);
                    self.emit(Emitter::Query(query), out, depth, sink)
                }
                Subscriber::Partition(partition) => {
                    self.route_to_partition(partition, stream, events, depth, sink)
                }
            };
            if let Some(failure) = failure {
                self.send_to_fault_stream(stream, events, &failure, depth, sink);
                return;
            }
        }
        // observers of a stream come after its queries
        let name = &self.plan.catalog.streams()[stream].name;
        if depth == 0 {
            sink.sent(name, events)
        } else {
            sink.events(name, events)
        }
        if self.plan.sinks.iter().any(|s| s.stream == stream) {
            self.publish(stream, events, depth, sink);
        }
    }

    /// Returns whether a query joins a stream or a named window with itself.
    fn is_self_join(&self, query: usize) -> bool {
        let join = self.plan.queries[query].join.as_ref();
        join.is_some_and(|join| join.sides[0].source == join.sides[1].source)
    }

    /// Sends each event to the sides of a join that it triggers before the next one.
    fn run_self_join(
        &mut self,
        query: usize,
        stream: usize,
        events: &Batch,
        depth: usize,
        sink: &mut dyn OutputHandler,
    ) -> Option<EvalError> {
        let port = |subscriber: &Subscriber| match subscriber {
            Subscriber::Query(reader, port) if *reader == query => Some(*port),
            _ => None,
        };
        let ports: Vec<_> = self.subscribers[stream].iter().filter_map(port).collect();
        for (rows, clock) in events.chunks() {
            for (row, port) in rows.flat_map(|row| ports.iter().map(move |port| (row, *port))) {
                let out = self.queries[query].push(port, &events.chunk(row..row + 1, clock), &self.stores);
                if let Some(failure) = self.emit(Emitter::Query(query), out, depth, sink) {
                    return Some(failure);
                }
            }
        }
        None
    }

    /// Publishes events of a stream to the topics of its sinks, and from there to the streams that subscribe
    /// to them. Events of one topic stay together.
    fn publish(&mut self, stream: usize, events: &Batch, depth: usize, sink: &mut dyn OutputHandler) {
        let plan = self.plan.clone();
        for (number, to) in plan.sinks.iter().enumerate().filter(|(_, s)| s.stream == stream) {
            if let Some(log) = &to.log {
                sink.logged(log, events);
                continue;
            }
            let turn = match to.strategy {
                DistributionStrategy::RoundRobin => {
                    let turns = self.sink_turns.entry(number).or_insert(0);
                    *turns += 1;
                    *turns - 1
                }
                _ => 0,
            };
            for (topic, rows) in to.distribute(events, turn) {
                let places: Vec<u32> = rows.iter().map(|row| *row as u32).collect();
                let mut sent = Batch::new(events.columns.iter().map(Column::ty));
                for (column, from) in sent.columns.iter_mut().zip(&events.columns) {
                    column.gather(from, &places);
                }
                sent.times.extend(rows.iter().map(|row| events.times[*row]));
                sent.kinds.resize(rows.len(), EventKind::Current);
                sent.end_chunk(self.now);
                let messages = to.mapper.as_ref().map(|mapper| mapper.messages(&sent));
                for reason in messages.iter().flat_map(|(_, refused)| refused) {
                    let message = format!("an event for topic `{topic}` is not published: {reason}");
                    sink.failure(&plan.catalog.streams()[stream].name, &EvalError::request(message));
                }
                for source in plan.sources.iter().filter(|s| s.topic == topic) {
                    let messages = messages.as_ref().map(|(messages, _)| messages.as_slice());
                    self.receive(source, &sent, messages, depth + 1, sink);
                }
            }
        }
    }

    /// Delivers what was published to a topic, events or messages, to a stream that subscribes to it.
    fn receive(
        &mut self,
        source: &TopicSource,
        sent: &Batch,
        messages: Option<&[TopicMessage]>,
        depth: usize,
        sink: &mut dyn OutputHandler,
    ) {
        let plan = self.plan.clone();
        let stream = &plan.catalog.streams()[source.stream];
        let topic = &source.topic;
        let mut fail = |message: String| sink.failure(&stream.name, &EvalError::request(message));
        let read;
        let events = match (&source.mapper, messages) {
            (None, None) if stream.attributes.len() == sent.columns.len() => sent,
            (None, None) => {
                return fail(format!("events of topic `{topic}` do not match the attributes of the stream"));
            }
            (Some(mapper), Some(messages)) => {
                let (events, failures) = mapper.events(messages, self.now);
                failures
                    .into_iter()
                    .for_each(|reason| fail(format!("a message of topic `{topic}` is not read: {reason}")));
                read = events;
                &read
            }
            (Some(mapper), None) => {
                return fail(format!(
                    "topic `{topic}` has events, but the source reads messages; write `@map(type='{}')` at the sink, \
                     or `@map(type='passThrough')` at the source",
                    mapper.kind()
                ));
            }
            (None, Some(_)) => {
                return fail(format!(
                    "topic `{topic}` has messages, but the source reads events; write the `@map` of the sink at the \
                     source"
                ));
            }
        };
        if !events.is_empty() {
            self.deliver(source.stream, events, depth, sink);
        }
    }

    /// Sends events that could not be processed to the fault stream of a stream with
    /// `@OnError(action='STREAM')`.
    fn send_to_fault_stream(
        &mut self,
        stream: usize,
        events: &Batch,
        failure: &EvalError,
        depth: usize,
        sink: &mut dyn OutputHandler,
    ) {
        let of = &self.plan.catalog.streams()[stream].name;
        let fault = self.plan.catalog.find(&format!("!{of}"));
        sink.failed_events(of, events, fault.is_some());
        let Some(fault) = fault else { return };
        let mut failed = events.clone();
        let mut reason = Column::new(FieldType::Object);
        events.times.iter().for_each(|_| reason.push(Value::text(&failure.to_string())));
        failed.columns.push(reason);
        self.deliver(fault, &failed, depth + 1, sink);
    }

    /// Passes a query's output to its target. Returns the failure, if there was one.
    fn emit(
        &mut self,
        from: Emitter,
        out: Result<Batch, EvalError>,
        depth: usize,
        sink: &mut dyn OutputHandler,
    ) -> Option<EvalError> {
        let plan = self.plan.clone();
        let plan = from.plan(&plan);
        let done = out.and_then(|out| {
            if !out.is_empty() {
                sink.emission(&plan.name, &out);
                self.note_emission(from, &out);
                let mut events = out;
                // events that expired from a window are current events of the target
                events.kinds.fill(EventKind::Current);
                events.groups.clear();
                self.write(from, &plan.target, &events, depth, sink)?;
                if let Emitter::Query(query) = from {
                    self.queries[query].reuse(events);
                }
            }
            Ok(())
        });
        let failure = done.err()?;
        sink.failure(&plan.name, &failure);
        Some(failure)
    }

    fn write(
        &mut self,
        from: Emitter,
        to: &Target,
        events: &Batch,
        depth: usize,
        sink: &mut dyn OutputHandler,
    ) -> Result<(), EvalError> {
        match to {
            Target::Stream(stream) => self.deliver(*stream, events, depth + 1, sink),
            Target::Inner(stream) => {
                if let Emitter::InPartition { partition, key, .. } = from {
                    // a failure after an inner stream does not fail its writer
                    with_stack_guard(|| {
                        self.deliver_to_instance(partition, key, *stream, events, depth + 1, sink)
                    });
                }
            }
            Target::Table(table, action) => self.stores.tables[*table].apply(action, events, self.now)?,
            Target::Window(window) => {
                let out = self.stores.windows[*window].insert(events)?;
                self.emit_window(*window, Ok(out), depth + 1, sink);
            }
        }
        Ok(())
    }

    /// Delivers the output of a named window to its subscribers, chunk by chunk. Events keep their kind.
    fn emit_window(
        &mut self,
        window: usize,
        out: Result<Batch, EvalError>,
        depth: usize,
        sink: &mut dyn OutputHandler,
    ) {
        let stream = self.plan.windows[window].stream;
        match out {
            Err(failure) => sink.failure(&self.plan.catalog.streams()[stream].name, &failure),
            Ok(out) => {
                if out.chunk_ends.len() == 1 {
                    return self.deliver(stream, &out, depth, sink);
                }
                for (rows, clock) in out.chunks() {
                    self.deliver(stream, &out.chunk(rows, clock), depth, sink);
                }
            }
        }
    }

    /// Runs an on-demand query. Returns the rows that it finds; none if it changes a table.
    ///
    /// Errors: the query does not compile, or fails.
    pub fn on_demand(&mut self, query: &str) -> Result<Batch, EvalError> {
        let query = self.on_demand_cache.compile(query, &self.plan)?;
        let before = self.stores.rng.position();
        let found = query.run(&mut self.stores, self.now);
        if !query.changes_table() {
            // a replay does not repeat a read, so it must leave nothing behind
            self.stores.rng.set_position(before);
        }
        found
    }
}
