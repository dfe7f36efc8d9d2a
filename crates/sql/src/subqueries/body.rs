//! Rows of a subquery without its conditions on the outer row, which become conditions of a join.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, FetchType, LogicalPlan, LogicalPlanBuilder, Operator, SkipType,
    binary_expr, lit,
};
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;

use super::correlation::{self, Use, refuse};

/// Column with the value of a subquery.
pub(super) const VALUE: &str = "__value";

/// Rows of a subquery.
pub(super) struct Body {
    /// Rows, with the value as [`VALUE`] and under other names the columns that the conditions use.
    pub plan: LogicalPlan,
    /// Conditions on the outer row. Columns of [`Body::plan`] have no relation.
    conditions: Vec<Expr>,
    inner: BTreeSet<String>,
}

/// Existence of rows, as far as it is known without reading any.
pub(super) enum Existence {
    Known(bool),
    Rows(Box<Body>),
}

impl Body {
    /// Returns the rows whose values are compared.
    pub fn of_values(plan: &LogicalPlan, outer: &DFSchema) -> Result<Self> {
        let plan = as_set(plan);
        correlation::check(plan, Use::Set, outer)?;
        Self::pulled_up(named(plan, VALUE)?, plan, outer)
    }

    /// Returns the rows whose existence is asked for.
    pub fn of_existence(plan: &LogicalPlan, outer: &DFSchema) -> Result<Existence> {
        let plan = match essence(plan)? {
            Ok(plan) => plan,
            Err(known) => return Ok(Existence::Known(known)),
        };
        correlation::check(plan, Use::Set, outer)?;
        let rows = LogicalPlanBuilder::from(plan.clone()).project([lit(1_i64).alias(VALUE)])?.build()?;
        Self::pulled_up(rows, plan, outer).map(Box::new).map(Existence::Rows)
    }

    fn pulled_up(plan: LogicalPlan, original: &LogicalPlan, outer: &DFSchema) -> Result<Self> {
        if !correlation::is_correlated(&plan) {
            return Ok(Self { plan, conditions: vec![], inner: BTreeSet::from([VALUE.to_owned()]) });
        }
        // without a predicate of IN, the values are compared outside
        let mut pull_up = PullUpCorrelatedExpr::new().with_exists_sub_query(true);
        let plan = plan.rewrite(&mut pull_up).data()?;
        let unsupported = |why: &str| unsupported(original, why);
        if !pull_up.can_pull_up || correlation::is_correlated(&plan) {
            return unsupported("its conditions cannot become those of a join");
        }
        let columns: BTreeSet<Column> =
            pull_up.correlated_subquery_cols_map.values().flatten().cloned().collect();
        let mut names: HashMap<Column, Column> = HashMap::new();
        let mut renamed = vec![Expr::Column(Column::new_unqualified(VALUE)).alias(VALUE)];
        let mut inner = BTreeSet::from([VALUE.to_owned()]);
        for condition in &pull_up.join_filters {
            for column in condition.column_refs() {
                if names.contains_key(column) {
                    continue;
                }
                match (columns.contains(column), outer.has_column(column)) {
                    (true, false) => {}
                    (false, true) => continue,
                    // the same name inside and outside
                    (true, true) => {
                        return unsupported(
                            "both queries read a table of the same name: give one another name with AS",
                        );
                    }
                    (false, false) => {
                        return unsupported("a column is neither in it nor in the query around it");
                    }
                }
                let Some(output) = output_column(&plan, column) else {
                    return unsupported("a column has the name of another one");
                };
                let name = format!("__column_{}", names.len());
                renamed.push(Expr::Column(output).alias(&name));
                inner.insert(name.clone());
                names.insert(column.clone(), Column::new_unqualified(name));
            }
        }
        let conditions = pull_up.join_filters.into_iter().map(|condition| {
            condition
                .transform(|expr| match &expr {
                    Expr::Column(column) => Ok(match names.get(column) {
                        Some(name) => Transformed::yes(Expr::Column(name.clone())),
                        None => Transformed::no(expr),
                    }),
                    _ => Ok(Transformed::no(expr)),
                })
                .data()
        });
        let conditions = conditions.collect::<Result<_>>()?;
        let plan = LogicalPlanBuilder::from(plan).project(renamed)?.build()?;
        Ok(Self { plan, conditions, inner })
    }

