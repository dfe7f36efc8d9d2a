//! The documents of an engine in the same process, by functions like those of the Rust driver.
//!
//! The functions, their options and their results have the names that they have in `mongodb::sync` (version 3): an operation is
//! built, gets its options, and runs by `run()`. The modules are those of the driver, too. So a program that begins with
//! `use tidemill_mongo::embedded as mongodb` reaches the documents over the wire when that line is gone and the driver is there:
//! the client is created in another way, and the rest stays.
//!
//! ```
//! use std::sync::Arc;
//!
//! use serde::{Deserialize, Serialize};
//! use tidemill_engine::{App, Engine};
//! use tidemill_mongo::embedded::bson::doc;
//! use tidemill_mongo::embedded::sync::Client;
//!
//! #[derive(Serialize, Deserialize)]
//! struct Account {
//!     #[serde(rename = "_id")]
//!     id: String,
//!     amount: i64,
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path();
//! let engine = Arc::new(Engine::open(path, Some(App::from_rules("bank", "")))?);
//! let client = Client::new(engine.clone());
//! let accounts = client.database("docs").collection::<Account>("account");
//! accounts.insert_one(Account { id: "a".into(), amount: 10 }).run()?;
//! accounts.insert_one(Account { id: "b".into(), amount: 0 }).run()?;
//!
//! // both updates or none, and once more after a conflict with another writer
//! client.start_session().run()?.start_transaction().and_run(|session| {
//!     for (id, amount) in [("a", -5), ("b", 5)] {
//!         let update = doc! { "$inc": { "amount": amount } };
//!         accounts.update_one(doc! { "_id": id }, update).session(&mut *session).run()?;
//!     }
//!     Ok(())
//! })?;
//!
//! let b = accounts.find_one(doc! { "_id": "b" }).run()?;
//! assert_eq!(b.map(|b| b.amount), Some(5));
//! engine.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! Outside of a transaction, `find_one`, `insert_one`, `update_one`, `replace_one` and `delete_one` without options call the
//! engine directly if their filter is an `_id` alone: no command is built, no other thread is involved for a read, and the stored
//! bytes are decoded where they are. Every other operation is a command that runs on the caller's thread in the same way as that
//! of a connection, so that it means the same.
//!
//! A write returns when it is as safe as the setting `durability` says, and blocks its thread until then. So does the iterator of a
//! change stream until there is a change. Tasks of an asynchronous runtime call these functions by `spawn_blocking`.
//!
//! `submit()` in place of `run()`, which the driver has not, writes one document without waiting: [`PendingWrite`].
//!
//! What the driver has and this module has not: connection options, read concerns, write concerns of more than one operation,
//! collations, `bulk_write`, GridFS, `list_collections`, `list_databases` and `list_indexes` with descriptions (the commands are
//! there by [`Database::run_command`]), tailable cursors, change streams of a session, and `with_options`.

mod aggregate;
pub mod change_stream;
mod client;
mod collection;
mod core;
mod cursor;
mod database;
mod direct;
pub mod error;
mod find;
mod find_and_modify;
mod indexes;
mod insert;
pub mod options;
mod pending;
pub mod results;
mod session;
mod setters;
mod write;

/// The client and what it gives, as the driver has it in its module of this name.
pub mod sync {
    pub use super::{ChangeStream, Client, ClientSession, Collection, Cursor, Database, SessionCursor};
}

pub use bson;

pub use aggregate::{Aggregate, CountDocuments, Distinct, EstimatedDocumentCount};
pub use change_stream::{
    ChangeNamespace, ChangeStream, ChangeStreamEvent, OperationType, ResumeToken, UpdateDescription, Watch,
};
pub use client::{Client, ListDatabaseNames, StartSession};
pub use collection::{Collection, Namespace};
pub use cursor::{Cursor, SessionCursor};
pub use database::{
    CreateCollection, Database, DropDatabase, ListCollectionNames, RunCommand, RunCursorCommand,
};
pub use error::{Error, Result, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT, WriteError};
pub use find::{ExplicitSession, Find, FindOne, ImplicitSession};
pub use find_and_modify::{FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate};
pub use indexes::{CreateIndex, CreateIndexes, DropCollection, DropIndex, ListIndexNames};
pub use insert::{InsertMany, InsertOne};
pub use options::{
    Acknowledgment, ChangeStreamPreAndPostImages, ChangeStreamPreAndPostImagesBuilder,
    FullDocumentBeforeChangeType, FullDocumentType, Hint, IndexModel, IndexModelBuilder, IndexOptions,
    IndexOptionsBuilder, ReturnDocument, UpdateModifications, WriteConcern, WriteConcernBuilder,
};
pub use pending::PendingWrite;
pub use results::{
    CreateIndexResult, CreateIndexesResult, DeleteResult, InsertManyResult, InsertOneResult, UpdateResult,
};
pub use session::{AbortTransaction, ClientSession, CommitTransaction, StartTransaction};
pub use write::{Delete, ReplaceOne, Update};
