//! Queries: filters, windows or a join, and the selection.

mod batch;
mod row;
mod row_program;
mod schedulers;
mod stats;
mod why;

use std::sync::Arc;

use tidemill_types::FieldType;

pub(crate) use batch::BatchOutput;
pub(crate) use row_program::RowProgram;

use crate::columns::batch::{Batch, split_by_key};
use crate::eval_error::EvalError;
use crate::explain::{InputStats, QueryText};
use crate::expr::{EvalContext, Expr, Node};
use crate::join::{Join, JoinMatches, JoinPlan};
use crate::limits::Limits;
use crate::output_rate::{OutputRateLimiter, OutputRatePlan};
use crate::pattern::{PatternMatcher, PatternPlan};
use crate::processor::{Handler, HandlerChain};
use crate::select::{self, OutputEvents, SelectPlan, Selector};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::table::TableAction;
use crate::window::WindowConstructor;
use crate::window_operator::WindowOperator;

pub use schedulers::Scheduler;

/// A compiled query.
#[derive(Clone)]
pub struct QueryPlan {
    /// Name by `@info(name='…')`, or the position of the query in the app.
    pub name: String,
    /// Input stream.
    pub stream: usize,
    /// Column types of the input.
    pub read: Vec<FieldType>,
    /// Column types of the rows that enter the window.
    pub columns: Vec<FieldType>,
    /// Handlers before the window.
    pub before: Vec<Handler>,
    /// Pattern or sequence, instead of `stream` and `window`.
    pub state: Option<Arc<PatternPlan>>,
    /// Constructor of the window.
    pub window: Option<WindowConstructor>,
    /// Handlers after the window.
    pub after: Vec<Handler>,
    /// True if the input is the output of a named window, which contains expired events.
    pub reads_window: bool,
    /// The select clause.
    pub select: Arc<SelectPlan>,
    /// The output rate; `None` to emit at once.
    pub rate: Option<OutputRatePlan>,
    /// Key column by which chunks are split first if the query stands for a partition; events with a null key
    /// are dropped.
    pub cut_by: Option<usize>,
    /// Target of the output.
    pub target: Target,
    /// Join, instead of `stream` and `window`.
    pub join: Option<Arc<JoinPlan>>,
    /// Limits on the query's state.
    pub limits: Limits,
    /// Source text, for reports.
    pub source_text: Arc<QueryText>,
}

/// Target of a query's output.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "there is one for each query of an app")]
pub enum Target {
    /// A stream.
    Stream(usize),
    /// An inner stream of the enclosing partition.
    Inner(usize),
    /// A named window.
    Window(usize),
    /// A table.
    Table(usize, Box<TableAction>),
}

impl QueryPlan {
    /// Creates a query that only selects; the caller sets its input and target.
    pub fn select_only(select: SelectPlan) -> Self {
        Self {
            name: String::new(),
            stream: 0,
            read: vec![],
            columns: vec![],
            before: vec![],
            state: None,
            window: None,
            after: vec![],
            reads_window: false,
            select: Arc::new(select),
            rate: None,
            cut_by: None,
            target: Target::Stream(0),
            join: None,
            limits: Limits::default(),
            source_text: Arc::default(),
        }
    }

    /// Returns the streams that the query reads, each with the port for its events: the stream id, or a side
    /// of the join.
    pub fn reads(&self) -> Vec<(usize, usize)> {
        match &self.join {
            Some(join) => join.reads().collect(),
            None => self.streams().into_iter().map(|stream| (stream, stream)).collect(),
        }
    }

    /// Returns whether group ids are stored with the rows of the window, so that each is looked up only once.
    fn stores_group_ids(&self) -> bool {
        let Some(make) = &self.window else { return false };
        let rewritten = make().rewritten_column();
        let column = |expr: &Expr| match expr.node {
            Node::Column { slot: crate::expr::INPUT, column } => Some(column) != rewritten,
            _ => false,
        };
        let by = &self.select.group_by;
        !by.is_empty() && by.iter().all(column) && self.after.iter().all(|h| matches!(h, Handler::Filter(_)))
    }

