//! A database as a test sees it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use tidemill_connect::{
    ConnectorConfig, ConnectorContext, ConnectorSink, DeliveryProgress, PartitionEpochs, RefusedRow, runtime,
};
use tidemill_relational::{DatabaseConnection, DatabaseUrl, DbError};
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{Error, EventId, Field, FieldType, Offset, PartitionId, StreamSchema, Timestamp, Value};

use super::servers::{Server, shared};

/// Kinds of databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    MariaDb,
    SqlServer,
    Oracle,
}

/// A database.
#[derive(Debug, Clone)]
pub struct TestDatabase {
    pub kind: Kind,
    pub url: String,
    /// User and password, unless the URL has them.
    login: Option<&'static str>,
}

/// Databases that no script can install, with the variable that has the URL of one, with user and password.
const GIVEN: [(Kind, &str); 2] =
    [(Kind::SqlServer, "TIDEMILL_TEST_MSSQL"), (Kind::Oracle, "TIDEMILL_TEST_ORACLE")];

/// Returns the databases that can be had here.
pub fn all_databases() -> Vec<TestDatabase> {
    let given = GIVEN.iter().filter_map(|(kind, variable)| match std::env::var(variable) {
        Ok(url) => Some(TestDatabase { kind: *kind, url, login: None }),
        Err(_) => {
            eprintln!("skipped {kind:?}: {variable} names no server, such as {}", example(*kind));
            None
        }
    });
    databases().into_iter().chain(given).collect()
}

/// Returns those that `scripts/servers.sh` runs, for tests that know their messages and catalogs.
pub fn databases() -> Vec<TestDatabase> {
    shared().databases.iter().map(TestDatabase::of).collect()
}

fn example(kind: Kind) -> &'static str {
    match kind {
        Kind::Oracle => "jdbc:oracle:thin:user/password@//host:1521/service",
        _ => "jdbc:sqlserver://host:1433;databaseName=test;user=sa;password=…;trustServerCertificate=true",
    }
}

impl TestDatabase {
    /// Returns the database of a server.
    pub fn of(server: &Server) -> Self {
        let (kind, scheme) = match server.name {
            "postgres" => (Kind::Postgres, "postgresql"),
            _ => (Kind::MariaDb, "mariadb"),
        };
        Self { kind, url: format!("jdbc:{scheme}://{}/tidemill", server.at), login: Some("tidemill") }
    }

    /// Returns the database in a file of SQLite, which understands what PostgreSQL does.
    pub fn file(path: &Path) -> Self {
        Self { kind: Kind::Postgres, url: format!("jdbc:sqlite:{}", path.display()), login: None }
    }

    /// Picks one of two texts.
    pub fn pick<'t>(&self, postgres: &'t str, others: &'t str) -> &'t str {
        match self.kind {
            Kind::Postgres => postgres,
            _ => others,
        }
    }

    /// Returns whether the messages and the catalog of the server are known.
    pub fn is_local(&self) -> bool {
        matches!(self.kind, Kind::Postgres | Kind::MariaDb)
    }

    /// Returns the options that say where the database is.
    pub fn options(&self) -> Vec<(String, String)> {
        let mut options = vec![("jdbc.url".to_owned(), self.url.clone())];
        for name in ["username", "password"] {
            options.extend(self.login.map(|login| (name.to_owned(), login.to_owned())));
        }
        options
    }

