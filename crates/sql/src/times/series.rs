//! `generate_series` and `range` of times, whose bounds may be in microseconds.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::catalog::{TableFunction, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Expr;

/// DataFusion's function, which takes times in nanoseconds only.
#[derive(Debug)]
pub(crate) struct TimeSeries(pub Arc<TableFunction>);

impl TableFunctionImpl for TimeSeries {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let exprs = args.exprs().iter().map(|expr| match expr {
            Expr::Literal(time @ ScalarValue::TimestampMicrosecond(_, zone), metadata) => {
                let nanos = time.cast_to(&DataType::Timestamp(TimeUnit::Nanosecond, zone.clone()))?;
                Ok(Expr::Literal(nanos, metadata.clone()))
            }
            expr => Ok(expr.clone()),
        });
        let exprs = exprs.collect::<Result<Vec<_>>>()?;
        self.0.create_table_provider_with_args(TableFunctionArgs::new(&exprs, args.session()))
    }
}
