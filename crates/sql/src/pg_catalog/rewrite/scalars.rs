//! Subqueries whose value is that of one row, or a list of all rows.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::logical_expr::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArgumentClause, FunctionArguments, GroupByExpr, Ident, Join,
    JoinConstraint, JoinOperator, LimitClause, OrderByKind, Query, Select, SelectItem, TableAlias,
    TableFactor, TableWithJoins, Value, Visit, VisitMut, Visitor, VisitorMut,
};

use super::build::{boolean, call, called, select_of, take};
use super::catalog_of;
use super::emptiness::calls_aggregate;
use crate::pg_catalog::functions::OR_EMPTY;
use crate::pg_catalog::single_value::SINGLE_VALUE;

/// Replaces `ARRAY(SELECT …)` by an aggregate.
pub(super) fn replace_list(expr: &mut Expr) {
    if called(expr).as_deref() != Some("array") {
        return;
    }
    let Expr::Function(array) = expr else { return };
    let FunctionArguments::Subquery(query) = &mut array.args else { return };
    let order = query.order_by.take();
    let Some(select) = select_of(query) else { return };
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] =
        select.projection.as_mut_slice()
    else {
        return;
    };
    let value = take(item);
    let mut list = call("array_agg", vec![value.clone()]);
    if let Some(order) = order
        && let OrderByKind::Expressions(mut keys) = order.kind
        && let Expr::Function(aggregate) = &mut list
        && let FunctionArguments::List(arguments) = &mut aggregate.args
    {
        for key in &mut keys {
            // the number of the only column
            if matches!(&key.expr, Expr::Value(number) if matches!(&number.value, Value::Number(n, _) if n == "1"))
            {
                key.expr = value.clone();
            }
        }
        arguments.clauses.push(FunctionArgumentClause::OrderBy(keys));
    }
    *item = list;
    let query = query.clone();
    *expr = call(OR_EMPTY, vec![Expr::Subquery(query)]);
}

/// Makes each subquery that depends on the outer row and has no aggregate one that DataFusion plans.
pub(super) fn join(select: &mut Select, laterals: &mut usize) {
    if select.from.is_empty() {
        return;
    }
    let mut replacer = Replacer { joined: vec![], laterals, depth: 0 };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            let _ = VisitMut::visit(expr, &mut replacer);
        }
    }
    if let Some(selection) = &mut select.selection {
        let _ = VisitMut::visit(selection, &mut replacer);
    }
    let joined = replacer.joined;
    if joined.is_empty() {
        return;
    }
    // a lateral query sees the tables of its own join only
    let mut tables = std::mem::take(&mut select.from).into_iter();
    let Some(mut first) = tables.next() else { return };
    for table in tables {
        let relation = match table.joins.is_empty() {
            true => table.relation,
            false => TableFactor::NestedJoin { table_with_joins: Box::new(table), alias: None },
        };
        first.joins.push(Join {
            relation,
            global: false,
            join_operator: JoinOperator::CrossJoin(JoinConstraint::None),
        });
    }
    first.joins.extend(joined);
    select.from = vec![first];
}

struct Replacer<'l> {
    joined: Vec<Join>,
    laterals: &'l mut usize,
    /// Depth of queries around the expression.
    depth: usize,
}

impl VisitorMut for Replacer<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Subquery(query) = expr else { return ControlFlow::Continue(()) };
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        drop_limit_of_one_row(query);
        match dependence(query) {
            Dependence::None => {}
            Dependence::Equal => {
                let order_has_no_effect = query.limit_clause.is_none();
                if let Some(select) = select_of(query)
                    && let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] =
                        select.projection.as_mut_slice()
                {
                    let value = take(item);
                    *item = call(SINGLE_VALUE, vec![value]);
                }
                if order_has_no_effect {
                    query.order_by = None;
                }
            }
            Dependence::Other => {
                *self.laterals += 1;
                let name = format!("__lateral_{}", self.laterals);
                if let Some(select) = select_of(query)
                    && let [item] = select.projection.as_mut_slice()
                    && let SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. } =
                        item
                {
                    let value = take(value);
                    *item = SelectItem::ExprWithAlias { expr: value, alias: Ident::new(VALUE) };
                }
                let alias =
                    TableAlias { explicit: true, name: Ident::new(name.clone()), columns: vec![], at: None };
                self.joined.push(Join {
                    relation: TableFactor::Derived {
                        lateral: true,
                        subquery: query.clone(),
                        alias: Some(alias),
                        sample: None,
                    },
                    global: false,
                    join_operator: JoinOperator::LeftOuter(JoinConstraint::On(boolean(true))),
                });
                *expr = Expr::CompoundIdentifier(vec![Ident::new(name), Ident::new(VALUE)]);
            }
        }
        ControlFlow::Continue(())
    }
}

