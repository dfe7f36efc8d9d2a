//! Placement of the queries of a file.
//!
//! A query runs in every partition when what it needs to know of an event lies where the event lies: it looks at each
//! event by itself, or keeps something for each key of a stream that is spread by that key. If the stream has no key, the query has to
//! give up the order of its events, by `@dist(parallel='4')`. Everything else runs in one partition, the home of the file, to which the
//! events of the streams that it reads travel.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_flow::Registry;
use tidemill_flow::plan::AppPlan;
use tidemill_lang::Diagnostic;
use tidemill_lang::siddhi::ast::{
    Annotation, AnnotationEntry, App, Definition, ExecutionElement, ExprKind, Partition, PartitionKeyKind,
    Query, Scope, SelectItems,
};

use tidemill_types::PartitionId;

use super::properties::{self, QueryProperties};
use crate::directory::partitioning::{HomeRule, Partitioning};

/// Placement of an element of a file, and the reason for it.
#[derive(Debug, Clone)]
pub struct ElementPlacement {
    /// In every partition, or in one.
    pub partitioned: bool,
    /// Why, for people.
    pub reason: String,
    /// The queries: one, or those of a `partition with` block.
    pub queries: Vec<(String, QueryProperties)>,
    /// The name of its group: `@dist(execGroup='…')`.
    pub group: Option<String>,
    /// Instances for which it asks by `@dist(parallel='…')`.
    pub parallel: Option<u32>,
    /// The key of a `partition with` block, as text.
    pub partition_key: Option<String>,
    /// By stream that it writes, the attribute that holds the key of what it reads.
    output_keys: Vec<(String, Option<String>)>,
}

impl ElementPlacement {
    /// Returns whether what it writes to a stream, if it does, has the key of what it reads in attribute
    /// `key`.
    pub(crate) fn preserves_key(&self, stream: &str, key: &str) -> bool {
        let mut written = self.output_keys.iter().filter(|(name, _)| name == stream);
        written.all(|(_, attribute)| attribute.as_deref() == Some(key))
    }
}

/// Placements of all elements of a file, and the keys of the streams that its queries define.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    /// One for each element, in order.
    pub elements: Vec<ElementPlacement>,
    /// The field by which each stream is spread that queries define by writing it.
    pub keys: BTreeMap<String, Option<String>>,
}

/// Home of files with tables in stores, which other files may have as well.
pub const SHARED_STORES_HOME: PartitionId = PartitionId::FIRST;

/// Returns the home of a file, and the reason for it, for people. It follows from the file alone: if it followed from other files, a change
/// of one could take the queries of another one away from their state.
pub fn home(
    name: &str,
    plan: &AppPlan,
    placement: &Placement,
    partitioning: Partitioning,
) -> (PartitionId, &'static str) {
    let mut queries = placement.elements.iter().flat_map(|placed| &placed.queries);
    let shares_store =
        plan.catalog.stored_tables().next().is_some() || queries.any(|(_, facts)| facts.asks_database());
    if partitioning.partitions == 1 {
        (PartitionId::FIRST, "there is one partition")
    } else if partitioning.home_rule == HomeRule::First {
        (PartitionId::FIRST, "the directory was made before files had homes of their own")
    } else if shares_store {
        (SHARED_STORES_HOME, "it uses a store, which other files may use as well")
    } else {
        (partitioning.home(name), "it follows from the name of the file")
    }
}

/// Context of the placement: all but the queries. Nothing of it lies in every partition.
struct Placer<'a> {
    app: &'a App,
    registry: &'a Registry,
    /// The streams that are declared or defined, with their keys.
    keys: &'a BTreeMap<String, Option<String>>,
    /// Tables, named windows, aggregations, triggers.
    stores: BTreeMap<&'a str, &'static str>,
    partitioning: Partitioning,
    /// True if nothing runs in every partition.
    global_only: bool,
}

/// Decides for each element of `app`. `keys`: the field by which each defined stream is spread. `corrected`:
/// whether late events correct what was emitted; then all elements run in the same place, because what is
/// taken back does not travel from one to the other.
pub fn place(
    app: &App,
    registry: &Registry,
    keys: &BTreeMap<String, Option<String>>,
    partitioning: Partitioning,
    corrected: bool,
) -> Placement {
    let stores = app.definitions.iter().filter_map(|d| {
        let kind = match d {
            Definition::Table(_) => "a table",
            Definition::Window(_) => "a named window",
            Definition::Aggregation(_) => "an aggregation",
            Definition::Trigger(_) => "a trigger",
            Definition::Stream(_) | Definition::Function(_) => return None,
        };
        Some((d.name().name.as_str(), kind))
    });
    let stores = stores.collect();
    let mut context = Placer { app, registry, keys, stores, partitioning, global_only: false };
    let placement = context.place();
    if !corrected || placement.elements.iter().all(|placed| placed.partitioned) {
        return placement;
    }
    context.global_only = true;
    context.place()
}

