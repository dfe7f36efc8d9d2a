//! Writing of batches.
//!
//! Rows are sent as text by COPY or LOAD DATA, which is the fastest way of both servers: into the table itself if
//! they are inserted, otherwise into a temporary table of the connection, whose rows one statement then applies by
//! key. SQL Server gets the rows of all operations by its bulk load into a temporary table, Oracle by
//! statements for one row with the values of many. See
//! [`crate::attempts`] for the rows that a server refuses.

mod encoded;
mod statements;

use tidemill_connect::RefusedRow;
use tidemill_types::{FieldType, did_you_mean};

use crate::attempts::{Attempt, Attempts, Checked};
use crate::connection::TextRows;
use crate::database::DatabaseConnection;
use crate::dialect::Dialect;
use crate::error::DbError;
use crate::existing::ExistingTable;
use crate::param::{LoadOutcome, Param};
use crate::rows::RowValues;
use encoded::EncodedRows;
use statements::{Statements, Target};

/// Parameters of one statement that inserts several rows; the protocol allows 65,535.
const PARAMETERS_MAX: usize = 20_000;
/// Approximate size of one statement that inserts several rows, in bytes, below what servers take by default.
const STATEMENT_BYTES: usize = 1024 * 1024;

/// Operation on the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// They are added.
    Insert,
    /// The rows of the table with their keys get their other values; keys that the table has not are passed over.
    Update,
    /// The rows of the table with their keys get their other values; those with new keys are added.
    Upsert,
    /// The rows of the table with their keys are deleted.
    Delete,
}

/// Column of the rows that is written to a column of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Column of the rows.
    pub source: usize,
    /// Column of the table.
    pub column: String,
    /// Type of its values.
    pub ty: FieldType,
}

/// Writes rows to a table over one connection.
#[derive(Debug, Clone)]
pub struct BulkWriter {
    dialect: Dialect,
    operation: Operation,
    /// Columns of keys first.
    targets: Vec<Target>,
    keys: usize,
    statements: Statements,
}

impl BulkWriter {
    /// Creates a writer. `staging` is the name of its temporary table, unique on its connection.
    ///
    /// Errors: a column that the table has not; an operation by key without one, or by one that is not unique.
    pub fn new(
        dialect: Dialect,
        table: &ExistingTable,
        mappings: &[Mapping],
        operation: Operation,
        keys: &[String],
        staging: &str,
    ) -> Result<Self, String> {
        let unknown = |name: &str| {
            let hint = did_you_mean(name, table.columns.iter().map(|c| c.name.as_str()));
            format!("table `{}` has no column `{name}`{hint}", table.name)
        };
        let mut targets = vec![];
        for mapping in mappings {
            let column = table.column(&mapping.column).ok_or_else(|| unknown(&mapping.column))?;
            targets.push(Target::new(dialect, mapping, column));
        }
        let mut key_names = vec![];
        for key in keys {
            let column = table.column(key).ok_or_else(|| unknown(key))?;
            let target = targets.iter_mut().find(|target| target.name == column.name);
            let target = target.ok_or_else(|| format!("no value is written to the key `{key}`"))?;
            target.is_key = true;
            key_names.push(column.name.as_str());
        }
        let is_unique = table.is_unique_by(&key_names);
        match operation {
            Operation::Insert => targets.iter_mut().for_each(|target| target.is_key = false),
            _ if key_names.is_empty() => {
                return Err("an operation by key needs the columns of the key".into());
            }
            Operation::Upsert if !is_unique => {
                return Err(format!(
                    "table `{}` has no primary key or unique key of exactly the columns {}, which `upsert` needs",
                    table.name,
                    key_names.join(", ")
                ));
            }
            Operation::Update if targets.iter().all(|target| target.is_key) => {
                return Err("all columns belong to the key, so there is nothing to update".into());
            }
            Operation::Delete => targets.retain(|target| target.is_key),
            Operation::Update | Operation::Upsert => {}
        }
        targets.sort_by_key(|target| !target.is_key);
        let keys = targets.iter().filter(|target| target.is_key).count();
        let statements = Statements::new(dialect, operation, table, &targets, is_unique, staging);
        Ok(Self { dialect, operation, targets, keys, statements })
    }

    /// Creates the temporary table. Called once for each connection.
    ///
    /// Errors: those of the server.
    pub async fn prepare(&self, db: &mut DatabaseConnection) -> Result<(), DbError> {
        match &self.statements.create_staging {
            Some(create) => db.run(create).await.map_err(|e| e.context("temporary table")),
            None => Ok(()),
        }
    }

    /// Empties the temporary table. Called before the transaction of each [`Self::write`] begins.
    ///
    /// Errors: those of the server.
    pub async fn reset(&self, db: &mut DatabaseConnection) -> Result<(), DbError> {
        match &self.statements.truncate_staging {
            Some(truncate) => db.run(truncate).await,
            None => Ok(()),
        }
    }

