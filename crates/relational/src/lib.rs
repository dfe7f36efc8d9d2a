//! Relational databases: tables with the types of SiddhiQL, written in bulk and read by parameterised SQL.
//!
//! [`DatabaseConnection`] is a connection to PostgreSQL, MariaDB, MySQL, SQLite, SQL Server or Oracle. [`BulkWriter`] inserts, updates, replaces or deletes
//! the rows of a batch by the fastest way the server has, and names the rows that it refuses. [`PositionTable`] counts
//! in the database itself how far a writer came, so that each row is written exactly once. [`RelationalTable`] is a
//! table of a SiddhiQL app.

mod attempts;
mod bulk;
mod changes;
mod connection;
mod database;
mod dialect;
mod drivers;
mod error;
mod existing;
mod expression;
mod options;
mod param;
mod position;
mod rows;
mod schema;
mod statements;
mod table;
mod text_format;
mod tls;
mod url;

pub use bulk::{BulkWriter, Mapping, Operation};
pub use changes::{
    ChangeLog, ChangeOperation, ChangePoller, ChangeSettings, ChangeStart, ChangedRow, LogItem, PolledRow,
    RowWriter, SnapshotRow,
};
pub use database::DatabaseConnection;
pub use dialect::Dialect;
pub use error::{DbError, DbErrorKind};
pub use existing::{ExistingColumn, ExistingTable};
pub use expression::{ArithmeticOperator, CompareOperator, Expression, SqlColumn, SqlStatement, SqlWriter};
pub use options::{STORE_OPTIONS, StoreOptions};
pub use param::Param;
pub use position::{PositionTable, StoredPosition};
pub use rows::RowValues;
pub use schema::{Column, TableName, TableSchema, parse_lengths};
pub use statements::StatementRunner;
pub use table::{FOUND_ROWS_MAX, RelationalTable, TableRow, Written};
pub use url::{DatabaseUrl, TlsMode};
