//! The latest row of each key, in the spellings that rank rows or aggregate them.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::expr::{AggregateFunction, Sort as SortExpr};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Expr, Filter, LogicalPlan, LogicalPlanBuilder, Operator, TableScan,
};
use tidemill_types::column;

use super::base::{Base, hot_source};
use super::selection::Selected;
use super::{project_as, unalias};
use crate::hot::column::ColumnExpr;
use crate::hot::exec::HotScanTable;
use crate::hot::scan::{HotSelection, ScanResult, TimeRange};

/// Returns the replacement of `row_number() OVER (PARTITION BY key ORDER BY time DESC) = 1` over an event table.
pub(super) fn of_row_number(node: &Filter) -> Option<LogicalPlan> {
    let inner = match node.input.as_ref() {
        LogicalPlan::Projection(p) if p.expr.iter().all(|e| matches!(e, Expr::Column(_))) => p.input.as_ref(),
        other => other,
    };
    let LogicalPlan::Window(window) = inner else { return None };
    let [ranking] = window.window_expr.as_slice() else { return None };
    let Expr::WindowFunction(call) = unalias(ranking) else { return None };
    let params = &call.params;
    if call.fun.name() != "row_number" || params.filter.is_some() || params.distinct {
        return None;
    }
    let base = Base::of(&window.input)?;
    if !same_key(&base, &params.partition_by) {
        return None;
    }
    let by_field = log_order(&base, &params.order_by.iter().collect::<Vec<_>>(), false)?;
    let rank = Column::from(window.schema.qualified_field(window.schema.fields().len() - 1));
    let conditions = split_conjunction(&node.predicate);
    let (ranks, others): (Vec<&Expr>, Vec<&Expr>) = conditions.into_iter().partition(|c| is_first(c, &rank));
    if ranks.is_empty() {
        return None;
    }
    let latest = with_latest_rows(&window.input, &base, by_field)?;
    let one = || Expr::Literal(ScalarValue::UInt64(Some(1)), None);
    let ranked = node.input.schema().columns().into_iter().map(|column| match column == rank {
        true => one().alias_qualified(column.relation, column.name),
        false => Expr::Column(column),
    });
    let plan = LogicalPlanBuilder::from(latest).project(ranked.collect::<Vec<_>>()).ok()?;
    match others.into_iter().cloned().reduce(Expr::and) {
        None => plan.build().ok(),
        Some(others) => plan.filter(others).ok()?.build().ok(),
    }
}

/// Returns whether `condition` selects the first rank only.
fn is_first(condition: &Expr, rank: &Column) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return false };
    let (Expr::Column(column), Expr::Literal(ScalarValue::UInt64(Some(limit)), _)) =
        (left.as_ref(), right.as_ref())
    else {
        return false;
    };
    column == rank && matches!((op, limit), (Operator::Eq | Operator::LtEq, 1) | (Operator::Lt, 2))
}

/// Returns the replacement of an aggregate by key whose functions are all values of the latest row: `last(x, time)`,
/// `DISTINCT ON (key) … ORDER BY key, time DESC`.
pub(super) fn of_aggregate(node: &Aggregate) -> Option<LogicalPlan> {
    let base = Base::of(&node.input)?;
    let groups = node.group_expr.iter().map(|group| base.resolve(group)).collect::<Option<Vec<_>>>()?;
    let by_key = match groups.as_slice() {
        [] => base.source.roles.key.is_none(),
        [group] => base.is_key(group),
        _ => false,
    };
    // without groups there is one row even if the table has none
    if !by_key || groups.is_empty() || node.aggr_expr.is_empty() {
        return None;
    }
    let mut by_field = false;
    let mut columns: Vec<Expr> = node.group_expr.iter().map(|group| unalias(group).clone()).collect();
    for function in &node.aggr_expr {
        let Expr::AggregateFunction(AggregateFunction { func, params }) = unalias(function) else {
            return None;
        };
        let ascending = match func.name() {
            "first_value" => false,
            "last_value" => true,
            _ => return None,
        };
        let ignores_nulls =
            params.null_treatment == Some(datafusion::logical_expr::expr::NullTreatment::IgnoreNulls);
        // where the time is that of the row, it is never null
        let is_time_known = |filter: &Expr| match filter {
            Expr::IsNotNull(time) => base.resolve(time).is_some_and(|time| base.is_time(&time).is_some()),
            _ => false,
        };
        let filters = params.filter.as_ref().is_some_and(|filter| !is_time_known(filter));
        if params.distinct || filters || ignores_nulls {
            return None;
        }
        let is_key = |sort: &&SortExpr| base.resolve(&sort.expr).is_some_and(|e| base.is_key(&e));
        // all rows of a group have the same key
        let order: Vec<&SortExpr> = params.order_by.iter().filter(|sort| !is_key(sort)).collect();
        by_field |= log_order(&base, &order, ascending)?;
        columns.push(params.args.first()?.clone());
    }
    let latest = with_latest_rows(&node.input, &base, by_field)?;
    project_as(latest, columns, &node.schema).ok()
}

