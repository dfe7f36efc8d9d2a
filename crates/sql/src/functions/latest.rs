//! `latest('events.readings')`: the latest row of each key of a stream's table.

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider, view::ViewTable};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::datasource::provider_as_source;
use datafusion::functions_window::row_number::row_number;
use datafusion::logical_expr::{Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, lit};
use tidemill_types::{Error, column};

use crate::catalog::QuerySnapshots;
use crate::error::to_datafusion;
use crate::events::EventsTable;
use crate::names::split_name;

/// Name of the column that ranks the rows of a key.
const RANK: &str = "_rank";

/// The function. It is a view over the whole table, which the optimizer serves from hot data if it can.
#[derive(Debug)]
pub(crate) struct LatestFunction(pub Arc<QuerySnapshots>);

impl TableFunctionImpl for LatestFunction {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let (schema, table) = table_name(args.exprs())?;
        let events = self.0.events(&schema, &table).map_err(to_datafusion)?;
        Ok(Arc::new(ViewTable::new(latest_rows(&table, events)?, None)))
    }
}

/// Returns schema and name of the table in the only argument.
fn table_name(args: &[Expr]) -> Result<(String, String)> {
    let invalid = || {
        to_datafusion(Error::invalid(
            "latest takes one text, the name of a table: for example latest('events.readings')",
        ))
    };
    let [Expr::Literal(ScalarValue::Utf8(Some(name)), _)] = args else { return Err(invalid()) };
    Ok(split_name(name))
}

fn latest_rows(table: &str, events: Arc<EventsTable>) -> Result<LogicalPlan> {
    let (key, time) = events.order_columns();
    let columns: Vec<Expr> = {
        let schema = events.schema();
        schema.fields().iter().map(|f| Expr::Column(Column::new_unqualified(f.name()))).collect()
    };
    let column = |name: String| Expr::Column(Column::new_unqualified(name));
    let address = [column::PARTITION, column::OFFSET, column::ROW].map(str::to_owned);
    let order = std::iter::once(time).chain(address).map(|name| column(name).sort(false, false)).collect();
    let rank =
        row_number().partition_by(key.map(column).into_iter().collect()).order_by(order).build()?.alias(RANK);
    LogicalPlanBuilder::scan(table, provider_as_source(events), None)?
        .window([rank])?
        .filter(column(RANK.to_owned()).eq(lit(1_u64)))?
        .project(columns)?
        .build()
}
