//! Aggregates over a join of an event table with another table by its key: the events are aggregated by key first.

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, JoinType, NullEquality, Result};
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::functions_aggregate::expr_fn::{max, min, sum};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder, cast, lit, when,
};

use super::aggregate::AggregateScan;
use super::base::Base;
use super::{numbered, plan_scan, project_as, scan_column, unalias};
use crate::hot::aggregate::HotAggregate;

/// Returns the replacement of an aggregate over a join of an event table by its key, grouped by the other table.
pub(super) fn of_join(node: &Aggregate) -> Option<LogicalPlan> {
    let join = join_below(&node.input)?;
    let plain = join.join_type == JoinType::Inner
        && join.filter.is_none()
        && !join.null_aware
        && join.null_equality == NullEquality::NullEqualsNothing;
    let [(left_key, right_key)] = join.on.as_slice() else { return None };
    let (left, right) = (join.left.as_ref(), join.right.as_ref());
    let sides = [
        Sides { events: left, other: right, event_key: left_key, other_key: right_key },
        Sides { events: right, other: left, event_key: right_key, other_key: left_key },
    ];
    sides.into_iter().filter(|_| plain).find_map(|sides| of_sides(node, &sides))
}

fn of_sides(node: &Aggregate, sides: &Sides<'_>) -> Option<LogicalPlan> {
    let base = Base::of(sides.events)?;
    let by_other = |group: &Expr| !matches!(group, Expr::GroupingSet(_)) && sides.is_other(group);
    if !node.group_expr.iter().all(by_other) {
        return None;
    }
    let mut eager =
        Eager { scan: AggregateScan::new(&base)?, columns: vec![], partial: vec![], results: vec![] };
    let key = base.source.schema.field(base.source.roles.key?);
    eager.add_key(&base, key)?;
    for function in &node.aggr_expr {
        eager.add(&base, sides, function)?;
    }
    eager.plan(node, &base, sides).ok().flatten()
}

/// Returns the join below a projection of columns.
fn join_below(plan: &LogicalPlan) -> Option<&Join> {
    match plan {
        LogicalPlan::Join(join) => Some(join),
        LogicalPlan::Projection(p) if p.expr.iter().all(|e| matches!(e, Expr::Column(_))) => {
            join_below(&p.input)
        }
        _ => None,
    }
}

/// The sides of a join.
struct Sides<'p> {
    events: &'p LogicalPlan,
    other: &'p LogicalPlan,
    event_key: &'p Expr,
    other_key: &'p Expr,
}

impl Sides<'_> {
    fn is_other(&self, expr: &Expr) -> bool {
        expr.column_refs().iter().all(|column| self.other.schema().has_column(column))
    }

    fn is_event(&self, expr: &Expr) -> bool {
        expr.column_refs().iter().all(|column| self.events.schema().has_column(column))
    }
}

/// Parts of the replacement.
struct Eager {
    scan: AggregateScan,
    /// Types of the columns of the scan: the key, the number of rows, and partial aggregates.
    columns: Vec<DataType>,
    /// Aggregates over the join of the partial ones with the other table.
    partial: Vec<Expr>,
    /// Results over these aggregates.
    results: Vec<Expr>,
}

/// Column of the scan with the number of rows of a key.
const ROWS: usize = 1;

impl Eager {
    fn add_key(&mut self, base: &Base<'_>, key: &Field) -> Option<()> {
        self.scan.add_group(base, &Expr::Column(Column::new_unqualified(key.name())))?;
        self.scan.push_function(HotAggregate::Rows);
        self.columns = vec![key.data_type().clone(), DataType::Int64];
        Some(())
    }

    fn add(&mut self, base: &Base<'_>, sides: &Sides<'_>, function: &Expr) -> Option<()> {
        let Expr::AggregateFunction(call) = unalias(function) else { return None };
        let [argument] = call.params.args.as_slice() else { return None };
        let conditions = call.params.filter.as_deref();
        let parts = || [argument].into_iter().chain(conditions);
        if matches!(argument, Expr::Literal(..)) && conditions.is_none() {
            return match call.func.name() {
                "count" if !call.params.distinct => self.add_sum_of_counts(scan_column(ROWS)),
                _ => None,
            };
        }
        if parts().all(|part| sides.is_event(part)) {
            return self.add_of_events(base, function, call);
        }
        let plain = !call.params.distinct && call.params.order_by.is_empty() && conditions.is_none();
        if plain && sides.is_other(argument) {
            return self.add_of_other(sides, call.func.name(), argument);
        }
        None
    }

