//! A data set into a running Tidemill, through Arrow batches.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::{DataType, UInt64Type};
use tidemill::{Durability, SendOptions, Tidemill};

use crate::dataset::{Table, TableBatch};

/// What senders saw.
#[derive(Debug, Default)]
pub struct Sent {
    /// Rows acknowledged.
    pub rows: u64,
    /// Milliseconds from the call to the acknowledgement of each batch.
    pub batch_ms: Vec<f64>,
    /// From the first call to the last acknowledgement.
    pub wall: Duration,
}

/// Sends batches one after the other, each acknowledged when it is on the disk. `acknowledged` is called after each, with the
/// rows so far.
pub fn send(
    tidemill: &Tidemill,
    batches: &[TableBatch],
    mut acknowledged: impl FnMut(Table, u64),
) -> Result<Sent> {
    let options =
        SendOptions { durability: Some(Durability::Fsync), origin: "bench".into(), ..SendOptions::default() };
    let mut sent = Sent::default();
    let start = Instant::now();
    for batch in batches {
        let call = Instant::now();
        let reply = tidemill.send_batch(batch.table.name(), batch.rows.clone(), &options)?;
        sent.batch_ms.push(call.elapsed().as_secs_f64() * 1e3);
        ensure!(reply.rejected.is_empty(), "{:?}", reply.rejected);
        sent.rows += reply.accepted;
        acknowledged(batch.table, reply.accepted);
    }
    sent.wall = start.elapsed();
    Ok(sent)
}

/// Returns the number of rows of a table, by SQL.
pub fn count(tidemill: &Tidemill, table: Table) -> Result<u64> {
    sum(tidemill, &format!("SELECT count(*) AS n FROM {}", table.name()))
}

/// Returns the whole number that is the only result of `sql`; 0 for null.
pub fn sum(tidemill: &Tidemill, sql: &str) -> Result<u64> {
    let rows = tidemill.sql(sql)?;
    let batch =
        rows.batches.iter().find(|batch| batch.num_rows() > 0).context("expected one row, found none")?;
    let number = cast(batch.column(0), &DataType::UInt64)?;
    Ok(number.as_primitive::<UInt64Type>().iter().next().flatten().unwrap_or_default())
}

/// Checks that SQL and the ledger have exactly the rows of the batches.
pub fn check_counts(tidemill: &Tidemill, expected: impl Fn(Table) -> u64) -> Result<()> {
    for table in Table::ALL {
        let (name, expected) = (table.name(), expected(table));
        let found = count(tidemill, table)?;
        ensure!(found == expected, "{name}: expected {expected} rows, found {found}");
        let ledger = tidemill.engine().stream(name)?.ledger;
        ensure!(
            ledger.balances() && ledger.stored == expected,
            "{name}: expected {expected} rows stored, found the ledger {ledger:?}"
        );
    }
    Ok(())
}

/// Returns the number of rows of a table in `batches`.
pub fn rows_of(batches: &[TableBatch], table: Table) -> u64 {
    batches.iter().filter(|b| b.table == table).map(|b| b.rows.num_rows() as u64).sum()
}