    fn streams(&self) -> Vec<usize> {
        let mut streams = match &self.state {
            Some(state) => state.steps.iter().map(|s| s.stream).collect(),
            None => vec![self.stream],
        };
        streams.sort_unstable();
        streams.dedup();
        streams
    }
}

/// Runtime state of a query. Queries with the same plan share it.
pub struct Query {
    pub(crate) plan: Arc<QueryPlan>,
    // most queries have few of these: boxes keep the copies for many keys small
    pub(crate) machine: Option<Box<PatternMatcher>>,
    before: HandlerChain,
    pub(crate) window: Option<Box<WindowOperator>>,
    after: HandlerChain,
    pub(crate) join: Option<Box<Join>>,
    pub(crate) selector: Selector,
    pub(crate) rate: Option<Box<OutputRateLimiter>>,
    pub(crate) stats: InputStats,
}

impl Query {
    /// Creates a query in its initial state.
    pub fn new(plan: impl Into<Arc<QueryPlan>>) -> Self {
        let plan = plan.into();
        let wants_expired = plan.select.output_events.expired;
        let keyed = plan.stores_group_ids();
        let mut columns = plan.columns.clone();
        columns.extend(keyed.then_some(FieldType::Int));
        let window = plan
            .window
            .as_ref()
            .map(|make| Box::new(WindowOperator::new(make, &columns, wants_expired, false)));
        let aggregates = !plan.select.aggregates.is_empty();
        let join = plan.join.clone().map(|join| Box::new(Join::new(join, wants_expired, aggregates)));
        let leaving = plan.window.is_some() || plan.join.is_some() || plan.reads_window;
        let group_column = keyed.then_some(plan.columns.len());
        let selector = Selector::new(plan.select.clone(), leaving, plan.rate.is_some(), group_column);
        let rate = plan.rate.clone().map(|rate| Box::new(OutputRateLimiter::new(rate, plan.select.types())));
        let machine = plan.state.clone().map(|state| Box::new(PatternMatcher::new(state)));
        let (before, after) =
            (HandlerChain::new(&plan.before, &plan.read), HandlerChain::new(&plan.after, &plan.columns));
        let mut query =
            Self { plan, machine, before, window, after, join, selector, rate, stats: InputStats::default() };
        let rows_max = query.plan.limits.window_rows;
        query.window.iter_mut().for_each(|held| held.set_rows_max(rows_max));
        query.join.iter_mut().for_each(|join| join.set_rows_max(rows_max));
        let rate_rows = query.plan.limits.rate_rows;
        query.rate.iter_mut().for_each(|rate| rate.set_rows_max(rate_rows));
        query
    }

    /// Returns the compiled query.
    pub fn plan(&self) -> &QueryPlan {
        &self.plan
    }

    /// Starts the query when the app starts.
    pub fn start(&mut self, now: i64) {
        if let Some(machine) = &mut self.machine {
            machine.start(now);
        }
        self.before.start(now);
        self.window.iter_mut().for_each(|held| held.start(now));
        self.after.start(now);
        self.join.iter_mut().for_each(|join| join.start(now));
        if let Some(rate) = &mut self.rate {
            rate.start(now);
        }
    }

    /// Processes events that arrive at `port` and returns the output. Errors: the first failure.
    pub fn push(&mut self, port: usize, input: &Batch, host: &dyn EvalContext) -> Result<Batch, EvalError> {
        self.stats.record_input(&self.plan, port, input);
        if let Some(join) = &mut self.join {
            let pairs = join.process(port, input, host)?;
            return self.select_joined(pairs, host);
        }
        if let Some(machine) = &mut self.machine {
            let done = machine.process_batch(port, input, host);
            let out = self.select_matches(host)?;
            done?;
            return self.limit_output(out);
        }
        if let Some(column) = self.plan.cut_by {
            let input = split_by_key(input, column);
            return self.select_events(&input, host);
        }
        let handled = self.before.push(input, host)?;
        self.stats.record_passed(&self.plan, input, handled.len(), host);
        if handled.is_empty() {
            return Ok(Batch::default());
        }
        self.process_handled(&handled, host)
    }

