//! A query that reads one stream: filters, a window, the selection.

use std::sync::Arc;

use tidemill_types::FieldType;

use crate::batch::{Batch, Kind};
use crate::expr::{Expr, Failure, Frame, Host};
use crate::rate::{Rate, RatePlan};
use crate::registry::StreamFunction;
use crate::select::{Plan as SelectPlan, Selector, Wanted};
use crate::state::{Machine, StatePlan};
use crate::store::RowStore;
use crate::window::{self, Context, MakeWindow, Signals, Timers, Window};

/// What is done to events before or behind a window.
#[derive(Debug, Clone)]
pub enum Handler {
    /// `[condition]`
    Filter(Expr),
    /// `#function(…)`
    Function(Arc<dyn StreamFunction>, Vec<Expr>, Vec<FieldType>),
}

/// A compiled query.
#[derive(Clone)]
pub struct QueryPlan {
    /// Its name: `@info(name='…')`, or its place in the app.
    pub name: String,
    /// The stream that it reads.
    pub stream: usize,
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
    /// What comes out.
    pub select: SelectPlan,
    /// When that goes on.
    pub rate: Option<RatePlan>,
    /// The stream that it writes.
    pub target: usize,
}

impl QueryPlan {
    /// A query that selects and does nothing else; what it reads and writes is still to be said.
    pub fn of(select: SelectPlan) -> Self {
        Self {
            name: String::new(),
            stream: 0,
            columns: vec![],
            before: vec![],
            state: None,
            window: None,
            after: vec![],
            select,
            rate: None,
            target: 0,
        }
    }

    /// The streams that it reads, each once.
    pub fn streams(&self) -> Vec<usize> {
        let mut streams = match &self.state {
            Some(state) => state.steps.iter().map(|s| s.stream).collect(),
            None => vec![self.stream],
        };
        streams.sort_unstable();
        streams.dedup();
        streams
    }
}

/// A query at work.
pub struct Query {
    plan: QueryPlan,
    machine: Option<Machine>,
    window: Option<Held>,
    selector: Selector,
    rate: Option<Rate>,
}

/// A window, its rows, and when it wants to be called.
struct Held {
    window: Box<dyn Window>,
    rows: RowStore,
    timers: Timers,
    wants_expired: bool,
}

impl Query {
    /// A query that has seen nothing.
    pub fn new(plan: QueryPlan) -> Self {
        let window = plan.window.as_ref().map(|make| Held {
            window: make(),
            rows: RowStore::new(plan.columns.clone()),
            timers: Timers::default(),
            wants_expired: plan.select.wanted.expired,
        });
        let selector = Selector::new(plan.select.clone());
        let rate = plan.rate.clone().map(|rate| Rate::new(rate, plan.select.types()));
        let machine = plan.state.clone().map(Machine::new);
        Self { plan, machine, window, selector, rate }
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
        if let Some(held) = &mut self.window {
            held.call(now, |window, context| {
                window.start(context);
                Ok(())
            })
            .ok();
        }
        if let Some(rate) = &mut self.rate {
            rate.start(now);
        }
    }

    /// Events of one of its streams arrive: what comes out. Errors: why they cannot be worked off.
    pub fn push(&mut self, stream: usize, input: &Batch, host: &dyn Host) -> Result<Batch, Failure> {
        if let Some(machine) = &mut self.machine {
            let mut out = Batch::new(self.plan.select.types());
            for (rows, clock) in input.chunks() {
                for row in rows.filter(|row| input.kinds[*row] == Kind::Current) {
                    machine.event(stream, input, row, clock, host)?;
                    matches(machine, &mut self.selector, clock, host, &mut out)?;
                }
            }
            return Ok(self.limited(out));
        }
        let filtered;
        let input = match self.plan.before.is_empty() {
            true => input,
            false => {
                filtered = handle(&self.plan.before, input, host)?;
                &filtered
            }
        };
        let Some(held) = &mut self.window else {
            let out = self.selector.process(input, host)?;
            return Ok(self.limited(out));
        };
        let mut out = Batch::new(held.rows.types().to_vec());
        for (rows, clock) in input.chunks() {
            let first = held.rows.append(input, rows.clone());
            let arrived = first..first + rows.len() as u64;
            let signals = held.call(clock, |window, context| window.arrive(arrived, context))?;
            held.put_together(&signals, clock, &mut out);
        }
        self.behind(out, host)
    }

    /// The first instant later than `after` at which it wants the clock to stop.
    pub fn next_instant(&self, after: i64) -> Option<i64> {
        self.window.as_ref()?.window.next_instant(after)
    }

    /// Such an instant was reached.
    pub fn instant(&mut self, at: i64, host: &dyn Host) -> Result<Batch, Failure> {
        let Some(held) = &mut self.window else { return Ok(Batch::default()) };
        let signals = held.call(at, |window, context| window.instant(at, context))?;
        let mut out = Batch::new(held.rows.types().to_vec());
        held.put_together(&signals, at, &mut out);
        self.behind(out, host)
    }

