//! Rows of a record that are not stored in their stream, on their way to `system.rejected`.

use arrow_array::RecordBatch;
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{Result, StreamSchema, event_json};

use super::cascade::CascadeOutput;
use super::{RecordApplier, TableRef};
use crate::entry::RejectedRow;

/// Rejected rows of a record.
#[derive(Default)]
pub struct RejectedRows {
    rows: Vec<RejectedRow>,
    duplicates: u64,
}

impl From<Vec<RejectedRow>> for RejectedRows {
    fn from(rows: Vec<RejectedRow>) -> Self {
        Self { rows, duplicates: 0 }
    }
}

impl RejectedRows {
    pub fn push(&mut self, row: RejectedRow) {
        self.rows.push(row);
    }

    pub fn extend(&mut self, rows: Vec<RejectedRow>) {
        self.rows.extend(rows);
    }

    /// Returns how many of the rows are duplicates.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Adds row `row` of `batch`, whose id is stored already. `arrival` is its position in the record.
    pub fn push_duplicate(
        &mut self,
        stream: &StreamSchema,
        batch: &RecordBatch,
        row: usize,
        source: Option<&str>,
        arrival: i32,
    ) {
        let fields: Vec<&str> = stream.id.iter().map(|i| stream.fields[*i].name.as_str()).collect();
        self.duplicates += 1;
        self.rows.push(RejectedRow {
            stream: stream.name.clone(),
            kind: "duplicate".into(),
            reason: format!("an event with the same {} is stored already", fields.join(", ")),
            raw: serde_json::Value::from(event_json(stream, batch, row)).to_string(),
            origin: source
                .map_or_else(|| format!("row {arrival}"), |s| format!("{s}: row {arrival} of its record")),
        });
    }
}

impl RecordApplier<'_> {
    /// Takes the events that came too late for queries. They are stored in their stream as well.
    pub(super) fn take_late_rows(&self, output: &mut CascadeOutput) -> Vec<RejectedRow> {
        let late = std::mem::take(&mut output.late);
        let row = |(stream, reason, raw): (usize, String, String)| RejectedRow {
            stream: self.deployment.program.streams()[stream].name.clone(),
            kind: "late".into(),
            reason,
            raw,
            origin: "queries".into(),
        };
        late.into_iter().map(row).collect()
    }

    /// Adds rejected rows to `system.rejected`.
    pub(super) fn store_rejected(&mut self, rejected: RejectedRows) -> Result<()> {
        if rejected.rows.is_empty() {
            return Ok(());
        }
        let mut builder = BatchBuilder::new(self.deployment.rejected_stream.clone());
        for row in rejected.rows {
            let cells = [row.stream, row.kind, row.reason, row.raw, row.origin].map(FieldValue::Text);
            builder.push_values(&cells, self.time)?;
        }
        let batch = builder.finish();
        let numbers: Vec<i32> = (0..batch.num_rows() as i32).collect();
        if let Some(digest) = &mut self.digest {
            digest.rows(&self.deployment.rejected_stream.name, &batch, &numbers)?;
        }
        let full = self.table_batch(TableRef::Rejected, &batch, &numbers)?;
        self.applied.rows.push((TableRef::Rejected, full));
        Ok(())
    }
}
