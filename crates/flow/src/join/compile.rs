//! Compilation of the syntax tree of a join into its plan.

use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{self, AttributeRef, JoinKind, SelectItems};
use tidemill_types::{FieldType, did_you_mean};

use super::keys::JoinKeys;
use super::{JoinPlan, SidePlan, SideSource};
use crate::aggregation::{self};
use crate::catalog::{Attributes, Catalog, CatalogTable, full_name};
use crate::compile::compiler::{ColumnRef, Compiler, Scope, StepTime};
use crate::compile::scope::StreamScope;
use crate::explain::InputText;
use crate::expr::{BucketQuery, Node, PushedSearch, TableSearch};
use crate::processor::Handler;
use crate::query_input::{handlers, make_window, stateless_handlers};
use crate::registry::Registry;
use crate::select;

/// Name resolution in a join: `Side.a`, or `a` if only one side has it.
pub(crate) struct JoinScope<'a> {
    names: [&'a str; 2],
    attributes: [&'a Attributes; 2],
    tables: &'a [CatalogTable],
    /// True if both sides are one row: left columns, right columns, the left side's time, the right side's
    /// time. Otherwise the sides are slots 0 and 1.
    is_joined_row: bool,
    /// True for a side whose events have a known time. It is unknown for tables, windows and aggregations.
    has_time: [bool; 2],
}

impl JoinScope<'_> {
    /// Returns the column with the time of a side's event, which is null if the side has none.
    fn time(&self, side: usize) -> ColumnRef {
        let width: usize = self.attributes.iter().map(|of| of.len()).sum();
        ColumnRef { slot: crate::expr::INPUT, column: width + side, ty: FieldType::Long }
    }

    /// Returns the side of that name in a selection, unless an attribute has the name.
    fn side_of(&self, name: &str) -> Option<usize> {
        let is_attribute = self.attributes.iter().any(|of| of.iter().any(|(known, _)| known == name));
        self.names.iter().position(|known| *known == name).filter(|_| self.is_joined_row && !is_attribute)
    }
}

