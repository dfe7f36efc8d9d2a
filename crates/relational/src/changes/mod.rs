//! Changes of a table as its database logs them: the rows that are there, then every insert, update and delete.
//!
//! [`ChangeLog`] is a connection that reads PostgreSQL's logical replication or the binary log of MariaDB and MySQL. A
//! position in the log is a number that never decreases: in PostgreSQL an LSN, in MariaDB and MySQL the number of the
//! file and the place in it. A reader continues at the end of a transaction; the rows of one are in the same
//! order on every reading.

mod mysql;
mod poll;
mod postgres;
mod row;

use std::collections::BTreeMap;

use bytes::Bytes;
use tidemill_types::{FieldType, Timestamp};

use crate::dialect::Dialect;
use crate::error::DbError;
use crate::schema::TableName;
use crate::url::DatabaseUrl;

pub use poll::{ChangePoller, PolledRow};
pub use row::RowWriter;

/// Kind of change to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeOperation {
    /// It was added.
    Insert,
    /// It was changed.
    Update,
    /// It was removed.
    Delete,
}

impl ChangeOperation {
    /// All operations.
    pub const ALL: [Self; 3] = [Self::Insert, Self::Update, Self::Delete];

    /// Returns its name in SQL, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// Settings of a reader of changes.
#[derive(Clone)]
pub struct ChangeSettings {
    /// Address of the database.
    pub url: DatabaseUrl,
    /// User, instead of that of the URL.
    pub user: Option<String>,
    /// Password, instead of that of the URL.
    pub password: Option<String>,
    /// Table.
    pub table: TableName,
    /// Operations that are wanted; at least one.
    pub operations: Vec<ChangeOperation>,
    /// Replication slot of PostgreSQL.
    pub slot: String,
    /// Publication of PostgreSQL.
    pub publication: String,
    /// True if the publication belongs to this reader, which then changes it as needed.
    pub owns_publication: bool,
    /// Number of this reader among the replicas of MariaDB or MySQL.
    pub server_id: u32,
    /// Types that values are wanted in, by column. They choose between forms: a time is a text or, as a `long`,
    /// milliseconds since 1970.
    pub wanted: BTreeMap<String, FieldType>,
}

impl ChangeSettings {
    /// Returns whether an operation is wanted.
    pub fn wants(&self, operation: ChangeOperation) -> bool {
        self.operations.contains(&operation)
    }

    fn user(&self) -> Option<&str> {
        self.user.as_deref().or(self.url.user.as_deref())
    }

    fn password(&self) -> Option<&str> {
        self.password.as_deref().or(self.url.password.as_deref())
    }
}

/// Position at which reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeStart {
    /// At the present end of the log, or where a replication slot is that is there already.
    Now {
        /// True to drop an existing slot first.
        replace: bool,
        /// True if the rows of the table will be read.
        snapshot: bool,
    },
    /// At this position, which a transaction ended at.
    At(u64),
}

/// Row that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedRow {
    /// Operation that changed the row.
    pub operation: ChangeOperation,
    /// JSON object of its columns, and of those before the change with the prefix `before_`.
    pub json: Bytes,
    /// Value of the primary key, if that is one column of integers.
    pub key: Option<i64>,
}

/// Row of the table when reading began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRow {
    /// JSON object of its columns.
    pub json: Bytes,
    /// Value of the primary key, if that is one column of integers.
    pub key: Option<i64>,
}

/// Item of a change log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogItem {
    /// A transaction begins. Its rows follow, and its end.
    Begin {
        /// Number that is greater than that of each transaction before, and the same on every reading. It is smaller than
        /// the position of a snapshot exactly if the snapshot contains the transaction.
        id: u64,
        /// When it was committed.
        time: Timestamp,
    },
    /// A row of the table was changed.
    Row(ChangedRow),
    /// The transaction ends, and reading can continue at this position.
    Commit(u64),
    /// Before this position is nothing that was not returned.
    Progress(u64),
}

/// Connection that reads the changes of a table.
pub enum ChangeLog {
    /// PostgreSQL.
    Postgres(Box<postgres::PostgresLog>),
    /// MariaDB or MySQL.
    MySql(Box<mysql::MySqlLog>),
}

