//! `first(x, time)` and `last(x, time)`: `first_value` and `last_value` of `x` in the order of time.
//!
//! Rows without a time are left out. Of several rows with one time `first` takes the first and `last` the
//! last one in the log, if they are rows of a stream's table: then their address breaks the tie.

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Column, DFSchema, Result, internal_err, plan_err};
use datafusion::functions_aggregate::first_last::{first_value_udaf, last_value_udaf};
use datafusion::logical_expr::expr::{AggregateFunction, Sort};
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Expr, Signature, Volatility};
use tidemill_types::column;

/// Returns the aggregate function for the value at the smallest time.
pub(super) fn first() -> AggregateUDF {
    FirstLast::new("first").into()
}

/// Returns the aggregate function for the value at the largest time.
pub(super) fn last() -> AggregateUDF {
    FirstLast::new("last").into()
}

/// Returns the columns that address the rows of the table of `time`; none if `schema` has not all of them.
fn address(time: &Expr, schema: &DFSchema) -> Vec<Expr> {
    let mut tables = time.column_refs().into_iter().map(|column| {
        let index = schema.maybe_index_of_column(column)?;
        Some(schema.qualified_field(index).0.cloned())
    });
    let Some(Some(table)) = tables.next() else { return vec![] };
    if !tables.all(|other| other.as_ref() == Some(&table)) {
        return vec![];
    }
    let names = [column::PARTITION, column::OFFSET, column::ROW];
    let columns = names.map(|name| Column::new(table.clone(), name));
    match columns.iter().all(|column| schema.has_column(column)) {
        true => columns.into_iter().map(Expr::Column).collect(),
        false => vec![],
    }
}

/// Aggregate function that planning replaces; it is never executed itself.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FirstLast {
    name: &'static str,
    signature: Signature,
}

impl FirstLast {
    fn new(name: &'static str) -> Self {
        Self { name, signature: Signature::user_defined(Volatility::Immutable) }
    }

    fn refuse<T>(&self) -> Result<T> {
        plan_err!("expected {0}(value, time), for example {0}(speed, _time)", self.name)
    }
}

impl AggregateUDFImpl for FirstLast {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> Result<DataType> {
        match args {
            [value, _] => Ok(value.clone()),
            _ => self.refuse(),
        }
    }

    fn coerce_types(&self, args: &[DataType]) -> Result<Vec<DataType>> {
        match args {
            [_, _] => Ok(args.to_vec()),
            _ => self.refuse(),
        }
    }

    fn return_field(&self, args: &[FieldRef]) -> Result<FieldRef> {
        match args {
            [value, _] => Ok(value.as_ref().clone().with_name(self.name).with_nullable(true).into()),
            _ => self.refuse(),
        }
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        internal_err!("{} was not replaced while planning", self.name)
    }

    fn simplify(&self) -> Option<AggregateFunctionSimplification> {
        let func = if self.name == "first" { first_value_udaf() } else { last_value_udaf() };
        Some(Box::new(move |call: AggregateFunction, context: &SimplifyContext| {
            let mut params = call.params;
            // the signature accepts exactly two arguments
            let Some(time) = params.args.pop() else { return internal_err!("a call without a time") };
            if context.nullable(&time)? {
                let known = time.clone().is_not_null();
                params.filter = Some(Box::new(match params.filter {
                    Some(filter) => filter.and(known),
                    None => known,
                }));
            }
            let address = address(&time, context.schema());
            let order = std::iter::once(time).chain(address);
            params.order_by = order.map(|expr| Sort::new(expr, true, true)).collect();
            Ok(Expr::AggregateFunction(AggregateFunction { func: func.clone(), params }))
        }))
    }
}
