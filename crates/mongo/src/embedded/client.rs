//! The client: databases, sessions, and changes of all collections.

use std::sync::Arc;

use bson::{Bson, Document, doc};
use tidemill_engine::Engine;

use super::change_stream::{ChangeStreamEvent, Watch};
use super::core::{Core, unexpected};
use super::database::Database;
use super::error::Result;
use super::session::ClientSession;
use super::setters::{session_setter, setters};

/// The documents of an engine in the same process. Clones share everything.
#[derive(Clone)]
pub struct Client {
    pub(super) core: Arc<Core>,
}

impl Client {
    /// Creates a client of an engine. Several clients, and a listener on the same engine, see the same documents.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { core: Arc::new(Core::new(engine)) }
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Arc<Engine> {
        self.core.engine()
    }

    /// Returns a database. `docs` has the collections that rules and SQL know by the same names.
    pub fn database(&self, name: &str) -> Database {
        Database::new(self.clone(), name)
    }

    /// Returns the names of the databases.
    pub fn list_database_names(&self) -> ListDatabaseNames<'_> {
        ListDatabaseNames { client: self, options: Document::new(), session: None }
    }

    /// Begins a session.
    pub fn start_session(&self) -> StartSession<'_> {
        StartSession { client: self }
    }

    /// Follows the changes of all collections.
    pub fn watch(&self) -> Watch<ChangeStreamEvent<Document>> {
        let options = doc! { "allChangesForCluster": true };
        Watch::new(self.core.clone(), "admin", Bson::Int32(1), options)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("data_dir", &self.engine().data_dir()).finish_non_exhaustive()
    }
}

/// Lists databases: [`Client::list_database_names`].
#[must_use]
pub struct ListDatabaseNames<'a> {
    client: &'a Client,
    options: Document,
    session: Option<&'a mut ClientSession>,
}

impl<'a> ListDatabaseNames<'a> {
    setters! {
        /// Lists those whose descriptions, such as `{name: "docs"}`, match.
        filter: Document => "filter", Bson::from;
    }
    session_setter!();

    /// Returns the names. Errors: the filter is wrong.
    pub fn run(self) -> Result<Vec<String>> {
        let mut command = doc! { "listDatabases": 1, "nameOnly": true };
        command.extend(self.options);
        let reply = self.client.core.run("admin", self.session, command)?;
        let mut names = Vec::new();
        for database in reply.get_array("databases").map_err(unexpected)? {
            let name = database?.as_document().and_then(|database| database.get_str("name").ok());
            names.extend(name.map(str::to_owned));
        }
        Ok(names)
    }
}

/// Begins a session: [`Client::start_session`].
#[must_use]
pub struct StartSession<'a> {
    client: &'a Client,
}

impl StartSession<'_> {
    /// Begins it. It does not fail; a driver's does.
    pub fn run(self) -> Result<ClientSession> {
        Ok(ClientSession::new(self.client.clone()))
    }
}
