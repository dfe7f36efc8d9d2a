//! Connection to a database of any kind.

use bytes::Bytes;
use tidemill_types::{FieldType, Value};

use crate::dialect::Dialect;
use crate::error::DbError;
use crate::mysql::MySqlConnection;
use crate::oracle::OracleConnection;
use crate::param::{LoadOutcome, Param};
use crate::postgres::PostgresConnection;
use crate::sql_server::SqlServerConnection;
use crate::sqlite::SqliteConnection;
use crate::tls;
use crate::url::DatabaseUrl;

/// Connection to a database. After an error of the kind `Unavailable` it must be replaced.
pub struct Database {
    address: String,
    connection: Connection,
}

enum Connection {
    Postgres(PostgresConnection),
    MySql(MySqlConnection),
    Sqlite(SqliteConnection),
    SqlServer(Box<SqlServerConnection>),
    Oracle(OracleConnection),
}

impl Database {
    /// Connects. User and password replace those of the URL.
    ///
    /// Errors: the server cannot be reached, or refuses.
    pub async fn connect(
        url: &DatabaseUrl,
        user: Option<&str>,
        password: Option<&str>,
    ) -> Result<Self, DbError> {
        tls::set_default_provider();
        let user = user.or(url.user.as_deref());
        let password = password.or(url.password.as_deref());
        let connecting = async {
            Ok(match url.dialect {
                Dialect::PostgreSql => {
                    Connection::Postgres(PostgresConnection::connect(url, user, password).await?)
                }
                Dialect::MySql => Connection::MySql(MySqlConnection::connect(url, user, password).await?),
                Dialect::Sqlite => Connection::Sqlite(SqliteConnection::connect(url).await?),
                Dialect::Oracle => Connection::Oracle(OracleConnection::connect(url, user, password).await?),
                Dialect::SqlServer => {
                    let connected = SqlServerConnection::connect(url, user, password).await?;
                    Connection::SqlServer(Box::new(connected))
                }
            })
        };
        let connected = tokio::time::timeout(url.connect_timeout, connecting).await;
        let connected = connected.unwrap_or_else(|_| {
            let seconds = url.connect_timeout.as_secs_f64();
            Err(DbError::unavailable(format!("the server did not answer within {seconds} s")))
        });
        let connection = connected.map_err(|e: DbError| e.context(url))?;
        Ok(Self { address: url.to_string(), connection })
    }

    /// Returns the address, without user and password.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the language of the database.
    pub fn dialect(&self) -> Dialect {
        match self.connection {
            Connection::Postgres(_) => Dialect::PostgreSql,
            Connection::MySql(_) => Dialect::MySql,
            Connection::Sqlite(_) => Dialect::Sqlite,
            Connection::SqlServer(_) => Dialect::SqlServer,
            Connection::Oracle(_) => Dialect::Oracle,
        }
    }

    /// Executes a statement without parameters.
    ///
    /// Errors: those of the server.
    pub async fn run(&mut self, sql: &str) -> Result<(), DbError> {
        match &mut self.connection {
            Connection::Postgres(connection) => connection.run(sql).await,
            Connection::MySql(connection) => connection.run(sql).await,
            Connection::Sqlite(connection) => connection.run(sql).await,
            Connection::SqlServer(connection) => connection.run(sql).await,
            Connection::Oracle(connection) => connection.run(sql).await,
        }
    }

