//! Rows whose value in a column that only grows is new.

use bytes::Bytes;

use super::ChangeSettings;
use super::mysql::poll::MySqlPoller;
use super::postgres::poll::PostgresPoller;
use crate::dialect::Dialect;
use crate::error::DbError;

/// Kinds of columns that can be polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polled {
    /// Integers.
    Integer,
    /// Dates or moments, as microseconds since 1970.
    Time,
}

/// Row that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolledRow {
    /// Its value in the polled column: an integer, or microseconds since 1970.
    pub value: i64,
    /// JSON object of its columns. Names with capitals are there a second time in lower case.
    pub json: Bytes,
}

/// Connection that polls a table or view.
pub enum ChangePoller {
    /// PostgreSQL.
    Postgres(Box<PostgresPoller>),
    /// MariaDB or MySQL.
    MySql(Box<MySqlPoller>),
}

impl ChangePoller {
    /// Connects. `column` is the column that grows.
    ///
    /// Errors: the server cannot be reached, or refuses; the table or the column does not exist; the column
    /// has another type.
    pub async fn connect(settings: &ChangeSettings, column: &str) -> Result<Self, DbError> {
        tidemill_tls::install_provider();
        let connecting = async {
            Ok(match settings.url.dialect {
                Dialect::PostgreSql => {
                    Self::Postgres(Box::new(PostgresPoller::connect(settings, column).await?))
                }
                Dialect::MySql => Self::MySql(Box::new(MySqlPoller::connect(settings, column).await?)),
                Dialect::Sqlite | Dialect::SqlServer | Dialect::Oracle => return Err(super::no_changes()),
            })
        };
        let connected = tokio::time::timeout(settings.url.connect_timeout, connecting).await;
        connected.unwrap_or_else(|_| {
            let seconds = settings.url.connect_timeout.as_secs_f64();
            Err(DbError::unavailable(format!("the server did not answer within {seconds} s")))
        })
    }

    /// Returns whether the column has integers, and not times.
    pub fn has_integers(&self) -> bool {
        let kind = match self {
            Self::Postgres(poller) => poller.kind(),
            Self::MySql(poller) => poller.kind(),
        };
        kind == Polled::Integer
    }

    /// Returns the greatest value of the column, or `None` if the column has no values.
    ///
    /// Errors: those of the server.
    pub async fn greatest(&mut self) -> Result<Option<i64>, DbError> {
        match self {
            Self::Postgres(poller) => poller.greatest().await,
            Self::MySql(poller) => poller.greatest().await,
        }
    }

    /// Returns the first `count` rows whose values are greater than `after`, in the order of these values.
    ///
    /// Errors: those of the server.
    pub async fn poll(&mut self, after: Option<i64>, count: usize) -> Result<Vec<PolledRow>, DbError> {
        match self {
            Self::Postgres(poller) => poller.poll(after, count).await,
            Self::MySql(poller) => poller.poll(after, count).await,
        }
    }
}

pub(super) fn wrong_column(column: &str) -> DbError {
    DbError::invalid(format!(
        "the column `{column}` has neither integers nor times, so it cannot be polled; expected such a column in \
         `polling.column`"
    ))
}

pub(super) fn missing_column<'n>(
    table: &impl std::fmt::Display,
    column: &str,
    known: impl Iterator<Item = &'n str> + Clone,
) -> DbError {
    let hint = tidemill_types::did_you_mean(column, known);
    DbError::invalid(format!("the table `{table}` has no column `{column}`{hint}"))
}
