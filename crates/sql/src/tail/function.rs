//! The table function.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::TableType;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use tidemill_types::{Error, StreamPositions};

use super::steps::refused;
use crate::catalog::QuerySnapshots;
use crate::error::to_datafusion;
use crate::names::split_name;

/// Name of the function.
pub(crate) const TAIL: &str = "tail";

/// Position before the first stored row.
const START: &str = "start";

/// The function.
#[derive(Debug)]
pub(crate) struct TailFunction(pub Arc<QuerySnapshots>);

impl TableFunctionImpl for TailFunction {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let invalid = || {
            to_datafusion(Error::invalid(
                "tail takes the name of a stream's table, and a position if the rows are not to begin now: for example \
                 tail('events.readings'), tail('events.readings', '0-1042-7,1-388-0') for the rows behind these ids of events, \
                 or tail('events.readings', 'start')",
            ))
        };
        let text = |expr: &Expr| match expr {
            Expr::Literal(ScalarValue::Utf8(Some(text)), _) => Some(text.clone()),
            _ => None,
        };
        let texts: Option<Vec<String>> = args.exprs().iter().map(text).collect();
        let (name, position) = match texts.ok_or_else(invalid)?.as_slice() {
            [name] => (name.clone(), None),
            [name, position] => (name.clone(), Some(position.clone())),
            _ => return Err(invalid()),
        };
        let position = position.map(|position| match position.as_str() {
            START => Ok(StreamPositions::default()),
            "" => {
                Err(Error::invalid(format!("tail: the position is empty: write '{START}', or ids of events")))
            }
            ids => ids.parse().map_err(|e: Error| e.context("tail")),
        });
        let position = position.transpose().map_err(to_datafusion)?;
        let (schema, table) = split_name(&name);
        let (stream, columns) = self.0.stream_columns(&schema, &table).map_err(to_datafusion)?;
        Ok(Arc::new(TailTable { stream, columns, position }))
    }
}

/// New rows of a stream. They are not scanned: the plan over them is evaluated by [`super::Steps`].
#[derive(Debug, Clone)]
pub(crate) struct TailTable {
    pub stream: String,
    pub columns: SchemaRef,
    /// Position behind which the rows begin; `None` for now.
    pub position: Option<StreamPositions>,
}

#[async_trait]
impl TableProvider for TailTable {
    fn schema(&self) -> SchemaRef {
        self.columns.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // plans that are no chain of steps come here, such as that of EXPLAIN
        Err(to_datafusion(refused("this statement")))
    }
}
