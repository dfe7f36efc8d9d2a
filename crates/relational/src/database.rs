//! Connection to a database of any kind.

use tidemill_types::{FieldType, Value};

use crate::connection::{Connection, TextRows};
use crate::dialect::Dialect;
use crate::drivers::mysql::MySqlConnection;
#[cfg(feature = "oracle")]
use crate::drivers::oracle::OracleConnection;
use crate::drivers::postgres::PostgresConnection;
#[cfg(feature = "sql-server")]
use crate::drivers::sql_server::SqlServerConnection;
#[cfg(feature = "sqlite")]
use crate::drivers::sqlite::SqliteConnection;
use crate::error::DbError;
use crate::param::{LoadOutcome, Param};
use crate::url::DatabaseUrl;

/// Connection to a database. After an error of the kind `Unavailable` it must be replaced.
pub struct DatabaseConnection {
    address: String,
    dialect: Dialect,
    connection: Box<dyn Connection>,
}

impl DatabaseConnection {
    /// Connects. User and password replace those of the URL.
    ///
    /// Errors: the server cannot be reached, or refuses; the program was built without this kind of database.
    pub async fn connect(
        url: &DatabaseUrl,
        user: Option<&str>,
        password: Option<&str>,
    ) -> Result<Self, DbError> {
        tidemill_tls::install_provider();
        let user = user.or(url.user.as_deref());
        let password = password.or(url.password.as_deref());
        let connected = tokio::time::timeout(url.connect_timeout, open(url, user, password)).await;
        let connected = connected.unwrap_or_else(|_| {
            let seconds = url.connect_timeout.as_secs_f64();
            Err(DbError::unavailable(format!("the server did not answer within {seconds} s")))
        });
        let connection = connected.map_err(|e: DbError| e.context(url))?;
        Ok(Self { address: url.to_string(), dialect: url.dialect, connection })
    }

    /// Returns the address, without user and password.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the language of the database.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Executes a statement without parameters.
    ///
    /// Errors: those of the server.
    pub async fn run(&mut self, sql: &str) -> Result<(), DbError> {
        self.connection.run(sql).await
    }

    /// Executes a statement and returns the number of rows that it inserted, deleted, or found for an update.
    ///
    /// Errors: those of the server.
    pub async fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, DbError> {
        self.connection.execute(sql, params).await
    }

