//! Many events in one call, each as a chunk of its own: batched processing with the results of one call per
//! event.
//!
//! If the output of an app's queries does not depend on the order in which one event passes all of them, all
//! events pass one query after the other. The order matters, and events are processed row at a time, if
//!
//! - queries feed each other in a cycle, or several of them write one stream,
//! - a table is both read and written, or written by several queries,
//! - a time-driven query reads the output of another, directly or through other queries,
//! - events are late and some query is time-driven,
//! - a query does not support batches: see [`AppRuntime::row_at_a_time_reason`].

use crate::batch::{Batch, EventKind};
use crate::column::Column;
use crate::expr::{EvalError, Expr, Node};
use crate::plan::{AppPlan, PlanElement};
use crate::query::{Handler, QueryPlan, Target};
use crate::query_batch::BatchOutput;
use crate::runtime::{AppRuntime, OutputHandler, Subscriber};

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
        let meeting = match &self.row_at_a_time_reason {
            None if order.len() > 1 => self.joins_over(&parts),
            _ => None,
        };
        let stops = self.next_stop().is_some_and(|stop| stop <= last);
        // an event behind the clock can make something due at the next event, to whichever stream that goes
        let late = !self.time_driven.is_empty() && !is_in_clock_order(&parts, &order, &clocks);
        let derived = parts.iter().any(|part| self.is_written(part.stream));
        let Some(meeting) = meeting.filter(|_| !stops && !late && !derived) else {
            return self.send_row_at_a_time(&parts, &order, sink);
        };
        self.stores.rng.next_inputs(order.len() as u64);
        let mut ran = vec![false; self.plan().queries.len()];
        let batches = into_batches(parts, &order, &clocks);
        for query in meeting {
            self.run_join(query, &batches, &order, &clocks, &mut ran, sink);
        }
        for (stream, batch) in &batches {
            self.dispatch(*stream, batch, &clocks, true, &mut ran, sink);
        }
        // queries without input still have timers
        for query in 0..ran.len() {
            if !ran[query] && self.plan().queries[query].has_timers() {
                let nothing = Batch::new(self.plan().queries[query].columns.iter().copied());
                let done = self.queries[query].run(0, &nothing, &clocks, &self.stores);
                self.emit_output(query, done, &clocks, &mut ran, sink);
            }
        }
        self.now = last;
        Ok(())
    }

    /// Returns why batches are processed row at a time; `None` if they are not.
    pub fn row_at_a_time_reason(&self) -> Option<&str> {
        self.row_at_a_time_reason.as_deref()
    }

    fn send_row_at_a_time(
        &mut self,
        parts: &[StreamBatch],
        order: &[u16],
        sink: &mut dyn OutputHandler,
    ) -> Result<(), EvalError> {
        let mut next = vec![0; parts.len()];
        for part in order {
            let row = next[*part as usize];
            next[*part as usize] += 1;
            let part = &parts[*part as usize];
            let one = |column: &Column| {
                let mut one = Column::new(column.ty());
                one.push_from(column, row);
                one
            };
            self.send(part.stream, part.columns.iter().map(one).collect(), vec![part.times[row]], sink)?;
        }
        Ok(())
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
            let Subscriber::Query(query, port) = self.subscribers[stream][i] else { continue };
            if sent && ran[query] {
                // joins over several streams have run already
                continue;
            }
            let done = self.queries[query].run(port, &rest, ticks, &self.stores);
            let failed = self.emit_output(query, done, ticks, ran, sink);
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

    /// Returns the joins that read several of the streams; `None` if the streams cannot be batched, for
    /// example because another kind of query reads several of them.
    fn joins_over(&self, parts: &[StreamBatch]) -> Option<Vec<usize>> {
        let mut meeting = Vec::new();
        for (number, query) in self.plan().queries.iter().enumerate() {
            let read = query.reads().iter().filter(|(s, _)| parts.iter().any(|p| p.stream == *s)).count();
            if read > 1 {
                query.join.as_ref()?;
                meeting.push(number);
            }
        }
        let twice = (1..parts.len()).any(|i| parts[..i].iter().any(|p| p.stream == parts[i].stream));
        // an event that an aggregation rejects must not reach a join
        let aggregated =
            self.stores.aggregations.iter().any(|a| parts.iter().any(|p| p.stream == a.plan().stream));
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
        let mut sides: Vec<usize> = (0..batches.len()).collect();
        sides.sort_by_key(|part| port(*part));
        let inputs: Vec<(usize, &Batch)> =
            sides.iter().map(|part| (port(*part), &batches[*part].1)).collect();
        let side = |part: u16| sides.iter().position(|p| *p == usize::from(part)).unwrap_or(0);
        let turns = order.chunk_by(|a, b| a == b).map(|run| (side(run[0]), run.len()));
        let out = self.queries[query].interleave(&inputs, turns, &self.stores);
        self.emit_output(query, BatchOutput::default().with_result(out), ticks, ran, sink);
    }

    fn emit_output(
        &mut self,
        query: usize,
        mut done: BatchOutput,
        ticks: &[i64],
        ran: &mut [bool],
        sink: &mut dyn OutputHandler,
    ) -> crate::select::FailedChunks {
        ran[query] = true;
        let (plan, now) = (self.queries[query].plan.clone(), self.now());
        done.timer_failures
            .iter()
            .chain(done.failed.iter().map(|(_, f)| f))
            .for_each(|f| sink.failure(&plan.name, f));
        if done.out.is_empty() {
            return done.failed;
        }
        sink.emission(&plan.name, &done.out);
        self.queries[query].stats.record_output(&done.out);
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
                let mut rest = events;
                while let Err((row, failure)) = self.stores.tables[*table].apply_rows(action, &rest, now) {
                    sink.failure(&plan.name, &failure);
                    let chunk = rest.chunk_ends.partition_point(|end| *end as usize <= row);
                    if let Some(Some(origin)) = rest.input_chunks.get(chunk) {
                        done.failed.push((*origin, failure));
                    }
                    rest = rest.chunks_after(chunk);
                }
                done.failed.sort_by_key(|(chunk, _)| *chunk);
            }
            // apps with such targets are processed row at a time
            Target::Window(_) | Target::Inner(_) => {}
        }
        done.failed
    }

    fn is_written(&self, stream: usize) -> bool {
        self.plan().queries.iter().any(|q| matches!(q.target, Target::Stream(to) if to == stream))
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
        *count.ok_or_else(|| EvalError(format!("there is no part {part}; there are {}", parts.len())))? += 1;
    }
    match counts.iter().zip(parts).position(|(count, part)| *count != part.times.len()) {
        None => Ok(order.to_vec()),
        Some(part) => {
            let (told, has) = (counts[part], parts[part].times.len());
            Err(EvalError(format!("the order names part {part} {told} times; it has {has} events")))
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

/// Returns why the queries of an app must be processed row at a time; `None` if they need not.
pub(crate) fn row_at_a_time_reason(plan: &AppPlan) -> Option<String> {
    let name = |stream: usize| &plan.catalog.streams()[stream].name;
    if !plan.sources.is_empty() || !plan.sinks.is_empty() {
        return Some("it has sources or sinks of its own".into());
    }
    if !plan.windows.is_empty() {
        return Some("it has named windows".into());
    }
    if plan.elements.iter().any(|element| matches!(element, PlanElement::Partition(_))) {
        return Some("it has partitions".into());
    }
    if let Some(fault) = plan.catalog.streams().iter().find(|s| s.name.starts_with('!')) {
        return Some(format!("it has the fault stream `{}`", fault.name));
    }
    for query in &plan.queries {
        if let Err(why) = query.check_batchable() {
            return Some(format!("{}: {why}", query.name));
        }
        if depends_on_order(query) {
            return Some(format!("{}: it calls a function that depends on the order of calls", query.name));
        }
    }
    let written =
        |stream: usize| plan.queries.iter().any(|q| matches!(q.target, Target::Stream(to) if to == stream));
    for query in &plan.queries {
        let reads = query.reads();
        let several = reads.iter().any(|(stream, _)| *stream != reads[0].0);
        if several && reads.iter().any(|(stream, _)| written(*stream)) {
            return Some(format!("{}: of the streams that it reads together a query writes one", query.name));
        }
    }
    for stream in 0..plan.catalog.streams().len() {
        let writers = plan.queries.iter().filter(|q| matches!(q.target, Target::Stream(to) if to == stream));
        if writers.count() > 1 {
            return Some(format!("several queries write `{}`", name(stream)));
        }
    }
    for table in 0..plan.catalog.tables().len() {
        let writers =
            plan.queries.iter().filter(|q| matches!(q.target, Target::Table(to, _) if to == table)).count();
        let readers = plan.queries.iter().filter(|q| reads_tables(q)).count();
        if writers > 1 || writers > 0 && readers > 0 {
            return Some(format!("`{}` is read and written", plan.catalog.tables()[table].name));
        }
    }
    plan.queries.iter().enumerate().find_map(|(i, _)| find_conflict_downstream(plan, i, &mut vec![], false))
}

/// Follows the output of a query. Returns a conflict if there is a cycle, or a time-driven query after
/// another one.
fn find_conflict_downstream(
    plan: &AppPlan,
    query: usize,
    way: &mut Vec<usize>,
    clocked: bool,
) -> Option<String> {
    let of = &plan.queries[query];
    if way.contains(&query) {
        return Some(format!("{}: what it puts out comes back to it", of.name));
    }
    if clocked && of.has_timers() {
        return Some(format!("{}: it goes by the clock, and so does what it reads", of.name));
    }
    let Target::Stream(to) = of.target else { return None };
    way.push(query);
    let clocked = clocked || of.has_timers();
    let readers =
        plan.queries.iter().enumerate().filter(|(_, q)| q.reads().iter().any(|(stream, _)| *stream == to));
    let found = readers
        .map(|(i, _)| i)
        .collect::<Vec<_>>()
        .into_iter()
        .find_map(|i| find_conflict_downstream(plan, i, way, clocked));
    way.pop();
    found
}

/// Visits all expressions of a query that is neither a join nor a pattern.
fn visit_expressions<'q>(query: &'q QueryPlan, look: &mut dyn FnMut(&'q Expr)) {
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
    visit_expressions(query, &mut |expr| {
        expr.walk(&mut |x| depends |= matches!(&x.node, Node::Call(f, _) if f.depends_on_order()));
    });
    depends
}
