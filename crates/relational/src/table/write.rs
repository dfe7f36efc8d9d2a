//! Calls that write.

use tidemill_connect::RefusedRow;
use tidemill_types::{EventId, FieldType, Result};

use super::connection::TableConnection;
use super::{RelationalTable, TableRow, Written};
use crate::attempts::{Attempts, Checked};
use crate::bulk::{BulkWriter, Operation};
use crate::database::DatabaseConnection;
use crate::error::DbError;
use crate::expression::Expression;

/// Rows from which on a temporary table is faster than a statement for each.
const BULK_ROWS_MIN: usize = 8;

/// Column and the expression of its new value.
pub type Assignment = (usize, Expression);

impl RelationalTable {
    /// Adds rows.
    ///
    /// Errors: `Unavailable`: nothing was written, or, without `event`, the answer to the commit was lost; `Invalid`: the
    /// table has changed.
    pub fn insert(&self, rows: &[TableRow], event: Option<EventId>) -> Result<Written> {
        self.transact(event, async |connection| {
            let sources: Vec<(usize, usize)> = (0..connection.columns().len()).map(|c| (c, c)).collect();
            let writer = connection.bulk_writer(Operation::Insert, &sources, &[]).await?;
            bulk(connection, &writer, rows).await
        })
    }

    /// Changes the rows for which `condition` holds, for each set of parameters in order.
    ///
    /// Errors: those of [`Self::insert`].
    pub fn update(
        &self,
        condition: &Expression,
        set: &[Assignment],
        rows: &[TableRow],
        event: Option<EventId>,
    ) -> Result<Written> {
        self.transact(event, async |connection| {
            if rows.len() >= BULK_ROWS_MIN
                && let Some((sources, keys)) = by_key(connection, condition, set)
                && keys.iter().all(|key| !set.iter().any(|(column, _)| column == key))
                && has_parameters(&sources, rows)
            {
                let writer = connection.bulk_writer(Operation::Update, &sources, &keys).await?;
                return bulk(connection, &writer, rows).await;
            }
            let start = format!("UPDATE {} SET ", connection.table());
            let statement: Result<_, String> = (|| {
                let writer = connection.writer(&start).assignments(set)?.text(" WHERE ");
                Ok(writer.condition(condition)?.finish())
            })();
            let statement = statement.map_err(DbError::invalid)?;
            let params = connection.params(&statement, rows)?;
            connection.begin().await?;
            halving(&mut connection.db, rows.len(), async |db, from, to| {
                db.execute_each(&statement.sql, &params[from..to]).await.map(drop)
            })
            .await
        })
    }

    /// For each row of values, in order: changes the rows of the table for which `condition` holds, or adds
    /// the row if no row matches. The values are those of the columns and the parameters of the expressions
    /// at once.
    ///
    /// Errors: those of [`Self::insert`].
    pub fn upsert(
        &self,
        condition: &Expression,
        set: &[Assignment],
        rows: &[TableRow],
        event: Option<EventId>,
    ) -> Result<Written> {
        self.transact(event, async |connection| {
            if let Some(keys) = replaces_whole_rows(connection, condition, set) {
                let sources: Vec<(usize, usize)> = (0..connection.columns().len()).map(|c| (c, c)).collect();
                let writer = connection.bulk_writer(Operation::Upsert, &sources, &keys).await?;
                return bulk(connection, &writer, rows).await;
            }
            let columns = connection.columns();
            let names: Vec<&str> = columns.iter().map(|column| column.quoted.as_str()).collect();
            let insert = format!("INSERT INTO {} ({}) ", connection.table(), names.join(", "));
            let update = format!("UPDATE {} SET ", connection.table());
            let statements: Result<_, String> = (|| {
                let mut writer = connection.writer(&insert).text("VALUES (");
                for (index, column) in columns.iter().enumerate() {
                    writer = writer.text(if index == 0 { "" } else { ", " });
                    writer = writer.expression(&Expression::Parameter(index, column.ty))?;
                    if let Some(ty) = &column.assigned_as {
                        writer = writer.text(&format!("::{ty}"));
                    }
                }
                let insert = writer.text(")").finish();
                let writer = connection.writer(&update).assignments(set)?.text(" WHERE ");
                Ok((writer.condition(condition)?.finish(), insert))
            })();
            let (update, insert) = statements.map_err(DbError::invalid)?;
            let (updates, inserts) = (connection.params(&update, rows)?, connection.params(&insert, rows)?);
            connection.begin().await?;
            halving(&mut connection.db, rows.len(), async |db, from, to| {
                for row in from..to {
                    if db.execute(&update.sql, &updates[row]).await? == 0 {
                        db.execute(&insert.sql, &inserts[row]).await?;
                    }
                }
                Ok(())
            })
            .await
        })
    }

