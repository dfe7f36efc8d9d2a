//! Many events in one call, each as a chunk of its own: batched processing with the results of one call per
//! event.
//!
//! If the output of the queries of a [component](super::components) does not depend on the order in which one event
//! passes all of them, all events pass one query after the other. The order matters, and the events of the component
//! are processed row at a time, if
//!
//! - queries feed each other in a cycle, or several of them write one stream,
//! - a table is both read and written, or written by several queries,
//! - a time-driven query reads the output of another, directly or through other queries,
//! - a query does not support batches: see [`AppRuntime::row_at_a_time_reason`].
//!
//! All events of a call are processed row at a time if some are late and some query is time-driven, or if a trigger or
//! purge comes due.

use smallvec::SmallVec;

use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;
use crate::columns::value_ref::ValueRef;
use crate::eval_error::EvalError;
use crate::expr::{Expr, Node};
use crate::partition::{ChunkRun, PartitionPlan};
use crate::plan::{AppPlan, PlanElement};
use crate::processor::Handler;
use crate::query::{BatchOutput, QueryPlan, Target};
use crate::runtime::components::{Components, handler_expressions, searched_tables};
use crate::runtime::{AppRuntime, OutputHandler, Subscriber};
use crate::select::FailedChunks;

/// Events of one stream.
#[derive(Debug, Clone)]
pub struct StreamBatch {
    /// Index of the stream.
    pub stream: usize,
    /// Attributes of the stream, in order.
    pub columns: Vec<Column>,
    /// Timestamps of the events, milliseconds.
    pub times: Vec<i64>,
}

impl AppRuntime {
    /// Sends events, each as a chunk of its own. The output is that of [`AppRuntime::send`] for one event
    /// after the other, except that the output to different streams is reported stream by stream. `order` is,
    /// for each event in order, the index of the part that contains it; without it the parts follow each
    /// other.
    ///
    /// Errors: a part does not fit its stream, or `order` does not fit the parts. Nothing is sent then.
    pub fn send_batch(
        &mut self,
        parts: Vec<StreamBatch>,
        order: Option<&[u16]>,
        sink: &mut dyn OutputHandler,
    ) -> Result<(), EvalError> {
        for part in &parts {
            self.check(part.stream, &part.columns, part.times.len())?;
        }
        let order = checked_order(&parts, order)?;
        let clocks = clock_per_event(&parts, &order, self.now());
        let Some(last) = clocks.last().copied() else { return Ok(()) };
        self.skip_purges(last);
        let stops = self.next_stop().is_some_and(|stop| stop <= last);
        // an event behind the clock can make something due at the next event, to whichever stream that goes
        let late = !self.time_driven.is_empty() && !is_in_clock_order(&parts, &order, &clocks);
        // a key that a batch creates must not be purged within it
        let span = last.saturating_sub(clocks[0]);
        let purges = |partition: &PartitionPlan| partition.purge.is_some_and(|purge| purge.idle < span);
        let stops = stops || partitions_of(self.plan()).any(|(_, partition)| purges(partition));
        if stops || late || order.len() < 2 {
            return self.send_row_at_a_time(&parts, &order, sink);
        }
        let meeting: Vec<Option<Vec<usize>>> =
            (0..self.components.len()).map(|component| self.joins_in(component, &parts)).collect();
        let is_batched = |part: &StreamBatch| meeting[self.components.of_stream(part.stream)].is_some();
        let batched: Vec<bool> = parts.iter().map(is_batched).collect();
        if !batched.contains(&true) {
            return self.send_row_at_a_time(&parts, &order, sink);
        }
        if meeting.iter().all(Option::is_some) {
            self.stores.rng.next_inputs(order.len() as u64);
            self.send_columns(parts, &meeting, &order, &clocks, &clocks, sink);
            self.now = last;
            return Ok(());
        }
        // components in batches first: no output depends on the order between components
        let before = self.now();
        let rest: Vec<StreamBatch> = parts
            .iter()
            .zip(&batched)
            .map(|(part, batched)| StreamBatch {
                stream: part.stream,
                columns: if *batched { vec![] } else { part.columns.clone() },
                times: part.times.clone(),
            })
            .collect();
        let mut places = vec![0; parts.len()];
        let mut taken = Vec::new();
        for (place, part) in parts.into_iter().enumerate().filter(|(place, _)| batched[*place]) {
            places[place] = taken.len() as u16;
            taken.push(part);
        }
        let of_batches = order.iter().zip(&clocks).filter(|(part, _)| batched[usize::from(**part)]);
        let (taken_order, taken_clocks): (Vec<u16>, Vec<i64>) =
            of_batches.map(|(part, clock)| (places[usize::from(*part)], *clock)).unzip();
        self.send_columns(taken, &meeting, &taken_order, &taken_clocks, &clocks, sink);
        self.now = before;
        self.send_rest(&rest, &batched, &order, sink)
    }