impl Scope for JoinScope<'_> {
    fn all_names(&self) -> Vec<String> {
        self.attributes.iter().flat_map(|side| side.iter()).map(|(name, _)| name.clone()).collect()
    }

    fn attribute(&mut self, attribute: &AttributeRef) -> Result<ColumnRef, Diagnostic> {
        let name = &attribute.name.name;
        let column = |side: usize| self.attributes[side].iter().position(|(known, _)| known == name);
        let side = match &attribute.source {
            Some(source) => {
                let of = full_name(&source.stream);
                let plain = source.index.is_none() && source.inner.is_none();
                let side = self.names.iter().position(|known| plain && *known == of);
                side.ok_or_else(|| {
                    let message = format!(
                        "unknown join side `{of}`: the sides are `{}` and `{}`",
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
            let message =
                format!("neither side of this join has an attribute `{name}`{}", did_you_mean(name, names));
            let diagnostic = Diagnostic::error("F0903", attribute.name.span, message);
            return Err(match self.names.contains(&name.as_str()) {
                true => diagnostic.note(
                    "the name of a side alone is only allowed in `SIDE is null` and, if the side is a stream, in \
                     `eventTimestamp(SIDE)`, both in `select` and `having`",
                ),
                false => diagnostic,
            });
        };
        let ty = self.attributes[side][column].1;
        Ok(match (self.is_joined_row, side) {
            (false, _) => ColumnRef { slot: side, column, ty },
            (true, 0) => ColumnRef { slot: crate::expr::INPUT, column, ty },
            (true, _) => {
                ColumnRef { slot: crate::expr::INPUT, column: self.attributes[0].len() + column, ty }
            }
        })
    }

    fn bare_step(&mut self, name: &ast::Ident) -> Option<ColumnRef> {
        self.side_of(&name.name).map(|side| self.time(side))
    }

    fn step(&mut self, step: &ast::SourceRef) -> Option<ColumnRef> {
        step.as_name().and_then(|name| self.bare_step(name))
    }

    fn step_time(&mut self, name: &ast::Ident) -> Option<StepTime> {
        let side = self.side_of(&name.name).filter(|side| self.has_time[*side])?;
        Some(StepTime::At(self.time(side)))
    }

    fn tables(&self) -> &[CatalogTable] {
        self.tables
    }
}

/// A compiled join with the names of its sides and columns, for the rest of the query.
pub(crate) struct CompiledJoin {
    pub(crate) plan: JoinPlan,
    names: [String; 2],
    attributes: [Attributes; 2],
}

impl CompiledJoin {
    /// Returns the scope of the selection.
    pub(crate) fn scope<'a>(&'a self, tables: &'a [CatalogTable]) -> JoinScope<'a> {
        self.sides(tables, true)
    }

    fn sides<'a>(&'a self, tables: &'a [CatalogTable], flat: bool) -> JoinScope<'a> {
        let names = [self.names[0].as_str(), self.names[1].as_str()];
        let attributes = [&self.attributes[0], &self.attributes[1]];
        let timed = [0, 1].map(|side: usize| matches!(self.plan.sides[side].source, SideSource::Stream(_)));
        JoinScope { names, attributes, tables, is_joined_row: flat, has_time: timed }
    }

    /// Returns the columns that `*` selects.
    ///
    /// Errors: both sides have an attribute of one name, and the query selects all.
    pub(crate) fn all_columns(&self, query: &ast::Query) -> Result<Attributes, Diagnostic> {
        let [left, right] = &self.attributes;
        let all = query.select.as_ref().is_none_or(|s| matches!(s.items, SelectItems::All(_)));
        if let Some((name, _)) = right.iter().find(|(name, _)| all && left.iter().any(|(l, _)| l == name)) {
            let span = query.select.as_ref().map_or(query.input.span(), |s| s.span);
            let message = format!("both sides have an attribute `{name}`");
            return Err(Diagnostic::error("F0904", span, message)
                .help("list the columns in `select`, and rename one of these with `as`"));
        }
        Ok(left.iter().chain(right).cloned().collect())
    }

    /// Returns the names of the sides and their columns, for reports.
    pub(crate) fn side_texts(&self, input: &ast::JoinInput) -> Vec<InputText> {
        let sides = [&input.left, &input.right].into_iter().zip(&self.names).zip(&self.attributes);
        sides.map(|((side, name), attributes)| InputText::of(&side.input, name, attributes)).collect()
    }

    /// Returns the plan, reduced to the columns that the selection reads, and renumbers these in the
    /// selection.
    pub(crate) fn prune_columns(self, select: &mut select::SelectPlan) -> JoinPlan {
        let mut used = vec![false; self.plan.columns.len()];
        visit_input_columns(select, &mut |column| {
            used[*column] = true;
        });
        let columns: Vec<usize> = (0..used.len()).filter(|column| used[*column]).collect();
        visit_input_columns(select, &mut |column| {
            *column = columns.partition_point(|known| *known < *column);
        });
        JoinPlan { columns, ..self.plan }
    }
}

/// Calls `see` with every input column that a selection reads.
fn visit_input_columns(select: &mut select::SelectPlan, see: &mut dyn FnMut(&mut usize)) {
    let items = select.items.iter_mut().map(|(_, expr)| expr);
    let args = select.aggregates.iter_mut().flat_map(|call| &mut call.args);
    for expr in items.chain(args).chain(&mut select.group_by).chain(&mut select.having) {
        expr.walk_mut(&mut |part| {
            if let Node::Column { slot: crate::expr::INPUT, column } = &mut part.node {
                see(column);
            }
        });
    }
}

/// Compiles a join.
pub(crate) fn compile(
    join: &ast::JoinInput,
    catalog: &Catalog,
    registry: &Registry,
) -> Result<CompiledJoin, Diagnostic> {
    let one_sided = join.left.unidirectional.is_some() || join.right.unidirectional.is_some();
    let triggers = |side: &ast::JoinSide| !one_sided || side.unidirectional.is_some();
    let left_outer = matches!(join.kind, JoinKind::LeftOuter | JoinKind::FullOuter);
    let right_outer = matches!(join.kind, JoinKind::RightOuter | JoinKind::FullOuter);
    let (left, left_name, left_attributes) =
        side(&join.left, triggers(&join.left), left_outer, catalog, registry)?;
    let (mut right, right_name, right_attributes) =
        side(&join.right, triggers(&join.right), right_outer, catalog, registry)?;
    if !one_sided && left.source == right.source && matches!(right.source, SideSource::Window(..)) {
        // events of a window joined with itself are matched once, not once from each side
        right.triggers = false;
    }
    if !left.triggers && !right.triggers {
        return Err(Diagnostic::error(
            "F0906",
            join.span,
            "this join never runs: neither side receives events",
        )
        .note("tables and aggregations are only searched; one side must be a stream or window"));
    }
    // the columns of both sides, then their times
    let width = left.columns.len() + right.columns.len() + 2;
    let plan = JoinPlan {
        sides: [left, right],
        on: None,
        keys: JoinKeys::default(),
        search: None,
        bucket_query: None,
        columns: (0..width).collect(),
    };
    let names = [left_name, right_name];
    let mut compiled = CompiledJoin { plan, names, attributes: [left_attributes, right_attributes] };
    if let Some(on) = &join.on {
        let mut scope = compiled.sides(catalog.tables(), false);
        let on = Compiler { scope: &mut scope, registry, aggregates: None }.condition(on, "`on`")?;
        compiled.plan.keys = JoinKeys::of(&on);
        compiled.plan.on = Some(on);
    }
    compiled.plan.bucket_query = compile_bucket_query(join, &compiled, catalog, registry)?;
    let JoinPlan { sides, on, search, .. } = &mut compiled.plan;
    for (slot, side) in sides.iter().enumerate() {
        if let SideSource::Table(table) = side.source {
            let table = &catalog.tables()[table];
            if table.store.is_some() {
                PushedSearch::of(on.as_ref(), slot).map_err(|what| {
                    table.not_pushed(&what, join.on.as_ref().map_or(table.span, |on| on.span))
                })?;
            }
            *search = Some(TableSearch::new(on.clone(), slot, table));
        }
    }
    Ok(compiled)
}

/// Compiles `within … per …`, which an aggregation needs and no other join may have.
fn compile_bucket_query(
    join: &ast::JoinInput,
    compiled: &CompiledJoin,
    catalog: &Catalog,
    registry: &Registry,
) -> Result<Option<BucketQuery>, Diagnostic> {
    let source = |side: &SidePlan| match side.source {
        SideSource::Aggregation(number) => Some(number),
        _ => None,
    };
    let mut sides = compiled.plan.sides.iter().enumerate();
    let aggregation = sides.find_map(|(slot, side)| Some((slot, source(side)?)));
    match (&join.within, aggregation) {
        (None, None) => Ok(None),
        (Some(within), None) => Err(Diagnostic::error(
            "F0905",
            within.span,
            "`within` and `per` are only allowed with an aggregation",
        )),
        (None, Some((slot, _))) => {
            let side = if slot == 0 { &join.left } else { &join.right };
            Err(aggregation::missing_within(&compiled.names[slot], side.span))
        }
        (Some(within), Some((slot, number))) => {
            let mut scope = compiled.sides(catalog.tables(), false);
            let of = &catalog.aggregations()[number];
            aggregation::compile_bucket_query(within, of, slot, &mut scope, registry).map(Some)
        }
    }
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
                format!("`{name}` is a table: it takes no filter, function or window"),
            )
            .help("write the condition after `on`"));
        }
        let plan = SidePlan::search_only(SideSource::Table(number), &attributes, outer);
        return Ok((plan, called, attributes));
    }
    if let Some(number) = catalog.find_aggregation(&name) {
        let attributes = catalog.aggregations()[number].attributes();
        if !plain {
            let message = format!("`{name}` is an aggregation: it takes no filter, function or window");
            return Err(
                Diagnostic::error("F0907", input.span, message).help("write the condition after `on`")
            );
        }
        let plan = SidePlan::search_only(SideSource::Aggregation(number), &attributes, outer);
        return Ok((plan, called, attributes));
    }
    let stream = catalog.read(&input.stream)?;
    let mut attributes = catalog.streams()[stream].attributes.clone();
    let read: Vec<FieldType> = attributes.iter().map(|(_, ty)| *ty).collect();
    let (source, compile) = match catalog.window(stream) {
        // handlers apply to arriving events only; the window's rows are searched as they are
        Some(window) => (SideSource::Window(stream, window), stateless_handlers as CompileHandlers),
        None => (SideSource::Stream(stream), handlers as CompileHandlers),
    };
    let before = compile(&input.handlers, &name, &mut attributes, catalog.tables(), registry)?;
    let window = match (&input.window, source) {
        (None, _) => None,
        (Some(window), SideSource::Stream(_)) => {
            let mut scope = StreamScope { stream: &name, attributes: &attributes, tables: catalog.tables() };
            Some(make_window(&window.call, &name, (&attributes, None), &mut scope, registry)?)
        }
        (Some(window), _) => return Err(no_window_on_window(&name, window.span)),
    };
    if matches!(source, SideSource::Window(..)) && attributes.len() > read.len() {
        let message = format!(
            "a function cannot add attributes here: the rows of the window `{name}` do not have them"
        );
        return Err(Diagnostic::error("F0908", input.span, message));
    }
    let columns = attributes.iter().map(|(_, ty)| *ty).collect();
    Ok((
        SidePlan { source, input_types: read, columns, handlers: before, window, triggers, outer },
        called,
        attributes,
    ))
}

/// Compiler of handlers: either all kinds of them, or stateless ones only.
type CompileHandlers = fn(
    &[ast::Handler],
    &str,
    &mut Attributes,
    &[CatalogTable],
    &Registry,
) -> Result<Vec<Handler>, Diagnostic>;

impl SidePlan {
    /// Creates a side that is only searched, such as a table.
    fn search_only(source: SideSource, attributes: &Attributes, outer: bool) -> Self {
        let columns: Vec<FieldType> = attributes.iter().map(|(_, ty)| *ty).collect();
        let read = columns.clone();
        Self { source, input_types: read, columns, handlers: vec![], window: None, triggers: false, outer }
    }
}

/// Reports a window on a named window, which has its own already.
pub(crate) fn no_window_on_window(name: &str, span: tidemill_lang::Span) -> Diagnostic {
    Diagnostic::error("F0909", span, format!("`{name}` is a window: it cannot have another window"))
}
