//! What the sink `rdbms` does with a batch: rows and position in one transaction.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::ensure;
use arrow_array::RecordBatch;
use tidemill_connect::runtime;
use tidemill_relational::{
    BulkWriter, Column, DatabaseConnection, DatabaseUrl, DbError, ExistingTable, Mapping, Operation,
    PositionTable, StoredPosition, TableName, TableSchema,
};
use tidemill_types::{EventId, Offset, PartitionId};

use crate::Times;
use crate::client::TABLE;
use crate::events::{Event, batch, schema};

/// Name under which the position is stored.
const SINK: &str = "bench/Readings";

/// Writes events in batches, exactly once, and returns the time of each.
pub fn write(url: &str, operation: Operation, events: &[Event], rows: usize) -> anyhow::Result<Times> {
    let batches: Vec<RecordBatch> = events.chunks(rows).map(batch).collect::<anyhow::Result<_>>()?;
    runtime().block_on(async {
        let mut sink = Sink::open(url, operation).await?;
        let mut times = vec![];
        for batch in &batches {
            let start = Instant::now();
            let refused = sink.write(batch).await?;
            times.push(start.elapsed());
            ensure!(refused == 0, "{refused} rows are refused");
        }
        sink.db.close().await;
        Ok(times)
    })
}

struct Sink {
    db: DatabaseConnection,
    writer: BulkWriter,
    positions: PositionTable,
    position: StoredPosition,
}

impl Sink {
    async fn open(url: &str, operation: Operation) -> Result<Self, DbError> {
        let url = DatabaseUrl::parse(url).map_err(DbError::invalid)?;
        let mut db = DatabaseConnection::connect(&url, None, None).await?;
        let schema = schema();
        let table = TableSchema {
            name: TableName::parse(TABLE).map_err(DbError::invalid)?,
            columns: schema.fields.iter().map(|field| Column::new(&field.name, field.ty)).collect(),
            primary_key: vec![0],
            indexes: vec![],
        };
        let existing = ExistingTable::open(&mut db, &table, false).await?;
        let mapping = |(source, field): (usize, &tidemill_types::Field)| Mapping {
            source,
            column: field.name.clone(),
            ty: field.ty,
        };
        let mappings: Vec<Mapping> = schema.fields.iter().enumerate().map(mapping).collect();
        let writer =
            BulkWriter::new(db.dialect(), &existing, &mappings, operation, &["id".into()], "tidemill_batch")
                .map_err(DbError::invalid)?;
        writer.prepare(&mut db).await?;
        let positions = PositionTable::new(db.dialect(), SINK).map_err(DbError::invalid)?;
        let known: BTreeMap<PartitionId, StoredPosition> = positions.open(&mut db).await?;
        let first = EventId { partition: PartitionId(0), offset: Offset(0), row: 0 };
        let none = || StoredPosition { last: first, refused: Default::default(), batch: 0, epoch: 0 };
        let position = known.into_values().next().unwrap_or_else(none);
        Ok(Self { db, writer, positions, position })
    }

    /// Returns the number of rows that were refused.
    async fn write(&mut self, batch: &RecordBatch) -> Result<usize, DbError> {
        let rows: Vec<usize> = (0..batch.num_rows()).collect();
        self.writer.reset(&mut self.db).await?;
        self.db.begin().await?;
        let refused = self.writer.write(&mut self.db, batch, &rows).await?;
        let EventId { partition, offset, .. } = self.position.last;
        self.position.last = EventId { partition, offset: Offset(offset.0 + 1), row: rows.len() as u32 };
        self.position.batch += 1;
        self.positions.write(&mut self.db, &self.position).await?;
        self.db.commit().await?;
        Ok(refused.len())
    }
}
