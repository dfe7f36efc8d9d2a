//! Connected components of the graph of streams, tables and queries.
//!
//! Two queries are connected if one reads what the other writes, or if both read or write one stream, table or named
//! window. What happens in one component cannot be observed in another, so each component is processed in batches or
//! row at a time for itself.

use crate::expr::{Expr, Node};
use crate::join::SideSource;
use crate::plan::AppPlan;
use crate::processor::Handler;
use crate::query::{QueryPlan, Target};
use crate::runtime::batch;

/// The components of an app.
pub(crate) struct Components {
    of_stream: Vec<usize>,
    of_query: Vec<usize>,
    of_partition: Vec<usize>,
    of_table: Vec<usize>,
    /// For each component, why its batches are processed row at a time; `None` if they are not.
    reasons: Vec<Option<String>>,
}

/// Sets that are joined until each is a component; the nodes of an app are its streams, then its tables, queries and
/// partitions.
struct DisjointSets(Vec<usize>);

impl DisjointSets {
    fn root(&mut self, mut node: usize) -> usize {
        while self.0[node] != node {
            self.0[node] = self.0[self.0[node]];
            node = self.0[node];
        }
        node
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.0[a.max(b)] = a.min(b);
    }
}

impl Components {
    /// Finds the components of an app, and why some must be processed row at a time.
    pub(crate) fn of(plan: &AppPlan) -> Self {
        let (streams, tables) = (plan.catalog.streams().len(), plan.catalog.tables().len());
        let (queries, partitions) = (plan.queries.len(), plan.partitions.len());
        let [first_table, first_query] = [streams, streams + tables];
        let first_partition = first_query + queries;
        let mut sets = DisjointSets((0..first_partition + partitions).collect());
        for (number, query) in plan.queries.iter().enumerate() {
            for node in neighbours(plan, query, first_table) {
                sets.join(first_query + number, node);
            }
        }
        for (number, partition) in plan.partitions.iter().enumerate() {
            let inside = partition.queries.iter().flat_map(|query| neighbours(plan, query, first_table));
            let keys = partition.keys.iter().flat_map(|keys| &keys.parts);
            let searched = keys.flat_map(|part| searched_tables(part.expr()));
            for node in partition.reads().chain(inside).chain(searched.map(|table| first_table + table)) {
                sets.join(first_partition + number, node);
            }
        }
        for aggregation in plan.catalog.aggregations() {
            for table in handler_expressions(&aggregation.handlers).flat_map(searched_tables) {
                sets.join(aggregation.stream, first_table + table);
            }
        }
        let external = external_tables(plan).map(|table| first_table + table).collect::<Vec<_>>();
        external.windows(2).for_each(|pair| sets.join(pair[0], pair[1]));
        for (number, stream) in plan.catalog.streams().iter().enumerate() {
            if let Some(of) = stream.name.strip_prefix('!').and_then(|name| plan.catalog.find(name)) {
                sets.join(number, of);
            }
        }
        let connected = plan.sinks.iter().map(|s| s.stream).chain(plan.sources.iter().map(|s| s.stream));
        let connected: Vec<usize> = connected.collect();
        connected.windows(2).for_each(|pair| sets.join(pair[0], pair[1]));
        let mut numbers = vec![usize::MAX; sets.0.len()];
        let mut count = 0;
        let mut number = |node: usize| {
            let root = sets.root(node);
            if numbers[root] == usize::MAX {
                numbers[root] = count;
                count += 1;
            }
            numbers[root]
        };
        let of_stream = (0..streams).map(&mut number).collect();
        let of_table = (first_table..first_query).map(&mut number).collect();
        let of_query = (first_query..first_partition).map(&mut number).collect();
        let of_partition = (first_partition..first_partition + partitions).map(&mut number).collect();
        let mut components = Self { of_stream, of_query, of_partition, of_table, reasons: vec![None; count] };
        batch::find_row_at_a_time_reasons(plan, &mut components);
        components
    }

    /// Returns the number of components.
    pub(crate) fn len(&self) -> usize {
        self.reasons.len()
    }

