//! Compilation of an app from its syntax tree: name resolution and type checks; all errors are reported at
//! once.

mod definitions;
mod group_by;
mod late;
mod partitions;
mod queries;
mod selection;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidemill_lang::siddhi::ast::{self, Definition, ExecutionElement};
use tidemill_lang::{Diagnostic, Span};

use crate::catalog::{Catalog, full_name};
use crate::compile::annotations;
use crate::io;
use crate::limits::Limits;
use crate::named_window::NamedWindowPlan;
use crate::partition::PartitionPlan;
use crate::query::QueryPlan;
use crate::registry::Registry;
use tidemill_types::FieldType;
use tidemill_types::cron::Cron;

pub(crate) use group_by::rewrite_as_group_by;
pub(crate) use selection::selection;

/// Compiled app.
#[derive(Clone)]
pub struct AppPlan {
    /// Structural source text, without positions and `@app:` annotations: apps with equal texts accept each
    /// other's snapshots.
    pub text: Arc<str>,
    /// `@app:name`, if present.
    pub name: Option<String>,
    /// True if the app runs on event time (`@app:playback`).
    pub playback: bool,
    /// Maximum time that a late event may be behind the app's time to correct emitted output, in
    /// milliseconds; `None` without `@late(policy='correct')`.
    pub corrected: Option<i64>,
    /// Streams, tables, windows and aggregations.
    pub catalog: Catalog,
    /// Queries outside of partitions, in source order.
    pub queries: Vec<QueryPlan>,
    /// Partitions, in source order.
    pub partitions: Vec<Arc<PartitionPlan>>,
    /// Queries and partitions, in source order.
    pub elements: Vec<PlanElement>,
    /// Topics whose events are received by streams.
    pub sources: Vec<io::TopicSource>,
    /// Sinks of streams.
    pub sinks: Vec<io::StreamSink>,
    /// File sources; the caller that runs the app reads the files.
    pub file_sources: Vec<io::file::InputFile>,
    /// File sinks; the caller that runs the app writes the files.
    pub file_sinks: Vec<io::file::OutputFile>,
    /// Connections to other systems, which the caller that runs the app drives.
    pub connectors: Vec<io::connector::Connector>,
    /// Named windows, in source order.
    pub windows: Vec<NamedWindowPlan>,
    /// Functions and aggregates available to on-demand queries.
    pub registry: Arc<Registry>,
    /// Triggers in source order, each with the index of its stream.
    pub triggers: Vec<(usize, Trigger)>,
    /// Warnings about parts of the app that have no effect here.
    pub warnings: Vec<Diagnostic>,
    limits: Limits,
}

impl AppPlan {
    /// Returns the limits on the app's state.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Sets the limits on the app's state and on that of its queries.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self.queries.iter_mut().for_each(|query| query.limits = limits);
        for partition in &mut self.partitions {
            for query in &mut Arc::make_mut(partition).queries {
                Arc::make_mut(query).limits = limits;
            }
        }
        self
    }
}

impl AppPlan {
    /// Returns whether the state of a query may contain objects.
    pub(crate) fn may_have_objects(&self) -> bool {
        let of_streams =
            self.catalog.streams().iter().flat_map(|stream| &stream.attributes).map(|(_, ty)| *ty);
        let of_query = |query: &QueryPlan| {
            let sides = query.join.iter().flat_map(|join| &join.sides);
            let sides = sides.flat_map(|side| side.input_types.iter().chain(&side.columns)).copied();
            let aggregates = query.select.aggregates.iter().map(|call| call.ty);
            sides
                .chain(aggregates)
                .chain(query.select.types())
                .chain(query.columns.clone())
                .collect::<Vec<_>>()
        };
        of_streams.chain(self.all_queries().flat_map(of_query)).any(|ty| ty == FieldType::Object)
    }

    /// Returns the names of the tables' sections in a snapshot, in order; the methods below, those of the
    /// other elements.
    pub(crate) fn table_names(&self) -> impl Iterator<Item = String> + '_ {
        self.catalog.tables().iter().map(|table| format!("table {}", table.name))
    }

    pub(crate) fn window_names(&self) -> impl Iterator<Item = String> + '_ {
        let streams = self.catalog.streams();
        self.windows.iter().map(|window| format!("window {}", streams[window.stream].name))
    }

    pub(crate) fn aggregation_names(&self) -> impl Iterator<Item = String> + '_ {
        self.catalog.aggregations().iter().map(|aggregation| format!("aggregation {}", aggregation.name))
    }

    pub(crate) fn query_names(&self) -> impl Iterator<Item = String> + '_ {
        self.queries.iter().enumerate().map(|(i, query)| format!("query {} {}", i + 1, query.name))
    }

    /// Returns all queries, including those of partitions, in source order.
    pub fn all_queries(&self) -> impl Iterator<Item = &QueryPlan> {
        self.elements.iter().flat_map(|element| {
            let (one, inside) = match element {
                PlanElement::Query(i) => (self.queries.get(*i), &[][..]),
                PlanElement::Partition(i) => (None, self.partitions[*i].queries.as_slice()),
            };
            one.into_iter().chain(inside.iter().map(Arc::as_ref))
        })
    }
}