    /// Writes the rows with the indices `picked`, in their order, within the transaction that the caller has begun.
    /// Returns those that the database refuses; all others are written.
    ///
    /// Errors: others than that rows are refused. The transaction must be rolled back.
    pub async fn write<R: RowValues + ?Sized>(
        &self,
        db: &mut DatabaseConnection,
        rows: &R,
        picked: &[usize],
    ) -> Result<Vec<RefusedRow>, DbError> {
        let mut refused = vec![];
        // no row of the table has such a key
        let skips_null_keys = matches!(self.operation, Operation::Update | Operation::Delete);
        let (targets, keys) = (&self.targets, self.keys);
        let encoded =
            EncodedRows::encode(self.dialect, targets, keys, skips_null_keys, rows, picked, &mut refused);
        let mut attempts = Attempts::new(encoded.len());
        let mut is_first = true;
        while let Some(attempt) = attempts.next(db).await? {
            let written = self.attempt(db, rows, &encoded, attempt, is_first).await;
            is_first = false;
            attempts.finish(db, attempt, encoded.row(attempt.from), written).await?;
        }
        refused.extend(attempts.into_refused());
        refused.sort_by_key(|refused| refused.row);
        Ok(refused)
    }

    /// Writes a range of rows.
    async fn attempt<R: RowValues + ?Sized>(
        &self,
        db: &mut DatabaseConnection,
        rows: &R,
        encoded: &EncodedRows,
        attempt: Attempt,
        is_first: bool,
    ) -> Result<Checked, DbError> {
        let statements = &self.statements;
        let all = attempt.from..attempt.to;
        let is_each = match self.dialect {
            Dialect::Oracle => true,
            Dialect::SqlServer => attempt.careful,
            _ => false,
        };
        if attempt.count() == 1 || is_each {
            let set = |index| self.params(rows, encoded.row(index), &statements.row_params);
            let sets: Vec<Vec<Param<'_>>> = all.map(set).collect();
            db.execute_each(&statements.row, &sets).await?;
            return Ok(Checked::Yes);
        }
        let Some(apply) = &statements.apply else {
            return match attempt.careful {
                false => {
                    let (data, count) = encoded.range(attempt.from, attempt.to);
                    let rows = TextRows {
                        table: &statements.table,
                        columns: &statements.columns,
                        data,
                        count,
                        replace: false,
                    };
                    let outcome = db.load(rows).await?;
                    Ok(checked(outcome))
                }
                true => {
                    let all: Vec<usize> = all.collect();
                    self.insert_rows(db, rows, encoded, &all, "INSERT", &statements.table).await?;
                    Ok(Checked::Yes)
                }
            };
        };
        if !is_first {
            db.run(&statements.delete_staging).await?;
        }
        let staging = &statements.staging;
        let last = match self.operation {
            Operation::Insert => all.collect(),
            _ => encoded.last_of_each_key(attempt.from, attempt.to),
        };
        let outcome = match (self.dialect, attempt.careful) {
            (Dialect::SqlServer, _) => {
                let columns: Vec<usize> = (0..self.targets.len()).collect();
                let row = |index: &usize| self.params(rows, encoded.row(*index), &columns);
                let values: Vec<Vec<Param<'_>>> = last.iter().map(row).collect();
                db.load_rows(staging, &values).await?
            }
            (_, false) => {
                let data = encoded.picked(&last);
                let (columns, count) = (&statements.columns, last.len());
                db.load(TextRows { table: staging, columns, data, count, replace: true }).await?
            }
            (_, true) => {
                self.insert_rows(db, rows, encoded, &last, "REPLACE", staging).await?;
                LoadOutcome::Loaded
            }
        };
        if outcome == LoadOutcome::Loaded {
            if let Some(use_index) = statements.use_index {
                db.run(use_index).await?;
            }
            db.execute(apply, &[]).await?;
        }
        Ok(checked(outcome))
    }

    /// Inserts rows by statements with several rows each, which the server checks one by one.
    async fn insert_rows<R: RowValues + ?Sized>(
        &self,
        db: &mut DatabaseConnection,
        rows: &R,
        encoded: &EncodedRows,
        which: &[usize],
        verb: &str,
        table: &str,
    ) -> Result<(), DbError> {
        let columns: Vec<usize> = (0..self.targets.len()).collect();
        let per_statement = (PARAMETERS_MAX / columns.len().max(1)).max(1);
        let mut rest = which;
        while !rest.is_empty() {
            let mut count = 0;
            let mut bytes = 0;
            while count < rest.len().min(per_statement) && (count == 0 || bytes < STATEMENT_BYTES) {
                bytes += encoded.bytes_of(rest[count]);
                count += 1;
            }
            // few lengths, so that few statements are prepared
            let count = if count.is_power_of_two() { count } else { count.next_power_of_two() / 2 };
            let (now, later) = rest.split_at(count);
            let params: Vec<Param<'_>> =
                now.iter().flat_map(|index| self.params(rows, encoded.row(*index), &columns)).collect();
            let sql = self.statements.insert_rows(self.dialect, verb, table, &self.targets, count);
            db.execute(&sql, &params).await?;
            rest = later;
        }
        Ok(())
    }

    /// Describes the statements, one a line, for tests.
    pub fn describe(&self) -> Vec<String> {
        self.statements.describe()
    }

    fn params<'r, R: RowValues + ?Sized>(
        &self,
        rows: &'r R,
        row: usize,
        columns: &[usize],
    ) -> Vec<Param<'r>> {
        let param = |column: &usize| {
            let target = &self.targets[*column];
            Param { ty: target.ty, value: rows.value(row, target.source) }
        };
        columns.iter().map(param).collect()
    }
}

fn checked(outcome: LoadOutcome) -> Checked {
    match outcome {
        LoadOutcome::Loaded => Checked::Yes,
        LoadOutcome::Doubtful | LoadOutcome::Forbidden => Checked::No,
    }
}