    /// Returns whether the rows depend on the outer row.
    pub fn is_correlated(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// Returns whether a value may be null.
    pub fn has_nulls(&self) -> Result<bool> {
        value().nullable(self.plan.schema())
    }

    /// Returns the rows that have no value.
    pub fn nulls(&self) -> Result<LogicalPlan> {
        LogicalPlanBuilder::from(self.plan.clone()).filter(value().is_null())?.build()
    }

    /// Returns the conditions of a join with the rows under the name `alias`: those on the outer row, and that the
    /// value compares with `compared`.
    pub fn conditions(&self, alias: &str, compared: Option<(&Expr, Operator)>) -> Result<Vec<Expr>> {
        let compared = compared.map(|(expr, op)| {
            let value = Expr::Column(Column::new(Some(alias), VALUE));
            binary_expr(expr.clone(), op, value)
        });
        let own = self.conditions.iter().map(|condition| {
            condition
                .clone()
                .transform(|expr| match &expr {
                    Expr::Column(Column { relation: None, name, .. }) if self.inner.contains(name) => {
                        Ok(Transformed::yes(Expr::Column(Column::new(Some(alias), name))))
                    }
                    _ => Ok(Transformed::no(expr)),
                })
                .data()
        });
        let mut all = compared.into_iter().map(Ok).chain(own).collect::<Result<Vec<_>>>()?;
        if all.is_empty() {
            all.push(lit(true));
        }
        Ok(all)
    }
}

fn value() -> Expr {
    Expr::Column(Column::new_unqualified(VALUE))
}

fn unsupported<T>(plan: &LogicalPlan, why: &str) -> Result<T> {
    refuse(
        &correlation::all_expressions(plan),
        &format!(
            "a subquery that depends on the row of the outer query in this way is not supported ({why}): join the tables \
             instead"
        ),
    )
}

/// Checks that DataFusion can join the value of a scalar subquery.
pub(super) fn check_scalar(plan: &LogicalPlan) -> Result<()> {
    if !correlation::is_correlated(plan) {
        return Ok(());
    }
    if plan.max_rows().is_none_or(|rows| rows > 1) && !is_grouped(plan) {
        return unsupported(plan, "it may have several rows: use an aggregate such as max(…)");
    }
    let mut pull_up = PullUpCorrelatedExpr::new().with_need_handle_count_bug(true);
    let pulled = plan.clone().rewrite(&mut pull_up).data()?;
    match pull_up.can_pull_up && !correlation::is_correlated(&pulled) {
        true => Ok(()),
        false => unsupported(plan, "an aggregate of rows that are compared with the outer row by = only is"),
    }
}

/// Checks that DataFusion can join the rows of a lateral query with those of `outer`.
pub(super) fn check_lateral(plan: &LogicalPlan, outer: &DFSchema) -> Result<()> {
    if !correlation::is_correlated(plan) {
        return Ok(());
    }
    correlation::check(plan, Use::Scalar, outer)?;
    let mut pull_up = PullUpCorrelatedExpr::new().with_need_handle_count_bug(true);
    let pulled = plan.clone().rewrite(&mut pull_up).data()?;
    if pull_up.pull_up_having_expr.is_some() {
        return unsupported(plan, "HAVING is not supported in a lateral query");
    }
    match pull_up.can_pull_up && !correlation::is_correlated(&pulled) {
        true => Ok(()),
        false => unsupported(plan, "an aggregate of rows that are compared with the outer row by = only is"),
    }
}

/// Returns whether the rows are groups. DataFusion checks that there is only one.
fn is_grouped(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => is_grouped(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_grouped(&alias.input),
        LogicalPlan::Filter(filter) => is_grouped(&filter.input),
        LogicalPlan::Sort(sort) => is_grouped(&sort.input),
        LogicalPlan::Aggregate(of) => !of.aggr_expr.is_empty(),
        _ => false,
    }
}

/// Returns the column of `plan` that is `column` of a query inside of it.
fn output_column(plan: &LogicalPlan, column: &Column) -> Option<Column> {
    if plan.schema().has_column(column) {
        return Some(column.clone());
    }
    let mut alike = plan.schema().columns().into_iter().filter(|c| c.name == column.name);
    alike.next().filter(|_| alike.next().is_none())
}

/// Returns the part of a plan that decides whether there are rows, or whether there are any if that is known.
fn essence(mut plan: &LogicalPlan) -> Result<std::result::Result<&LogicalPlan, bool>> {
    loop {
        plan = match plan {
            LogicalPlan::Projection(projection) if projection.expr.iter().all(keeps_rows) => {
                projection.input.as_ref()
            }
            LogicalPlan::SubqueryAlias(alias) => alias.input.as_ref(),
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => sort.input.as_ref(),
            LogicalPlan::Distinct(Distinct::All(input)) => input.as_ref(),
            LogicalPlan::Limit(limit) => match (limit.get_skip_type()?, limit.get_fetch_type()?) {
                (_, FetchType::Literal(Some(0))) => return Ok(Err(false)),
                (SkipType::Literal(0), FetchType::Literal(_)) => limit.input.as_ref(),
                _ => return Ok(Ok(plan)),
            },
            LogicalPlan::Aggregate(of) if of.group_expr.is_empty() && !of.aggr_expr.is_empty() => {
                return Ok(Err(true));
            }
            plan => return Ok(Ok(plan)),
        }
    }
}

/// Returns whether the number of rows does not depend on `expr`.
fn keeps_rows(expr: &Expr) -> bool {
    !expr.exists(|part| Ok(matches!(part, Expr::Unnest(_)))).unwrap_or_default()
}

/// Returns whether a plan has exactly one row.
pub(super) fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            projection.expr.iter().all(keeps_rows) && has_one_row(&projection.input)
        }
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input),
        LogicalPlan::Sort(sort) => sort.fetch.is_none() && has_one_row(&sort.input),
        LogicalPlan::Aggregate(of) => of.group_expr.is_empty() && !of.aggr_expr.is_empty(),
        _ => false,
    }
}

/// Gives the only column of a subquery a name that no other column has.
pub(super) fn with_own_name(plan: &LogicalPlan, name: &str) -> Result<Arc<LogicalPlan>> {
    named(plan, name).map(Arc::new)
}

/// Names the value where it is computed: conditions that are pulled up add columns beside it, which may have its old name.
fn named(plan: &LogicalPlan, name: &str) -> Result<LogicalPlan> {
    if let LogicalPlan::Projection(projection) = plan
        && let [value] = projection.expr.as_slice()
    {
        let value = value.clone().unalias().alias(name);
        return LogicalPlanBuilder::from(projection.input.as_ref().clone()).project([value])?.build();
    }
    let value = Expr::Column(Column::from(plan.schema().qualified_field(0)));
    LogicalPlanBuilder::from(plan.clone()).project([value.alias(name)])?.build()
}

/// Returns the part of a plan that decides which values there are, without their order and number.
fn as_set(mut plan: &LogicalPlan) -> &LogicalPlan {
    loop {
        plan = match plan {
            LogicalPlan::Distinct(Distinct::All(input)) => input,
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => &sort.input,
            plan => return plan,
        }
    }
}