/// Returns whether `partition_by` is the key of the table.
fn same_key(base: &Base<'_>, partition_by: &[Expr]) -> bool {
    match partition_by {
        [] => base.source.roles.key.is_none(),
        [key] => base.resolve(key).is_some_and(|key| base.is_key(&key)),
        _ => false,
    }
}

/// Returns what [`time_order`] does for a sort by time and then perhaps by address, in one direction.
fn log_order(base: &Base<'_>, order: &[&SortExpr], ascending: bool) -> Option<bool> {
    let (time, rest) = order.split_first()?;
    let address = [column::PARTITION, column::OFFSET, column::ROW];
    let is = |(sort, name): (&&SortExpr, &str)| {
        let column = base.resolve(&sort.expr);
        sort.asc == ascending && matches!(column, Some(Expr::Column(column)) if column.name == name)
    };
    let by_address = rest.len() == address.len() && rest.iter().zip(address).all(is);
    (rest.is_empty() || by_address).then(|| time_order(base, time, ascending)).flatten()
}

/// Returns whether a sort by the time of the table, in the given direction, names the declared time field; `None` for
/// another sort.
pub(super) fn time_order(base: &Base<'_>, sort: &SortExpr, ascending: bool) -> Option<bool> {
    if sort.asc != ascending {
        return None;
    }
    base.is_time(&base.resolve(&sort.expr)?)
}

/// Returns `plan`, whose rows are those of `base`, over the latest rows instead of all rows; `None` if its conditions
/// do not keep the latest row of a key whenever they keep any.
pub(super) fn with_latest_rows(plan: &LogicalPlan, base: &Base<'_>, by_field: bool) -> Option<LogicalPlan> {
    let selected = Selected::of(base)?;
    let mut selection = selected.selection;
    if selected.rows.is_some() || selection.times.last != TimeRange::ALL.last {
        return None;
    }
    selection.by_time_field |= by_field;
    let mut replaced = false;
    let plan = plan.clone().transform_down(|node| match &node {
        LogicalPlan::TableScan(scan) => match latest_scan(scan, &selection) {
            Some(scan) => {
                replaced = true;
                Ok(Transformed::yes(scan))
            }
            None => Ok(Transformed::no(node)),
        },
        _ => Ok(Transformed::no(node)),
    });
    plan.ok().map(|plan| plan.data).filter(|_| replaced)
}

/// Returns the same columns of the latest rows.
fn latest_scan(scan: &TableScan, selection: &HotSelection) -> Option<LogicalPlan> {
    let source = hot_source(scan)?;
    let indexes: Vec<usize> = match &scan.projection {
        Some(projection) => projection.clone(),
        None => (0..source.schema.fields().len()).collect(),
    };
    let column = |index: &usize| {
        let name = source.schema.field(*index).name();
        ColumnExpr::new(Expr::Column(Column::new_unqualified(name)), &source.schema)
    };
    let columns = indexes.iter().map(column).collect::<Option<Vec<_>>>()?;
    let schema = Arc::new(source.schema.project(&indexes).ok()?);
    let latest = source.scan(selection.clone(), columns, schema, ScanResult::LatestRows)?;
    let provider = provider_as_source(Arc::new(HotScanTable(Arc::new(latest))));
    LogicalPlanBuilder::scan(scan.table_name.clone(), provider, None).ok()?.build().ok()
}