    /// Deletes the rows for which `condition` holds, for each set of parameters.
    ///
    /// Errors: those of [`Self::insert`].
    pub fn delete(
        &self,
        condition: &Expression,
        rows: &[TableRow],
        event: Option<EventId>,
    ) -> Result<Written> {
        self.transact(event, async |connection| {
            if rows.len() >= BULK_ROWS_MIN
                && let Some((sources, keys)) = by_key(connection, condition, &[])
                && has_parameters(&sources, rows)
            {
                let writer = connection.bulk_writer(Operation::Delete, &sources, &keys).await?;
                return bulk(connection, &writer, rows).await;
            }
            let start = format!("DELETE FROM {} WHERE ", connection.table());
            let writer = connection.writer(&start).condition(condition).map_err(DbError::invalid)?;
            let statement = writer.finish();
            let params = connection.params(&statement, rows)?;
            connection.begin().await?;
            halving(&mut connection.db, rows.len(), async |db, from, to| {
                db.execute_each(&statement.sql, &params[from..to]).await.map(drop)
            })
            .await
        })
    }

    /// Calls `work` in a transaction, unless the database has the writes of `event`.
    fn transact(
        &self,
        event: Option<EventId>,
        work: impl AsyncFn(&mut TableConnection) -> Result<Vec<RefusedRow>, DbError>,
    ) -> Result<Written> {
        self.with_connection(async |connection| {
            if event.is_some_and(|event| connection.has(event)) {
                return Ok(Written { was_written: true, refused: vec![] });
            }
            let refused = work(connection).await?;
            connection.commit(&self.positions, event).await?;
            Ok(Written { was_written: false, refused })
        })
    }
}

/// Writes rows by a temporary table or the fastest way to insert.
async fn bulk(
    connection: &mut TableConnection,
    writer: &BulkWriter,
    rows: &[TableRow],
) -> Result<Vec<RefusedRow>, DbError> {
    writer.reset(&mut connection.db).await?;
    connection.begin().await?;
    let all: Vec<usize> = (0..rows.len()).collect();
    writer.write(&mut connection.db, rows, &all).await
}

/// Calls `attempt` for all rows, and after a refusal for the halves, until the refused rows stand alone.
async fn halving(
    db: &mut DatabaseConnection,
    count: usize,
    attempt: impl AsyncFn(&mut DatabaseConnection, usize, usize) -> Result<(), DbError>,
) -> Result<Vec<RefusedRow>, DbError> {
    let mut attempts = Attempts::new(count);
    while let Some(next) = attempts.next(db).await? {
        let done = attempt(db, next.from, next.to).await;
        attempts.finish(db, next, next.from, done.map(|()| Checked::Yes)).await?;
    }
    Ok(attempts.into_refused())
}

/// Pairs of column and column of the rows, and the columns of the key.
type ByKey = (Vec<(usize, usize)>, Vec<usize>);

/// Returns what is written if the condition compares columns with parameters, and parameters are assigned.
fn by_key(connection: &TableConnection, condition: &Expression, set: &[Assignment]) -> Option<ByKey> {
    let columns = connection.columns();
    let mut sources: Vec<(usize, usize)> = vec![];
    let mut add = |column: usize, parameter: usize, ty: FieldType| {
        let is_new = sources.iter().all(|(known, _)| *known != column);
        sources.push((column, parameter));
        is_new && columns.get(column).is_some_and(|column| column.ty == ty)
    };
    let mut keys = vec![];
    for (column, parameter, ty) in condition.equalities()? {
        keys.push(column);
        if !add(column, parameter, ty) {
            return None;
        }
    }
    for (column, value) in set {
        match value {
            Expression::Parameter(parameter, ty) if add(*column, *parameter, *ty) => {}
            _ => return None,
        }
    }
    (!keys.is_empty()).then_some((sources, keys))
}

fn has_parameters(sources: &[(usize, usize)], rows: &[TableRow]) -> bool {
    let needed = sources.iter().map(|(_, source)| source + 1).max().unwrap_or_default();
    rows.iter().all(|row| row.len() >= needed)
}

/// Returns the columns of the key if an upsert gives the row of a unique key all values of the event.
fn replaces_whole_rows(
    connection: &TableConnection,
    condition: &Expression,
    set: &[Assignment],
) -> Option<Vec<usize>> {
    // assignments of key columns to themselves change nothing
    let is_own = |column: usize, parameter: usize, ty: FieldType| {
        column == parameter && connection.columns().get(column).is_some_and(|column| column.ty == ty)
    };
    let mut keys = vec![];
    for (column, parameter, ty) in condition.equalities()? {
        if !is_own(column, parameter, ty) {
            return None;
        }
        keys.push(column);
    }
    let is_set = |column: usize| {
        set.iter().any(|(assigned, value)| match value {
            Expression::Parameter(parameter, ty) => *assigned == column && is_own(column, *parameter, *ty),
            _ => false,
        })
    };
    let all_set = (0..connection.columns().len()).all(|column| keys.contains(&column) || is_set(column));
    let only_own = set.iter().all(|(column, _)| is_set(*column));
    (all_set && only_own && connection.is_unique_by(&keys)).then_some(keys)
}
