//! A query: filters, windows or a join, the selection.

mod schedulers;
mod why;

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;
use tidemill_types::FieldType;

use crate::batch::{Batch, Kind};
use crate::expr::{Expr, Failure, Frame, Host, Node};
use crate::held::Held;
use crate::join::{Join, JoinPlan, Matches};
use crate::limits::Limits;
use crate::partition;
use crate::processor::{Handlers, Stateful};
use crate::rate::{Rate, RatePlan};
use crate::registry::{EventRef, StreamFunction};
use crate::select::{self, Plan as SelectPlan, Selector, Wanted};
use crate::snapshot::{Error, Reader, Writer};
use crate::state::{Machine, StatePlan};
use crate::table::Action;
use crate::why::{Seen, Written};
use crate::window::MakeWindow;

pub use schedulers::Scheduler;

/// What is done to events before or behind a window.
#[derive(Debug, Clone)]
pub enum Handler {
    /// `[condition]`
    Filter(Expr),
    /// `#function(…)`
    Function(Arc<dyn StreamFunction>, Vec<Expr>, Vec<FieldType>),
    /// One that has a state.
    Stateful(Stateful),
}

/// A compiled query.
#[derive(Clone)]
pub struct QueryPlan {
    /// Its name: `@info(name='…')`, or its place in the app.
    pub name: String,
    /// The stream that it reads.
    pub stream: usize,
    /// The types of the columns of what it reads.
    pub read: Vec<FieldType>,
    /// The types of the columns that come to the window.
    pub columns: Vec<FieldType>,
    /// Before the window.
    pub before: Vec<Handler>,
    /// A pattern or a sequence, in the place of stream and window.
    pub state: Option<Arc<StatePlan>>,
    /// The window.
    pub window: Option<MakeWindow>,
    /// Behind it.
    pub after: Vec<Handler>,
    /// Whether the stream is what a named window puts out: events leave there, too.
    pub reads_window: bool,
    /// What comes out.
    pub select: Arc<SelectPlan>,
    /// When that goes on.
    pub rate: Option<RatePlan>,
    /// The column by which chunks are cut first, where this was a partition; events without a value are left out.
    pub cut_by: Option<usize>,
    /// What it writes.
    pub target: Target,
    /// A join, in the place of stream and window.
    pub join: Option<Arc<JoinPlan>>,
    /// How much it may hold.
    pub limits: Limits,
    /// What it says, for whoever asks.
    pub written: Arc<Written>,
}

/// What a query writes.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "there is one for each query of an app")]
pub enum Target {
    /// A stream.
    Stream(usize),
    /// An inner stream of the partition that the query is in.
    Inner(usize),
    /// A named window.
    Window(usize),
    /// A table.
    Table(usize, Box<Action>),
}

