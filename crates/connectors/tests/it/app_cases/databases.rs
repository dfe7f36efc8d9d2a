//! Tables of PostgreSQL, MariaDB and SQLite.

use std::path::Path;

use super::ends::End;
use crate::rdbms::database::{TestDatabase, databases};
use crate::rdbms::servers::shared;

/// A database.
pub struct Database {
    variable: &'static str,
    database: TestDatabase,
}

impl Database {
    /// Connects with the server of this name. `None`, with a message, if it cannot be had.
    pub fn open(name: &str, variable: &'static str) -> Option<Self> {
        let place = shared().databases.iter().position(|server| server.name == name)?;
        Some(Self { variable, database: databases().swap_remove(place) })
    }

    /// Returns a database in a file below `dir`, which is there as soon as the app has created it.
    pub fn file(dir: &Path, variable: &'static str) -> Self {
        Self { variable, database: TestDatabase::file(&dir.join("app.db")) }
    }
}

impl End for Database {
    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![(self.variable, self.database.url.clone())]
    }

    /// Executes a statement, which may continue in the lines below.
    fn send(&mut self, statement: &str, lines: &[String]) {
        self.database.run(&format!("{statement} {}", lines.join(" ")));
    }

    /// Returns the rows of a query, or its error, such as for a table that the app has not created yet.
    fn read(&mut self, query: &str) -> Vec<String> {
        self.database.try_rows(query).unwrap_or_else(|e| vec![e.to_string()])
    }
}
