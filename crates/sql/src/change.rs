//! `DELETE FROM events.x WHERE …` and `UPDATE events.x SET … WHERE …`: stored events are deleted or changed by rewriting
//! their files.
//!
//! The conditions and new values are planned as a query over the table, `SELECT condition, value … FROM events.x`, so
//! that they mean what they mean in a query; its expressions are then evaluated on the rows of each file.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, new_null_array};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{CastOptions, cast, cast_with_options, not, prep_null_mask_filter};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::util::display::FormatOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, TableReference};
use datafusion::execution::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::sqlparser::ast::{
    AssignmentTarget, Delete, FromTable, Statement as Ast, TableFactor, TableWithJoins, Update,
};
use datafusion::logical_expr::sqlparser::parser::Parser;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, TableScan};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_plan::PhysicalExpr;
use tidemill_types::{Error, Result, column};
use tidemill_zones::{RowRewrite, RowRewriter};

use crate::dialect::TidemillDialect;
use crate::error::from_datafusion;
use crate::events::conform_one;
use crate::{execution::stack, names, times, tree};

/// A change of stored events, as its text asks for it.
#[derive(Debug)]
pub(crate) struct Change {
    /// The query whose columns are the condition and the new values.
    pub query: String,
    /// The columns that get new values; none for a deletion.
    assigned: Vec<String>,
}

impl Change {
    /// Parses `text`; `None` when it is another statement, no SQL, or too much of it, which the parser of queries tells.
    ///
    /// Errors: `Invalid` for a part of these statements that is not supported, with what to write instead.
    pub fn parse(text: &str, bytes_max: usize) -> Option<Result<Self>> {
        let first = text.split_whitespace().next()?;
        let is_change = ["DELETE", "UPDATE"].iter().any(|verb| first.eq_ignore_ascii_case(verb));
        if !is_change || text.len() > bytes_max || tree::too_many_brackets(text) {
            return None;
        }
        // The tree of a long chain of operators is deep, and it is printed and dropped here.
        let parsed =
            stack::parsing(text, || match Parser::parse_sql(&TidemillDialect, text).ok()?.as_slice() {
                [Ast::Delete(delete)] => Some(Self::of_delete(delete)),
                [Ast::Update(update)] => Some(Self::of_update(update)),
                _ => None,
            });
        parsed.unwrap_or_else(|no_stack| Some(Err(no_stack)))
    }

    fn of_delete(delete: &Delete) -> Result<Self> {
        let Delete { tables, from, using, selection, returning, output, order_by, limit, .. } = delete;
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = from;
        let is_plain = tables.is_empty()
            && using.is_none()
            && returning.is_none()
            && output.is_none()
            && order_by.is_empty()
            && limit.is_none();
        let [table] = from.as_slice() else { return Err(unsupported("DELETE")) };
        if !is_plain {
            return Err(unsupported("DELETE"));
        }
        let table = table_text(table).ok_or_else(|| unsupported("DELETE"))?;
        let condition = selection.as_ref().ok_or_else(|| without_condition("DELETE", &table))?;
        Ok(Self {
            query: format!("SELECT ({condition}) AS \"condition\" FROM {table}"),
            assigned: Vec::new(),
        })
    }

    fn of_update(update: &Update) -> Result<Self> {
        let Update { table, assignments, from, selection, returning, output, or, .. } = update;
        if from.is_some() || returning.is_some() || output.is_some() || or.is_some() {
            return Err(unsupported("UPDATE"));
        }
        let table = table_text(table).ok_or_else(|| unsupported("UPDATE"))?;
        let condition = selection.as_ref().ok_or_else(|| without_condition("UPDATE", &table))?;
        let mut columns = format!("({condition}) AS \"condition\"");
        let mut assigned = Vec::new();
        for assignment in assignments {
            let AssignmentTarget::ColumnName(name) = &assignment.target else {
                return Err(unsupported("UPDATE"));
            };
            let name = name.0.last().and_then(|part| part.as_ident()).map(|part| part.value.clone());
            let name = name.ok_or_else(|| unsupported("UPDATE"))?;
            columns += &format!(", ({}) AS \"value {}\"", assignment.value, assigned.len());
            assigned.push(name);
        }
        Ok(Self { query: format!("SELECT {columns} FROM {table}"), assigned })
    }