impl QueryPlan {
    /// A query that selects and does nothing else; what it reads and writes is still to be said.
    pub fn of(select: SelectPlan) -> Self {
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
            written: Arc::default(),
        }
    }

    /// The streams that it reads, each with the port to which its events go: the stream's number, or a join's side.
    pub fn reads(&self) -> Vec<(usize, usize)> {
        match &self.join {
            Some(join) => join.reads().collect(),
            None => self.streams().into_iter().map(|stream| (stream, stream)).collect(),
        }
    }

    /// Whether the numbers of the groups lie with the rows of the window, so that they are looked up once.
    fn keeps_groups(&self) -> bool {
        let Some(make) = &self.window else { return false };
        let rewritten = make().rewrites();
        let column = |expr: &Expr| match expr.node {
            Node::Column { slot: select::INPUT, column } => Some(column) != rewritten,
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

/// A query at work. Those of one plan share it.
pub struct Query {
    pub(crate) plan: Arc<QueryPlan>,
    // most queries have few of these: boxes keep the copies of many keys small
    machine: Option<Box<Machine>>,
    before: Handlers,
    pub(crate) window: Option<Box<Held>>,
    after: Handlers,
    join: Option<Box<Join>>,
    pub(crate) selector: Selector,
    pub(crate) rate: Option<Box<Rate>>,
    pub(crate) seen: Seen,
}

impl Query {
    /// A query that has seen nothing.
    pub fn new(plan: impl Into<Arc<QueryPlan>>) -> Self {
        let plan = plan.into();
        let wants_expired = plan.select.wanted.expired;
        let keyed = plan.keeps_groups();
        let mut columns = plan.columns.clone();
        columns.extend(keyed.then_some(FieldType::Int));
        let window =
            plan.window.as_ref().map(|make| Box::new(Held::new(make, &columns, wants_expired, false)));
        let aggregates = !plan.select.aggregates.is_empty();
        let join = plan.join.clone().map(|join| Box::new(Join::new(join, wants_expired, aggregates)));
        let leaving = plan.window.is_some() || plan.join.is_some() || plan.reads_window;
        let group_column = keyed.then_some(plan.columns.len());
        let selector = Selector::new(plan.select.clone(), leaving, plan.rate.is_some(), group_column);
        let rate = plan.rate.clone().map(|rate| Box::new(Rate::new(rate, plan.select.types())));
        let machine = plan.state.clone().map(|state| Box::new(Machine::new(state)));
        let (before, after) =
            (Handlers::new(&plan.before, &plan.read), Handlers::new(&plan.after, &plan.columns));
        let mut query =
            Self { plan, machine, before, window, after, join, selector, rate, seen: Seen::default() };
        let rows_max = query.plan.limits.window_rows;
        query.window.iter_mut().for_each(|held| held.set_rows_max(rows_max));
        query.join.iter_mut().for_each(|join| join.set_rows_max(rows_max));
        let rate_rows = query.plan.limits.rate_rows;
        query.rate.iter_mut().for_each(|rate| rate.set_rows_max(rate_rows));
        query
    }

    /// What was compiled.
    pub fn plan(&self) -> &QueryPlan {
        &self.plan
    }

    /// The app starts.
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

    /// Events of one of its streams arrive at `port`: what comes out. Errors: why they cannot be worked off.
    pub fn push(&mut self, port: usize, input: &Batch, host: &dyn Host) -> Result<Batch, Failure> {
        self.seen.arrive(&self.plan, port, input);
        if let Some(join) = &mut self.join {
            let pairs = join.push(port, input, host)?;
            return self.joined(pairs, host);
        }
        if let Some(machine) = &mut self.machine {
            let done = machine.events(port, input, host);
            let out = self.matched(host)?;
            done?;
            return self.limited(out);
        }
        if let Some(column) = self.plan.cut_by {
            let input = partition::cut(input, column);
            return self.selected(&input, host);
        }
        let handled = self.before.push(input, host)?;
        self.seen.pass(&self.plan, input, handled.len(), host);
        if handled.is_empty() {
            return Ok(Batch::default());
        }
        self.arrive(&handled, host)
    }

    /// Events come out of the handlers before the window.
    fn arrive(&mut self, input: &Batch, host: &dyn Host) -> Result<Batch, Failure> {
        let Some(held) = &mut self.window else {
            let out = self.selector.process(input, host)?;
            return self.limited(out);
        };
        let (one, many);
        let ids = match input.len() {
            1 => {
                one = self.selector.group_of_one(input);
                one.as_slice()
            }
            _ => {
                many = self.selector.groups_of(input);
                many.as_deref().unwrap_or_default()
            }
        };
        let ids = (!ids.is_empty()).then_some(ids);
        if let [clock] = input.clocks[..]
            && self.plan.after.is_empty()
        {
            held.arrive_alone(input, ids, clock)?;
            return self.selected_of_window(clock, host);
        }
        let mut out = held.empty();
        for (rows, clock) in input.chunks() {
            held.arrive(input, ids, rows, clock, &mut out)?;
        }
        self.behind(out, host)
    }

    /// What comes out of what the window said last.
    pub(super) fn selected_of_window(&mut self, clock: i64, host: &dyn Host) -> Result<Batch, Failure> {
        let Some(held) = &mut self.window else { return Ok(Batch::default()) };
        let out = match held.said_rows() < select::COLUMNS_FROM {
            true => self.selector.chunks(held.said(), clock, host),
            false => self.selector.process(&held.said_batch(clock), host),
        };
        held.forget();
        self.limited(out?)
    }

    /// Takes back what came out, for its memory.
    pub(crate) fn reuse(&mut self, out: Batch) {
        self.selector.reuse(out);
    }

    /// Batches of chunks arrive at several ports and take turns: of the batch with that number so many chunks are next.
    pub fn interleave(
        &mut self,
        inputs: &[(usize, &Batch)],
        turns: impl IntoIterator<Item = (usize, usize)>,
        host: &dyn Host,
    ) -> Result<Batch, Failure> {
        if let Some(join) = &mut self.join
            && let [(0, left), (1, right)] = inputs
        {
            self.seen.arrive(&self.plan, 0, left);
            self.seen.arrive(&self.plan, 1, right);
            let found = join.interleave([left, right], turns.into_iter(), host)?;
            return self.joined(found, host);
        }
        let mut all = Batch::new(self.plan.select.types());
        let mut next = vec![0; inputs.len()];
        for (input, chunks) in turns {
            let (port, batch) = inputs[input];
            let until = (next[input] + chunks).min(batch.ends.len());
            for (rows, clock) in batch.chunks().skip(next[input]).take(until - next[input]) {
                let mut one = Batch::new(batch.columns.iter().map(crate::Column::ty));
                rows.for_each(|row| one.push_row(batch, row, batch.kinds[row], batch.times[row]));
                one.end_chunk(clock);
                let out = self.push(port, &one, host)?;
                for (rows, clock) in out.chunks() {
                    rows.for_each(|row| all.push_row(&out, row, out.kinds[row], out.times[row]));
                    all.end_chunk(clock);
                }
            }
            next[input] = until;
        }
        Ok(all)
    }

    /// The first instant later than `after` at which it wants the clock to stop.
    pub fn next_instant(&self, after: i64) -> Option<i64> {
        match &self.join {
            Some(join) => join.next_instant(after),
            None => self.window.as_ref()?.next_instant(after),
        }
    }

    /// Such an instant was reached.
    pub fn instant(&mut self, at: i64, host: &dyn Host) -> Result<Batch, Failure> {
        if let Some(join) = &mut self.join {
            let found = join.instant(at, host)?;
            let mut all = Batch::new(self.plan.select.types());
            for found in found {
                let out = found.select(&mut self.selector, host)?;
                for (rows, clock) in out.chunks() {
                    rows.for_each(|row| all.push_row(&out, row, out.kinds[row], out.times[row]));
                    all.end_chunk(clock);
                }
            }
            return self.limited(all);
        }
        let Some(held) = &mut self.window else { return Ok(Batch::default()) };
        let out = held.instant(at)?;
        self.behind(out, host)
    }

    /// When the next of its timers is due.
    pub fn next_timer(&self) -> Option<i64> {
        Scheduler::ALL.into_iter().filter_map(|scheduler| self.next_timer_of(scheduler)).min()
    }

    /// Runs the next of its timers that is due at `now`, if there is one.
    pub fn timer(&mut self, now: i64, host: &dyn Host) -> Option<Result<Batch, Failure>> {
        Scheduler::ALL.into_iter().find_map(|scheduler| self.timer_of(scheduler, now, host))
    }

    fn joined(&mut self, found: Matches, host: &dyn Host) -> Result<Batch, Failure> {
        let out = found.select(&mut self.selector, host)?;
        self.limited(out)
    }

    /// What comes out of the matches that are done: those of one event are one chunk.
    fn matched(&mut self, host: &dyn Host) -> Result<Batch, Failure> {
        match self.machine.as_deref_mut().and_then(Machine::take_matches) {
            Some(done) => done.selected(&mut self.selector, host),
            None => Ok(Batch::default()),
        }
    }

    fn behind(&mut self, out: Batch, host: &dyn Host) -> Result<Batch, Failure> {
        let handled = self.after.push(&out, host)?;
        self.selected(&handled, host)
    }

    fn selected(&mut self, input: &Batch, host: &dyn Host) -> Result<Batch, Failure> {
        let out = self.selector.process(input, host)?;
        self.limited(out)
    }

    /// What goes on of what came out of one call.
    fn limited(&mut self, out: Batch) -> Result<Batch, Failure> {
        let Some(rate) = &mut self.rate else { return Ok(out) };
        rate.has_room(&out, 0..out.len())?;
        Ok(rate.push(&out))
    }

    /// Writes its state.
    pub fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        if let Some(machine) = &self.machine {
            machine.save(out)?;
        }
        for handlers in [&self.before, &self.after].into_iter().filter(|h| h.have_state()) {
            out.json(&handlers.save())?;
        }
        self.window.iter().try_for_each(|held| held.save(out))?;
        self.join.iter().try_for_each(|join| join.save(out))?;
        out.json(&self.selector.save())?;
        self.rate.iter().try_for_each(|rate| rate.save(out))
    }

    /// Takes a state back that a query of the same plan wrote. Errors: that it is none; then the query is not to be used.
    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        if let Some(machine) = &mut self.machine {
            machine.restore(from)?;
        }
        for handlers in [&mut self.before, &mut self.after].into_iter().filter(|h| h.have_state()) {
            let state = from.json()?;
            handlers.restore(&state).map_err(|e| from.damaged(e.0))?;
        }
        self.window.iter_mut().try_for_each(|held| held.restore(from))?;
        self.join.iter_mut().try_for_each(|join| join.restore(from))?;
        let state = from.json()?;
        self.selector.restore(&state).map_err(|e| from.damaged(e.0))?;
        self.rate.iter_mut().try_for_each(|rate| rate.restore(from))
    }

    /// Which of its outputs go on.
    pub fn wanted(&self) -> Wanted {
        self.plan.select.wanted
    }
}

