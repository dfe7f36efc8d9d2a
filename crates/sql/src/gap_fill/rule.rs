//! Analyzer rule that replaces the marking functions by a [`GapFill`] above the aggregate.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result, internal_err};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, Filter, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;

use super::bounds::{is_constant, of_conditions};
use super::functions::Mark;
use super::invalid;
use super::node::{BoundSide, FillBound, FillKind, FillRange, GapFill};
use crate::times::date_bin;

/// The rule. Runs after types are coerced.
#[derive(Debug)]
pub(crate) struct FillGaps;

impl AnalyzerRule for FillGaps {
    fn name(&self) -> &str {
        "fill_gaps"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if first_mark(&plan)?.is_none() {
            return Ok(plan);
        }
        let filled = plan.transform_up_with_subqueries(|plan| {
            let plan = match plan {
                LogicalPlan::Aggregate(node) => fill_aggregate(node)?,
                LogicalPlan::Filter(node) => fill_filtered(node)?,
                LogicalPlan::Projection(_) | LogicalPlan::Window(_) => fill_values(plan)?,
                other => other,
            };
            // added rows have nulls, also in the columns of the nodes above
            plan.recompute_schema().map(Transformed::yes)
        })?;
        match first_mark(&filled.data)? {
            None => Ok(filled.data),
            Some(mark) => Err(invalid(mark.misplaced())),
        }
    }
}

/// Returns a marking function of the plan.
fn first_mark(plan: &LogicalPlan) -> Result<Option<Mark>> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found = found.or(mark_in(expr));
            Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

fn mark_in(expr: &Expr) -> Option<Mark> {
    let mut found = None;
    let _ = expr.apply(|expr| {
        found = Mark::of(expr).map(|(mark, _)| mark);
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

fn unalias(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unalias(&alias.expr),
        other => other,
    }
}

/// Fills the gaps of an aggregate that is grouped by a marking function.
fn fill_aggregate(node: Aggregate) -> Result<LogicalPlan> {
    let groups: Vec<&Expr> = node.group_expr.iter().map(unalias).collect();
    let is_bucket = |expr: &&&Expr| Mark::of(expr).is_some_and(|(mark, _)| mark.is_bucket());
    if let [Expr::GroupingSet(sets)] = groups.as_slice() {
        let is_marked = sets.distinct_expr().into_iter().any(|expr| is_bucket(&&unalias(expr)));
        return match is_marked {
            true => Err(invalid(
                "gaps are not filled in ROLLUP, CUBE and GROUPING SETS: group by one list of columns",
            )),
            false => Ok(LogicalPlan::Aggregate(node)),
        };
    }
    let mut buckets = groups.iter().enumerate().filter(|(_, expr)| is_bucket(expr));
    let Some((bucket, call)) = buckets.next() else { return Ok(LogicalPlan::Aggregate(node)) };
    if buckets.next().is_some() {
        return Err(invalid(
            "gaps are filled for one bucket: use date_bin for the other expressions of GROUP BY",
        ));
    }
    let (bin, range) = bin_and_range(call, &node.input)?;
    let keys = (0..groups.len()).filter(|index| *index != bucket).collect();
    let mut group_expr = node.group_expr.clone();
    group_expr[bucket] = bin;
    let aggregate = LogicalPlan::Aggregate(Aggregate::try_new(node.input, group_expr, node.aggr_expr)?);
    let renamed = with_names(aggregate, &node.schema)?;
    Ok(GapFill::new(renamed, bucket, keys, vec![], range)?.into_plan())
}

/// Returns the expression that bins the times, and the range to fill.
fn bin_and_range(call: &Expr, input: &LogicalPlan) -> Result<(Expr, FillRange)> {
    let Some((mark, [interval, time, others @ ..])) = Mark::of(call) else {
        return internal_err!("a bucket without interval and time");
    };
    let name = mark.name();
    let is_null = |expr: &Expr| matches!(strip_casts(expr), Expr::Literal(value, _) if value.is_null());
    if !is_constant(interval) || !others.iter().all(is_constant) {
        return Err(invalid(format!(
            "`{name}` takes an interval and times that do not depend on the rows, for example {name}('1 hour', _time)"
        )));
    }
    let mut bounds = of_conditions(input, time);
    let origin = match mark {
        Mark::DateBin => others.first().filter(|expr| !is_null(expr)).cloned(),
        _ => {
            for (side, given) in [BoundSide::From, BoundSide::Before].into_iter().zip(others) {
                if !is_null(given) {
                    bounds.retain(|bound| bound.side.is_lower() != side.is_lower());
                    bounds.push(FillBound { side, expr: given.clone() });
                }
            }
            None
        }
    };
    for (is_lower, missing) in [(true, "begins"), (false, "ends")] {
        if !bounds.iter().any(|bound| bound.side.is_lower() == is_lower) {
            return Err(no_bound(mark, time, missing));
        }
    }
    let args = [interval, time].into_iter().chain(&origin).cloned().collect();
    Ok((date_bin().call(args), FillRange { interval: interval.clone(), origin, bounds }))
}

fn strip_casts(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) => strip_casts(&cast.expr),
        Expr::Alias(alias) => strip_casts(&alias.expr),
        other => other,
    }
}

