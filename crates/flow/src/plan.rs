//! From the syntax tree of an app to what runs: names are looked up, types checked, everything wrong is told at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidemill_lang::siddhi::ast::{
    self, Annotation, Definition, EventKind, ExecutionElement, ExprKind, HandlerKind, Input, OutputAction,
    SelectItems,
};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::FieldType;

use crate::annotations;
use crate::catalog::{self, Attributes, Catalog, Stream};
use crate::cron::Cron;
use crate::expr::{AggregateCall, Compiler, Expr, Scope};
use crate::io;
use crate::join;
use crate::named_window::NamedWindowPlan;
use crate::query::{Handler, QueryPlan, Target};
use crate::rate::{RatePlan, Snapshot, Which};
use crate::registry::Registry;
use crate::scope::{Having, Single, WithTables};
use crate::select::{self, Wanted};
use crate::state::{self, Lookup};
use crate::table;
use crate::value::Value;
use crate::window::{self, MakeWindow, Parameter};

/// A compiled app.
#[derive(Clone)]
pub struct AppPlan {
    /// `@app:name`, if it has one.
    pub name: Option<String>,
    /// Whether time is that of the events (`@app:playback`).
    pub playback: bool,
    /// Its streams.
    pub catalog: Catalog,
    /// Its queries in order.
    pub queries: Vec<QueryPlan>,
    /// Where events come from besides the senders.
    pub sources: Vec<io::Source>,
    /// Where they go besides the queries.
    pub sinks: Vec<io::Sink>,
    /// Its named windows in order.
    pub windows: Vec<NamedWindowPlan>,
    /// What its on-demand queries may call.
    pub registry: Arc<Registry>,
    /// Its triggers in order: the stream of each, and when it fires.
    pub triggers: Vec<(usize, Trigger)>,
}

/// When a trigger fires.
#[derive(Debug, Clone)]
pub enum Trigger {
    /// Once, when the app starts.
    Start,
    /// Every so many milliseconds, the first time one period after the start.
    Every(i64),
    /// By a calendar.
    Cron(Cron),
}

impl Trigger {
    /// When it fires next after `now`.
    pub fn after(&self, now: i64) -> Option<i64> {
        match self {
            Self::Start => None,
            Self::Every(period) => Some(now.saturating_add((*period).max(1))),
            Self::Cron(cron) => cron.next_after(now),
        }
    }
}

/// Compiles an app.
///
/// Errors: everything that is wrong with it, in order of the text.
pub fn compile(app: &ast::App, registry: &Registry) -> Result<AppPlan, Vec<Diagnostic>> {
    let mut planner = Planner {
        registry,
        plan: AppPlan {
            name: app.annotation("name").and_then(|a| a.elements.first()).map(|e| e.value.value.clone()),
            playback: app.annotation("playback").is_some(),
            catalog: Catalog::default(),
            queries: vec![],
            windows: vec![],
            registry: Arc::new(registry.clone()),
            sources: vec![],
            sinks: vec![],
            triggers: vec![],
        },
        names: BTreeSet::new(),
    };
    let mut wrong = annotations::check_app(&app.annotations);
    for definition in &app.definitions {
        wrong.extend(planner.definition(definition).err());
    }
    for element in &app.elements {
        let done = match element {
            ExecutionElement::Query(query) => planner.query(query),
            ExecutionElement::Partition(partition) => Err(missing(partition.span, "partitions")),
        };
        wrong.extend(done.err());
    }
    if wrong.is_empty() { Ok(planner.plan) } else { Err(wrong) }
}

struct Planner<'r> {
    registry: &'r Registry,
    plan: AppPlan,
    /// Names given by `@info`.
    names: BTreeSet<String>,
}

fn missing(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error("F0401", span, format!("{what} cannot be run yet"))
}

