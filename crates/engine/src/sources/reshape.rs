//! Rows of a file with some of a stream's fields, as rows of the stream.

use std::sync::Arc;

use arrow_array::{RecordBatch, new_null_array};
use tidemill_connect::{ConnectorHealth, Source, SourceBatch};
use tidemill_types::{Error, Result, StreamSchema, Timestamp};

/// Source of rows with other fields than the stream, found by name. Fields that the source lacks are null.
pub(super) struct ReshapedSource<S> {
    source: S,
    stream: Arc<StreamSchema>,
}

impl<S: Source> ReshapedSource<S> {
    pub fn new(source: S, stream: Arc<StreamSchema>) -> Self {
        Self { source, stream }
    }

    fn reshape(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let schema = self.stream.batch_schema();
        let column = |field: &arrow_schema::FieldRef| match batch.column_by_name(field.name()) {
            Some(column) => column.clone(),
            None => new_null_array(field.data_type(), batch.num_rows()),
        };
        let columns = schema.fields().iter().map(column).collect();
        RecordBatch::try_new(schema, columns).map_err(|e| {
            Error::internal(format!("rows do not have the fields of `{}`", self.stream.name)).with_source(e)
        })
    }
}

impl<S: Source> Source for ReshapedSource<S> {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn next(&mut self, now: Timestamp) -> Result<Option<SourceBatch>> {
        let Some(mut batch) = self.source.next(now)? else { return Ok(None) };
        for (stream, rows) in &mut batch.rows.parts {
            *rows = self.reshape(rows)?;
            *stream = self.stream.clone();
        }
        Ok(Some(batch))
    }

    fn health(&self) -> ConnectorHealth {
        self.source.health()
    }
}
