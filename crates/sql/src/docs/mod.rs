//! `docs.<collection>`: the documents of a collection as a table; only projected columns are decoded.
//!
//! Columns are the top-level fields of the documents, found in one pass over them, so the schema reflects the
//! current documents. An additional column `_doc` has the whole document as JSON.
//!
//! | in the documents | column |
//! |---|---|
//! | bool | Boolean |
//! | int, long | Int64 |
//! | double; double and int | Float64 |
//! | string; ObjectId (as hex); both | Utf8 |
//! | date | Timestamp(µs, UTC) |
//! | decimal | Utf8, its digits |
//! | document, array, anything else; types that do not agree | Utf8, relaxed extended JSON |

mod column_type;
mod columns;
mod json;
mod raw_bson;
mod scan;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use bytes::Bytes;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as PlanResult;
use datafusion::datasource::TableType;
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::{ExecutionPlan, project_schema};
use tidemill_types::{Error, Result};

use column_type::{ColumnType, InferredColumns};

/// Name of the column with the whole document.
pub(crate) const WHOLE: &str = "_doc";

/// Maximum number of field columns of a table. Further fields are only in `_doc`.
pub(crate) const COLUMNS_MAX: usize = 1_000;

/// Documents per task when columns are inferred.
const DOCUMENTS_PER_THREAD: usize = 32_768;

/// Snapshot of the documents of a collection, and the columns they have.
#[derive(Debug)]
pub(crate) struct DocsTable {
    schema: SchemaRef,
    columns: Arc<[Column]>,
    documents: Arc<Vec<Bytes>>,
}

/// Source of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Column {
    /// A top-level field.
    Field { name: Box<[u8]>, kind: ColumnType },
    /// The whole document.
    Whole,
}

impl DocsTable {
    /// Walks the documents once to infer the columns.
    ///
    /// Must run on a tokio runtime, because large collections are scanned by several threads.
    pub async fn infer(name: &str, documents: Vec<Bytes>) -> Result<Self> {
        let documents = Arc::new(documents);
        let failed =
            |e| Error::internal(format!("docs.{name}: the columns could not be found")).with_source(e);
        let mut tasks = Vec::new();
        for start in (0..documents.len()).step_by(DOCUMENTS_PER_THREAD) {
            let documents = documents.clone();
            tasks.push(tokio::task::spawn_blocking(move || {
                let end = documents.len().min(start + DOCUMENTS_PER_THREAD);
                InferredColumns::of(&documents[start..end])
            }));
        }
        let mut found = InferredColumns::default();
        for task in tasks {
            found.merge(task.await.map_err(failed)?);
        }
        Ok(Self::with_columns(found, documents))
    }

    /// Returns a table of these documents that also has columns for the fields `names`, which no document
    /// has. Columns without a value get the `NULL` type, which coerces to the type
    /// that the query expects.
    pub fn with_absent(&self, names: &[String]) -> Self {
        let absent = names.iter().filter(|n| self.schema.field_with_name(n).is_err());
        let absent = absent
            .map(|n| (n.clone(), Column::Field { name: n.as_bytes().into(), kind: ColumnType::Absent }));
        let known = self.schema.fields().iter().zip(self.columns.iter()).map(|(field, column)| {
            let column = match column {
                Column::Field { name, kind: ColumnType::Null } => {
                    Column::Field { name: name.clone(), kind: ColumnType::Absent }
                }
                other => other.clone(),
            };
            (field.name().clone(), column)
        });
        let (fields, columns): (Vec<Field>, Vec<Column>) = known
            .chain(absent)
            .map(|(name, column)| match &column {
                Column::Field { kind, .. } => (Field::new(name, kind.arrow(), true), column),
                Column::Whole => (Field::new(name, DataType::Utf8, false), column),
            })
            .unzip();
        Self {
            schema: Arc::new(Schema::new(fields)),
            columns: columns.into(),
            documents: self.documents.clone(),
        }
    }

    /// Returns the documents, in the order of the rows.
    pub fn documents(&self) -> &Arc<Vec<Bytes>> {
        &self.documents
    }

    /// Returns about how many bytes the columns of a document take.
    pub fn row_bytes(&self) -> usize {
        // the fields, and the document as text
        3 * self.documents.iter().map(Bytes::len).sum::<usize>() / self.documents.len().max(1)
    }

    fn with_columns(found: InferredColumns, documents: Arc<Vec<Bytes>>) -> Self {
        let mut columns = vec![];
        let mut fields = vec![];
        for (name, kind) in found.into_ordered() {
            // names were checked to be UTF-8 when the columns were inferred; `_id` comes first
            let Ok(text) = std::str::from_utf8(&name) else { continue };
            if text != WHOLE && columns.len() < COLUMNS_MAX {
                fields.push(Field::new(text, kind.arrow(), true));
                columns.push(Column::Field { name, kind });
            }
        }
        fields.push(Field::new(WHOLE, DataType::Utf8, false));
        columns.push(Column::Whole);
        Self { schema: Arc::new(Schema::new(fields)), columns: columns.into(), documents }
    }
}

#[async_trait]
impl TableProvider for DocsTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let columns = match projection {
            None => self.columns.clone(),
            // DataFusion projects columns of the schema, which has one field per entry of `columns`
            Some(indices) => indices.iter().map(|i| self.columns[*i].clone()).collect(),
        };
        let source = scan::DocsScan::new(
            project_schema(&self.schema, projection)?,
            columns,
            self.documents.clone(),
            state.config().target_partitions(),
        );
        Ok(DataSourceExec::from_data_source(source))
    }
}