/// What the handlers make of the events, one handler after the other.
pub(crate) fn handle<'b>(
    handlers: &[Handler],
    input: &'b Batch,
    host: &dyn Host,
) -> Result<Cow<'b, Batch>, Failure> {
    let mut now = Cow::Borrowed(input);
    for handler in handlers {
        if now.is_empty() {
            return Ok(Cow::Owned(Batch::default()));
        }
        now = match handler {
            Handler::Filter(condition) => filter(condition, now, host)?,
            Handler::Function(function, args, added) => {
                Cow::Owned(call(function.as_ref(), args, added, &now, host)?)
            }
            Handler::Stateful(_) => {
                return Err(Failure("a handler with a state cannot run here".into()));
            }
        };
    }
    Ok(now)
}

/// The events that satisfy the condition; a reset always passes.
fn filter<'b>(condition: &Expr, input: Cow<'b, Batch>, host: &dyn Host) -> Result<Cow<'b, Batch>, Failure> {
    let mut passing: SmallVec<[bool; 16]> = SmallVec::new();
    for (rows, clock) in input.chunks() {
        for row in rows {
            let source = [Some((input.columns.as_slice(), row))];
            let frame = Frame { rows: &source, time: input.times[row], now: clock, host };
            passing.push(input.kinds[row] == Kind::Reset || condition.is_true(&frame)?);
        }
    }
    if passing.iter().all(|passes| *passes) {
        return Ok(input);
    }
    if !passing.contains(&true) {
        return Ok(Cow::Owned(Batch::default()));
    }
    let mut out = Batch::new(input.columns.iter().map(crate::Column::ty));
    for (rows, clock) in input.chunks() {
        for row in rows.filter(|row| passing[*row]) {
            out.push_row(&input, row, input.kinds[row], input.times[row]);
        }
        out.end_chunk(clock);
    }
    Ok(Cow::Owned(out))
}