fn no_bound(mark: Mark, time: &Expr, missing: &str) -> datafusion::error::DataFusionError {
    let name = mark.name();
    let time = match strip_casts(time) {
        Expr::Column(column) => column.name.clone(),
        _ => "time".to_owned(),
    };
    let or = match mark {
        Mark::TimeBucket => format!(", or give the bounds as {name}(interval, {time}, start, finish)"),
        _ => String::new(),
    };
    invalid(format!(
        "`{name}` does not know where the range to fill {missing}: add constant bounds of the same time, for example WHERE \
         {time} >= '2024-01-01' AND {time} < '2024-01-02'{or}"
    ))
}

/// Projects the columns of `plan` under the names of `schema`.
fn with_names(plan: LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
    let columns = plan.schema().columns().into_iter().zip(schema.iter());
    let columns = columns
        .map(|(column, (table, field))| Expr::Column(column).alias_qualified(table.cloned(), field.name()));
    let columns: Vec<Expr> = columns.collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

/// Moves a HAVING below the filling: it selects among the groups that have rows.
fn fill_filtered(node: Filter) -> Result<LogicalPlan> {
    let Some(fill) = GapFill::of(&node.input) else { return Ok(LogicalPlan::Filter(node)) };
    if let Some(mark) = mark_in(&node.predicate) {
        return Err(invalid(format!(
            "HAVING selects groups before gaps are filled and cannot use `{}`: filter the filled rows with WHERE around a \
             subquery",
            mark.name()
        )));
    }
    let input = LogicalPlanBuilder::from(fill.input.clone()).filter(node.predicate)?.build()?;
    Ok(fill.clone().with_input(input, vec![])?.into_plan())
}

/// Moves the calls of `locf` and `interpolate` in `plan` into the [`GapFill`] below it.
fn fill_values(plan: LogicalPlan) -> Result<LogicalPlan> {
    let marked = plan.expressions().iter().any(|expr| mark_in(expr).is_some());
    let [input] = plan.inputs()[..] else { return Ok(plan) };
    let Some(fill) = fill_below(input).filter(|_| marked) else { return Ok(plan) };
    let aggregates = fill.input.schema().clone();
    let mut calls = Vec::new();
    let names = NamePreserver::new(&plan);
    let mut exprs = Vec::new();
    for expr in plan.expressions() {
        let name = names.save(&expr);
        let replaced = expr.transform_down(|expr| {
            let Some((kind, value)) = value_fill(&expr, &aggregates)? else {
                return Ok(Transformed::no(expr));
            };
            let column = Expr::Column(Column::new_unqualified(expr.schema_name().to_string()));
            calls.push((kind, value, column.clone()));
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        })?;
        exprs.push(name.restore(replaced.data));
    }
    let input = add_fills(input, &calls)?;
    plan.with_new_exprs(exprs, vec![input])
}

/// Returns the [`GapFill`] whose rows `plan` has, with further columns.
fn fill_below(plan: &LogicalPlan) -> Option<&GapFill> {
    match plan {
        LogicalPlan::Window(node) => fill_below(&node.input),
        other => GapFill::of(other),
    }
}

/// Returns how and what to fill, if the expression asks for that.
fn value_fill(expr: &Expr, aggregates: &DFSchema) -> Result<Option<(FillKind, Expr)>> {
    let Some((mark, [value])) = Mark::of(expr) else { return Ok(None) };
    let kind = match mark {
        Mark::Locf => FillKind::Locf,
        Mark::Interpolate => FillKind::Interpolate,
        Mark::TimeBucket | Mark::DateBin => return Ok(None),
    };
    if let Some(inner) = mark_in(value) {
        return Err(invalid(format!("`{}` cannot be used inside `{}`", inner.name(), mark.name())));
    }
    let known = value.column_refs().into_iter().all(|c| aggregates.maybe_index_of_column(c).is_some());
    match known && !value.is_volatile() {
        true => Ok(Some((kind, value.clone()))),
        false => Err(invalid(mark.misplaced())),
    }
}

/// Returns `plan` with columns for the filled values above its aggregate.
fn add_fills(plan: &LogicalPlan, calls: &[(FillKind, Expr, Expr)]) -> Result<LogicalPlan> {
    if let LogicalPlan::Window(node) = plan {
        let input = add_fills(&node.input, calls)?;
        return plan.with_new_exprs(plan.expressions(), vec![input])?.recompute_schema();
    }
    let Some(fill) = GapFill::of(plan) else { return internal_err!("no gaps are filled below a window") };
    let mut columns: Vec<Expr> = fill.input.schema().columns().into_iter().map(Expr::Column).collect();
    let mut fills = fill.fills.clone();
    for (kind, value, column) in calls {
        let Expr::Column(column) = column else { return internal_err!("a filled value is no column") };
        let name = column.name.clone();
        // the same call may occur several times
        if !columns.iter().any(|known| known.schema_name().to_string() == name) {
            columns.push(value.clone().alias(name));
            fills.push(*kind);
        }
    }
    let input = LogicalPlanBuilder::from(fill.input.clone()).project(columns)?.build()?;
    Ok(fill.clone().with_input(input, fills)?.into_plan())
}