    /// Runs the next of its timers that is due at `now`, if there is one.
    pub fn timer(&mut self, now: i64, host: &dyn Host) -> Option<Result<Batch, Failure>> {
        if let Some(machine) = &mut self.machine
            && machine.timer(now)
        {
            let mut out = Batch::new(self.plan.select.types());
            let done = matches(machine, &mut self.selector, now, host, &mut out);
            return Some(done.map(|()| self.limited(out)));
        }
        let due = self.window.as_mut().and_then(|held| held.timers.take_due(now));
        let (Some(held), Some(due)) = (&mut self.window, due) else {
            return self.rate.as_mut()?.timer(now).map(Ok);
        };
        let mut out = Batch::new(held.rows.types().to_vec());
        let signals = match held.call(now, |window, context| window.timer(due, context)) {
            Ok(signals) => signals,
            Err(e) => return Some(Err(e)),
        };
        held.put_together(&signals, now, &mut out);
        Some(self.behind(out, host))
    }

    fn behind(&mut self, out: Batch, host: &dyn Host) -> Result<Batch, Failure> {
        if let Some(held) = &mut self.window {
            window::forget(held.window.as_ref(), &mut held.rows);
        }
        let out = match self.plan.after.is_empty() {
            true => self.selector.process(&out, host)?,
            false => self.selector.process(&handle(&self.plan.after, &out, host)?, host)?,
        };
        Ok(self.limited(out))
    }

    fn limited(&mut self, out: Batch) -> Batch {
        match &mut self.rate {
            Some(rate) => rate.push(&out),
            None => out,
        }
    }

    /// Which of its outputs go on.
    pub fn wanted(&self) -> Wanted {
        self.plan.select.wanted
    }
}

/// What comes out of the matches that are done: one chunk, though the selection sees each by itself.
fn matches(
    machine: &mut Machine,
    selector: &mut Selector,
    clock: i64,
    host: &dyn Host,
    out: &mut Batch,
) -> Result<(), Failure> {
    let Some(done) = machine.take_matches() else { return Ok(()) };
    let selected = selector.process(&done, host)?;
    (0..selected.len()).for_each(|i| out.push_row(&selected, i, selected.kinds[i], selected.times[i]));
    out.end_chunk(clock);
    Ok(())
}

impl Held {
    fn call(
        &mut self,
        now: i64,
        what: impl FnOnce(&mut dyn Window, &mut Context<'_>) -> Result<(), Failure>,
    ) -> Result<Signals, Failure> {
        let mut signals = Signals::default();
        let mut context = Context {
            now,
            rows: &mut self.rows,
            out: &mut signals,
            timers: &mut self.timers,
            wants_expired: self.wants_expired,
            searched: false,
        };
        what(self.window.as_mut(), &mut context)?;
        signals.end_chunk();
        Ok(signals)
    }

    fn put_together(&self, signals: &Signals, clock: i64, out: &mut Batch) {
        let mut start = 0;
        for end in &signals.ends {
            for signal in &signals.items[start..*end] {
                match signal.kind {
                    Kind::Reset => out.columns.iter_mut().for_each(crate::Column::push_null),
                    Kind::Current | Kind::Expired => {
                        let (columns, row) = self.rows.row(signal.seq);
                        for (column, from) in out.columns.iter_mut().zip(columns) {
                            column.push_from(from, row);
                        }
                    }
                }
                out.times.push(signal.time);
                out.kinds.push(signal.kind);
            }
            out.end_chunk(clock);
            start = *end;
        }
    }
}

/// What the handlers make of the events, one handler after the other.
fn handle(handlers: &[Handler], input: &Batch, host: &dyn Host) -> Result<Batch, Failure> {
    let mut now: Option<Batch> = None;
    for handler in handlers {
        let source = now.as_ref().unwrap_or(input);
        now = Some(match handler {
            Handler::Filter(condition) => filter(condition, source, host)?,
            Handler::Function(function, args, added) => call(function.as_ref(), args, added, source, host)?,
        });
    }
    Ok(now.unwrap_or_default())
}

/// The events that satisfy the condition; a reset always passes.
fn filter(condition: &Expr, input: &Batch, host: &dyn Host) -> Result<Batch, Failure> {
    let mut out = Batch::new(input.columns.iter().map(crate::Column::ty));
    for (rows, clock) in input.chunks() {
        for row in rows {
            let source = [Some((input.columns.as_slice(), row))];
            let frame = Frame { rows: &source, time: input.times[row], now: clock, host };
            if input.kinds[row] == Kind::Reset || condition.is_true(&frame)? {
                out.push_row(input, row, input.kinds[row], input.times[row]);
            }
        }
        out.end_chunk(clock);
    }
    Ok(out)
}

fn call(
    function: &dyn StreamFunction,
    args: &[Expr],
    added: &[FieldType],
    input: &Batch,
    host: &dyn Host,
) -> Result<Batch, Failure> {
    let mut out = Batch::new(input.columns.iter().map(crate::Column::ty).chain(added.iter().copied()));
    let width = input.columns.len();
    for (rows, clock) in input.chunks() {
        for row in rows {
            let source = [Some((input.columns.as_slice(), row))];
            let frame = Frame { rows: &source, time: input.times[row], now: clock, host };
            let made = match input.kinds[row] {
                Kind::Reset => vec![vec![]],
                Kind::Current | Kind::Expired => {
                    let args = args.iter().map(|a| a.eval(&frame)).collect::<Result<Vec<_>, _>>()?;
                    function.call(&args)?
                }
            };
            for values in made {
                let mut values = values.into_iter();
                for (i, column) in out.columns.iter_mut().enumerate() {
                    match input.columns.get(i) {
                        Some(from) if i < width => column.push_from(from, row),
                        _ => column.push(values.next().unwrap_or_default()),
                    }
                }
                out.times.push(input.times[row]);
                out.kinds.push(input.kinds[row]);
            }
        }
        out.end_chunk(clock);
    }
    Ok(out)
}