    /// Processes the parts of components that are batched: those for which `meeting` has the joins over several of the
    /// parts. `clocks` are those of the events, `ticks` those of all events of the call.
    fn send_columns(
        &mut self,
        parts: Vec<StreamBatch>,
        meeting: &[Option<Vec<usize>>],
        order: &[u16],
        clocks: &[i64],
        ticks: &[i64],
        sink: &mut dyn OutputHandler,
    ) {
        let is_batched = |query| meeting[self.components.of_query(query)].is_some();
        let mut ran: Vec<bool> = (0..self.plan().queries.len()).map(|query| !is_batched(query)).collect();
        let batches = into_batches(parts, order, clocks);
        for query in meeting.iter().flatten().flatten() {
            self.run_join(*query, &batches, order, ticks, &mut ran, sink);
        }
        for (stream, batch) in &batches {
            self.dispatch(*stream, batch, ticks, true, &mut ran, sink);
        }
        // queries without input still have timers
        for query in 0..ran.len() {
            if !ran[query] && self.plan().queries[query].has_timers() {
                let nothing = Batch::new(self.plan().queries[query].columns.iter().copied());
                let done = self.queries[query].run(0, &nothing, ticks, &self.stores);
                self.emit_output(query, done, ticks, &mut ran, sink);
            }
        }
    }

    /// Sends the events of the parts that are not batched one after the other, and advances the clock to the others.
    fn send_rest(
        &mut self,
        parts: &[StreamBatch],
        batched: &[bool],
        order: &[u16],
        sink: &mut dyn OutputHandler,
    ) -> Result<(), EvalError> {
        let mut next = vec![0; parts.len()];
        for number in order {
            let number = usize::from(*number);
            let (part, row) = (&parts[number], next[number]);
            next[number] += 1;
            match batched[number] {
                false => self.send_event(part, row, sink)?,
                true => {
                    self.stores.rng.next_input();
                    self.advance(part.times[row], sink);
                }
            }
        }
        Ok(())
    }

    /// Returns why batches are processed row at a time in some component of the app; `None` if they are in none.
    pub fn row_at_a_time_reason(&self) -> Option<&str> {
        self.components.reasons().next()
    }

    /// Returns why batches of events of a stream, and of the streams, tables and queries connected with it, are processed
    /// row at a time; `None` if they are not.
    pub fn row_at_a_time_reason_of(&self, stream: usize) -> Option<&str> {
        self.components.reason(self.components.of_stream(stream))
    }

    fn send_row_at_a_time(
        &mut self,
        parts: &[StreamBatch],
        order: &[u16],
        sink: &mut dyn OutputHandler,
    ) -> Result<(), EvalError> {
        self.send_rest(parts, &vec![false; parts.len()], order, sink)
    }

