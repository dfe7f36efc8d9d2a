//! Joins that say for each row of a plan what its subqueries have found.

use std::mem;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, Result, Spans};
use datafusion::functions_aggregate::count::count;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison, SetQuantifier};
use datafusion::logical_expr::{
    BinaryExpr, EmptyRelation, Expr, ExprSchemable, JoinType, LogicalPlan, LogicalPlanBuilder, Operator,
    Subquery, binary_expr, lit, not, when,
};
use datafusion::scalar::ScalarValue;

use super::body::{self, Body, Existence};
use super::correlation::{self, Use, refuse};
use super::predicates::has_scalar;

/// Source of names that no other part of a statement has.
#[derive(Debug, Default)]
pub(super) struct Aliases(usize);

impl Aliases {
    fn next(&mut self) -> String {
        self.0 += 1;
        format!("__subquery_{}", self.0)
    }
}

/// A plan to which columns are added while its subqueries are replaced.
pub(super) struct Marks<'a> {
    plan: LogicalPlan,
    scalars: Scalars,
    aliases: &'a mut Aliases,
    /// Columns of the scalar subqueries that are computed below.
    below: Vec<(Subquery, Expr)>,
}

/// Place where the values of scalar subqueries are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalars {
    /// In the expression: DataFusion joins them to a projection, and to a filter if they do not depend on the outer row.
    InPlace,
    /// In a projection below: DataFusion does not look for them in aggregates, windows, orders and joins.
    Below,
}

/// Comparison with the values of a subquery, as far as it is planned.
enum SubqueryComparison {
    /// The subquery has exactly one row: a comparison with its value.
    One(Expr),
    Many {
        /// True for a row if the comparison is true, else false.
        found: Expr,
        /// True for a row if the comparison is unknown, else false; `None` if it is never unknown.
        unknown: Option<Expr>,
    },
}

impl<'a> Marks<'a> {
    pub fn new(plan: LogicalPlan, scalars: Scalars, aliases: &'a mut Aliases) -> Self {
        Self { plan, scalars, aliases, below: vec![] }
    }

    /// Returns the plan with the columns that the replaced expressions use.
    pub fn into_plan(self) -> LogicalPlan {
        self.plan
    }

