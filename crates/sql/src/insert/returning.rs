//! `RETURNING`: expressions over the events as they are stored.
//!
//! They are planned as the query `SELECT … FROM stream`, so that they mean the same. They are evaluated on the rows of the statement, without a look at the table.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray,
};
use arrow::compute::cast_with_options;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::logical_expr::Expr;
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_plan::PhysicalExpr;
use tidemill_database::{ColumnOrigin, Returning};
use tidemill_types::{Error, EventId, Result, StreamSchema, column};

use super::Insert;
use crate::change::{STRICT, physical, row_expressions};
use crate::error::from_datafusion;
use crate::events::conform_one;
use crate::pg_catalog;
use crate::plans::origins;
use crate::plans::parameters::ParameterTypes;
use crate::query::QueryRequest;
use crate::session::Shared;
use crate::times::MicrosecondTimes;

/// Columns that an event gets when it is appended.
const ADDRESS: [&str; 3] = [column::PARTITION, column::OFFSET, column::ROW];

/// Expressions of `RETURNING`.
pub(super) struct ReturningRows {
    schema: SchemaRef,
    /// Columns of the table.
    table: SchemaRef,
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    uses_addresses: bool,
    origins: Vec<Option<ColumnOrigin>>,
}

impl Shared {
    /// Plans `RETURNING`; `None` for a statement without it.
    ///
    /// Errors: those of a query of the stream.
    pub(super) async fn plan_returning(
        &self,
        insert: &Insert,
        request: &QueryRequest,
        stream: &StreamSchema,
    ) -> Result<Option<ReturningRows>> {
        let Some(items) = &insert.returning else { return Ok(None) };
        let mut from = format!("events.\"{}\"", stream.name.replace('"', "\"\""));
        if let Some(alias) = &insert.alias {
            from += &format!(" AS {alias}");
        }
        let Some(text) = insert.parts.returning_query(&request.text, &from) else { return Ok(None) };
        let query = QueryRequest { text: text.as_str().into(), parameters: Arc::from([]), ..request.clone() };
        let planned = self.plan_alone(&query, None).await?;
        if ParameterTypes::of(&planned.plan)?.len() > 0 {
            return Err(Error::invalid("RETURNING takes no parameters: write the values"));
        }
        let failed = |e| from_datafusion(&e, Some(&text));
        let origins = match request.asks_origins {
            true => self.oids.numbered(&origins::of_plan(&planned.plan, &planned.snapshots), &self.tables),
            false => Vec::new(),
        };
        let plan = MicrosecondTimes.analyze(planned.plan, planned.state.config_options()).map_err(failed)?;
        let named = pg_catalog::without_marks(plan.schema().inner());
        let (expressions, table) = row_expressions(&plan)?;
        let is_left_out = |expression: &Expr| {
            let Expr::Column(found) = expression else { return false };
            items.has_wildcard && found.name == column::RECEIVED
        };
        let all = origins.iter().zip(&expressions);
        let origins =
            all.filter(|(_, expression)| !is_left_out(expression)).map(|(origin, _)| *origin).collect();
        let kept: Vec<(&Expr, &Arc<Field>)> = expressions
            .iter()
            .zip(named.fields())
            .filter(|(expression, _)| !is_left_out(expression))
            .collect();
        let fields: Vec<Arc<Field>> = kept.iter().map(|(_, field)| (*field).clone()).collect();
        let uses_addresses = kept.iter().any(|(expression, _)| {
            expression.column_refs().iter().any(|found| ADDRESS.contains(&found.name.as_str()))
        });
        let expressions = kept.into_iter().map(|(expression, _)| {
            physical(&planned.state, expression.clone(), &table).map_err(|e| from_datafusion(&e, None))
        });
        Ok(Some(ReturningRows {
            schema: Arc::new(Schema::new(fields)),
            expressions: expressions.collect::<Result<_>>()?,
            table,
            uses_addresses,
            origins,
        }))
    }
}

impl Returning for ReturningRows {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn origins(&self) -> Vec<Option<ColumnOrigin>> {
        self.origins.clone()
    }

    fn uses_addresses(&self) -> bool {
        self.uses_addresses
    }

    fn rows(&self, rows: &RecordBatch, addresses: &[EventId]) -> Result<RecordBatch> {
        let count = rows.num_rows();
        let added: [(&str, ArrayRef); 4] = [
            // no expression has it
            (
                column::RECEIVED,
                Arc::new(TimestampMicrosecondArray::from_value(0, count).with_timezone("UTC")),
            ),
            (
                column::PARTITION,
                Arc::new(
                    addresses.iter().map(|id| Some(id.partition.0.cast_signed())).collect::<Int32Array>(),
                ),
            ),
            (
                column::OFFSET,
                Arc::new(addresses.iter().map(|id| i64::try_from(id.offset.0).ok()).collect::<Int64Array>()),
            ),
            (
                column::ROW,
                Arc::new(addresses.iter().map(|id| Some(id.row.cast_signed())).collect::<Int32Array>()),
            ),
        ];
        let mut fields: Vec<Arc<Field>> = rows.schema_ref().fields().iter().cloned().collect();
        let mut columns = rows.columns().to_vec();
        for (name, array) in added {
            fields.push(Arc::new(Field::new(name, array.data_type().clone(), false)));
            columns.push(array);
        }
        let failed =
            |e: arrow::error::ArrowError| Error::invalid(format!("RETURNING: a value does not fit: {e}"));
        let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(failed)?;
        let rows = conform_one(&rows, &self.table).map_err(failed)?;
        let values = self.expressions.iter().zip(self.schema.fields()).map(|(expression, field)| {
            let value = expression.evaluate(&rows).and_then(|value| value.into_array(count));
            let value = value.map_err(|e| from_datafusion(&e, None))?;
            match value.data_type() == field.data_type() {
                true => Ok(value),
                false => cast_with_options(&value, field.data_type(), &STRICT).map_err(failed),
            }
        });
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(self.schema.clone(), values.collect::<Result<_>>()?, &options)
            .map_err(failed)
    }
}
