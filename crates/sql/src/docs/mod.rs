//! `docs.<collection>`: the documents of a collection as a table, decoded only where a query looks.
//!
//! Columns are the top-level fields of the documents, found in one walk over them: the table is as wide as its
//! documents are at this moment. Besides them there is `_doc`, the whole document as JSON text.
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

/// The column that holds the whole document.
pub(crate) const WHOLE: &str = "_doc";

/// Columns of one table. Fields beyond them are in `_doc` only.
pub(crate) const COLUMNS_MAX: usize = 1_000;

/// Documents that one thread looks through while the columns are found.
const DOCUMENTS_PER_THREAD: usize = 32_768;

/// The documents of a collection at one moment, and the columns they have.
#[derive(Debug)]
pub(crate) struct DocsTable {
    schema: SchemaRef,
    columns: Arc<[Column]>,
    documents: Arc<Vec<Bytes>>,
}

/// What a column is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Column {
    /// A top-level field.
    Field { name: Box<[u8]>, kind: ColumnType },
    /// The whole document.
    Whole,
}

impl DocsTable {
    /// Walks the documents once to find the columns.
    ///
    /// Must run on a tokio runtime: large collections are looked through by several threads.
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

    /// The same documents with columns for the fields `names`, too, that none of them has. Columns without a value get
    /// the type of `NULL`, which goes with any other: what reads them knows what they will hold one day.
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

    fn with_columns(found: InferredColumns, documents: Arc<Vec<Bytes>>) -> Self {
        let mut columns = vec![];
        let mut fields = vec![];
        for (name, kind) in found.into_ordered() {
            // names were checked to be text while walking; `_id` comes first
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
            // DataFusion projects columns of the schema, which has one field for each
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