    /// Processes events that passed the handlers before the window.
    fn process_handled(&mut self, input: &Batch, host: &dyn EvalContext) -> Result<Batch, EvalError> {
        let Some(held) = &mut self.window else {
            let out = self.selector.process(input, host)?;
            return self.limit_output(out);
        };
        let (one, many);
        let ids = match input.len() {
            1 => {
                one = self.selector.group_of_row(input);
                one.as_slice()
            }
            _ => {
                many = self.selector.groups_of(input);
                many.as_deref().unwrap_or_default()
            }
        };
        let ids = (!ids.is_empty()).then_some(ids);
        if let [clock] = input.chunk_clocks[..]
            && self.plan.after.is_empty()
        {
            held.process_chunk_in_place(input, ids, clock)?;
            return self.select_window_output(clock, host);
        }
        let mut out = held.empty();
        for (rows, clock) in input.chunks() {
            held.process_chunk(input, ids, rows, clock, &mut out)?;
        }
        self.process_after_window(out, host)
    }

    /// Returns the query's output for the window's last in-place output.
    pub(crate) fn select_window_output(
        &mut self,
        clock: i64,
        host: &dyn EvalContext,
    ) -> Result<Batch, EvalError> {
        let Some(held) = &mut self.window else { return Ok(Batch::default()) };
        let out = match held.output_len() < select::COLUMNAR_ROWS_MIN {
            true => self.selector.chunks(held.output(), clock, host),
            false => self.selector.process(&held.output_batch(clock), host),
        };
        held.evict_unneeded();
        self.limit_output(out?)
    }

    /// Recycles the memory of an output batch after use.
    pub(crate) fn reuse(&mut self, out: Batch) {
        self.selector.reuse(out);
    }

    /// Processes batches of several ports in turns. Each turn `(input, chunks)` processes the next `chunks`
    /// chunks of `inputs[input]`.
    pub fn interleave(
        &mut self,
        inputs: &[(usize, &Batch)],
        turns: impl IntoIterator<Item = (usize, usize)>,
        host: &dyn EvalContext,
    ) -> Result<Batch, EvalError> {
        if let Some(join) = &mut self.join
            && let [(0, left), (1, right)] = inputs
        {
            self.stats.record_input(&self.plan, 0, left);
            self.stats.record_input(&self.plan, 1, right);
            let found = join.interleave([left, right], turns.into_iter(), host)?;
            return self.select_joined(found, host);
        }
        let mut all = Batch::new(self.plan.select.types());
        let mut next = vec![0; inputs.len()];
        for (input, chunks) in turns {
            let (port, batch) = inputs[input];
            let until = (next[input] + chunks).min(batch.chunk_ends.len());
            for (rows, clock) in batch.chunks().skip(next[input]).take(until - next[input]) {
                let out = self.push(port, &batch.chunk(rows, clock), host)?;
                all.append(&out);
            }
            next[input] = until;
        }
        Ok(all)
    }

    /// Returns the first instant after `after` at which the query wants the clock to stop.
    pub fn next_scheduled(&self, after: i64) -> Option<i64> {
        match &self.join {
            Some(join) => join.next_scheduled(after),
            None => self.window.as_ref()?.next_scheduled(after),
        }
    }

    /// Processes an instant returned by [`Self::next_scheduled`].
    pub fn fire_schedule(&mut self, at: i64, host: &dyn EvalContext) -> Result<Batch, EvalError> {
        if let Some(join) = &mut self.join {
            let found = join.fire_schedule(at, host)?;
            let mut all = Batch::new(self.plan.select.types());
            for found in found {
                let out = found.select(&mut self.selector, host)?;
                all.append(&out);
            }
            return self.limit_output(all);
        }
        let Some(held) = &mut self.window else { return Ok(Batch::default()) };
        let out = held.fire_schedule(at)?;
        self.process_after_window(out, host)
    }