    fn send_event(
        &mut self,
        part: &StreamBatch,
        row: usize,
        sink: &mut dyn OutputHandler,
    ) -> Result<(), EvalError> {
        let values: SmallVec<[ValueRef<'_>; 16]> = part.columns.iter().map(|c| c.value_ref(row)).collect();
        self.send_row(part.stream, &values, part.times[row], sink)
    }

    /// Sends the events of a stream to each of its subscribers.
    fn dispatch(
        &mut self,
        stream: usize,
        events: &Batch,
        ticks: &[i64],
        sent: bool,
        ran: &mut [bool],
        sink: &mut dyn OutputHandler,
    ) {
        let mut rest = self.aggregate_each(stream, events, sink);
        for i in 0..self.subscribers[stream].len() {
            let failed = match self.subscribers[stream][i] {
                // joins over several streams have run already
                Subscriber::Query(query, _) if sent && ran[query] => continue,
                Subscriber::Query(query, port) => {
                    let done = self.queries[query].run(port, &rest, ticks, &self.stores);
                    self.emit_output(query, done, ticks, ran, sink)
                }
                Subscriber::Partition(partition) => {
                    self.dispatch_to_partition(partition, stream, &rest, ticks, ran, sink)
                }
            };
            if !failed.is_empty() {
                // an event that one query cannot process is not passed to the next one
                rest = std::borrow::Cow::Owned(rest.without_chunks(&failed).into_owned());
            }
        }
        if rest.is_empty() {
            return;
        }
        let name = &self.plan().catalog.streams()[stream].name;
        match sent {
            true => sink.sent(name, &rest),
            false => sink.events(name, &rest),
        }
    }

    /// Sends the events of a stream to the queries of their keys. Returns the chunks that could not be processed.
    fn dispatch_to_partition(
        &mut self,
        partition: usize,
        stream: usize,
        events: &Batch,
        ticks: &[i64],
        ran: &mut [bool],
        sink: &mut dyn OutputHandler,
    ) -> FailedChunks {
        let mut found = self.partitions[partition].chunk_runs(stream, events, &self.stores);
        let mut failed = std::mem::take(&mut found.failed);
        for (_, failure) in &failed {
            sink.failure(&format!("partition {}", partition + 1), failure);
        }
        if found.runs.is_empty() {
            return failed;
        }
        if found.is_one_key_per_chunk() {
            failed.extend(self.run_partition(partition, stream, events, found.runs, ticks, ran, sink));
        } else {
            // a run that fails ends its chunk, so that runs of other keys in it must not have been processed before
            let mut broken = None;
            for run in found.runs {
                let chunk = run.chunk;
                if broken != Some(chunk) {
                    let done = self.run_partition(partition, stream, events, vec![run], ticks, ran, sink);
                    broken = (!done.is_empty()).then_some(chunk);
                    failed.extend(done);
                }
            }
        }
        failed.sort_by_key(|(chunk, _)| *chunk);
        failed
    }

    /// Sends runs of events to each query of a partition that reads their stream.
    #[allow(clippy::too_many_arguments, reason = "the arguments of `dispatch`, and the runs")]
    fn run_partition(
        &mut self,
        partition: usize,
        stream: usize,
        events: &Batch,
        mut runs: Vec<ChunkRun>,
        ticks: &[i64],
        ran: &mut [bool],
        sink: &mut dyn OutputHandler,
    ) -> FailedChunks {
        let plan = self.partitions[partition].plan().clone();
        let mut all_failed = FailedChunks::new();
        for (query, port) in plan.readers(stream) {
            let done = self.partitions[partition].run_batch(*query, *port, events, &runs, &self.stores);
            let failed = self.emit_to_target(&plan.queries[*query], done, ticks, ran, sink);
            // an event that one query cannot process is not passed to the next one
            runs.retain(|run| failed.binary_search_by_key(&run.chunk, |(chunk, _)| *chunk).is_err());
            all_failed.extend(failed);
        }
        all_failed
    }

    /// Returns the joins of a component that read several of the streams; `None` if the component cannot be batched,
    /// for example because another kind of query reads several of them.
    fn joins_in(&self, component: usize, parts: &[StreamBatch]) -> Option<Vec<usize>> {
        if self.components.reason(component).is_some() {
            return None;
        }
        let inside = |stream: usize| self.components.of_stream(stream) == component;
        let parts: SmallVec<[usize; 4]> =
            parts.iter().map(|part| part.stream).filter(|s| inside(*s)).collect();
        if parts.iter().any(|stream| self.is_written(*stream)) {
            return None;
        }
        let mut meeting = Vec::new();
        for (number, query) in self.plan().queries.iter().enumerate() {
            let read = query.reads().iter().filter(|(stream, _)| parts.contains(stream)).count();
            if read > 1 {
                query.join.as_ref()?;
                meeting.push(number);
            }
        }
        let twice = (1..parts.len()).any(|i| parts[..i].contains(&parts[i]));
        // an event that an aggregation rejects must not reach a join
        let aggregated = self.stores.aggregations.iter().any(|a| parts.contains(&a.plan().stream));
        (!twice && (meeting.is_empty() || parts.len() == 2 && !aggregated)).then_some(meeting)
    }

    /// Sends the events of two streams to a query that reads both, in their order.
    fn run_join(
        &mut self,
        query: usize,
        batches: &[(usize, Batch)],
        order: &[u16],
        ticks: &[i64],
        ran: &mut [bool],
        sink: &mut dyn OutputHandler,
    ) {
        let reads = self.plan().queries[query].reads();
        let port =
            |part: usize| reads.iter().find(|(stream, _)| *stream == batches[part].0).map_or(0, |(_, p)| *p);
        // the sides in order
        let is_read = |part: &usize| reads.iter().any(|(stream, _)| *stream == batches[*part].0);
        let mut sides: Vec<usize> = (0..batches.len()).filter(is_read).collect();
        sides.sort_by_key(|part| port(*part));
        let inputs: Vec<(usize, &Batch)> =
            sides.iter().map(|part| (port(*part), &batches[*part].1)).collect();
        let side = |part: &u16| sides.iter().position(|p| *p == usize::from(*part));
        let arrivals: Vec<usize> = order.iter().filter_map(side).collect();
        let turns = arrivals.chunk_by(|a, b| a == b).map(|run| (run[0], run.len()));
        let out = self.queries[query].interleave(&inputs, turns, &self.stores);
        self.emit_output(query, BatchOutput::default().with_result(out), ticks, ran, sink);
    }

    fn emit_output(
        &mut self,
        query: usize,
        done: BatchOutput,
        ticks: &[i64],
        ran: &mut [bool],
        sink: &mut dyn OutputHandler,
    ) -> FailedChunks {
        ran[query] = true;
        if !done.out.is_empty() {
            self.queries[query].stats.record_output(&done.out);
        }
        let plan = self.queries[query].plan.clone();
        self.emit_to_target(&plan, done, ticks, ran, sink)
    }

    /// Passes the output of a query to its target. Returns the chunks that could not be processed.
    fn emit_to_target(
        &mut self,
        plan: &QueryPlan,
        mut done: BatchOutput,
        ticks: &[i64],
        ran: &mut [bool],
        sink: &mut dyn OutputHandler,
    ) -> FailedChunks {
        let now = self.now();
        done.timer_failures
            .iter()
            .chain(done.failed.iter().map(|(_, f)| f))
            .for_each(|f| sink.failure(&plan.name, f));
        if done.out.is_empty() {
            return done.failed;
        }
        sink.emission(&plan.name, &done.out);
        let mut events = std::mem::take(&mut done.out);
        // events that expired from a window are current events of the target
        events.kinds.fill(EventKind::Current);
        events.groups.clear();
        match &plan.target {
            Target::Stream(stream) => {
                events.columns.iter_mut().for_each(Column::share);
                self.dispatch(*stream, &events, ticks, false, ran, sink);
            }
            Target::Table(table, action) => {
                let origins = events.input_chunks.clone();
                for (chunk, failure) in self.stores.tables[*table].apply_chunks(action, events, now) {
                    sink.failure(&plan.name, &failure);
                    if let Some(Some(origin)) = origins.get(chunk) {
                        done.failed.push((*origin, failure));
                    }
                }
                done.failed.sort_by_key(|(chunk, _)| *chunk);
            }
            // apps with such targets are processed row at a time
            Target::Window(_) | Target::Inner(_) => {}
        }
        done.failed
    }

    fn is_written(&self, stream: usize) -> bool {
        let mut queries = batched_queries(self.plan(), &self.components);
        queries.any(|(_, q)| matches!(q.target, Target::Stream(to) if to == stream))
    }
}

/// Returns each part as a batch with one chunk per event, and its stream.
fn into_batches(parts: Vec<StreamBatch>, order: &[u16], clocks: &[i64]) -> Vec<(usize, Batch)> {
    let alone = parts.len() == 1;
    let batch = |(number, part): (usize, StreamBatch)| {
        let own = || order.iter().zip(clocks).filter(|(p, _)| usize::from(**p) == number).map(|(_, c)| *c);
        let mut batch = Batch {
            kinds: vec![EventKind::Current; part.times.len()],
            chunk_ends: (1..=part.times.len() as u32).collect(),
            chunk_clocks: if alone { clocks.to_vec() } else { own().collect() },
            columns: part.columns,
            times: part.times,
            ..Batch::default()
        };
        batch.columns.iter_mut().for_each(Column::share);
        (part.stream, batch)
    };
    parts.into_iter().enumerate().map(batch).collect()
}

/// Returns the part of each event. Errors: `order` does not fit the parts.
pub(crate) fn checked_order(parts: &[StreamBatch], order: Option<&[u16]>) -> Result<Vec<u16>, EvalError> {
    let Some(order) = order else {
        let mut order = Vec::with_capacity(parts.iter().map(|part| part.times.len()).sum());
        for (number, part) in parts.iter().enumerate() {
            order.resize(order.len() + part.times.len(), number as u16);
        }
        return Ok(order);
    };
    let mut counts = vec![0; parts.len()];
    for part in order {
        let count = counts.get_mut(*part as usize);
        *count.ok_or_else(|| {
            EvalError::request(format!(
                "the order refers to part {part}, but there are {} parts",
                parts.len()
            ))
        })? += 1;
    }
    match counts.iter().zip(parts).position(|(count, part)| *count != part.times.len()) {
        None => Ok(order.to_vec()),
        Some(part) => {
            let (told, has) = (counts[part], parts[part].times.len());
            Err(EvalError::request(format!(
                "the order names part {part} {told} times, but the part has {has} events"
            )))
        }
    }
}

/// Returns whether no event is behind the clock at its arrival.
fn is_in_clock_order(parts: &[StreamBatch], order: &[u16], clocks: &[i64]) -> bool {
    if let [part] = parts {
        return part.times == clocks;
    }
    let mut next = vec![0; parts.len()];
    let mut in_time = |(part, clock): (&u16, &i64)| {
        let row = &mut next[*part as usize];
        *row += 1;
        parts[*part as usize].times[*row - 1] == *clock
    };
    order.iter().zip(clocks).all(&mut in_time)
}

/// Returns the clock at each event.
fn clock_per_event(parts: &[StreamBatch], order: &[u16], now: i64) -> Vec<i64> {
    if let [part] = parts
        && part.times.first().is_none_or(|first| *first >= now)
        && part.times.is_sorted()
    {
        return part.times.clone();
    }
    let mut next = vec![0; parts.len()];
    let mut clock = now;
    let at = |part: &u16| {
        let row = &mut next[*part as usize];
        clock = clock.max(parts[*part as usize].times[*row]);
        *row += 1;
        clock
    };
    order.iter().map(at).collect()
}

/// Finds the components whose events must be processed row at a time.
pub(super) fn find_row_at_a_time_reasons(plan: &AppPlan, components: &mut Components) {
    let name = |stream: usize| &plan.catalog.streams()[stream].name;
    for stream in plan.sources.iter().map(|s| s.stream).chain(plan.sinks.iter().map(|s| s.stream)) {
        let component = components.of_stream(stream);
        components.add_reason(component, || "it has sources or sinks of its own".into());
    }
    for window in &plan.windows {
        let component = components.of_stream(window.stream);
        components.add_reason(component, || "it has named windows".into());
    }
    for (number, partition) in partitions_of(plan) {
        let component = components.of_partition(number);
        if let Some(why) = partition.row_at_a_time_reason() {
            components.add_reason(component, || why.into());
        }
        if partition.purge.is_some() && batched_queries(plan, components).any(|(_, q)| q.has_timers()) {
            let clocked: Vec<usize> = batched_queries(plan, components)
                .filter(|(_, query)| query.has_timers())
                .map(|(component, _)| component)
                .collect();
            for component in clocked.into_iter().chain([component]) {
                components.add_reason(component, || "timers stop where idle keys are purged".into());
            }
        }
    }
    for (number, fault) in plan.catalog.streams().iter().enumerate().filter(|(_, s)| s.name.starts_with('!'))
    {
        let component = components.of_stream(number);
        components.add_reason(component, || format!("it has the fault stream `{}`", fault.name));
    }
    for aggregation in plan.catalog.aggregations() {
        let component = components.of_stream(aggregation.stream);
        for expr in handler_expressions(&aggregation.handlers) {
            if !searched_tables(expr).is_empty() || calls_by_order(expr) {
                components.add_reason(component, || {
                    format!(
                        "the aggregation `{}` has a condition that depends on the order of events",
                        aggregation.name
                    )
                });
            }
        }
    }
    let queries: Vec<(usize, &QueryPlan)> = batched_queries(plan, components).collect();
    for (component, query) in &queries {
        if let Err(why) = query.check_batchable() {
            components.add_reason(*component, || format!("{}: {why}", query.name));
        }
        if depends_on_order(query) {
            components.add_reason(*component, || {
                format!("{}: it calls a function that depends on the order of calls", query.name)
            });
        }
    }
    let written =
        |stream: usize| queries.iter().any(|(_, q)| matches!(q.target, Target::Stream(to) if to == stream));
    for (component, query) in &queries {
        let reads = query.reads();
        let several = reads.iter().any(|(stream, _)| *stream != reads[0].0);
        if several && reads.iter().any(|(stream, _)| written(*stream)) {
            components.add_reason(*component, || {
                format!("{}: a query writes one of the several streams that it reads", query.name)
            });
        }
    }
    for stream in 0..plan.catalog.streams().len() {
        let writers = queries.iter().filter(|(_, q)| matches!(q.target, Target::Stream(to) if to == stream));
        if writers.count() > 1 {
            let component = components.of_stream(stream);
            components.add_reason(component, || format!("several queries write `{}`", name(stream)));
        }
    }
    for table in 0..plan.catalog.tables().len() {
        let component = components.of_table(table);
        let inside = || queries.iter().filter(|(of, _)| *of == component);
        let writers =
            inside().filter(|(_, q)| matches!(q.target, Target::Table(to, _) if to == table)).count();
        let readers = inside().filter(|(_, q)| reads_tables(q)).count();
        if writers > 1 || writers > 0 && readers > 0 {
            components.add_reason(component, || {
                format!(
                    "the table `{}` is both read and written, or written by several queries",
                    plan.catalog.tables()[table].name
                )
            });
        }
    }
    for i in 0..queries.len() {
        if let Some(conflict) = find_conflict_downstream(&queries, i, &mut vec![], false) {
            components.add_reason(queries[i].0, || conflict);
        }
    }
}

/// Follows the output of a query. Returns a conflict if there is a cycle, or a time-driven query after
/// another one.
fn find_conflict_downstream(
    queries: &[(usize, &QueryPlan)],
    query: usize,
    way: &mut Vec<usize>,
    clocked: bool,
) -> Option<String> {
    let (_, of) = queries[query];
    if way.contains(&query) {
        return Some(format!("{}: its output flows back into its input", of.name));
    }
    if clocked && of.has_timers() {
        return Some(format!("{}: it is time-driven and reads the output of a time-driven query", of.name));
    }
    let Target::Stream(to) = of.target else { return None };
    way.push(query);
    let clocked = clocked || of.has_timers();
    let reads = |query: &QueryPlan| query.reads().iter().any(|(stream, _)| *stream == to);
    let mut readers = (0..queries.len()).filter(|i| reads(queries[*i].1));
    let found = readers.find_map(|i| find_conflict_downstream(queries, i, way, clocked));
    way.pop();
    found
}

/// Returns the partitions that were not rewritten as queries, with their indexes.
fn partitions_of(plan: &AppPlan) -> impl Iterator<Item = (usize, &PartitionPlan)> {
    plan.elements.iter().filter_map(|element| match element {
        PlanElement::Partition(number) => Some((*number, &*plan.partitions[*number])),
        PlanElement::Query(_) => None,
    })
}

/// Returns all queries with their components, those of partitions last.
fn batched_queries<'p>(
    plan: &'p AppPlan,
    components: &Components,
) -> impl Iterator<Item = (usize, &'p QueryPlan)> {
    let alone = plan.queries.iter().enumerate().map(|(number, query)| (components.of_query(number), query));
    let partitioned = partitions_of(plan).flat_map(|(number, partition)| {
        let component = components.of_partition(number);
        partition.queries.iter().map(move |query| (component, &**query))
    });
    alone.chain(partitioned)
}

/// Visits all expressions of a query that is neither a join nor a pattern.
pub(super) fn visit_expressions<'q>(query: &'q QueryPlan, look: &mut dyn FnMut(&'q Expr)) {
    for handler in query.before.iter().chain(&query.after) {
        if let Handler::Filter(condition) = handler {
            look(condition);
        }
    }
    query.select.items.iter().for_each(|(_, expr)| look(expr));
    query.select.aggregates.iter().flat_map(|a| &a.args).for_each(&mut *look);
    query.select.having.iter().for_each(look);
}

fn reads_tables(query: &QueryPlan) -> bool {
    let mut reads = false;
    visit_expressions(query, &mut |expr| expr.walk(&mut |x| reads |= matches!(x.node, Node::In { .. })));
    reads
}

fn depends_on_order(query: &QueryPlan) -> bool {
    let mut depends = false;
    visit_expressions(query, &mut |expr| depends |= calls_by_order(expr));
    depends
}

/// Returns whether an expression calls a function whose result depends on the order of calls.
fn calls_by_order(expr: &Expr) -> bool {
    let mut depends = false;
    expr.walk(&mut |x| depends |= matches!(&x.node, Node::Call(f, _) if f.depends_on_order()));
    depends
}
