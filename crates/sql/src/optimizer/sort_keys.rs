//! Computes what windows and sorts are ordered by in columns of its own.
//!
//! DataFusion derives orders from expressions. It fails where it cannot, as for `sqrt(x)` and comparisons of texts, and then finds
//! sorted rows not sorted. It also keeps the windows of one operator by their expressions, which common subexpressions
//! may replace in some of them only. Columns have neither problem. Of keys that are repeated, the first one is kept: its
//! aggregates that keep an order do not expect others.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::{Sort as SortExpr, WindowFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Distinct, Expr, LogicalPlan, LogicalPlanBuilder, Sort, Window};
use datafusion::optimizer::AnalyzerRule;

use crate::subqueries::subquery_of;

/// Analyzer rule that replaces keys that are no columns, after subqueries are joined.
#[derive(Debug, Default)]
pub(crate) struct SortKeysAsColumns;

impl AnalyzerRule for SortKeysAsColumns {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut columns = KeyColumns::default();
        plan.transform_up_with_subqueries(|node| columns.rewrite(node)).data()
    }

    fn name(&self) -> &str {
        "sort_keys_as_columns"
    }
}

#[derive(Default)]
struct KeyColumns {
    named: usize,
}

/// Keys of one operator, and their columns.
struct Keys(Vec<(Expr, Column)>);

impl KeyColumns {
    fn rewrite(&mut self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        match node {
            LogicalPlan::Window(window) => self.rewrite_window(window),
            LogicalPlan::Sort(sort) => self.rewrite_sort(sort),
            LogicalPlan::Distinct(Distinct::On(mut on)) => {
                on.sort_expr.iter_mut().for_each(remove_repeated);
                Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(on))))
            }
            LogicalPlan::Aggregate(aggregate) => rewrite_aggregate(aggregate),
            node => Ok(Transformed::no(node)),
        }
    }

    /// Returns columns for those of `keys` that are not columns.
    fn columns<'k>(&mut self, keys: impl Iterator<Item = &'k Expr>) -> Keys {
        let mut found: Vec<(Expr, Column)> = vec![];
        for key in keys.filter(|key| needs_column(key)) {
            if !found.iter().any(|(known, _)| known == key) {
                self.named += 1;
                found.push((key.clone(), Column::new_unqualified(format!("__key_{}", self.named))));
            }
        }
        Keys(found)
    }

    fn rewrite_window(&mut self, window: Window) -> Result<Transformed<LogicalPlan>> {
        let keys = self.columns(window.window_expr.iter().filter_map(window_of).flat_map(|function| {
            let order = function.params.order_by.iter().map(|sort| &sort.expr);
            function.params.partition_by.iter().chain(order)
        }));
        if keys.0.is_empty() {
            return Ok(Transformed::no(LogicalPlan::Window(window)));
        }
        let columns = window.schema.columns();
        let input = keys.below(&window.input)?;
        let plan = LogicalPlan::Window(window);
        let names = NamePreserver::new(&plan);
        let LogicalPlan::Window(window) = plan else { return Ok(Transformed::no(plan)) };
        let exprs = window.window_expr.into_iter().map(|mut expr| {
            let name = names.save(&expr);
            if let Some(function) = window_of_mut(&mut expr) {
                let params = &mut function.params;
                params.partition_by.iter_mut().for_each(|key| keys.replace(key));
                params.order_by.iter_mut().for_each(|sort| keys.replace(&mut sort.expr));
            }
            name.restore(expr)
        });
        let window = Window::try_new(exprs.collect(), Arc::new(input))?;
        narrow(LogicalPlan::Window(window), columns)
    }

    fn rewrite_sort(&mut self, sort: Sort) -> Result<Transformed<LogicalPlan>> {
        let keys = self.columns(sort.expr.iter().map(|sort| &sort.expr));
        if keys.0.is_empty() {
            return Ok(Transformed::no(LogicalPlan::Sort(sort)));
        }
        let columns = sort.input.schema().columns();
        let input = keys.below(&sort.input)?;
        let exprs = sort.expr.into_iter().map(|SortExpr { mut expr, asc, nulls_first }| {
            keys.replace(&mut expr);
            SortExpr { expr, asc, nulls_first }
        });
        let sort = Sort { expr: exprs.collect(), input: Arc::new(input), fetch: sort.fetch };
        narrow(LogicalPlan::Sort(sort), columns)
    }
}

impl Keys {
    /// Returns the rows of `plan` with the keys.
    fn below(&self, plan: &LogicalPlan) -> Result<LogicalPlan> {
        let columns = plan.schema().columns().into_iter().map(Expr::Column);
        let keys = self.0.iter().map(|(key, column)| key.clone().alias(&column.name));
        LogicalPlanBuilder::from(plan.clone()).project(columns.chain(keys))?.build()
    }

    fn replace(&self, key: &mut Expr) {
        if let Some((_, column)) = self.0.iter().find(|(known, _)| known == key) {
            *key = Expr::Column(column.clone());
        }
    }
}

/// Removes keys that have come before.
fn remove_repeated(keys: &mut Vec<SortExpr>) {
    let mut known: Vec<Expr> = vec![];
    keys.retain(|key| {
        let is_new = !known.contains(&key.expr);
        if is_new {
            known.push(key.expr.clone());
        }
        is_new
    });
}

fn rewrite_aggregate(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let order = |expr: &Expr| match expr.clone().unalias() {
        Expr::AggregateFunction(function) => function.params.order_by,
        _ => vec![],
    };
    let repeats = |keys: &[SortExpr]| {
        keys.iter().enumerate().any(|(n, key)| keys[..n].iter().any(|before| before.expr == key.expr))
    };
    if !aggregate.aggr_expr.iter().any(|expr| repeats(&order(expr))) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let plan = LogicalPlan::Aggregate(aggregate);
    let names = NamePreserver::new(&plan);
    let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(Transformed::no(plan)) };
    let exprs = aggregate.aggr_expr.into_iter().map(|mut expr| {
        let name = names.save(&expr);
        let mut at = &mut expr;
        while let Expr::Alias(alias) = at {
            at = alias.expr.as_mut();
        }
        if let Expr::AggregateFunction(function) = at {
            remove_repeated(&mut function.params.order_by);
        }
        name.restore(expr)
    });
    let aggregate = Aggregate::try_new(aggregate.input, aggregate.group_expr, exprs.collect())?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
}

/// Returns whether a key is computed for each row. A random one is another one each time.
fn needs_column(key: &Expr) -> bool {
    key.any_column_refs()
        && !matches!(key, Expr::Column(_))
        && !key.is_volatile()
        && !key.exists(|part| Ok(subquery_of(part).is_some())).unwrap_or(true)
}

fn window_of(expr: &Expr) -> Option<&WindowFunction> {
    match expr {
        Expr::WindowFunction(function) => Some(function),
        Expr::Alias(alias) => window_of(&alias.expr),
        _ => None,
    }
}

fn window_of_mut(expr: &mut Expr) -> Option<&mut WindowFunction> {
    match expr {
        Expr::WindowFunction(function) => Some(function),
        Expr::Alias(alias) => window_of_mut(&mut alias.expr),
        _ => None,
    }
}

/// Removes the keys from the result.
fn narrow(plan: LogicalPlan, columns: Vec<Column>) -> Result<Transformed<LogicalPlan>> {
    let columns = columns.into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(plan).project(columns)?.build().map(Transformed::yes)
}