impl Planner<'_> {
    fn definition(&mut self, definition: &Definition) -> Result<(), Diagnostic> {
        match definition {
            Definition::Stream(d) => {
                let attributes = catalog::attributes(&d.attributes)?;
                let name = catalog::full_name(&d.id);
                if annotations::has_fault_stream(&d.annotations)? {
                    let mut attributes = attributes.clone();
                    attributes.push(("_error".into(), FieldType::Object));
                    let fault = Stream { name: format!("!{name}"), attributes, span: d.id.span };
                    self.plan.catalog.define(fault)?;
                }
                let columns = attributes.clone();
                let stream = self.plan.catalog.define(Stream { name, attributes, span: d.id.span })?;
                self.plan.sources.extend(io::sources(&d.annotations, stream)?);
                self.plan.sinks.extend(io::sinks(&d.annotations, stream, &columns)?);
                Ok(())
            }
            Definition::Trigger(d) => {
                let at = match &d.at {
                    ast::TriggerAt::Every(time) => Trigger::Every(time.ms),
                    ast::TriggerAt::Text(text) if text.value == "start" => Trigger::Start,
                    ast::TriggerAt::Text(text) => Trigger::Cron(
                        Cron::parse(&text.value).map_err(|e| Diagnostic::error("F0414", text.span, e))?,
                    ),
                };
                let attributes = vec![("triggered_time".to_owned(), FieldType::Long)];
                let stream = Stream { name: d.name.name.clone(), attributes, span: d.name.span };
                let stream = self.plan.catalog.define(stream)?;
                self.plan.triggers.push((stream, at));
                Ok(())
            }
            Definition::Table(d) => self.plan.catalog.define_table(table::definition(d)?),
            Definition::Window(d) => {
                let attributes = catalog::attributes(&d.attributes)?;
                let name = catalog::full_name(&d.id);
                let mut scope = Single { stream: &name, attributes: &attributes, tables: &[] };
                let make = make_window(&d.window, &name, &attributes, &mut scope, self.registry)?;
                let columns = attributes.iter().map(|(_, ty)| *ty).collect();
                let stream = Stream { name, attributes, span: d.id.span };
                let stream = self.plan.catalog.define_window(stream)?;
                let output = wanted(Some(d.output.map_or(EventKind::All, |k| k.kind)));
                self.plan.windows.push(NamedWindowPlan { stream, columns, make, output });
                Ok(())
            }
            Definition::Function(d) => Err(Diagnostic::error(
                "F0402",
                d.language.span,
                format!("there is no script language `{}`", d.language.name),
            )
            .help("register the function in Rust: Registry::function")),
            Definition::Aggregation(d) => Err(missing(d.span, "aggregations")),
        }
    }

    fn query(&mut self, query: &ast::Query) -> Result<(), Diagnostic> {
        let input = match &query.input {
            Input::Stream(input) => input,
            Input::Join(join) => return self.join(query, join),
            Input::State(state) => return self.state(query, state),
            Input::Nested(nested) => {
                return Err(Diagnostic::error("F0403", nested.span, "a query inside `from` cannot be run")
                    .help("let it insert into a stream and read that"));
            }
        };
        let stream = self.plan.catalog.read(&input.stream)?;
        let Stream { name, mut attributes, .. } = self.plan.catalog.streams()[stream].clone();
        let registry = self.registry;
        let before = handlers(&input.handlers, &name, &mut attributes, self.plan.catalog.tables(), registry)?;
        let columns = attributes.iter().map(|(_, ty)| *ty).collect();
        let window = match &input.window {
            Some(window) if self.plan.catalog.window(stream).is_some() => {
                return Err(join::no_window_on_window(&name, window.span));
            }
            Some(window) => {
                let tables = self.plan.catalog.tables();
                let mut scope = Single { stream: &name, attributes: &attributes, tables };
                Some(make_window(&window.call, &name, &attributes, &mut scope, registry)?)
            }
            None => None,
        };
        let after = handlers(&input.after, &name, &mut attributes, self.plan.catalog.tables(), registry)?;
        let tables = self.plan.catalog.tables();
        let mut scope = Single { stream: &name, attributes: &attributes, tables };
        let select = selection(query, &attributes, &mut scope, false, registry)?;
        let plan = QueryPlan { stream, columns, before, window, after, ..QueryPlan::of(select) };
        self.output(query, plan)
    }

    /// A pattern or a sequence.
    fn state(&mut self, query: &ast::Query, input: &ast::StateInput) -> Result<(), Diagnostic> {
        let (mut state, steps) = state::compile(input, &self.plan.catalog, self.registry)?;
        let mut references = Vec::new();
        let mut scope = Lookup { steps: &steps, own: None, references: &mut references };
        let all = match query.select.as_ref().map(|c| &c.items) {
            None | Some(SelectItems::All(_)) => scope.all(),
            Some(SelectItems::List(_)) => vec![],
        };
        let twice =
            all.iter().enumerate().find(|(i, (name, _))| all[..*i].iter().any(|(known, _)| known == name));
        if let Some((_, (name, _))) = twice {
            let span = query.select.as_ref().map_or(input.span, |c| c.span);
            let message = format!("several steps have an attribute `{name}`: select them one by one");
            return Err(Diagnostic::error("F0504", span, message));
        }
        let mut scope = WithTables { names: &mut scope, tables: self.plan.catalog.tables() };
        let select = selection(query, &all, &mut scope, true, self.registry)?;
        let stream = state.steps.first().map_or(0, |s| s.stream);
        state.columns = references;
        self.output(query, QueryPlan { stream, state: Some(Arc::new(state)), ..QueryPlan::of(select) })
    }

    fn join(&mut self, query: &ast::Query, input: &ast::JoinInput) -> Result<(), Diagnostic> {
        let join = join::compile(input, &self.plan.catalog, self.registry)?;
        let all = join.all(query)?;
        let mut scope = join.scope(self.plan.catalog.tables());
        let select = selection(query, &all, &mut scope, true, self.registry)?;
        self.output(query, QueryPlan { join: Some(Arc::new(join.plan)), ..QueryPlan::of(select) })
    }

    /// What the output of a query is written to.
    fn target(&mut self, output: &ast::Output, select: &select::Plan) -> Result<Target, Diagnostic> {
        let written: Attributes = select.items.iter().map(|(name, expr)| (name.clone(), expr.ty)).collect();
        let tables = self.plan.catalog.tables();
        if let Some((table, action)) = table::action(output, &written, tables, self.registry)? {
            return Ok(Target::Table(table, action));
        }
        let OutputAction::Insert { target } = &output.action else {
            let message = "`return` cannot be run";
            return Err(Diagnostic::error("F0404", output.span, message).help("insert into a stream"));
        };
        let stream = self.plan.catalog.write(target, &written)?;
        Ok(self.plan.catalog.window(stream).map_or(Target::Stream(stream), Target::Window))
    }

    /// What all queries end with: rate, target and name.
    fn output(&mut self, query: &ast::Query, mut plan: QueryPlan) -> Result<(), Diagnostic> {
        let window = plan.window.is_some() || plan.join.is_some();
        plan.rate = query.rate.as_ref().map(|r| rate(r, query, &mut plan.select, window)).transpose()?;
        plan.target = self.target(&query.output, &plan.select)?;
        plan.name = self.name_of(&query.annotations)?;
        self.plan.queries.push(plan);
        Ok(())
    }

    fn name_of(&mut self, annotations: &[Annotation]) -> Result<String, Diagnostic> {
        let given = annotations.iter().filter(|a| a.is("info")).find_map(|a| a.element("name"));
        let Some(given) = given else { return Ok(format!("query {}", self.plan.queries.len() + 1)) };
        match self.names.insert(given.value.value.clone()) {
            true => Ok(given.value.value.clone()),
            false => Err(Diagnostic::error(
                "F0405",
                given.span,
                format!("two queries are called `{}`", given.value.value),
            )),
        }
    }
}

