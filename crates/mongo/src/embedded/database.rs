//! Databases.

use std::sync::Arc;

use bson::raw::RawDocument;
use bson::{Bson, Document, doc};
use tidemill_docs::DocBytes;

use super::aggregate::Aggregate;
use super::change_stream::{ChangeStreamEvent, Watch};
use super::client::Client;
use super::collection::Collection;
use super::core::{decode, unexpected};
use super::cursor::Cursor;
use super::error::Result;
use super::options::ChangeStreamPreAndPostImages;
use super::session::ClientSession;
use super::setters::{session_setter, setters, whole};

/// A database. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Database {
    client: Client,
    name: Arc<str>,
}

impl Database {
    pub(super) fn new(client: Client, name: &str) -> Self {
        Self { client, name: name.into() }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns a collection, which need not exist: the first write creates it. `T` is the type of its documents.
    pub fn collection<T: Send + Sync>(&self, name: &str) -> Collection<T> {
        Collection::new(self.client.clone(), self.name.clone(), name)
    }

    /// Runs any command that the listener runs, as a document whose first field is its name.
    pub fn run_command(&self, command: Document) -> RunCommand<'_> {
        RunCommand { database: self, command, session: None }
    }

    /// Runs any command whose reply has a cursor.
    pub fn run_cursor_command(&self, command: Document) -> RunCursorCommand<'_> {
        RunCursorCommand { database: self, command }
    }

    /// Runs a pipeline that does not begin with a collection, such as one with `$documents`.
    pub fn aggregate(&self, pipeline: impl IntoIterator<Item = Document>) -> Aggregate<'_> {
        Aggregate::new(&self.client.core, &self.name, Bson::Int32(1), pipeline)
    }

    /// Creates a collection.
    pub fn create_collection(&self, name: impl Into<String>) -> CreateCollection<'_> {
        CreateCollection { database: self, name: name.into(), options: Document::new(), session: None }
    }

    /// Returns the names of the collections and views.
    pub fn list_collection_names(&self) -> ListCollectionNames<'_> {
        ListCollectionNames { database: self, options: Document::new(), session: None }
    }

    /// Drops all collections of the database.
    pub fn drop(&self) -> DropDatabase<'_> {
        DropDatabase { database: self }
    }

    /// Follows the changes of all collections of the database.
    pub fn watch(&self) -> Watch<ChangeStreamEvent<Document>> {
        Watch::new(self.client.core.clone(), &self.name, Bson::Int32(1), Document::new())
    }
}

/// Runs a command: [`Database::run_command`].
#[must_use]
pub struct RunCommand<'a> {
    database: &'a Database,
    command: Document,
    session: Option<&'a mut ClientSession>,
}

impl<'a> RunCommand<'a> {
    session_setter!();

    /// Returns its reply. Errors: those of the command; errors of single documents are in the reply.
    pub fn run(self) -> Result<Document> {
        let reply = self.database.client.core.run(&self.database.name, self.session, self.command)?;
        decode(reply.as_bytes())
    }
}

/// Runs a command with a cursor: [`Database::run_cursor_command`].
#[must_use]
pub struct RunCursorCommand<'a> {
    database: &'a Database,
    command: Document,
}

impl RunCursorCommand<'_> {
    /// Returns the cursor. Errors: those of the command, or its reply has no cursor.
    pub fn run(self) -> Result<Cursor<Document>> {
        let core = &self.database.client.core;
        let reply = core.run(&self.database.name, None, self.command)?;
        Ok(Cursor::new(core.documents_of(&reply)?))
    }
}

/// Creates a collection: [`Database::create_collection`].
#[must_use]
pub struct CreateCollection<'a> {
    database: &'a Database,
    name: String,
    options: Document,
    session: Option<&'a mut ClientSession>,
}

impl<'a> CreateCollection<'a> {
    setters! {
        /// Deletes the oldest documents when the collection has reached its maximum size.
        capped: bool => "capped", Bson::from;
        /// Maximum bytes of a capped collection.
        size: u64 => "size", whole;
        /// Maximum number of its documents.
        max: u64 => "max", whole;
        /// Filter that each document must match.
        validator: Document => "validator", Bson::from;
        /// The collection or view that a view reads.
        view_on: String => "viewOn", Bson::from;
        /// Pipeline that a view runs on those documents.
        pipeline: Vec<Document> => "pipeline", Bson::from;
        /// Keeps both versions of a changed document for change streams.
        change_stream_pre_and_post_images: ChangeStreamPreAndPostImages => "changeStreamPreAndPostImages", Bson::from;
    }
    session_setter!();

    /// Creates it. Errors: it exists, with code 48, or an option is wrong.
    pub fn run(self) -> Result<()> {
        let mut command = doc! { "create": self.name };
        command.extend(self.options);
        self.database.client.core.run(&self.database.name, self.session, command).map(|_| ())
    }
}

/// Lists collections: [`Database::list_collection_names`].
#[must_use]
pub struct ListCollectionNames<'a> {
    database: &'a Database,
    options: Document,
    session: Option<&'a mut ClientSession>,
}

impl<'a> ListCollectionNames<'a> {
    setters! {
        /// Lists those whose descriptions match.
        filter: Document => "filter", Bson::from;
    }
    session_setter!();

    /// Returns the names. Errors: the filter is wrong.
    pub fn run(self) -> Result<Vec<String>> {
        // conditions on more than name and type need the whole description
        let name_only = self.options.is_empty();
        let mut command = doc! { "listCollections": 1, "nameOnly": name_only, "cursor": {} };
        command.extend(self.options);
        let core = &self.database.client.core;
        let reply = core.run(&self.database.name, self.session, command)?;
        let name = |one: DocBytes| {
            Ok(RawDocument::from_bytes(&one)?.get_str("name").map_err(unexpected)?.to_owned())
        };
        core.documents_of(&reply)?.map(name).collect()
    }
}

/// Drops a database: [`Database::drop`].
#[must_use]
pub struct DropDatabase<'a> {
    database: &'a Database,
}

impl DropDatabase<'_> {
    /// Drops its collections. Succeeds for a database without collections.
    pub fn run(self) -> Result<()> {
        self.database.client.core.run(&self.database.name, None, doc! { "dropDatabase": 1 }).map(|_| ())
    }
}
