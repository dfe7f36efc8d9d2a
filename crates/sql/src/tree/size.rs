//! Size of a statement once every `WITH` query is expanded where it is used.

use std::collections::HashMap;

use datafusion::logical_expr::sqlparser::ast::{ObjectName, Query};

/// Size of a query, as a measure of its planning cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct QuerySize {
    pub relations: usize,
    pub nodes: usize,
    /// Maximum depth of nested operators and queries.
    pub levels: usize,
}

impl QuerySize {
    fn add(&mut self, inner: QuerySize) {
        self.relations = self.relations.saturating_add(inner.relations);
        self.nodes = self.nodes.saturating_add(inner.nodes);
        self.levels = self.levels.max(inner.levels.saturating_add(1));
    }
}

/// Stack of the queries being visited, the innermost last.
#[derive(Debug, Default)]
pub(super) struct Scopes(Vec<SizeScope>);

#[derive(Debug, Default)]
struct SizeScope {
    /// `WITH` queries by address, which distinguishes them from other queries nested in this one.
    with: Vec<(*const Query, String)>,
    /// Sizes of the `WITH` queries visited so far.
    named: HashMap<String, QuerySize>,
    size: QuerySize,
    /// Levels that joins and set operations add above the rest of the query.
    above: usize,
}

impl Scopes {
    /// Enters a query whose set operations are `levels` deep.
    pub fn enter(&mut self, query: &Query, levels: usize) {
        let with = query.with.iter().flat_map(|w| &w.cte_tables);
        let with = with.map(|cte| (&raw const *cte.query, cte.alias.name.value.clone())).collect();
        self.0.push(SizeScope { with, above: levels, ..SizeScope::default() });
    }

    /// Leaves a query. Returns the size of the enclosing query, or its own if it is the outermost.
    pub fn leave(&mut self, query: &Query) -> &QuerySize {
        let mut scope = self.0.pop().unwrap_or_default();
        scope.size.levels = scope.size.levels.saturating_add(scope.above);
        let Some(outer) = self.0.last_mut() else {
            // pushed back for the caller: this is the outermost query
            self.0.push(scope);
            return self.current();
        };
        match outer.with.iter().find(|(address, _)| std::ptr::eq(*address, query)) {
            Some((_, name)) => {
                outer.named.insert(name.clone(), scope.size);
            }
            None => outer.size.add(scope.size),
        }
        self.current()
    }

    /// Adds a reference to a table or a `WITH` query. Returns the size of the current query so far.
    pub fn read(&mut self, relation: &ObjectName) -> &QuerySize {
        let name = match relation.0.as_slice() {
            [part] => part.as_ident().map(|i| i.value.as_str()),
            _ => None,
        };
        let named = name.and_then(|n| self.0.iter().rev().find_map(|s| s.named.get(n))).copied();
        if let Some(scope) = self.0.last_mut() {
            let inner = named.unwrap_or_default();
            // a `WITH` query without a table is planned again at each use, too
            scope.size.add(QuerySize { relations: inner.relations.max(1), ..inner });
        }
        self.current()
    }

    /// Adds a `FROM` that joins `tables`, each join one level above the one before.
    pub fn join(&mut self, tables: usize) {
        if let Some(scope) = self.0.last_mut() {
            scope.above += tables;
        }
    }

    /// Adds an expression at depth `levels`.
    pub fn expression(&mut self, levels: usize) {
        if let Some(scope) = self.0.last_mut() {
            scope.size.nodes = scope.size.nodes.saturating_add(1);
            scope.size.levels = scope.size.levels.max(levels);
        }
    }

    fn current(&self) -> &QuerySize {
        const NONE: &QuerySize = &QuerySize { relations: 0, nodes: 0, levels: 0 };
        self.0.last().map_or(NONE, |s| &s.size)
    }
}