    pub(crate) fn of_stream(&self, stream: usize) -> usize {
        self.of_stream[stream]
    }

    pub(crate) fn of_table(&self, table: usize) -> usize {
        self.of_table[table]
    }

    pub(crate) fn of_query(&self, query: usize) -> usize {
        self.of_query[query]
    }

    pub(crate) fn of_partition(&self, partition: usize) -> usize {
        self.of_partition[partition]
    }

    /// Records why a component is processed row at a time, unless there is a reason already.
    pub(crate) fn add_reason(&mut self, component: usize, reason: impl FnOnce() -> String) {
        self.reasons[component].get_or_insert_with(reason);
    }

    /// Returns why a component is processed row at a time; `None` if it is not.
    pub(crate) fn reason(&self, component: usize) -> Option<&str> {
        self.reasons[component].as_deref()
    }

    /// Returns the reasons of all components that have one.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = &str> {
        self.reasons.iter().flatten().map(String::as_str)
    }
}

/// Returns the nodes of the streams and tables that a query reads and writes.
fn neighbours(plan: &AppPlan, query: &QueryPlan, first_table: usize) -> Vec<usize> {
    let window = |window: usize| plan.windows[window].stream;
    let mut nodes: Vec<usize> = query.reads().into_iter().map(|(stream, _)| stream).collect();
    nodes.push(match query.target {
        Target::Stream(stream) | Target::Inner(stream) => stream,
        Target::Window(number) => window(number),
        Target::Table(table, _) => first_table + table,
    });
    for side in query.join.iter().flat_map(|join| &join.sides) {
        nodes.push(match side.source {
            SideSource::Stream(stream) => stream,
            SideSource::Window(_, number) => window(number),
            SideSource::Table(table) => first_table + table,
            SideSource::Aggregation(number) => plan.catalog.aggregations()[number].stream,
        });
    }
    let tables = plan.catalog.tables().len();
    let mut searched: Vec<usize> = Vec::new();
    let mut look = |expr: &Expr| searched.extend(searched_tables(expr).into_iter().map(|t| first_table + t));
    batch::visit_expressions(query, &mut look);
    query.select.group_by.iter().for_each(&mut look);
    query.state.iter().flat_map(|state| &state.steps).flat_map(|step| &step.filters).for_each(&mut look);
    query.join.iter().filter_map(|join| join.on.as_ref()).for_each(&mut look);
    let sides = query.join.iter().flat_map(|join| &join.sides).flat_map(|side| &side.handlers);
    let mut has_hidden_reads = query.join.as_ref().is_some_and(|join| join.search.is_some());
    for handler in query.before.iter().chain(&query.after).chain(sides) {
        match handler {
            Handler::Filter(condition) => look(condition),
            Handler::Function(_, args, _) => {
                args.iter().for_each(&mut look);
                // it may ask the system in which a table is
                nodes.extend(external_tables(plan).map(|table| first_table + table));
            }
            Handler::Stateful(_) => has_hidden_reads = true,
        }
    }
    nodes.append(&mut searched);
    if has_hidden_reads {
        // its expressions are not visible here: it may read any table
        nodes.extend(first_table..first_table + tables);
    }
    nodes
}

/// Returns the tables that an expression searches.
pub(super) fn searched_tables(expr: &Expr) -> Vec<usize> {
    let mut tables = Vec::new();
    expr.walk(&mut |x| {
        if let Node::In { table, .. } = x.node {
            tables.push(table);
        }
    });
    tables
}

/// Returns the conditions and arguments of handlers without state.
pub(super) fn handler_expressions(handlers: &[Handler]) -> impl Iterator<Item = &Expr> {
    handlers.iter().flat_map(|handler| match handler {
        Handler::Filter(condition) => std::slice::from_ref(condition),
        Handler::Function(_, args, _) => args.as_slice(),
        Handler::Stateful(_) => &[],
    })
}

/// Returns the tables whose rows are in another system.
fn external_tables(plan: &AppPlan) -> impl Iterator<Item = usize> {
    let tables = plan.catalog.tables().iter().enumerate();
    tables.filter(|(_, table)| table.store.is_some()).map(|(number, _)| number)
}