    /// Keeps the rows for which a term of a filter is true. Returns what is left to filter by.
    pub fn restrict(&mut self, term: Expr) -> Result<Option<Expr>> {
        match term {
            Expr::Not(inner) if matches!(inner.as_ref(), Expr::Exists(_) | Expr::InSubquery(_)) => {
                match *inner {
                    Expr::Exists(Exists { subquery, negated }) => {
                        self.restrict_existence(&subquery, !negated)
                    }
                    Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                        self.restrict_in(*expr, subquery, !negated).map(Some)
                    }
                    inner => Ok(Some(not(inner))),
                }
            }
            Expr::Exists(Exists { subquery, negated }) => self.restrict_existence(&subquery, negated),
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                self.restrict_in(*expr, subquery, negated).map(Some)
            }
            term => self.condition(term).map(Some),
        }
    }

    fn restrict_existence(&mut self, subquery: &Subquery, negated: bool) -> Result<Option<Expr>> {
        match Body::of_existence(&subquery.subquery, self.plan.schema())? {
            Existence::Known(exists) => Ok(Some(lit(exists != negated))),
            Existence::Rows(body) if body.is_correlated() => {
                let join = if negated { JoinType::LeftAnti } else { JoinType::LeftSemi };
                self.join(&body, body.plan.clone(), None, join)?;
                Ok(None)
            }
            Existence::Rows(body) => {
                let exists = any_row(body.plan)?;
                Ok(Some(if negated { not(exists) } else { exists }))
            }
        }
    }

    /// DataFusion's own join for `IN` is right if the subquery does not depend on the outer row, and for `NOT IN` if also
    /// the left side is a column and neither side has nulls: a null that the optimizer finds to be constant is lost.
    fn restrict_in(&mut self, expr: Expr, subquery: Subquery, negated: bool) -> Result<Expr> {
        let expr = self.value(expr)?;
        let plain = !correlation::is_correlated(&subquery.subquery)
            && !expr.contains_outer()
            && !expr.is_volatile()
            && match negated {
                true => {
                    let has_nulls = expr.nullable(self.plan.schema())?
                        || subquery.subquery.schema().field(0).is_nullable();
                    matches!(expr, Expr::Column(_)) && !has_nulls
                }
                false => expr.any_column_refs(),
            };
        if !plain {
            let term = Expr::InSubquery(InSubquery { expr: Box::new(expr), subquery, negated });
            return self.condition(term);
        }
        let name = self.aliases.next();
        let subquery = subquery.with_plan(body::with_own_name(&subquery.subquery, &name)?);
        Ok(Expr::InSubquery(InSubquery { expr: Box::new(expr), subquery, negated }))
    }

    /// Replaces subqueries in an expression where false and null are equivalent.
    fn condition(&mut self, expr: Expr) -> Result<Expr> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
                Ok(binary_expr(self.condition(*left)?, op, self.condition(*right)?))
            }
            Expr::Not(inner) => match *inner {
                Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                    self.condition(Expr::InSubquery(InSubquery { expr, subquery, negated: !negated }))
                }
                inner => self.value(not(inner)),
            },
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                let expr = self.value(*expr)?;
                let comparison = self.compare(&expr, Operator::Eq, &subquery)?;
                Ok(comparison.into_condition(negated))
            }
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
                let expr = self.value(*expr)?;
                let (op, negated) = of_any(op, &quantifier, &expr)?;
                Ok(self.compare(&expr, op, &subquery)?.into_condition(negated))
            }
            expr => self.value(expr),
        }
    }

    /// Replaces subqueries in an expression whose exact value counts.
    pub fn value(&mut self, expr: Expr) -> Result<Expr> {
        expr.transform_up(|expr| match expr {
            Expr::Exists(Exists { subquery, negated }) => {
                let exists = match Body::of_existence(&subquery.subquery, self.plan.schema())? {
                    Existence::Known(exists) => lit(exists),
                    Existence::Rows(body) if body.is_correlated() => {
                        self.mark(&body, body.plan.clone(), None)?
                    }
                    Existence::Rows(body) => any_row(body.plan)?,
                };
                Ok(Transformed::yes(if negated { not(exists) } else { exists }))
            }
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                Ok(Transformed::yes(self.compare(&expr, Operator::Eq, &subquery)?.value(negated)?))
            }
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
                let (op, negated) = of_any(op, &quantifier, &expr)?;
                Ok(Transformed::yes(self.compare(&expr, op, &subquery)?.value(negated)?))
            }
            Expr::ScalarSubquery(subquery)
                if self.scalars == Scalars::Below || correlation::is_correlated(&subquery.subquery) =>
            {
                self.scalar(&subquery).map(Transformed::yes)
            }
            expr => Ok(Transformed::no(expr)),
        })
        .data()
    }

    /// Compares `expr` with any value of a subquery.
    fn compare(&mut self, expr: &Expr, op: Operator, subquery: &Subquery) -> Result<SubqueryComparison> {
        let plan = subquery.subquery.as_ref();
        let refused = |message| refuse(&[expr.clone(), Expr::ScalarSubquery(subquery.clone())], message);
        if expr.contains_outer() {
            return refused(
                "a column of the outer query before IN, ANY or ALL in a subquery is not supported: join the tables instead",
            );
        }
        if expr.is_volatile() {
            return refused(
                "a function that gives another value each time, such as random(), before IN, ANY or ALL is not supported: \
                 select its value under a name in a query in FROM, and use the name",
            );
        }
        if body::has_one_row(plan) {
            let value = match correlation::is_correlated(plan) {
                true => self.scalar(subquery)?,
                false => Expr::ScalarSubquery(subquery.clone()),
            };
            return Ok(SubqueryComparison::One(binary_expr(expr.clone(), op, value)));
        }
        // DataFusion does not look for scalar subqueries in the conditions of joins
        let below = match has_scalar(expr) {
            true => {
                let name = self.aliases.next();
                Some(self.below(expr.clone(), name)?)
            }
            false => None,
        };
        let expr = below.as_ref().unwrap_or(expr);
        let body = Body::of_values(plan, self.plan.schema())?;
        let (may_be_null, has_nulls) = (expr.nullable(self.plan.schema())?, body.has_nulls()?);
        let found = self.mark(&body, body.plan.clone(), Some((expr, op)))?;
        let null_value = match has_nulls {
            true => Some(self.exists(&body, body.nulls()?)?),
            false => None,
        };
        let null_operand = match may_be_null {
            true => Some(expr.clone().is_null().and(self.exists(&body, body.plan.clone())?)),
            false => None,
        };
        let unknown = [null_value, null_operand].into_iter().flatten().reduce(Expr::or);
        Ok(SubqueryComparison::Many { found, unknown })
    }

    /// Returns the value of a scalar subquery, checked. One that comes again has the same column: the functions of a window
    /// have to agree on its keys.
    fn scalar(&mut self, subquery: &Subquery) -> Result<Expr> {
        if let Some((_, column)) = self.below.iter().find(|(known, _)| known == subquery) {
            return Ok(column.clone());
        }
        let plan = subquery.subquery.as_ref();
        correlation::check(plan, Use::Scalar, self.plan.schema())?;
        body::check_scalar(plan)?;
        let name = self.aliases.next();
        let value = Expr::ScalarSubquery(subquery.with_plan(body::with_own_name(plan, &name)?));
        match self.scalars {
            Scalars::InPlace => Ok(value),
            Scalars::Below => {
                let column = self.below(value, name)?;
                if !is_volatile(plan)? {
                    self.below.push((subquery.clone(), column.clone()));
                }
                Ok(column)
            }
        }
    }

    /// Computes a value in a projection below, and returns its column.
    fn below(&mut self, value: Expr, name: String) -> Result<Expr> {
        let mut columns: Vec<Expr> = self.plan.schema().columns().into_iter().map(Expr::from).collect();
        columns.push(value.alias(&name));
        self.plan = LogicalPlanBuilder::from(self.take_plan()).project(columns)?.build()?;
        Ok(Expr::Column(Column::new_unqualified(name)))
    }

    fn take_plan(&mut self) -> LogicalPlan {
        let schema = self.plan.schema().clone();
        let nothing = LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, schema });
        mem::replace(&mut self.plan, nothing)
    }

    fn exists(&mut self, body: &Body, rows: LogicalPlan) -> Result<Expr> {
        match body.is_correlated() {
            true => self.mark(body, rows, None),
            false => any_row(rows),
        }
    }

    /// Returns whether any of `rows`, which are some of `body`, fits a row of the plan: true or false.
    fn mark(&mut self, body: &Body, rows: LogicalPlan, compared: Option<(&Expr, Operator)>) -> Result<Expr> {
        let alias = self.join(body, rows, compared, JoinType::LeftMark)?;
        Ok(Expr::Column(Column::new(Some(alias), "mark")))
    }

    fn join(
        &mut self,
        body: &Body,
        rows: LogicalPlan,
        compared: Option<(&Expr, Operator)>,
        join: JoinType,
    ) -> Result<String> {
        let alias = self.aliases.next();
        let right = LogicalPlanBuilder::from(rows).alias(&alias)?.build()?;
        let conditions = body.conditions(&alias, compared)?;
        let left = self.take_plan();
        self.plan = LogicalPlanBuilder::from(left).join_on(right, join, conditions)?.build()?;
        Ok(alias)
    }
}