    /// Executes a statement and returns the number of rows that it inserted, deleted, or found for an update.
    ///
    /// Errors: those of the server.
    pub async fn execute(&mut self, sql: &str, params: &[Param<'_>]) -> Result<u64, DbError> {
        match &mut self.connection {
            Connection::Postgres(connection) => connection.execute(sql, params).await,
            Connection::MySql(connection) => connection.execute(sql, params).await,
            Connection::Sqlite(connection) => {
                let counts = connection.execute_each(sql, &[params.to_vec()]).await?;
                Ok(counts.into_iter().sum())
            }
            Connection::SqlServer(connection) => connection.execute(sql, params).await,
            Connection::Oracle(connection) => connection.execute(sql, params).await,
        }
    }

    /// Executes a statement once for each set of parameters, in order.
    ///
    /// Errors: those of the server for the first that fails; later ones may have been executed.
    pub async fn execute_each(&mut self, sql: &str, sets: &[Vec<Param<'_>>]) -> Result<(), DbError> {
        match &mut self.connection {
            Connection::Postgres(connection) => connection.execute_each(sql, sets).await,
            Connection::MySql(connection) => {
                for params in sets {
                    connection.execute(sql, params).await?;
                }
                Ok(())
            }
            Connection::Sqlite(connection) => connection.execute_each(sql, sets).await.map(drop),
            Connection::SqlServer(connection) => {
                for params in sets {
                    connection.execute(sql, params).await?;
                }
                Ok(())
            }
            Connection::Oracle(connection) => connection.execute_each(sql, sets).await,
        }
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
        match &mut self.connection {
            Connection::Postgres(connection) => connection.query(sql, params, types).await,
            Connection::MySql(connection) => connection.query(sql, params, types).await,
            Connection::Sqlite(connection) => {
                let found = connection.query_each(sql, &[params.to_vec()], types).await?;
                Ok(found.into_iter().flatten().collect())
            }
            Connection::SqlServer(connection) => connection.query(sql, params, types).await,
            Connection::Oracle(connection) => {
                let found = connection.query_each(sql, &[params.to_vec()], types).await?;
                Ok(found.into_iter().flatten().collect())
            }
        }
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
        match &mut self.connection {
            Connection::Postgres(connection) => connection.query_each(sql, sets, types).await,
            Connection::MySql(connection) => {
                let mut found = vec![];
                for params in sets {
                    found.push(connection.query(sql, params, types).await?);
                }
                Ok(found)
            }
            Connection::Sqlite(connection) => connection.query_each(sql, sets, types).await,
            Connection::SqlServer(connection) => {
                let mut found = vec![];
                for params in sets {
                    found.push(connection.query(sql, params, types).await?);
                }
                Ok(found)
            }
            Connection::Oracle(connection) => connection.query_each(sql, sets, types).await,
        }
    }

    /// Loads rows in the format of [`crate::text_format`] into columns of a table. Names are quoted already.
    /// With `replace`, MariaDB and MySQL replace rows with the same key.
    ///
    /// Errors: those of the server; SQL Server takes no text, see [`Self::load_rows`].
    pub(crate) async fn load(
        &mut self,
        table: &str,
        columns: &str,
        data: Bytes,
        rows: usize,
        replace: bool,
    ) -> Result<LoadOutcome, DbError> {
        match &mut self.connection {
            Connection::Postgres(connection) => connection.copy(table, columns, data).await,
            Connection::MySql(connection) => connection.load(table, columns, data, rows, replace).await,
            Connection::Sqlite(connection) => connection.load(table, columns, data).await,
            Connection::SqlServer(_) | Connection::Oracle(_) => Ok(LoadOutcome::Forbidden),
        }
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
        match &mut self.connection {
            Connection::SqlServer(connection) => connection.load(table, rows).await,
            _ => Ok(LoadOutcome::Forbidden),
        }
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
        match &mut self.connection {
            Connection::Oracle(connection) => connection.commit().await,
            _ => self.run("COMMIT").await,
        }
    }

    /// Rolls the transaction back.
    ///
    /// Errors: those of the server.
    pub async fn rollback(&mut self) -> Result<(), DbError> {
        if let Connection::Oracle(connection) = &mut self.connection {
            return connection.rollback().await;
        }
        self.run(match self.dialect() {
            // some errors have done so already
            Dialect::SqlServer => "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION",
            _ => "ROLLBACK",
        })
        .await
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
        match self.connection {
            Connection::Postgres(_) | Connection::Sqlite(_) | Connection::Oracle(_) => {}
            Connection::MySql(connection) => connection.close().await,
            Connection::SqlServer(connection) => connection.close().await,
        }
    }
}