/// Removes the limit of a query that has one row anyway, as an aggregate without groups has.
fn drop_limit_of_one_row(query: &mut Query) {
    let is_one_or_more = |limit: &Expr| {
        matches!(limit, Expr::Value(value)
            if matches!(&value.value, Value::Number(n, _) if n.parse::<u64>().is_ok_and(|n| n > 0)))
    };
    let is_plain = match &query.limit_clause {
        Some(LimitClause::LimitOffset { limit: Some(limit), offset: None, limit_by }) => {
            limit_by.is_empty() && is_one_or_more(limit)
        }
        _ => false,
    };
    let has_one_row = query.with.is_none()
        && select_of(query).is_some_and(|select| {
            matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty())
                && select.projection.iter().all(|item| match item {
                    SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                        calls_aggregate(expr)
                    }
                    _ => false,
                })
        });
    if is_plain && has_one_row {
        query.limit_clause = None;
    }
}

/// Name of the column of a lateral query.
const VALUE: &str = "value";

/// Dependence of a subquery on the outer row.
enum Dependence {
    /// The subquery does not depend on it, or an aggregate makes one row of all.
    None,
    /// Columns are equal to values of the outer row.
    Equal,
    Other,
}

fn dependence(query: &mut Query) -> Dependence {
    if query.with.is_some() || query.limit_clause.is_some() {
        return Dependence::None;
    }
    let Some(select) = select_of(query) else { return Dependence::None };
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    let has_aggregate = select.projection.iter().any(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => calls_aggregate(expr),
        _ => true,
    });
    if is_grouped || has_aggregate || select.distinct.is_some() {
        return Dependence::None;
    }
    let scope = QueryNames::of(select);
    let Some(selection) = &select.selection else { return Dependence::None };
    let mut found = Dependence::None;
    for term in terms(selection) {
        if !scope.outer(term) {
            continue;
        }
        let is_equality = match term {
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                let (inner, outer) = if scope.outer(left) { (right, left) } else { (left, right) };
                !scope.outer(inner)
                    && matches!(inner.as_ref(), Expr::Identifier(_) | Expr::CompoundIdentifier(_))
                    && !scope.inner(outer)
            }
            _ => false,
        };
        if !is_equality {
            return Dependence::Other;
        }
        found = Dependence::Equal;
    }
    found
}

/// Returns the terms that `AND` joins.
fn terms(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            let mut all = terms(left);
            all.extend(terms(right));
            all
        }
        Expr::Nested(inner) => terms(inner),
        other => vec![other],
    }
}

/// Names that a query itself has.
struct QueryNames {
    tables: HashSet<String>,
    /// Columns of its tables; `None` if they are not known.
    columns: Option<HashSet<&'static str>>,
}

impl QueryNames {
    fn of(select: &Select) -> Self {
        let mut scope = Self { tables: HashSet::new(), columns: Some(HashSet::new()) };
        for table in &select.from {
            scope.join(table);
        }
        scope
    }

    fn join(&mut self, table: &TableWithJoins) {
        self.factor(&table.relation);
        for join in &table.joins {
            self.factor(&join.relation);
        }
    }

    fn factor(&mut self, factor: &TableFactor) {
        let alias = match factor {
            TableFactor::Table { name, alias, args, .. } => {
                let catalog = catalog_of(name).filter(|_| args.is_none());
                match (catalog, &mut self.columns) {
                    (Some(catalog), Some(columns)) => {
                        columns.extend(catalog.columns.iter().map(|column| column.name));
                    }
                    _ => self.columns = None,
                }
                if alias.is_none() {
                    let last = name.0.last().and_then(|part| part.as_ident());
                    self.tables.extend(last.map(|ident| ident.value.clone()));
                }
                alias
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                self.join(table_with_joins);
                alias
            }
            TableFactor::Derived { alias, .. } => {
                self.columns = None;
                alias
            }
            _ => {
                self.columns = None;
                &None
            }
        };
        self.tables.extend(alias.as_ref().map(|alias| alias.name.value.clone()));
    }

    /// Returns whether a column is one of the outer query.
    fn is_outer(&self, expr: &Expr) -> Option<bool> {
        match expr {
            Expr::Identifier(name) => {
                let known = self.columns.as_ref();
                Some(known.is_some_and(|columns| !columns.contains(name.value.as_str())))
            }
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [.., table, _] => Some(!self.tables.contains(&table.value)),
                _ => None,
            },
            _ => None,
        }
    }

    fn any(&self, expr: &Expr, wanted: bool) -> bool {
        struct Finder<'s>(&'s QueryNames, bool);
        impl Visitor for Finder<'_> {
            type Break = ();

            fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
                match self.0.is_outer(expr) == Some(self.1) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            }
        }
        expr.visit(&mut Finder(self, wanted)).is_break()
    }

    fn outer(&self, expr: &Expr) -> bool {
        self.any(expr, true)
    }

    fn inner(&self, expr: &Expr) -> bool {
        self.any(expr, false)
    }
}