impl SubqueryComparison {
    /// Returns the three-valued result.
    fn value(self, negated: bool) -> Result<Expr> {
        let value = match self {
            Self::One(value) => value,
            Self::Many { found, unknown: None } => found,
            Self::Many { found, unknown: Some(unknown) } => {
                when(found, lit(true)).when(unknown, lit(ScalarValue::Boolean(None))).otherwise(lit(false))?
            }
        };
        Ok(if negated { not(value) } else { value })
    }

    /// Returns a result that is true exactly if the three-valued one is.
    fn into_condition(self, negated: bool) -> Expr {
        match (self, negated) {
            (Self::One(value), false) => value,
            (Self::One(value), true) => not(value),
            (Self::Many { found, .. }, false) => found,
            (Self::Many { found, unknown }, true) => match unknown {
                Some(unknown) => not(found.or(unknown)),
                None => not(found),
            },
        }
    }
}

/// Returns the operator of a comparison with `ANY` that has the same result, or the opposite one (`true`).
fn of_any(op: Operator, quantifier: &SetQuantifier, expr: &Expr) -> Result<(Operator, bool)> {
    let compares = matches!(
        op,
        Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
    );
    let opposite = op.negate().filter(|_| compares);
    match (quantifier, opposite) {
        (_, None) => refuse(
            std::slice::from_ref(expr),
            &format!("{op} before ANY, SOME or ALL is not supported: use =, <>, <, <=, > or >="),
        ),
        (SetQuantifier::Any, Some(_)) => Ok((op, false)),
        (SetQuantifier::All, Some(opposite)) => Ok((opposite, true)),
    }
}

/// Returns whether a plan has other rows each time, as with `random()`.
fn is_volatile(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(node.expressions().iter().any(Expr::is_volatile)))
}

/// Returns whether an uncorrelated plan has a row, as a subquery that is executed once.
fn any_row(rows: LogicalPlan) -> Result<Expr> {
    let counted = LogicalPlanBuilder::from(rows)
        .limit(0, Some(1))?
        .aggregate(Vec::<Expr>::new(), [count(lit(1_i64)).alias("__rows")])?
        .build()?;
    let subquery = Subquery { subquery: counted.into(), outer_ref_columns: vec![], spans: Spans::new() };
    Ok(binary_expr(Expr::ScalarSubquery(subquery), Operator::Gt, lit(0_i64)))
}