/// Compiles filters and stream functions; `attributes` grows by what functions add.
pub(crate) fn handlers(
    handlers: &[ast::Handler],
    stream: &str,
    attributes: &mut Attributes,
    tables: &[catalog::Table],
    registry: &Registry,
) -> Result<Vec<Handler>, Diagnostic> {
    let mut compiled = Vec::with_capacity(handlers.len());
    for handler in handlers {
        let mut scope = Single { stream, attributes, tables };
        let mut compiler = Compiler { scope: &mut scope, registry, aggregates: None };
        match &handler.kind {
            HandlerKind::Filter(condition) => {
                compiled.push(Handler::Filter(compiler.condition(condition, "a filter")?));
            }
            HandlerKind::Function(call) => {
                let args =
                    call.args.list().iter().map(|a| compiler.compile(a)).collect::<Result<Vec<_>, _>>()?;
                let name = crate::expr::compile::call_name(call);
                let build = registry.find_stream_function(&name);
                let build = build.map_err(|e| Diagnostic::error("F0415", call.name.span, e))?;
                let (function, added) = build(&crate::expr::compile::describe(&args))
                    .map_err(|e| Diagnostic::error("F0416", call.span, e))?;
                for (name, _) in &added {
                    if attributes.iter().any(|(known, _)| known == name) {
                        let message = format!("`{stream}` has an attribute `{name}` already");
                        return Err(Diagnostic::error("F0417", call.span, message));
                    }
                }
                let types = added.iter().map(|(_, ty)| *ty).collect();
                attributes.extend(added);
                compiled.push(Handler::Function(function, args, types));
            }
        }
    }
    Ok(compiled)
}

