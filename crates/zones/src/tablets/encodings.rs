//! Choice of the encoding of each column by trial.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use tidemill_types::Result;

use crate::error::internal;
use crate::tablets::tablet_layout::{ColumnEncoding, TabletLayout};

impl TabletLayout {
    /// Chooses for each column the encoding under which the rows of `sample` take the fewest bytes.
    ///
    /// Bounds: writes each column of the sample as often as there are encodings for its type, at most three times.
    pub fn with_encodings_for(mut self, sample: &RecordBatch) -> Result<Self> {
        for (field, column) in self.schema.fields().iter().zip(sample.columns()) {
            let candidates = ColumnEncoding::candidates(field.data_type());
            let mut best: Option<(usize, ColumnEncoding)> = None;
            for encoding in candidates.iter().filter(|_| candidates.len() > 1) {
                let bytes = self.encoded_bytes(field, column, *encoding)?;
                if best.is_none_or(|(least, _)| bytes < least) {
                    best = Some((bytes, *encoding));
                }
            }
            if let Some((_, encoding)) = best {
                self.properties = encoding.apply(field.name(), self.properties);
            }
        }
        Ok(self)
    }

    /// Returns the size of a Parquet file with only this column.
    fn encoded_bytes(
        &self,
        field: &Arc<Field>,
        column: &ArrayRef,
        encoding: ColumnEncoding,
    ) -> Result<usize> {
        let failed = |e| internal("a column cannot be encoded", e);
        let full = self.properties.clone().build();
        let path = parquet::schema::types::ColumnPath::from(vec![field.name().clone()]);
        let properties = WriterProperties::builder()
            .set_compression(full.compression(&path))
            .set_statistics_enabled(EnabledStatistics::None)
            .set_data_page_row_count_limit(full.data_page_row_count_limit());
        let properties = encoding.apply(field.name(), properties).build();
        let schema = Arc::new(Schema::new(vec![field.clone()]));
        let batch = RecordBatch::try_new(schema.clone(), vec![column.clone()])
            .map_err(|e| internal("a column differs from its field", e))?;
        let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties)).map_err(failed)?;
        writer.write(&batch).map_err(failed)?;
        writer.into_inner().map(|bytes| bytes.len()).map_err(failed)
    }
}