impl ChangeLog {
    /// Connects and checks that the changes can be read. Nothing is created at the server yet.
    ///
    /// Errors: the server cannot be reached, or refuses; the table, the server's settings or permissions do not suffice.
    pub async fn connect(settings: &ChangeSettings) -> Result<Self, DbError> {
        tidemill_tls::install_provider();
        let connecting = async {
            Ok(match settings.url.dialect {
                Dialect::PostgreSql => {
                    Self::Postgres(Box::new(postgres::PostgresLog::connect(settings).await?))
                }
                Dialect::MySql => Self::MySql(Box::new(mysql::MySqlLog::connect(settings).await?)),
                Dialect::Sqlite | Dialect::SqlServer | Dialect::Oracle => return Err(no_changes()),
            })
        };
        let connected = tokio::time::timeout(settings.url.connect_timeout, connecting).await;
        connected.unwrap_or_else(|_| {
            let seconds = settings.url.connect_timeout.as_secs_f64();
            Err(DbError::unavailable(format!("the server did not answer within {seconds} s")))
        })
    }

    /// Begins to read, and returns the position. At [`ChangeStart::Now`] the rows of the table at this position can be
    /// read with [`Self::snapshot`].
    ///
    /// Errors: those of the server; the log does not go back to the position.
    pub async fn begin(&mut self, start: ChangeStart) -> Result<u64, DbError> {
        match self {
            Self::Postgres(log) => log.begin(start).await,
            Self::MySql(log) => log.begin(start).await,
        }
    }

    /// Takes another look at the table, later than [`Self::begin`] did, and returns the position at which it has all
    /// changes that the log has before.
    ///
    /// Errors: those of the server.
    pub async fn begin_snapshot(&mut self) -> Result<u64, DbError> {
        match self {
            Self::Postgres(log) => log.begin_snapshot().await,
            Self::MySql(log) => log.begin_snapshot().await,
        }
    }

    /// Returns whether rows have a primary key that is one column of integers, in whose order a snapshot is.
    pub fn has_integer_key(&self) -> bool {
        match self {
            Self::Postgres(log) => log.has_integer_key(),
            Self::MySql(log) => log.has_integer_key(),
        }
    }

    /// Begins to read the rows of the table, those whose key is greater than `after`.
    ///
    /// Errors: those of the server.
    pub async fn open_snapshot(&mut self, after: Option<i64>) -> Result<(), DbError> {
        match self {
            Self::Postgres(log) => log.open_snapshot(after).await,
            Self::MySql(log) => log.open_snapshot(after).await,
        }
    }

    /// Returns up to `count` rows of the table, ordered by key if there is an integer key; none at the end.
    ///
    /// Errors: those of the server.
    pub async fn snapshot(&mut self, count: usize) -> Result<Vec<SnapshotRow>, DbError> {
        match self {
            Self::Postgres(log) => log.snapshot(count).await,
            Self::MySql(log) => log.snapshot(count).await,
        }
    }

    /// Ends the snapshot, if there is one, and lets the server send changes from the position of [`Self::begin`] on.
    ///
    /// Errors: those of the server.
    pub async fn listen(&mut self) -> Result<(), DbError> {
        match self {
            Self::Postgres(log) => log.listen().await,
            Self::MySql(log) => log.listen().await,
        }
    }

    /// Returns what the log says next. Dropping the future loses nothing.
    ///
    /// Errors: those of the server; the connection is lost.
    pub async fn next(&mut self) -> Result<LogItem, DbError> {
        match self {
            Self::Postgres(log) => log.next().await,
            Self::MySql(log) => log.next().await,
        }
    }

    /// Tells the server that this side lives. Has to be called every few seconds while [`Self::next`] is not.
    ///
    /// Errors: the connection is lost.
    pub async fn keep_alive(&mut self) -> Result<(), DbError> {
        match self {
            Self::Postgres(log) => log.keep_alive().await,
            // the server waits for the connection to take more
            Self::MySql(_) => Ok(()),
        }
    }

    /// Tells the server that it need not keep what is before this position.
    ///
    /// Errors: the connection is lost.
    pub async fn confirm(&mut self, position: u64) -> Result<(), DbError> {
        match self {
            Self::Postgres(log) => log.confirm(position).await,
            // its logs are kept as long as the server's settings say
            Self::MySql(_) => Ok(()),
        }
    }
}

fn no_changes() -> DbError {
    DbError::invalid("the source `cdc` reads PostgreSQL, MariaDB and MySQL")
}