fn call(
    function: &dyn StreamFunction,
    args: &[Expr],
    added: &[FieldType],
    input: &Batch,
    host: &dyn Host,
) -> Result<Batch, Failure> {
    let mut out = Batch::new(input.columns.iter().map(crate::Column::ty).chain(added.iter().copied()));
    for (rows, clock) in input.chunks() {
        for row in rows {
            let source = [Some((input.columns.as_slice(), row))];
            let frame = Frame { rows: &source, time: input.times[row], now: clock, host };
            let made = match input.kinds[row] {
                Kind::Reset => vec![vec![]],
                Kind::Current | Kind::Expired => {
                    let args = args.iter().map(|a| a.eval(&frame)).collect::<Result<Vec<_>, _>>()?;
                    let event = EventRef { columns: &input.columns, row, time: input.times[row] };
                    function.call_on(&args, &event)?
                }
            };
            for values in made {
                let mut values = values.into_iter();
                for (i, column) in out.columns.iter_mut().enumerate() {
                    match input.columns.get(i) {
                        Some(from) => column.push_from(from, row),
                        None => column.push(values.next().unwrap_or_default()),
                    }
                }
                out.times.push(input.times[row]);
                out.kinds.push(input.kinds[row]);
                if function.apart() {
                    out.end_chunk(clock);
                }
            }
        }
        out.end_chunk(clock);
    }
    Ok(out)
}