/// Index of an execution element in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanElement {
    /// A query.
    Query(usize),
    /// A partition.
    Partition(usize),
}

/// Schedule of a trigger.
#[derive(Debug, Clone)]
pub enum Trigger {
    /// Once, when the app starts.
    Start,
    /// Period in milliseconds; the first firing is one period after the start.
    Every(i64),
    /// Cron schedule.
    Cron(Cron),
}

impl Trigger {
    /// Returns the time of the next firing after `now`; `None` if it does not fire again.
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
/// Errors: all problems found, definitions first, each group in source order.
pub fn compile(app: &ast::App, registry: &Registry) -> Result<AppPlan, Vec<Diagnostic>> {
    let written = app;
    let (settings, connectors) = (registry.connection_settings(), registry.connectors());
    let (app, open) =
        crate::registry::resolve_connections(app, settings, connectors, registry.takes_open_values())?;
    let app = &*app;
    let late = late::correction_span(app);
    let mut repeating = registry.clone();
    repeating.set_replayable_only(!matches!(late, Ok(None)));
    let wrong_functions = definitions::define_functions(app, &mut repeating);
    let registry = &repeating;
    let mut planner = Planner {
        registry,
        plan: AppPlan {
            text: text(written).into(),
            name: app.annotation("name").and_then(|a| a.elements.first()).map(|e| e.value.value.clone()),
            playback: app.annotation("playback").is_some(),
            corrected: None,
            catalog: Catalog::default(),
            queries: vec![],
            partitions: vec![],
            elements: vec![],
            windows: vec![],
            registry: Arc::new(registry.clone()),
            sources: vec![],
            sinks: vec![],
            file_sources: vec![],
            file_sinks: vec![],
            connectors: vec![],
            triggers: vec![],
            warnings: open,
            limits: Limits::default(),
        },
        names: BTreeMap::new(),
        undefined: BTreeSet::new(),
        queries: 0,
    };
    let mut wrong = annotations::check_app(&app.annotations);
    for (name, diagnostic) in wrong_functions {
        planner.undefined.insert(name);
        wrong.push(diagnostic);
    }
    match late {
        Ok(allowed) => planner.plan.corrected = allowed,
        Err(diagnostics) => wrong.extend(diagnostics),
    }
    // an aggregation may precede the definition of its input stream
    let (aggregations, others): (Vec<_>, Vec<_>) =
        app.definitions.iter().partition(|d| matches!(d, Definition::Aggregation(_)));
    for definition in others.into_iter().chain(aggregations) {
        if let Err(diagnostic) = planner.definition(definition) {
            wrong.extend(planner.root_causes(vec![diagnostic]));
            planner.undefined.insert(definition.name().name.clone());
        }
    }
    wrong.sort_by_key(|d| d.span.start);
    for element in &app.elements {
        match element {
            ExecutionElement::Query(query) => match planner.query(query) {
                Ok(query) => {
                    planner.plan.elements.push(PlanElement::Query(planner.plan.queries.len()));
                    planner.plan.queries.push(query);
                }
                Err(diagnostic) => {
                    wrong.extend(planner.root_causes(vec![diagnostic]));
                    planner.mark_undefined(query);
                }
            },
            ExecutionElement::Partition(partition) => match planner.partition(partition) {
                Ok(partition) => {
                    planner.plan.elements.push(PlanElement::Partition(planner.plan.partitions.len()));
                    planner.plan.partitions.push(Arc::new(partition));
                }
                Err(diagnostics) => {
                    wrong.extend(planner.root_causes(diagnostics));
                    partition.queries.iter().for_each(|query| planner.mark_undefined(query));
                }
            },
        }
    }
    if wrong.is_empty() { Ok(planner.plan) } else { Err(wrong) }
}

/// Returns the text of definitions and queries, one line per part, without `@app:` annotations.
fn text(app: &ast::App) -> String {
    let all = tidemill_lang::siddhi::structural_text(app);
    all.lines().filter(|line| !line.starts_with("@app:")).flat_map(|line| [line, "\n"]).collect()
}

struct Planner<'r> {
    registry: &'r Registry,
    plan: AppPlan,
    /// Names given by `@info`, with their source ranges.
    names: BTreeMap<String, Span>,
    /// Names whose definition failed; using one is not reported as another error.
    undefined: BTreeSet<String>,
    /// Number of queries compiled so far.
    queries: usize,
}

impl Planner<'_> {
    /// Drops diagnostics about a missing name whose definition failed.
    fn root_causes(&self, mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
        diagnostics.retain(|d| {
            let missing = d.message.starts_with("there is no ") || d.message.starts_with("no query before ");
            let named = d.message.split('`').nth(1).unwrap_or_default();
            !missing || !self.undefined.contains(named.trim_start_matches('!'))
        });
        diagnostics
    }

    /// Marks the stream that a failed query would have defined as undefined.
    fn mark_undefined(&mut self, query: &ast::Query) {
        if let ast::OutputAction::Insert { target } = &query.output.action {
            let name = full_name(target);
            if self.plan.catalog.find(&name).is_none() {
                self.undefined.insert(name);
            }
        }
    }
}
