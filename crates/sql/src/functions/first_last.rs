//! `first(x, time)` and `last(x, time)`: short forms of `first_value(x ORDER BY time)` and `last_value(x
//! ORDER BY time)`.

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, internal_err, plan_err};
use datafusion::functions_aggregate::first_last::{first_value_udaf, last_value_udaf};
use datafusion::logical_expr::expr::{AggregateFunction, Sort};
use datafusion::logical_expr::function::{AccumulatorArgs, AggregateFunctionSimplification};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Expr, Signature, Volatility};

/// Returns the aggregate function for the value at the smallest time.
pub(super) fn first() -> AggregateUDF {
    FirstLast::new("first").into()
}

/// Returns the aggregate function for the value at the largest time.
pub(super) fn last() -> AggregateUDF {
    FirstLast::new("last").into()
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
        Some(Box::new(move |call: AggregateFunction, _| {
            let mut params = call.params;
            // the signature accepts exactly two arguments
            let time = params.args.pop();
            params.order_by = time.map(|t| Sort::new(t, true, true)).into_iter().collect();
            Ok(Expr::AggregateFunction(AggregateFunction { func: func.clone(), params }))
        }))
    }
}
