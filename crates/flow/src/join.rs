//! Joins: what arrives at one side, or leaves it, is matched with what the other side holds.

use std::sync::Arc;

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{self, AttributeRef, JoinKind, SelectItems};
use tidemill_types::{FieldType, did_you_mean};

use crate::batch::{Batch, Kind};
use crate::catalog::{Attributes, Catalog, Table, full_name};
use crate::expr::{Compiler, Expr, Failure, Frame, Host, Place, Resolved, RowRef, Scope};
use crate::held::Held;
use crate::plan::{handlers, make_window};
use crate::query::{Handler, handle};
use crate::registry::Registry;
use crate::scope::Single;
use crate::select;
use crate::snapshot::{Error, Reader, Writer};
use crate::window::MakeWindow;

/// A compiled join.
#[derive(Clone)]
pub struct JoinPlan {
    /// Left and right.
    pub sides: [SidePlan; 2],
    /// What a match must satisfy, the sides being slots 0 and 1.
    pub on: Option<Expr>,
}

/// One side.
#[derive(Clone)]
pub struct SidePlan {
    /// What it reads.
    pub source: Source,
    /// The types of its columns.
    pub columns: Vec<FieldType>,
    /// What is done to events that arrive.
    pub before: Vec<Handler>,
    /// Its window.
    pub window: Option<MakeWindow>,
    /// Whether what arrives is matched.
    pub triggers: bool,
    /// Whether it comes out without a match.
    pub outer: bool,
}

/// What a side reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A stream.
    Stream(usize),
    /// A named window: the stream of what it puts out, and its number.
    Window(usize, usize),
    /// A table.
    Table(usize),
}

impl JoinPlan {
    /// The streams that it reads, each with the side to which its events go.
    pub fn reads(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.sides.iter().enumerate().filter_map(|(side, plan)| match plan.source {
            Source::Stream(stream) => Some((stream, side)),
            Source::Window(stream, _) if plan.triggers => Some((stream, side)),
            Source::Window(..) | Source::Table(_) => None,
        })
    }
}

/// A join at work.
pub(crate) struct Join {
    plan: Arc<JoinPlan>,
    held: [Option<Held>; 2],
    /// Whether an event of a side without a window leaves at once, for somebody to see.
    leaves: bool,
}

impl Join {
    /// A join that has seen nothing. `wants_expired` says whether its expired outputs are wanted, `aggregates` whether
    /// they are worked into aggregates.
    pub(crate) fn new(plan: Arc<JoinPlan>, wants_expired: bool, aggregates: bool) -> Self {
        let held = [0, 1].map(|side: usize| {
            let side = &plan.sides[side];
            side.window.as_ref().map(|make| Held::new(make, &side.columns, wants_expired, true))
        });
        Self { plan, held, leaves: wants_expired || aggregates }
    }

    /// The windows, left first.
    pub(crate) fn windows(&mut self) -> impl Iterator<Item = &mut Held> {
        self.held.iter_mut().flatten()
    }