impl Placer<'_> {
    fn place(&self) -> Placement {
        // a stream with writers that disagree about its key has none, which may change where its readers run
        let mut keyless = BTreeSet::new();
        loop {
            let (placement, conflicts) = self.place_elements(&keyless);
            if conflicts.is_empty() {
                return placement;
            }
            keyless.extend(conflicts);
        }
    }

    /// One look at all elements in order of the text; streams turn out to have different keys.
    fn place_elements(&self, keyless: &BTreeSet<String>) -> (Placement, Vec<String>) {
        let mut placement = Placement::default();
        let mut conflicts = Vec::new();
        for (i, element) in self.app.elements.iter().enumerate() {
            let placed = match element {
                ExecutionElement::Query(query) => self.query(query, i, &placement.keys),
                ExecutionElement::Partition(block) => self.block(block, i, &placement.keys),
            };
            for (stream, key) in &placed.output_keys {
                if self.keys.contains_key(stream) || stream.starts_with(['#', '!']) {
                    continue;
                }
                let key = key.clone().filter(|_| !keyless.contains(stream));
                match placement.keys.get(stream) {
                    None => {
                        placement.keys.insert(stream.clone(), key);
                    }
                    Some(known) if *known != key => conflicts.push(stream.clone()),
                    Some(_) => {}
                }
            }
            placement.elements.push(placed);
        }
        (placement, conflicts)
    }

    fn key_of(&self, stream: &str, inferred: &BTreeMap<String, Option<String>>) -> Option<String> {
        self.keys.get(stream).or_else(|| inferred.get(stream)).cloned().flatten()
    }

    fn query(
        &self,
        query: &Query,
        number: usize,
        inferred: &BTreeMap<String, Option<String>>,
    ) -> ElementPlacement {
        let facts = properties::analyze(query, self.registry);
        let name = name_of(query, number);
        let key = facts.reads.first().and_then(|stream| self.key_of(stream, inferred));
        let (group, parallel) = dist_options(&query.annotations);
        let why = self.placement_reason(&facts, key.as_deref(), parallel);
        let key_out = vec![(
            facts.writes.clone(),
            key.filter(|_| why.is_err()).and_then(|k| passed_through_column(query, &k)),
        )];
        let (everywhere, why) = match why {
            Ok(reason) => (false, reason),
            Err(reason) => (true, reason),
        };
        ElementPlacement {
            partitioned: everywhere,
            reason: why,
            queries: vec![(name, facts)],
            group,
            parallel,
            partition_key: None,
            output_keys: key_out,
        }
    }

    /// Why a query has to see all events; as error, why it need not.
    fn placement_reason(
        &self,
        facts: &QueryProperties,
        key: Option<&str>,
        parallel: Option<u32>,
    ) -> Result<String, String> {
        if let Some(reason) = self.global_reason(facts) {
            return Ok(reason);
        }
        let Some(key) = key else {
            let asks = self.partitioning.home_rule >= HomeRule::Parallel && parallel > Some(1);
            if asks && facts.retained_state.is_empty() {
                return Err("looks at each event by itself, in any order (@dist)".into());
            }
            return Ok(format!("{} has no key", facts.reads.first().map_or("", String::as_str)));
        };
        if facts.retained_state.is_empty() {
            return Err("looks at each event by itself".into());
        }
        if facts.only_group_aggregates && facts.group_by.iter().any(|g| g == key) {
            return Err(format!("keeps totals of each {key}, by which its stream is spread"));
        }
        Ok(format!("keeps {} of all keys", facts.retained_state.join(", ")))
    }

    /// Why a query cannot run in every partition wherever its events lie.
    fn global_reason(&self, facts: &QueryProperties) -> Option<String> {
        if self.partitioning.partitions == 1 {
            return Some("there is one partition".into());
        }
        if self.global_only {
            return Some("late events correct the whole file, and some of it runs here".into());
        }
        if !facts.inserts {
            return Some(format!("changes table {}", facts.writes));
        }
        if facts.asks_database() {
            return Some("sends statements to a database, once and in order".into());
        }
        let names = facts.reads.iter().chain([&facts.writes]).chain(&facts.queried_tables);
        for name in names {
            if let Some(kind) = self.stores.get(name.as_str()) {
                return Some(format!("{name} is {kind}"));
            }
            if name.starts_with('!') {
                return Some(format!("{name} has the failed events of this partition"));
            }
        }
        None
    }

    fn block(
        &self,
        block: &Partition,
        number: usize,
        inferred: &BTreeMap<String, Option<String>>,
    ) -> ElementPlacement {
        let queries: Vec<(String, QueryProperties)> = block
            .queries
            .iter()
            .enumerate()
            .map(|(i, query)| (block_query_name(query, number, i), properties::analyze(query, self.registry)))
            .collect();
        let with: Vec<String> = block.keys.iter().map(|key| key_text(&key.kind, &key.stream.name)).collect();
        let why = self.block_placement_reason(block, &queries, inferred);
        let key_out = block.queries.iter().zip(&queries).map(|(query, (_, facts))| {
            let keys = block.keys.iter().filter_map(|key| self.key_of(&key.stream.name, inferred));
            let key = keys
                .into_iter()
                .next()
                .filter(|_| why.is_err())
                .and_then(|key| passed_through_column(query, &key));
            (facts.writes.clone(), key)
        });
        let key_out = key_out.collect();
        let (group, parallel) = dist_options(&block.annotations);
        let (everywhere, why) = match why {
            Ok(reason) => (false, reason),
            Err(reason) => (true, reason),
        };
        ElementPlacement {
            partitioned: everywhere,
            reason: why,
            queries,
            group,
            parallel,
            partition_key: Some(with.join(", ")),
            output_keys: key_out,
        }
    }

    fn block_placement_reason(
        &self,
        block: &Partition,
        queries: &[(String, QueryProperties)],
        inferred: &BTreeMap<String, Option<String>>,
    ) -> Result<String, String> {
        let mut spread = BTreeSet::new();
        for key in &block.keys {
            let stream = &key.stream.name;
            let own = self.key_of(stream, inferred);
            let PartitionKeyKind::Value(value) = &key.kind else {
                return Ok("its keys are ranges".into());
            };
            match (&value.kind, &own) {
                (ExprKind::Attribute(a), Some(own)) if a.name.name == *own => {
                    spread.insert(stream.as_str());
                }
                (_, Some(own)) => return Ok(format!("{stream} is spread by {own}, not by {value}")),
                (_, None) => return Ok(format!("{stream} has no key")),
            }
        }
        for (_, facts) in queries {
            if let Some(reason) = self.global_reason(facts) {
                return Ok(reason);
            }
            let outside = facts.reads.iter().find(|r| !r.starts_with('#') && !spread.contains(r.as_str()));
            if let Some(stream) = outside {
                return Ok(format!("every key gets the events of {stream}"));
            }
        }
        Err("keeps what it keeps for each key, by which its streams are spread".into())
    }
}

