//! Table of an app whose rows live in a database.
//!
//! All calls wait for the database. A call that writes is one transaction. If it is given the event that it follows from,
//! the transaction also writes that event as the position of the table, and a call for an event that the
//! database has already does nothing: a log that is applied again after a crash writes nothing twice.
//!
//! A lost connection is replaced by the next call. A call on a connection that turns out to be lost before
//! anything can have been committed is repeated once.

mod connection;
mod write;

use parking_lot::Mutex;
use tidemill_connect::{RefusedRow, runtime};
use tidemill_types::{Error, EventId, FieldType, Result, Value};

use crate::error::{DbError, DbErrorKind};
use crate::expression::Expression;
use crate::options::StoreOptions;
use crate::position::PositionTable;
use connection::TableConnection;

/// Rows that one search may return.
pub const FOUND_ROWS_MAX: usize = 1_000_000;

/// Values of a row, in the order of the columns, or of parameters.
pub type TableRow = Vec<Value<'static>>;

/// Outcome of a call that writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// True if the database already had the event, so that nothing was done.
    pub was_written: bool,
    /// Rows of the call that the database refuses; all others are written.
    pub refused: Vec<RefusedRow>,
}

/// Table of an app whose rows live in a database.
pub struct RelationalTable {
    options: StoreOptions,
    positions: PositionTable,
    connection: Mutex<Option<TableConnection>>,
}

impl std::fmt::Debug for RelationalTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.options.fmt(f)
    }
}

impl RelationalTable {
    /// Opens a table: connects, creates it if it is missing, and checks its columns. `store` names it in the
    /// table of positions; it stays the same over restarts.
    ///
    /// Errors: `Unavailable` if the server cannot be reached, `Invalid` if it refuses or the table does not fit.
    pub fn open(options: StoreOptions, store: &str) -> Result<Self> {
        let table = Self::create(options, store)?;
        table.connect()?;
        Ok(table)
    }

    /// Creates a table that connects when it is used first, or by [`Self::connect`].
    ///
    /// Errors: the name is too long.
    pub fn create(options: StoreOptions, store: &str) -> Result<Self> {
        let positions = PositionTable::new(options.url.dialect, store).map_err(Error::invalid)?;
        Ok(Self { options, positions, connection: Mutex::new(None) })
    }

    /// Connects if the table is not connected.
    ///
    /// Errors: those of [`Self::open`].
    pub fn connect(&self) -> Result<()> {
        self.with_connection(async |_| Ok(()))
    }

    /// Returns the last event of each partition whose writes the database has.
    ///
    /// Errors: the database cannot be reached.
    pub fn positions(&self) -> Result<Vec<EventId>> {
        self.with_connection(async |connection| Ok(connection.known_events()))
    }

    /// Returns the rows for which `condition` holds, in no particular order.
    ///
    /// Errors: those of the server; `LimitReached` if there are more than [`FOUND_ROWS_MAX`].
    pub fn find(&self, condition: &Expression, params: &[Value<'static>]) -> Result<Vec<TableRow>> {
        let found = self.find_each(condition, &[params.to_vec()])?;
        Ok(found.into_iter().next().unwrap_or_default())
    }

    /// Returns the rows for which `condition` holds, for each set of parameters.
    ///
    /// Errors: those of [`Self::find`].
    pub fn find_each(&self, condition: &Expression, sets: &[TableRow]) -> Result<Vec<Vec<TableRow>>> {
        let types: Vec<FieldType> = self.options.schema.columns.iter().map(|c| c.ty).collect();
        let found = self.with_connection(async |connection| {
            let statement = connection.search(&connection.selected(), condition, FOUND_ROWS_MAX + 1)?;
            connection.query_each(&statement, sets, &types).await
        })?;
        match found.iter().any(|rows| rows.len() > FOUND_ROWS_MAX) {
            false => Ok(found),
            true => Err(Error::limit(format!(
                "table `{}`: more than {FOUND_ROWS_MAX} rows are found; narrow the condition",
                self.options.schema.name
            ))),
        }
    }

    /// Returns whether `condition` holds for a row.
    ///
    /// Errors: those of the server.
    pub fn contains(&self, condition: &Expression, params: &[Value<'static>]) -> Result<bool> {
        let found = self.contains_each(condition, &[params.to_vec()])?;
        Ok(found.first().copied().unwrap_or_default())
    }

    /// Returns whether `condition` holds for a row, for each set of parameters.
    ///
    /// Errors: those of the server.
    pub fn contains_each(&self, condition: &Expression, sets: &[TableRow]) -> Result<Vec<bool>> {
        let found = self.with_connection(async |connection| {
            let statement = connection.search("1", condition, 1)?;
            connection.query_each(&statement, sets, &[FieldType::Int]).await
        })?;
        Ok(found.iter().map(|rows| !rows.is_empty()).collect())
    }

    /// Calls `work` with the connection, opening one if needed. If one that was idle turns out to be lost,
    /// `work` is called again with a new one.
    fn with_connection<T>(
        &self,
        work: impl AsyncFn(&mut TableConnection) -> Result<T, DbError>,
    ) -> Result<T> {
        let slot = &mut *self.connection.lock();
        let done = runtime().block_on(async {
            if let Some(mut connection) = slot.take() {
                match work(&mut connection).await {
                    Err(e) if e.kind == DbErrorKind::Unavailable && connection.is_repeatable() => {}
                    done => {
                        *slot = connection.reusable_after(&done).await;
                        return done;
                    }
                }
            }
            let mut connection = TableConnection::open(&self.options, &self.positions).await?;
            let done = work(&mut connection).await;
            *slot = connection.reusable_after(&done).await;
            done
        });
        done.map_err(|e| Error::from(e.context(format!("table `{}`", self.options.schema.name))))
    }
}