    /// Writes its state: that of its windows, left first.
    pub(crate) fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        self.held.iter().flatten().try_for_each(|held| held.save(out))
    }

    /// Takes a state back.
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        self.windows().try_for_each(|held| held.restore(from))
    }

    /// Events arrive at a side: for each chunk that its window puts out the matches, a chunk for each event that has
    /// some.
    pub(crate) fn push(
        &mut self,
        side: usize,
        input: &Batch,
        host: &dyn Host,
    ) -> Result<Vec<Batch>, Failure> {
        let plan = self.plan.clone();
        let handled = handle(&plan.sides[side].before, input, host)?;
        let input = handled.as_ref();
        if self.held[side].is_some() {
            let mut all = Vec::new();
            for (rows, clock) in input.chunks() {
                let Some(held) = &mut self.held[side] else { break };
                let mut out = held.empty();
                held.arrive(input, rows, clock, &mut out)?;
                all.extend(self.matches(side, &out, host)?);
            }
            return Ok(all);
        }
        match plan.sides[side].source {
            Source::Stream(_) if self.leaves => self.matches(side, &leaving(input), host),
            _ => self.matches(side, input, host),
        }
    }

    /// The matches of what the next timer of a side's window lets out, if one is due at `now`.
    pub(crate) fn timer_of(
        &mut self,
        side: usize,
        now: i64,
        host: &dyn Host,
    ) -> Option<Result<Vec<Batch>, Failure>> {
        let out = self.held[side].as_mut()?.timer(now)?;
        Some(out.and_then(|out| self.matches(side, &out, host)))
    }

    /// When the next timer of a side's window is due.
    pub(crate) fn next_timer_of(&self, side: usize) -> Option<i64> {
        self.held[side].as_ref()?.next_timer()
    }

    /// When the next timer of its windows is due.
    pub(crate) fn next_timer(&self) -> Option<i64> {
        self.held.iter().flatten().filter_map(Held::next_timer).min()
    }

    /// The first instant later than `after` at which one of its windows wants the clock to stop.
    pub(crate) fn next_instant(&self, after: i64) -> Option<i64> {
        self.held.iter().flatten().filter_map(|held| held.next_instant(after)).min()
    }

    /// The matches of what its windows let out at such an instant.
    pub(crate) fn instant(&mut self, at: i64, host: &dyn Host) -> Result<Vec<Batch>, Failure> {
        let mut all = Vec::new();
        for side in 0..2 {
            if let Some(held) = &mut self.held[side]
                && held.next_instant(at - 1) == Some(at)
            {
                let out = held.instant(at)?;
                all.extend(self.matches(side, &out, host)?);
            }
        }
        Ok(all)
    }

    fn matches(&self, side: usize, events: &Batch, host: &dyn Host) -> Result<Vec<Batch>, Failure> {
        let mut all = Vec::new();
        if !self.plan.sides[side].triggers {
            return Ok(all);
        }
        for (rows, clock) in events.chunks() {
            let [left, right] = &self.plan.sides;
            let mut pairs = Batch::new(left.columns.iter().chain(&right.columns).copied());
            for row in rows {
                if events.kinds[row] == Kind::Reset {
                    pairs.columns.iter_mut().for_each(crate::Column::push_null);
                    pairs.times.push(events.times[row]);
                    pairs.kinds.push(Kind::Reset);
                } else if events.kinds[row] == Kind::Current || self.leaves {
                    self.match_one(side, events, row, clock, &mut pairs, host)?;
                }
                pairs.end_chunk(clock);
            }
            all.push(pairs);
        }
        Ok(all)
    }

    /// Adds the pairs of one event.
    fn match_one(
        &self,
        side: usize,
        events: &Batch,
        row: usize,
        clock: i64,
        pairs: &mut Batch,
        host: &dyn Host,
    ) -> Result<(), Failure> {
        let event: RowRef<'_> = Some((&events.columns, row));
        let mut rows = [None; 2];
        rows[side] = event;
        let frame = Frame { rows: &rows, time: events.times[row], now: clock, host };
        let before = pairs.len();
        let width = self.plan.sides[0].columns.len();
        let pair = |pairs: &mut Batch, other: RowRef<'_>| {
            let (left, right) = if side == 0 { (event, other) } else { (other, event) };
            for (i, column) in pairs.columns.iter_mut().enumerate() {
                let (from, i) = if i < width { (left, i) } else { (right, i - width) };
                match from {
                    Some((columns, row)) => column.push_from(&columns[i], row),
                    None => column.push_null(),
                }
            }
            pairs.times.push(events.times[row]);
            pairs.kinds.push(events.kinds[row]);
        };
        let mut add = |columns: &[crate::Column], row: usize| pair(pairs, Some((columns, row)));
        let on = self.plan.on.as_ref();
        let other = 1 - side;
        match (self.plan.sides[other].source, &self.held[other]) {
            (Source::Stream(_), Some(held)) => {
                held.find(on, other, &frame, &mut |columns, row, _| add(columns, row))?;
            }
            (Source::Stream(_), None) => {}
            (Source::Table(table), _) => {
                host.search(Place::Table(table), other, on, &frame, &mut add)?;
            }
            (Source::Window(_, window), _) => {
                host.search(Place::Window(window), other, on, &frame, &mut add)?;
            }
        }
        if pairs.len() == before && self.plan.sides[side].outer {
            pair(pairs, None);
        }
        Ok(())
    }
}