pub(crate) fn make_window(
    call: &ast::Call,
    stream: &str,
    attributes: &Attributes,
    scope: &mut dyn Scope,
    registry: &Registry,
) -> Result<MakeWindow, Diagnostic> {
    let mut parameters = Vec::new();
    for argument in call.args.list() {
        let mut compiler = Compiler { scope: &mut *scope, registry, aggregates: None };
        let attribute = match &argument.kind {
            ExprKind::Attribute(a) => Some(a.name.name.clone()),
            _ => None,
        };
        parameters.push(Parameter {
            expr: compiler.compile(argument)?,
            attribute,
            text: argument.to_string(),
        });
    }
    let name = crate::expr::compile::call_name(call);
    let attributes: Vec<window::Attribute> = attributes
        .iter()
        .enumerate()
        .map(|(column, (name, ty))| window::Attribute { name: name.clone(), ty: *ty, column })
        .collect();
    let source = window::Source { names: &[stream], attributes: &attributes, registry };
    let Some(made) = window::build(&name, &parameters, &source) else {
        let message = format!("there is no window `{name}`{}", window::suggestion(&name));
        return Err(Diagnostic::error("F0406", call.name.span, message));
    };
    made.map_err(|e| Diagnostic::error("F0407", call.span, e))
}

/// Compiles the select clause. `input` is what `*` stands for.
pub(crate) fn selection(
    query: &ast::Query,
    input: &Attributes,
    scope: &mut dyn Scope,
    having_sees_input: bool,
    registry: &Registry,
) -> Result<select::Plan, Diagnostic> {
    let mut aggregates: Vec<AggregateCall> = Vec::new();
    let clause = query.select.as_ref();
    let mut items: Vec<(String, Expr)> = Vec::new();
    match clause.map(|c| &c.items) {
        None | Some(SelectItems::All(_)) => {
            let all = input.iter().enumerate();
            items.extend(all.map(|(i, (name, ty))| (name.clone(), Expr::column(select::INPUT, i, *ty))));
        }
        Some(SelectItems::List(list)) => {
            for item in list {
                let name = item.name().ok_or_else(|| {
                    Diagnostic::error("F0408", item.span, "an expression needs a name: use `as`")
                })?;
                if items.iter().any(|(known, _)| *known == name.name) {
                    let message = format!("two columns are called `{}`", name.name);
                    return Err(Diagnostic::error("F0409", name.span, message));
                }
                let aggregates = Some((&mut aggregates, select::AGGREGATES));
                let mut compiler = Compiler { scope: &mut *scope, registry, aggregates };
                items.push((name.name.clone(), compiler.compile(&item.expr)?));
            }
        }
    }
    let output: Attributes = items.iter().map(|(name, expr)| (name.clone(), expr.ty)).collect();
    let mut plan = select::Plan {
        items,
        aggregates: vec![],
        group_by: vec![],
        having: None,
        order_by: vec![],
        offset: 0,
        limit: None,
        wanted: wanted(query.output.kind.map(|k| k.kind)),
        every_event: false,
    };
    if let Some(clause) = clause {
        for attribute in &clause.group_by {
            let found = scope.attribute(attribute)?;
            plan.group_by.push(Expr::column(found.slot, found.column, found.ty));
        }
        if let Some(having) = &clause.having {
            let mut scope =
                Having { output: &output, input: scope, sees_input: having_sees_input, aggregate: false };
            let aggregates = Some((&mut aggregates, select::AGGREGATES));
            let mut compiler = Compiler { scope: &mut scope, registry, aggregates };
            plan.having = Some(compiler.condition(having, "`having`")?);
        }
        for item in &clause.order_by {
            let name = &item.attribute.name;
            let plain = item.attribute.source.is_none();
            let column =
                output.iter().position(|(known, _)| plain && *known == name.name).ok_or_else(|| {
                    Diagnostic::error("F0410", name.span, format!("`{}` is not selected", name.name))
                        .note("`order by` sorts what comes out, by its names alone")
                })?;
            plan.order_by.push((column, item.direction == Some(ast::Direction::Descending)));
        }
        plan.limit = clause.limit.as_ref().map(|x| count(x, "limit")).transpose()?;
        plan.offset = clause.offset.as_ref().map(|x| count(x, "offset")).transpose()?.unwrap_or(0);
    }
    plan.aggregates = aggregates;
    Ok(plan)
}

