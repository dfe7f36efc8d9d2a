//! Older versions of a stream's table: `as_of('events.readings', time or version)` and `versions('events.readings')`.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use datafusion::catalog::{MemTable, Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::TableType;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use tidemill_types::{Error, Timestamp};
use tidemill_zones::{Table, VersionAt, VersionInfo};

use crate::catalog::QuerySnapshots;
use crate::error::to_datafusion;
use crate::events::{EventsTable, ScanContext};
use crate::names::split_name;
use crate::schema_name::SchemaName;

/// Name of the function that reads a version.
pub(crate) const AS_OF: &str = "as_of";
/// Name of the function that lists the versions.
pub(crate) const VERSIONS: &str = "versions";

/// `as_of(table, time or version)`: what the table's files had then.
#[derive(Debug)]
pub(crate) struct AsOfFunction(pub Arc<QuerySnapshots>);

impl TableFunctionImpl for AsOfFunction {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let (name, at) = version_arguments(args.exprs()).ok_or_else(|| {
            to_datafusion(Error::invalid(
                "as_of takes the name of a table, and a time or the number of a version: for example \
                 as_of('events.readings', timestamp '2026-01-31 12:00:00') or as_of('events.readings', 12)",
            ))
        })?;
        let table = stored_table(&self.0, name)?;
        let schema = table.snapshot().schema;
        Ok(Arc::new(PastTable { table, at, schema, context: self.0.context().clone() }))
    }
}

/// `versions(table)`: the versions of the table that can be read.
#[derive(Debug)]
pub(crate) struct VersionsFunction(pub Arc<QuerySnapshots>);

impl TableFunctionImpl for VersionsFunction {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let [Expr::Literal(ScalarValue::Utf8(Some(name)), _)] = args.exprs() else {
            return Err(to_datafusion(Error::invalid(
                "versions takes one text, the name of a table: for example versions('events.readings')",
            )));
        };
        Ok(Arc::new(VersionsTable(stored_table(&self.0, name)?)))
    }
}

fn stored_table(snapshots: &QuerySnapshots, name: &str) -> Result<Arc<Table>> {
    let (schema, table) = split_name(name);
    snapshots.stored(&schema, &table).map_err(to_datafusion)
}

/// Returns the name of the table and which version is meant; `None` for other arguments.
fn version_arguments(args: &[Expr]) -> Option<(&str, VersionAt)> {
    let [Expr::Literal(ScalarValue::Utf8(Some(name)), _), Expr::Literal(at, _)] = args else { return None };
    let at = match at {
        ScalarValue::Int64(version) => VersionAt::Version(u64::try_from((*version)?).ok()?),
        ScalarValue::Utf8(_)
        | ScalarValue::Date32(_)
        | ScalarValue::TimestampSecond(..)
        | ScalarValue::TimestampMillisecond(..)
        | ScalarValue::TimestampMicrosecond(..)
        | ScalarValue::TimestampNanosecond(..) => match at.cast_to(&time_type()).ok()? {
            ScalarValue::TimestampMicrosecond(Some(time), _) => VersionAt::Time(Timestamp(time)),
            _ => return None,
        },
        _ => return None,
    };
    Some((name, at))
}

fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// A version of a stream's table. Its files are looked up when it is scanned.
#[derive(Debug)]
struct PastTable {
    table: Arc<Table>,
    at: VersionAt,
    schema: SchemaRef,
    context: ScanContext,
}

#[async_trait]
impl TableProvider for PastTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let snapshot = self.table.snapshot_at(self.at).await.map_err(to_datafusion)?;
        let events =
            EventsTable::new((SchemaName::Events, self.table.name()), snapshot, self.context.clone(), None);
        events.map_err(to_datafusion)?.scan(state, projection, filters, limit).await
    }
}

/// The versions of a table, read when it is scanned.
#[derive(Debug)]
struct VersionsTable(Arc<Table>);

impl VersionsTable {
    fn columns() -> SchemaRef {
        let field = |name: &str, ty: DataType| Field::new(name, ty, false);
        Arc::new(Schema::new(vec![
            field("version", DataType::Int64),
            field("committed", time_type()),
            field("operation", DataType::Utf8),
            field("files_added", DataType::Int64),
            field("files_removed", DataType::Int64),
        ]))
    }

    fn rows(versions: &[VersionInfo]) -> Result<RecordBatch> {
        let numbers = |of: fn(&VersionInfo) -> u64| -> ArrayRef {
            let numbers = versions.iter().map(|v| i64::try_from(of(v)).unwrap_or(i64::MAX));
            Arc::new(Int64Array::from_iter_values(numbers))
        };
        let committed = versions.iter().map(|v| v.committed.0);
        let committed = TimestampMicrosecondArray::from_iter_values(committed).with_timezone("UTC");
        let operations = StringArray::from_iter_values(versions.iter().map(|v| &v.operation));
        let columns: Vec<ArrayRef> = vec![
            numbers(|v| v.version),
            Arc::new(committed),
            Arc::new(operations),
            numbers(|v| v.files_added as u64),
            numbers(|v| v.files_removed as u64),
        ];
        Ok(RecordBatch::try_new(Self::columns(), columns)?)
    }
}

#[async_trait]
impl TableProvider for VersionsTable {
    fn schema(&self) -> SchemaRef {
        Self::columns()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let versions = self.0.versions().await.map_err(to_datafusion)?;
        let rows = MemTable::try_new(Self::columns(), vec![vec![Self::rows(&versions)?]])?;
        rows.scan(state, projection, filters, limit).await
    }
}