/// Each event leaves right behind itself.
fn leaving(input: &Batch) -> Batch {
    let mut out = Batch::new(input.columns.iter().map(crate::Column::ty));
    for (rows, clock) in input.chunks() {
        for row in rows {
            out.push_row(input, row, Kind::Current, input.times[row]);
            out.push_row(input, row, Kind::Expired, clock);
        }
        out.end_chunk(clock);
    }
    out
}

/// The names of a join: `Side.a`, or `a` when one side alone has it.
pub(crate) struct Sides<'a> {
    names: [&'a str; 2],
    attributes: [&'a Attributes; 2],
    tables: &'a [Table],
    /// Whether both sides are one row, left columns first.
    flat: bool,
}

impl Scope for Sides<'_> {
    fn attribute(&mut self, attribute: &AttributeRef) -> Result<Resolved, Diagnostic> {
        let name = &attribute.name.name;
        let column = |side: usize| self.attributes[side].iter().position(|(known, _)| known == name);
        let side = match &attribute.source {
            Some(source) => {
                let of = full_name(&source.stream);
                let plain = source.index.is_none() && source.inner.is_none();
                let side = self.names.iter().position(|known| plain && *known == of);
                side.ok_or_else(|| {
                    let message = format!(
                        "`{of}` is no side of this join: they are `{}` and `{}`",
                        self.names[0], self.names[1]
                    );
                    Diagnostic::error("F0901", source.span, message)
                })?
            }
            None => match (column(0), column(1)) {
                (Some(_), Some(_)) => {
                    let message = format!(
                        "both `{}` and `{}` have an attribute `{name}`",
                        self.names[0], self.names[1]
                    );
                    return Err(Diagnostic::error("F0902", attribute.name.span, message)
                        .help(format!("write `{}.{name}` or `{}.{name}`", self.names[0], self.names[1])));
                }
                (None, Some(_)) => 1,
                _ => 0,
            },
        };
        let Some(column) = column(side) else {
            let names = self.attributes.iter().flat_map(|a| a.iter()).map(|(known, _)| known.as_str());
            let message = format!("this join has no attribute `{name}` here{}", did_you_mean(name, names));
            return Err(Diagnostic::error("F0903", attribute.name.span, message));
        };
        let ty = self.attributes[side][column].1;
        Ok(match (self.flat, side) {
            (false, _) => Resolved { slot: side, column, ty },
            (true, 0) => Resolved { slot: select::INPUT, column, ty },
            (true, _) => Resolved { slot: select::INPUT, column: self.attributes[0].len() + column, ty },
        })
    }

    fn tables(&self) -> &[Table] {
        self.tables
    }
}

/// A join with its names, for the rest of the query.
pub(crate) struct Compiled {
    pub(crate) plan: JoinPlan,
    names: [String; 2],
    attributes: [Attributes; 2],
}

impl Compiled {
    /// The names of the selection.
    pub(crate) fn scope<'a>(&'a self, tables: &'a [Table]) -> Sides<'a> {
        self.sides(tables, true)
    }

    fn sides<'a>(&'a self, tables: &'a [Table], flat: bool) -> Sides<'a> {
        let names = [self.names[0].as_str(), self.names[1].as_str()];
        Sides { names, attributes: [&self.attributes[0], &self.attributes[1]], tables, flat }
    }

    /// What `*` stands for.
    ///
    /// Errors: a name that both sides have, where the query selects all.
    pub(crate) fn all(&self, query: &ast::Query) -> Result<Attributes, Diagnostic> {
        let [left, right] = &self.attributes;
        let all = query.select.as_ref().is_none_or(|s| matches!(s.items, SelectItems::All(_)));
        if let Some((name, _)) = right.iter().find(|(name, _)| all && left.iter().any(|(l, _)| l == name)) {
            let span = query.select.as_ref().map_or(query.input.span(), |s| s.span);
            let message = format!("both sides have an attribute `{name}`");
            return Err(Diagnostic::error("F0904", span, message).help("name what is selected, with `as`"));
        }
        Ok(left.iter().chain(right).cloned().collect())
    }
}