    /// Adds a function of the events.
    fn add_of_events(&mut self, base: &Base<'_>, function: &Expr, call: &AggregateFunction) -> Option<()> {
        let planned = self.scan.add_function(base, function)?;
        let ty = function.get_type(base.plan_schema()).ok()?;
        match planned {
            HotAggregate::Rows | HotAggregate::Count(_) => {
                let count = self.column(DataType::Int64);
                self.add_sum_of_counts(count)
            }
            HotAggregate::Sum(_) => {
                let total = self.column(ty);
                let total = self.partial(sum(total));
                self.results.push(total);
                Some(())
            }
            HotAggregate::Min(_) | HotAggregate::Max(_) => {
                let extreme = self.column(ty);
                let extreme =
                    self.partial(if call.func.name() == "min" { min(extreme) } else { max(extreme) });
                self.results.push(extreme);
                Some(())
            }
            HotAggregate::Avg(column) => {
                // the scan returns a sum and a count instead
                self.scan.replace_last(&[HotAggregate::Sum(column), HotAggregate::Count(column)]);
                let (total, count) = (self.column(DataType::Float64), self.column(DataType::Int64));
                self.add_average(total, count);
                Some(())
            }
        }
    }

    /// Adds a function of the other table, each of whose rows is joined with the rows of a key.
    fn add_of_other(&mut self, sides: &Sides<'_>, name: &str, argument: &Expr) -> Option<()> {
        let rows = scan_column(ROWS);
        let count = || when(argument.clone().is_not_null(), rows.clone()).end().ok();
        let ty = argument.get_type(sides.other.schema().as_ref()).ok()?;
        match name {
            "count" => self.add_sum_of_counts(count()?),
            "avg" if ty == DataType::Float64 => {
                let total = argument.clone() * cast(rows.clone(), DataType::Float64);
                self.add_average(total, count()?);
                Some(())
            }
            "min" | "max" => {
                let call = if name == "min" { min(argument.clone()) } else { max(argument.clone()) };
                let extreme = self.partial(call);
                self.results.push(extreme);
                Some(())
            }
            _ => None,
        }
    }

    fn add_sum_of_counts(&mut self, count: Expr) -> Option<()> {
        let total = self.partial(sum(count));
        self.results.push(coalesce(vec![total, lit(0_i64)]));
        Some(())
    }

    fn add_average(&mut self, total: Expr, count: Expr) {
        let (total, count) = (self.partial(sum(total)), self.partial(sum(count)));
        self.results.push(total / cast(count, DataType::Float64));
    }

    /// Declares the next column of the scan.
    fn column(&mut self, ty: DataType) -> Expr {
        self.columns.push(ty);
        scan_column(self.columns.len() - 1)
    }

    /// Adds an aggregate over the join, and returns its column.
    fn partial(&mut self, aggregate: Expr) -> Expr {
        let name = format!("partial_{}", self.partial.len());
        self.partial.push(aggregate.alias(&name));
        Expr::Column(Column::new_unqualified(name))
    }

    fn plan(self, node: &Aggregate, base: &Base<'_>, sides: &Sides<'_>) -> Result<Option<LogicalPlan>> {
        let Some(key) = base.resolve(sides.event_key) else { return Ok(None) };
        if !key.column_refs().iter().all(|c| base.is_key(&Expr::Column((*c).clone()))) {
            return Ok(None);
        }
        let key = key.transform(|expr| {
            Ok(match expr {
                Expr::Column(_) => Transformed::yes(scan_column(0)),
                other => Transformed::no(other),
            })
        })?;
        let schema = numbered(self.columns.into_iter().map(|ty| (ty, true)));
        let Some(scan) = self.scan.finish(schema) else { return Ok(None) };
        let joined = LogicalPlanBuilder::from(sides.other.clone()).join_with_expr_keys(
            plan_scan(scan)?,
            JoinType::Inner,
            (vec![sides.other_key.clone()], vec![key.data]),
            None,
        )?;
        let grouped = joined.aggregate(node.group_expr.clone(), self.partial)?.build()?;
        let groups = grouped.schema().columns().into_iter().take(node.group_expr.len()).map(Expr::Column);
        let types = node.schema.fields().iter().skip(node.group_expr.len());
        let results = self.results.into_iter().zip(types).map(|(result, field)| {
            match result.get_type(grouped.schema().as_ref())? == *field.data_type() {
                true => Ok(result),
                false => Ok(cast(result, field.data_type().clone())),
            }
        });
        let results = results.collect::<Result<Vec<_>>>()?;
        let columns = groups.chain(results).collect();
        project_as(grouped, columns, &node.schema).map(Some)
    }
}