    /// Returns when the next timer is due.
    pub fn next_timer(&self) -> Option<i64> {
        Scheduler::ALL.into_iter().filter_map(|scheduler| self.next_timer_of(scheduler)).min()
    }

    /// Fires the next timer that is due at `now`; `None` if none is due.
    pub fn fire_timer(&mut self, now: i64, host: &dyn EvalContext) -> Option<Result<Batch, EvalError>> {
        Scheduler::ALL.into_iter().find_map(|scheduler| self.fire_timer_of(scheduler, now, host))
    }

    pub(crate) fn select_joined(
        &mut self,
        found: JoinMatches,
        host: &dyn EvalContext,
    ) -> Result<Batch, EvalError> {
        let out = found.select(&mut self.selector, host)?;
        self.limit_output(out)
    }

    /// Returns the output of completed matches; those of one event are one chunk.
    fn select_matches(&mut self, host: &dyn EvalContext) -> Result<Batch, EvalError> {
        match self.machine.as_deref_mut().and_then(PatternMatcher::take_matches) {
            Some(done) => done.select(&mut self.selector, host),
            None => Ok(Batch::default()),
        }
    }

    fn process_after_window(&mut self, out: Batch, host: &dyn EvalContext) -> Result<Batch, EvalError> {
        let handled = self.after.push(&out, host)?;
        self.select_events(&handled, host)
    }

    fn select_events(&mut self, input: &Batch, host: &dyn EvalContext) -> Result<Batch, EvalError> {
        let out = self.selector.process(input, host)?;
        self.limit_output(out)
    }

    /// Passes the output of one call through the output rate limiter.
    fn limit_output(&mut self, out: Batch) -> Result<Batch, EvalError> {
        let Some(rate) = &mut self.rate else { return Ok(out) };
        rate.check_capacity(&out, 0..out.len())?;
        Ok(rate.push(&out))
    }

    /// Lets the next [`Self::save`] share the rows of windows, matches of patterns, and groups, where there are at least `rows_min`.
    pub(crate) fn share(&mut self, rows_min: usize) {
        self.machine.iter_mut().for_each(|machine| machine.share(rows_min));
        self.window.iter_mut().for_each(|held| held.share(rows_min));
        self.join.iter_mut().flat_map(|join| join.windows()).for_each(|held| held.share(rows_min));
        self.selector.share(rows_min);
    }

    /// Saves the state to a checkpoint.
    pub fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        if let Some(machine) = &self.machine {
            machine.save(out)?;
        }
        for handlers in [&self.before, &self.after].into_iter().filter(|h| h.have_state()) {
            out.json(&handlers.save())?;
        }
        self.window.iter().try_for_each(|held| held.save(out))?;
        self.join.iter().try_for_each(|join| join.save(out))?;
        self.selector.save(out)?;
        self.rate.iter().try_for_each(|rate| rate.save(out))
    }

    /// Restores a state that a query of the same plan saved. Errors: the state is damaged; the query must not
    /// be used afterwards.
    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        if let Some(machine) = &mut self.machine {
            machine.restore(from)?;
        }
        for handlers in [&mut self.before, &mut self.after].into_iter().filter(|h| h.have_state()) {
            let state = from.json()?;
            handlers.restore(&state).map_err(|e| from.damaged(e.to_string()))?;
        }
        self.window.iter_mut().try_for_each(|held| held.restore(from))?;
        self.join.iter_mut().try_for_each(|join| join.restore(from))?;
        let state = from.json()?;
        self.selector.restore(&state).map_err(|e| from.damaged(e.to_string()))?;
        self.rate.iter_mut().try_for_each(|rate| rate.restore(from))
    }

    /// Returns which event kinds the query emits.
    pub fn output_events(&self) -> OutputEvents {
        self.plan.select.output_events
    }
}
