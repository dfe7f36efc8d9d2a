//! From the syntax tree of an app to what runs: names are looked up, types checked, everything wrong is told at once.

mod definitions;
mod handlers;
mod input;
mod late;
mod partitions;
mod queries;
mod selection;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidemill_lang::siddhi::ast::{self, Definition, ExecutionElement};
use tidemill_lang::{Diagnostic, Span};

use crate::annotations;
use crate::catalog::{Catalog, full_name};
use crate::cron::Cron;
use crate::io;
use crate::limits::Limits;
use crate::named_window::NamedWindowPlan;
use crate::partition::PartitionPlan;
use crate::query::QueryPlan;
use crate::registry::Registry;

pub(crate) use handlers::{compile as handlers, stateless as stateless_handlers};
pub(crate) use input::make_window;
pub(crate) use late::not_repeatable;
pub(crate) use partitions::time;
pub(crate) use selection::selection;

/// A compiled app.
#[derive(Clone)]
pub struct AppPlan {
    /// What it says, without places and annotations of the app: two apps with equal texts take each other's states.
    pub text: Arc<str>,
    /// `@app:name`, if it has one.
    pub name: Option<String>,
    /// Whether time is that of the events (`@app:playback`).
    pub playback: bool,
    /// Where late events correct what was put out (`@late(policy='correct')`), how far behind the clock they may be,
    /// milliseconds.
    pub corrected: Option<i64>,
    /// Its streams.
    pub catalog: Catalog,
    /// Its queries in order, those in partitions left out.
    pub queries: Vec<QueryPlan>,
    /// Its partitions in order.
    pub partitions: Vec<Arc<PartitionPlan>>,
    /// Queries and partitions in the order of the text.
    pub elements: Vec<PlanElement>,
    /// Where events come from besides the senders.
    pub sources: Vec<io::TopicSource>,
    /// Where they go besides the queries.
    pub sinks: Vec<io::StreamSink>,
    /// The files from which events come, read by whoever runs the app.
    pub file_sources: Vec<io::file::FileSource>,
    /// The files to which they go, written by whoever runs the app.
    pub file_sinks: Vec<io::file::FileSink>,
    /// Its named windows in order.
    pub windows: Vec<NamedWindowPlan>,
    /// What its on-demand queries may call.
    pub registry: Arc<Registry>,
    /// Its triggers in order: the stream of each, and when it fires.
    pub triggers: Vec<(usize, Trigger)>,
    limits: Limits,
}

impl AppPlan {
    /// How much it may hold.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The same with other limits.
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
    /// What its tables are called in a state, in order; the same of its named windows and queries below.
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

    /// All its queries, those in partitions as well, in the order of the text.
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

/// What runs, by its number in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanElement {
    /// A query.
    Query(usize),
    /// A partition.
    Partition(usize),
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
    let late = late::correction_span(app);
    let mut repeating = registry.clone();
    repeating.set_replayable_only(!matches!(late, Ok(None)));
    let registry = &repeating;
    let mut planner = Planner {
        registry,
        plan: AppPlan {
            text: text(app).into(),
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
            triggers: vec![],
            limits: Limits::default(),
        },
        names: BTreeMap::new(),
        undefined: BTreeSet::new(),
        queries: 0,
    };
    let mut wrong = annotations::check_app(&app.annotations);
    match late {
        Ok(allowed) => planner.plan.corrected = allowed,
        Err(diagnostics) => wrong.extend(diagnostics),
    }
    // an aggregation may stand before the stream that it reads
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

/// Definitions and queries, a line for each of their parts.
fn text(app: &ast::App) -> String {
    let all = tidemill_lang::siddhi::structural_text(app);
    all.lines().filter(|line| !line.starts_with("@app:")).flat_map(|line| [line, "\n"]).collect()
}

struct Planner<'r> {
    registry: &'r Registry,
    plan: AppPlan,
    /// Names given by `@info`, and where.
    names: BTreeMap<String, Span>,
    /// What could not be defined: who uses it has made no further mistake.
    undefined: BTreeSet<String>,
    /// How many queries there are so far.
    queries: usize,
}

impl Planner<'_> {
    /// Without those that only say that something is missing which could not be defined.
    fn root_causes(&self, mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
        diagnostics.retain(|d| {
            let missing = d.message.starts_with("there is no ") || d.message.starts_with("no query before ");
            let named = d.message.split('`').nth(1).unwrap_or_default();
            !missing || !self.undefined.contains(named.trim_start_matches('!'))
        });
        diagnostics
    }

    /// A query is wrong: the stream that it would have defined is not.
    fn mark_undefined(&mut self, query: &ast::Query) {
        if let ast::OutputAction::Insert { target } = &query.output.action {
            let name = full_name(target);
            if self.plan.catalog.find(&name).is_none() {
                self.undefined.insert(name);
            }
        }
    }
}
