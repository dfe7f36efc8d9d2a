//! Interface of [`crate::DatabaseConnection`] to the library of each database.

use async_trait::async_trait;
use bytes::Bytes;
use tidemill_types::{FieldType, Value};

use crate::error::DbError;
use crate::param::{LoadOutcome, Param};

/// Rows that a query found.
pub(crate) type FoundRows = Vec<Vec<Value<'static>>>;

/// Connection by the library of a database.
#[async_trait]
pub(crate) trait Connection: Send + Sync {
    /// Executes a statement without parameters.
    async fn run(&mut self, sql: &str) -> Result<(), DbError>;

    /// Executes a statement and returns the number of rows that it inserted, deleted, or found for an update.
    async fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, DbError>;

    /// Executes a statement once for each set of parameters, in order.
    async fn execute_each(&mut self, sql: &str, sets: &[Vec<Param<'_>>]) -> Result<(), DbError> {
        for params in sets {
            self.execute(sql, params).await?;
        }
        Ok(())
    }

    /// Executes a query whose columns have these types.
    async fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        types: &[FieldType],
    ) -> Result<FoundRows, DbError>;

    /// Executes a query once for each set of parameters.
    async fn query_each(
        &mut self,
        sql: &str,
        sets: &[Vec<Param<'_>>],
        types: &[FieldType],
    ) -> Result<Vec<FoundRows>, DbError> {
        let mut found = Vec::with_capacity(sets.len());
        for params in sets {
            found.push(self.query(sql, params, types).await?);
        }
        Ok(found)
    }

    /// Loads rows in the format of [`crate::text_format`].
    async fn load(&mut self, _rows: TextRows<'_>) -> Result<LoadOutcome, DbError> {
        Ok(LoadOutcome::Forbidden)
    }

    /// Loads rows into the columns `c1`, `c2` and so on of a temporary table.
    async fn load_rows(&mut self, _table: &str, _rows: &[Vec<Param<'_>>]) -> Result<LoadOutcome, DbError> {
        Ok(LoadOutcome::Forbidden)
    }

    /// Commits.
    async fn commit(&mut self) -> Result<(), DbError> {
        self.run("COMMIT").await
    }

    /// Rolls the transaction back.
    async fn rollback(&mut self) -> Result<(), DbError> {
        self.run("ROLLBACK").await
    }

    /// Closes the connection.
    async fn close(self: Box<Self>) {}
}

/// Rows in the format of [`crate::text_format`], for columns of a table. Names are quoted already.
pub(crate) struct TextRows<'r> {
    pub(crate) table: &'r str,
    pub(crate) columns: &'r str,
    pub(crate) data: Bytes,
    /// Number of rows.
    pub(crate) count: usize,
    /// True if MariaDB and MySQL replace rows with the same key.
    pub(crate) replace: bool,
}