    /// Returns what rewrites the rows of the table that the planned query reads.
    ///
    /// `fixed` has the columns that must not change: those by which the table is ordered and partitioned.
    /// Errors: `Invalid` for conditions on anything but the row, and for columns that cannot be assigned.
    pub fn rewriter(
        &self,
        state: &SessionState,
        plan: &LogicalPlan,
        fixed: &[String],
    ) -> Result<RowRewriter> {
        let (mut exprs, schema) = row_expressions(plan)?;
        for (expr, name) in exprs.iter_mut().skip(1).zip(&self.assigned) {
            let index = assignable(&schema, name, fixed)?;
            if let DataType::Timestamp(TimeUnit::Microsecond, zone) = schema.field(index).data_type()
                && let Some(time) = times::of_text(expr, zone).map_err(|e| from_datafusion(&e, None))?
            {
                *expr = time;
            }
        }
        let physical = exprs
            .iter()
            .map(|expr| physical(state, expr.clone(), &schema).map_err(|e| from_datafusion(&e, None)));
        let mut physical = physical.collect::<Result<Vec<_>>>()?;
        let condition = physical.remove(0);
        let ty = condition.data_type(&schema).map_err(|e| from_datafusion(&e, None))?;
        if !matches!(ty, DataType::Boolean | DataType::Null) {
            return Err(Error::invalid(format!("the condition is a {ty}: expected true or false")));
        }
        let targets = self.assigned.iter().map(|name| assignable(&schema, name, fixed));
        let values = targets.collect::<Result<Vec<_>>>()?.into_iter().zip(physical).collect();
        let rows = ConditionalUpdate { schema, condition, values };
        Ok(Arc::new(move |batch| rows.apply(batch)))
    }

    /// Returns the result of the statement: how many rows it deleted or changed.
    pub fn result(&self, rows: u64) -> Result<RecordBatch> {
        let name = if self.assigned.is_empty() { "deleted" } else { "changed" };
        let schema = Schema::new(vec![Field::new(name, DataType::Int64, false)]);
        let rows = Int64Array::from(vec![i64::try_from(rows).unwrap_or(i64::MAX)]);
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(rows)])
            .map_err(|e| Error::internal("a count does not fit its column").with_source(e))
    }
}

/// Returns the error for a table that has no events.
pub(crate) fn not_events(schema: &str, name: &str) -> Error {
    let instead = match schema {
        "docs" => "change documents through their collection",
        _ => "only events are deleted or changed",
    };
    Error::invalid(format!("{schema}.{name} has no events: {instead}"))
}

/// Returns what evaluates an expression over rows with `schema`, with the time of the statement for `now()`.
pub(crate) fn physical(
    state: &SessionState,
    expr: Expr,
    schema: &SchemaRef,
) -> datafusion::common::Result<Arc<dyn PhysicalExpr>> {
    let schema = Arc::new(DFSchema::try_from(schema.clone())?);
    let context = SimplifyContext::builder()
        .with_schema(schema.clone())
        .with_config_options(state.config_options().clone())
        .with_query_execution_start_time(state.execution_props().query_execution_start_time)
        .build();
    let simplifier = ExprSimplifier::new(context);
    let expr = simplifier.simplify(simplifier.coerce(expr, &schema)?)?;
    state.create_physical_expr(expr, &schema)
}

fn unsupported(verb: &str) -> Error {
    let form = match verb {
        "DELETE" => "DELETE FROM events.STREAM WHERE condition",
        _ => "UPDATE events.STREAM SET field = value, … WHERE condition",
    };
    Error::invalid(format!(
        "{verb}: only `{form}` is supported: the condition may use the columns of the row"
    ))
}

fn without_condition(verb: &str, table: &str) -> Error {
    let (schema, name) = names::split_name(table);
    if ["docs", "system"].iter().any(|other| schema.eq_ignore_ascii_case(other)) {
        return not_events(&schema.to_lowercase(), &name);
    }
    Error::invalid(format!(
        "{verb} without WHERE would affect all events of {table}: add a condition, or WHERE true if you mean it"
    ))
}

/// Returns the text of a table without joins.
fn table_text(table: &TableWithJoins) -> Option<String> {
    let is_table = matches!(&table.relation, TableFactor::Table { args: None, .. }) && table.joins.is_empty();
    is_table.then(|| table.relation.to_string())
}

fn more_than_the_row() -> Error {
    Error::invalid(
        "the condition, the values and RETURNING may use the columns of the row, constants and functions, no queries",
    )
}

/// Returns the only table of a planned query of a change.
pub(crate) fn table_of(plan: &LogicalPlan) -> Result<TableReference> {
    Ok(projection_and_scan(plan)?.1.table_name.clone())
}

fn projection_and_scan(plan: &LogicalPlan) -> Result<(&Projection, &TableScan)> {
    let LogicalPlan::Projection(projection) = plan else { return Err(more_than_the_row()) };
    let mut input = projection.input.as_ref();
    while let LogicalPlan::SubqueryAlias(alias) = input {
        input = alias.input.as_ref();
    }
    match input {
        LogicalPlan::TableScan(scan) => Ok((projection, scan)),
        _ => Err(more_than_the_row()),
    }
}