/// The name of a query: `@info(name='…')`, or its place in the file.
pub fn name_of(query: &Query, number: usize) -> String {
    given_name(query).unwrap_or_else(|| format!("query {}", number + 1))
}

fn block_query_name(query: &Query, number: usize, i: usize) -> String {
    given_name(query).unwrap_or_else(|| format!("query {}.{}", number + 1, i + 1))
}

fn given_name(query: &Query) -> Option<String> {
    let info = query.annotations.iter().find(|a| a.is("info"))?;
    info.element("name").map(|name| name.value.value.clone())
}

/// Checks the numbers of `@dist(parallel='…')`. Errors: one is not a number of instances.
pub fn check_parallel(app: &App) -> Result<(), Diagnostic> {
    let annotations = app.elements.iter().flat_map(|element| match element {
        ExecutionElement::Query(query) => query.annotations.as_slice(),
        ExecutionElement::Partition(block) => block.annotations.as_slice(),
    });
    let mut asked = annotations.filter(|a| a.is("dist")).filter_map(|dist| dist.element("parallel"));
    let Some(wrong) = asked.find(|parallel| instances(parallel).is_none()) else { return Ok(()) };
    let message = format!("`{}` is not a number of instances, from 1", wrong.value.value);
    Err(Diagnostic::error("E0104", wrong.value.span, message).expected(["'4'"]))
}

fn instances(parallel: &AnnotationEntry) -> Option<u32> {
    parallel.value.value.trim().parse().ok().filter(|instances| *instances > 0)
}

/// `@dist(execGroup='…', parallel='…')`.
fn dist_options(annotations: &[Annotation]) -> (Option<String>, Option<u32>) {
    let Some(dist) = annotations.iter().find(|a| a.is("dist")) else { return (None, None) };
    let group = dist.element("execGroup").map(|e| e.value.value.clone());
    (group, dist.element("parallel").and_then(instances))
}

fn key_text(kind: &PartitionKeyKind, stream: &str) -> String {
    match kind {
        PartitionKeyKind::Value(value) => format!("{value} of {stream}"),
        PartitionKeyKind::Ranges(ranges) => {
            let names: Vec<&str> = ranges.iter().map(|r| r.name.value.as_str()).collect();
            format!("{} of {stream}", names.join(" or "))
        }
    }
}

/// The output column that is the attribute `key` as it came.
fn passed_through_column(query: &Query, key: &str) -> Option<String> {
    match query.select.as_ref().map(|s| &s.items) {
        None | Some(SelectItems::All(_)) => Some(key.to_owned()),
        Some(SelectItems::List(items)) => items.iter().find_map(|item| match &item.expr.kind {
            ExprKind::Attribute(a)
                if a.name.name == key
                    && a.source
                        .as_ref()
                        .is_none_or(|s| s.stream.scope == Scope::App && s.index.is_none()) =>
            {
                item.name().map(|name| name.name.clone())
            }
            _ => None,
        }),
    }
}