    /// Executes a statement.
    pub fn run(&self, sql: &str) {
        runtime().block_on(async {
            let mut db = self.connect().await;
            db.run(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
            db.close().await;
        });
    }

    /// Returns the rows of a query whose columns are texts, joined by `|`.
    pub fn rows(&self, sql: &str) -> Vec<String> {
        self.try_rows(sql).unwrap_or_else(|e| panic!("{sql}: {e}"))
    }

    /// Returns the same, or why it cannot be had.
    pub fn try_rows(&self, sql: &str) -> Result<Vec<String>, DbError> {
        let mut depth = 0;
        let mut columns = 1;
        for c in sql.split(" FROM ").next().unwrap().chars() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                ',' if depth == 0 => columns += 1,
                _ => {}
            }
        }
        runtime().block_on(async {
            let mut db = self.connect().await;
            let rows = db.query(sql, &[], &vec![FieldType::String; columns]).await;
            db.close().await;
            Ok(rows?.iter().map(|row| row.iter().map(show).collect::<Vec<_>>().join("|")).collect())
        })
    }

    /// Begins a transaction on a connection of its own.
    pub fn transaction(&self) -> Transaction {
        let transaction = Transaction(Mutex::new(runtime().block_on(self.connect())));
        transaction.run(self.pick("BEGIN", "START TRANSACTION")).unwrap();
        transaction
    }

    async fn connect(&self) -> DatabaseConnection {
        let url = DatabaseUrl::parse(&self.url).unwrap();
        DatabaseConnection::connect(&url, self.login, self.login).await.unwrap()
    }

    /// Removes a table, and the positions of its sinks.
    pub fn drop_table(&self, table: &str) {
        match self.kind {
            // its error says that the table does not exist
            Kind::Oracle => runtime().block_on(async {
                let mut db = self.connect().await;
                let _ = db.run(&format!("DROP TABLE {table}")).await;
                db.close().await;
            }),
            _ => self.run(&format!("DROP TABLE IF EXISTS {table}")),
        }
        // another test may not have created it yet
        runtime().block_on(async {
            let mut db = self.connect().await;
            let _ = db.run(&format!("DELETE FROM tidemill_position WHERE sink = 'test/{table}'")).await;
            if self.kind == Kind::Oracle {
                db.commit().await.unwrap();
            }
            db.close().await;
        });
    }

    /// Opens a sink that writes to `table`.
    pub fn sink(&self, table: &str, schema: &Arc<StreamSchema>, options: &[(&str, &str)]) -> ConnectorSink {
        self.try_sink(table, schema, options).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Opens a sink, or says why its options are wrong. `options` come before the usual ones.
    pub fn try_sink(
        &self,
        table: &str,
        schema: &Arc<StreamSchema>,
        options: &[(&str, &str)],
    ) -> Result<ConnectorSink, String> {
        let mut all: Vec<(String, String)> =
            options.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        for (name, value) in self.options().into_iter().chain([("table.name".into(), table.into())]) {
            if !all.iter().any(|(known, _)| *known == name) {
                all.push((name, value));
            }
        }
        let config = ConnectorConfig { kind: "rdbms".into(), options: all, mapper: None };
        let context = ConnectorContext {
            name: format!("test/{table}"),
            writer: format!("test/{table}"),
            app: "test".into(),
            schema: schema.clone(),
            dir: PathBuf::from("."),
            mapper: None,
            shares_partitions: false,
        };
        crate::helpers::catalog().open_sink(&config, &context).map_err(|e| e.to_string())
    }
}

/// Connection of a test.
pub struct Transaction(Mutex<DatabaseConnection>);

impl Transaction {
    /// Executes a statement.
    pub fn run(&self, sql: &str) -> Result<(), DbError> {
        runtime().block_on(self.0.lock().unwrap().run(sql))
    }
}

fn show(value: &Value<'_>) -> String {
    match value {
        Value::Str(text) => text.to_string(),
        Value::Missing => "NULL".into(),
        other => other.to_string(),
    }
}

/// Returns a stream with these fields.
pub fn stream(fields: &[(&str, FieldType)]) -> Arc<StreamSchema> {
    let fields = fields.iter().map(|(name, ty)| Field::new(*name, *ty)).collect();
    Arc::new(StreamSchema { name: "S".into(), fields, key: None, id: vec![], time: None })
}

/// Returns events.
pub fn batch(schema: &Arc<StreamSchema>, rows: &[Vec<FieldValue>]) -> RecordBatch {
    let mut builder = BatchBuilder::new(schema.clone());
    for row in rows {
        builder.push_values(row, Timestamp(0)).unwrap();
    }
    builder.finish()
}

/// Returns the ids of events of one record of partition 0.
pub fn ids(offset: u64, rows: usize) -> Vec<EventId> {
    let id = |row| EventId { partition: PartitionId(0), offset: Offset(offset), row: row as u32 };
    (0..rows).map(id).collect()
}

/// Connects if necessary and delivers events once.
pub fn deliver(
    sink: &mut ConnectorSink,
    rows: &RecordBatch,
    ids: &[EventId],
) -> Result<Vec<RefusedRow>, Error> {
    deliver_in(sink, &PartitionEpochs::new(), rows, ids)
}

/// Delivers events as [`deliver`] does, as the owner of partitions.
pub fn deliver_in(
    sink: &mut ConnectorSink,
    owned: &PartitionEpochs,
    rows: &RecordBatch,
    ids: &[EventId],
) -> Result<Vec<RefusedRow>, Error> {
    let mut progress = DeliveryProgress::default();
    sink.connect(owned, std::future::pending())?;
    sink.deliver(rows, ids, &mut progress, std::future::pending())?;
    assert_eq!(progress.delivered, ids.len());
    Ok(progress.refused)
}

/// Returns an integer.
pub fn int(n: i64) -> FieldValue {
    FieldValue::Int(n)
}

/// Returns a string.
pub fn text(text: &str) -> FieldValue {
    FieldValue::Text(text.into())
}