/// Returns the expressions of a projection directly over a table, and the table's schema.
pub(crate) fn row_expressions(plan: &LogicalPlan) -> Result<(Vec<Expr>, SchemaRef)> {
    let (projection, scan) = projection_and_scan(plan)?;
    let exprs = projection.expr.iter().map(|expr| {
        let mut has_query = false;
        let _ = expr.apply(|node| {
            has_query |= matches!(
                node,
                Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_)
            );
            Ok(TreeNodeRecursion::Continue)
        });
        if has_query || expr.is_volatile() {
            return Err(more_than_the_row());
        }
        let unqualified = expr.clone().unalias().transform(|node| match node {
            Expr::Column(column) => Ok(Transformed::yes(Expr::Column(Column::new_unqualified(column.name)))),
            node => Ok(Transformed::no(node)),
        });
        unqualified.map(|done| done.data).map_err(|e| from_datafusion(&e, None))
    });
    Ok((exprs.collect::<Result<_>>()?, scan.source.schema()))
}

/// Returns the position of a column that may get new values.
fn assignable(schema: &Schema, name: &str, fixed: &[String]) -> Result<usize> {
    let exact = schema.index_of(name).ok();
    let in_other_case = || {
        let mut fitting =
            (0..schema.fields().len()).filter(|i| schema.field(*i).name().eq_ignore_ascii_case(name));
        fitting.next().filter(|_| fitting.next().is_none())
    };
    let Some(index) = exact.or_else(in_other_case) else {
        let names = schema.fields().iter().map(|field| field.name().as_str());
        return Err(Error::not_found(format!(
            "there is no column `{name}`{}",
            tidemill_types::did_you_mean(name, names)
        )));
    };
    let name = schema.field(index).name();
    if fixed.contains(name) || (name.starts_with('_') && name != column::EXTRA) {
        return Err(Error::invalid(format!(
            "`{name}` cannot be changed: it is the key, the id, the time or a column that Tidemill adds. Delete the event and \
             send it again"
        )));
    }
    Ok(index)
}

/// A cast that fails for a value that does not fit, instead of making it null.
pub(crate) const STRICT: CastOptions<'static> =
    CastOptions { safe: false, format_options: FormatOptions::new() };

/// Condition and new values of rows with the columns of `schema`.
struct ConditionalUpdate {
    schema: SchemaRef,
    condition: Arc<dyn PhysicalExpr>,
    /// Columns by position, and their new values; none to delete the rows.
    values: Vec<(usize, Arc<dyn PhysicalExpr>)>,
}

impl ConditionalUpdate {
    fn apply(&self, batch: &RecordBatch) -> Result<RowRewrite> {
        // An older file lacks columns.
        let rows = conform_one(batch, &self.schema).map_err(arrow_error)?;
        let chosen = evaluate(&self.condition, &rows)?;
        let chosen = cast(&chosen, &DataType::Boolean).map_err(arrow_error)?;
        let chosen = arrow::array::AsArray::as_boolean(&chosen);
        // Unknown is not true.
        let chosen = if chosen.null_count() > 0 { prep_null_mask_filter(chosen) } else { chosen.clone() };
        let count = chosen.true_count() as u64;
        if self.values.is_empty() {
            return match count {
                0 => Ok(RowRewrite::Keep),
                _ => Ok(RowRewrite::Retain(not(&chosen).map_err(arrow_error)?)),
            };
        }
        self.replace(rows, &chosen, count)
    }

    /// All files of a table get the columns that are assigned, whether a row of this batch is chosen or not: the batches
    /// of one file must have equal columns.
    fn replace(&self, rows: RecordBatch, chosen: &BooleanArray, count: u64) -> Result<RowRewrite> {
        let mut columns = rows.columns().to_vec();
        for (index, value) in &self.values {
            // Only for the rows that get it, as in a query, where the condition comes first: it may guard a division.
            let value =
                value.evaluate_selection(&rows, chosen).and_then(|value| value.into_array(rows.num_rows()));
            let value = value.map_err(|e| from_datafusion(&e, None))?;
            let none = new_null_array(value.data_type(), value.len());
            let value = zip(chosen, &value, &none).map_err(arrow_error)?;
            let ty = rows.column(*index).data_type();
            let value = cast_with_options(&value, ty, &STRICT).map_err(arrow_error)?;
            columns[*index] = zip(chosen, &value, rows.column(*index)).map_err(arrow_error)?;
        }
        let rows = RecordBatch::try_new(rows.schema(), columns).map_err(arrow_error)?;
        Ok(RowRewrite::Replace(rows, count))
    }
}

fn evaluate(expr: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<ArrayRef> {
    let value = expr.evaluate(rows).and_then(|value| value.into_array(rows.num_rows()));
    value.map_err(|e| from_datafusion(&e, None))
}

fn arrow_error(error: arrow::error::ArrowError) -> Error {
    Error::invalid(format!("a new value does not fit its column: {error}"))
}