/// Compiles a join.
pub(crate) fn compile(
    join: &ast::JoinInput,
    catalog: &Catalog,
    registry: &Registry,
) -> Result<Compiled, Diagnostic> {
    if let Some(within) = &join.within {
        let message = "`within` and `per` go with an aggregation";
        return Err(Diagnostic::error("F0905", within.span, message));
    }
    let one_sided = join.left.unidirectional.is_some() || join.right.unidirectional.is_some();
    let triggers = |side: &ast::JoinSide| !one_sided || side.unidirectional.is_some();
    let left_outer = matches!(join.kind, JoinKind::LeftOuter | JoinKind::FullOuter);
    let right_outer = matches!(join.kind, JoinKind::RightOuter | JoinKind::FullOuter);
    let (left, left_name, left_attributes) =
        side(&join.left, triggers(&join.left), left_outer, catalog, registry)?;
    let (right, right_name, right_attributes) =
        side(&join.right, triggers(&join.right), right_outer, catalog, registry)?;
    if !left.triggers && !right.triggers {
        return Err(Diagnostic::error("F0906", join.span, "neither side of this join ever gets an event")
            .note("a table is searched only"));
    }
    let plan = JoinPlan { sides: [left, right], on: None };
    let names = [left_name, right_name];
    let mut compiled = Compiled { plan, names, attributes: [left_attributes, right_attributes] };
    if let Some(on) = &join.on {
        let mut scope = compiled.sides(catalog.tables(), false);
        let on = Compiler { scope: &mut scope, registry, aggregates: None }.condition(on, "`on`")?;
        compiled.plan.on = Some(on);
    }
    Ok(compiled)
}

fn side(
    side: &ast::JoinSide,
    triggers: bool,
    outer: bool,
    catalog: &Catalog,
    registry: &Registry,
) -> Result<(SidePlan, String, Attributes), Diagnostic> {
    let input = &side.input;
    let name = full_name(&input.stream);
    let called = side.alias.as_ref().map_or_else(|| name.clone(), |alias| alias.name.clone());
    let plain = input.handlers.is_empty() && input.window.is_none();
    if let Some(number) = catalog.tables().iter().position(|t| t.name == name) {
        let attributes = catalog.tables()[number].attributes.clone();
        if !plain {
            return Err(Diagnostic::error(
                "F0907",
                input.span,
                format!("`{name}` is a table: nothing can stand behind it"),
            )
            .help("write the condition behind `on`"));
        }
        let columns = attributes.iter().map(|(_, ty)| *ty).collect();
        let source = Source::Table(number);
        let plan = SidePlan { source, columns, before: vec![], window: None, triggers: false, outer };
        return Ok((plan, called, attributes));
    }
    let stream = catalog.read(&input.stream)?;
    let mut attributes = catalog.streams()[stream].attributes.clone();
    let defined = attributes.len();
    let before = handlers(&input.handlers, &name, &mut attributes, catalog.tables(), registry)?;
    let source = match catalog.window(stream) {
        Some(window) => Source::Window(stream, window),
        None => Source::Stream(stream),
    };
    let window = match (&input.window, source) {
        (None, _) => None,
        (Some(window), Source::Stream(_)) => {
            let mut scope = Single { stream: &name, attributes: &attributes, tables: catalog.tables() };
            Some(make_window(&window.call, &name, &attributes, &mut scope, registry)?)
        }
        (Some(window), _) => return Err(no_window_on_window(&name, window.span)),
    };
    if matches!(source, Source::Window(..)) && attributes.len() > defined {
        let message = format!("what a function adds is not in the rows that `{name}` holds");
        return Err(Diagnostic::error("F0908", input.span, message));
    }
    let columns = attributes.iter().map(|(_, ty)| *ty).collect();
    Ok((SidePlan { source, columns, before, window, triggers, outer }, called, attributes))
}

/// A named window has its window already.
pub(crate) fn no_window_on_window(name: &str, span: tidemill_lang::Span) -> Diagnostic {
    Diagnostic::error("F0909", span, format!("`{name}` is a window: it cannot have another"))
}