/// Compiles the output clause. A snapshot sees every event of every group.
fn rate(
    rate: &ast::RateLimit,
    query: &ast::Query,
    select: &mut select::Plan,
    window: bool,
) -> Result<RatePlan, Diagnostic> {
    let which = |which: Option<ast::RateEvents>| match which {
        None | Some(ast::RateEvents::All) => Which::All,
        Some(ast::RateEvents::First) => Which::First,
        Some(ast::RateEvents::Last) => Which::Last,
    };
    match &rate.kind {
        ast::RateKind::Events { count: 0, count_span, .. } => {
            Err(Diagnostic::error("F0412", *count_span, "a round has at least one event"))
        }
        ast::RateKind::Events { which: w, count, .. } => Ok(RatePlan::Events(which(*w), u64::from(*count))),
        ast::RateKind::Time { which: w, every } => Ok(RatePlan::Time(which(*w), every.ms.max(1))),
        ast::RateKind::Snapshot { every } => {
            match query.output.kind {
                None => select.wanted = Wanted { current: true, expired: true },
                Some(kind) if kind.kind != EventKind::All => {
                    return Err(Diagnostic::error("F0413", kind.span, "a snapshot needs `all events`"));
                }
                Some(_) => {}
            }
            select.every_event = true;
            let aggregates = select.items.iter().map(|(_, expr)| {
                matches!(expr.node, crate::expr::Node::Column { slot: select::AGGREGATES, .. })
            });
            let snapshot =
                Snapshot { window, aggregates: aggregates.collect(), grouped: !select.group_by.is_empty() };
            Ok(RatePlan::Snapshot(every.ms.max(1), snapshot.into()))
        }
    }
}

fn wanted(kind: Option<EventKind>) -> Wanted {
    match kind {
        None | Some(EventKind::Current) => Wanted { current: true, expired: false },
        Some(EventKind::Expired) => Wanted { current: false, expired: true },
        Some(EventKind::All) => Wanted { current: true, expired: true },
    }
}

/// A constant whole number that is not negative.
fn count(expr: &ast::Expr, what: &str) -> Result<usize, Diagnostic> {
    let value = match &expr.kind {
        ExprKind::Literal(ast::Literal::Int(n)) => Value::Int(*n).as_i64(),
        ExprKind::Literal(ast::Literal::Long(n)) => Some(*n),
        _ => None,
    };
    value.and_then(|n| usize::try_from(n).ok()).ok_or_else(|| {
        let message = format!("{what} wants a whole number from 0 on, not `{expr}`");
        Diagnostic::error("F0411", expr.span, message)
    })
}