    /// Executes a statement once for each set of parameters, in order.
    ///
    /// Errors: those of the server for the first that fails; later ones may have been executed.
    pub async fn execute_each(&mut self, sql: &str, sets: &[Vec<Param<'_>>]) -> Result<(), DbError> {
        self.connection.execute_each(sql, sets).await
    }

    /// Executes a query whose columns have these types.
    ///
    /// Errors: those of the server; a value that is not of its type.
    pub async fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        types: &[FieldType],
    ) -> Result<Vec<Vec<Value<'static>>>, DbError> {
        self.connection.query(sql, params, types).await
    }

    /// Executes a query once for each set of parameters, see [`Self::query`].
    ///
    /// Errors: those of [`Self::query`].
    pub async fn query_each(
        &mut self,
        sql: &str,
        sets: &[Vec<Param<'_>>],
        types: &[FieldType],
    ) -> Result<Vec<Vec<Vec<Value<'static>>>>, DbError> {
        self.connection.query_each(sql, sets, types).await
    }

    /// Loads rows.
    ///
    /// Errors: those of the server; SQL Server takes no text, see [`Self::load_rows`].
    pub(crate) async fn load(&mut self, rows: TextRows<'_>) -> Result<LoadOutcome, DbError> {
        self.connection.load(rows).await
    }

    /// Loads rows into the columns `c1`, `c2` and so on of a temporary table of SQL Server; the others load text, see
    /// [`Self::load`].
    ///
    /// Errors: those of the server.
    pub(crate) async fn load_rows(
        &mut self,
        table: &str,
        rows: &[Vec<Param<'_>>],
    ) -> Result<LoadOutcome, DbError> {
        self.connection.load_rows(table, rows).await
    }

    /// Begins a transaction in which constraints are checked by each statement, not at its end.
    ///
    /// Errors: those of the server.
    pub async fn begin(&mut self) -> Result<(), DbError> {
        self.run(match self.dialect() {
            // a transaction begins with its first statement
            Dialect::Oracle => return Ok(()),
            Dialect::PostgreSql => "BEGIN; SET CONSTRAINTS ALL IMMEDIATE",
            Dialect::MySql => "START TRANSACTION",
            // waits here for other connections that write, and not in the middle
            Dialect::Sqlite => "BEGIN IMMEDIATE",
            Dialect::SqlServer => "BEGIN TRANSACTION",
        })
        .await
    }

    /// Commits. After an error it is unknown whether the transaction was committed.
    ///
    /// Errors: those of the server.
    pub async fn commit(&mut self) -> Result<(), DbError> {
        self.connection.commit().await
    }

    /// Rolls the transaction back.
    ///
    /// Errors: those of the server.
    pub async fn rollback(&mut self) -> Result<(), DbError> {
        self.connection.rollback().await
    }

    /// Marks the point of the transaction that [`Self::return_to_savepoint`] returns to.
    ///
    /// Errors: those of the server.
    pub(crate) async fn savepoint(&mut self) -> Result<(), DbError> {
        self.run(match self.dialect() {
            Dialect::SqlServer => "SAVE TRANSACTION tidemill",
            _ => "SAVEPOINT tidemill",
        })
        .await
    }

    /// Takes back what happened since the savepoint. Returns `false` if the server has rolled the whole transaction back,
    /// so that another one must begin.
    ///
    /// Errors: those of the server.
    pub(crate) async fn return_to_savepoint(&mut self) -> Result<bool, DbError> {
        if self.dialect() != Dialect::SqlServer {
            return self.run("ROLLBACK TO SAVEPOINT tidemill").await.map(|()| true);
        }
        // a transaction that can only be rolled back has the state -1
        self.run(
            "IF XACT_STATE() = 1 ROLLBACK TRANSACTION tidemill ELSE IF XACT_STATE() = -1 ROLLBACK TRANSACTION",
        )
        .await?;
        let count = self.query("SELECT @@TRANCOUNT", &[], &[FieldType::Int]).await?;
        Ok(!matches!(count.first().map(Vec::as_slice), Some([Value::Int(0)])))
    }

    /// Closes the connection.
    pub async fn close(self) {
        self.connection.close().await;
    }
}

async fn open(
    url: &DatabaseUrl,
    user: Option<&str>,
    password: Option<&str>,
) -> Result<Box<dyn Connection>, DbError> {
    Ok(match url.dialect {
        Dialect::PostgreSql => Box::new(PostgresConnection::connect(url, user, password).await?),
        Dialect::MySql => Box::new(MySqlConnection::connect(url, user, password).await?),
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => Box::new(SqliteConnection::connect(url).await?),
        #[cfg(feature = "oracle")]
        Dialect::Oracle => Box::new(OracleConnection::connect(url, user, password).await?),
        #[cfg(feature = "sql-server")]
        Dialect::SqlServer => Box::new(SqlServerConnection::connect(url, user, password).await?),
        #[cfg(not(feature = "sqlite"))]
        Dialect::Sqlite => return Err(not_built("SQLite", "sqlite")),
        #[cfg(not(feature = "oracle"))]
        Dialect::Oracle => return Err(not_built("Oracle", "oracle")),
        #[cfg(not(feature = "sql-server"))]
        Dialect::SqlServer => return Err(not_built("SQL Server", "sql-server")),
    })
}

#[cfg(not(all(feature = "sqlite", feature = "oracle", feature = "sql-server")))]
fn not_built(database: &str, feature: &str) -> DbError {
    DbError::invalid(format!(
        "this program was built without {database}: build it with `--features {feature}`"
    ))
}
