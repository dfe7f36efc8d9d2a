//! The connection of a store: searches, and transactions that also write the position of their call.
//!
//! The position of each partition is a document of the collection `tidemill_position`: the record whose writes are there, how
//! many of them, and what the server refused. A call whose position is there has happened before and does nothing.

use std::time::Duration;

use futures::TryStreamExt;
use mongodb::bson::raw::RawDocumentBuf;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{Error as MongoError, ErrorKind as MongoErrorKind};
use mongodb::error::{RETRYABLE_WRITE_ERROR, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};
use mongodb::options::ClientOptions;
use mongodb::{Client, ClientSession, Database};
use tidemill_connect::{RefusedRow, StoreIndex, StoredRow, WritePosition, value_of_bson};
use tidemill_types::{Error, Result, StreamSchema, Value};

use super::write::{RowWrite, StatementKind};

/// Time for which a call looks for a server before the store reports that it found none.
pub(super) const SELECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Rows that one search may return.
const FOUND_ROWS_MAX: usize = 1_000_000;
/// Statements of one command.
const STATEMENTS_MAX: usize = 1000;
/// Maximum number of attempts of a transaction that meets other writers.
const ATTEMPTS_MAX: usize = 100;
/// Collection of the positions.
const POSITIONS: &str = "tidemill_position";
/// Codes of the server: the collection exists.
const NAMESPACE_EXISTS: i32 = 48;

/// Index with orders or options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SpecialIndex {
    /// Names of its columns, each with whether it is descending.
    pub columns: Vec<(String, bool)>,
    pub of: StoreIndex,
}

/// Location and indexes of the rows.
pub(super) struct SessionSettings {
    pub client: ClientOptions,
    pub database: String,
    pub collection: String,
    pub primary_key: Vec<String>,
    pub indexes: Vec<String>,
    /// Indexes with orders or options.
    pub special_indexes: Vec<SpecialIndex>,
    /// Name of the store in the collection of positions.
    pub name: String,
}

/// A connection that is made when it is first used.
pub(super) struct Session {
    settings: SessionSettings,
    connection: Option<Connection>,
}

#[derive(Clone)]
struct Connection {
    client: Client,
    database: Database,
    /// True if the server has transactions: members of replica sets and routers have.
    has_transactions: bool,
}

/// Outcome of an attempt to write.
enum Attempt {
    Done(Vec<RefusedRow>),
    /// The server refuses a statement, so the transaction has to begin again without it.
    Refused(usize, String),
}

impl Session {
    pub(super) fn new(settings: SessionSettings) -> Self {
        Self { settings, connection: None }
    }

    async fn connection(&mut self) -> Result<Connection> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let client = Client::with_options(self.settings.client.clone()).map_err(|e| self.failed(&e))?;
        let database = client.database(&self.settings.database);
        let prepared = self.prepare(&database).await.map_err(|e| self.failed(&e))?;
        let connection = Connection { client, database, has_transactions: prepared };
        if !prepared {
            tracing::warn!(
                store = self.settings.name,
                "the server has no transactions: after a crash the last batch may be written twice"
            );
        }
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    /// Creates collections and indexes. Returns whether the server has transactions.
    async fn prepare(&self, database: &Database) -> Result<bool, MongoError> {
        let hello = database.run_command(doc! { "hello": 1 }).await?;
        for name in [self.settings.collection.as_str(), POSITIONS] {
            match database.create_collection(name).await {
                Err(e) if code_of(&e) != Some(NAMESPACE_EXISTS) => return Err(e),
                _ => {}
            }
        }
        let mut indexes = vec![];
        if !self.settings.primary_key.is_empty() {
            indexes.push(index(&self.settings.primary_key, true));
        }
        for column in self.settings.indexes.iter().filter(|c| self.settings.primary_key != [(*c).clone()]) {
            indexes.push(index(std::slice::from_ref(column), false));
        }
        indexes.extend(self.settings.special_indexes.iter().map(SpecialIndex::document));
        if !indexes.is_empty() {
            let create = doc! { "createIndexes": &self.settings.collection, "indexes": indexes };
            database.run_command(create).await?;
        }
        Ok(hello.contains_key("setName") || hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid"))
    }

    /// Returns the error of a call. What may go by itself is `Unavailable`.
    fn failed(&self, error: &MongoError) -> Error {
        let waits = match error.kind.as_ref() {
            MongoErrorKind::Io(_)
            | MongoErrorKind::ServerSelection { .. }
            | MongoErrorKind::ConnectionPoolCleared { .. }
            | MongoErrorKind::Authentication { .. } => true,
            _ => {
                error.contains_label(TRANSIENT_TRANSACTION_ERROR)
                    || error.contains_label(RETRYABLE_WRITE_ERROR)
                    || error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
            }
        };
        let message = format!("collection `{}`: {error}", self.settings.collection);
        if waits { Error::unavailable(message) } else { Error::invalid(message) }
    }

    /// Returns the rows that a filter finds.
    ///
    /// Errors: `LimitReached` if they are more than [`FOUND_ROWS_MAX`]; `Unavailable` if the server cannot be reached.
    pub(super) async fn find(
        &mut self,
        filter: &Document,
        schema: &StreamSchema,
        limit: Option<usize>,
    ) -> Result<Vec<StoredRow>> {
        let connection = self.connection().await?;
        let collection = connection.database.collection::<RawDocumentBuf>(&self.settings.collection);
        let limit = limit.unwrap_or(FOUND_ROWS_MAX + 1).min(FOUND_ROWS_MAX + 1);
        let found = async {
            let cursor =
                collection.find(filter.clone()).limit(i64::try_from(limit).unwrap_or(i64::MAX)).await?;
            cursor.try_collect::<Vec<RawDocumentBuf>>().await
        };
        let found = found.await.map_err(|e| self.failed(&e))?;
        if found.len() > FOUND_ROWS_MAX {
            return Err(Error::limit(format!(
                "collection `{}`: more than {FOUND_ROWS_MAX} rows are found; narrow the condition",
                self.settings.collection
            )));
        }
        Ok(found
            .iter()
            .map(|document| {
                let value = |field: &tidemill_types::Field| {
                    let value = document.get(field.name.as_str()).ok().flatten();
                    value.and_then(|value| value_of_bson(value, field.ty)).unwrap_or(Value::Missing)
                };
                schema.fields.iter().map(value).collect()
            })
            .collect())
    }

    /// Executes statements in order, once. Returns those that the server refuses; all others are executed.
    ///
    /// Errors: `Unavailable` if the server cannot be reached.
    pub(super) async fn write(
        &mut self,
        statements: &[RowWrite],
        at: Option<WritePosition>,
    ) -> Result<Vec<RefusedRow>> {
        let connection = self.connection().await?;
        let mut refused: Vec<RefusedRow> = vec![];
        let mut attempts = 0;
        loop {
            let mut session = connection.client.start_session().await.map_err(|e| self.failed(&e))?;
            match self.attempt(&connection, &mut session, statements, at, &refused).await {
                Ok(Attempt::Done(refused)) => return Ok(refused),
                Ok(Attempt::Refused(row, reason)) => {
                    abort(&connection, &mut session).await;
                    refused.push(RefusedRow { row, reason });
                    refused.sort_by_key(|refused| refused.row);
                }
                Err(e) => {
                    abort(&connection, &mut session).await;
                    attempts += 1;
                    let meets_others = e.contains_label(TRANSIENT_TRANSACTION_ERROR) && code_of(&e).is_some();
                    if !meets_others || attempts == ATTEMPTS_MAX {
                        return Err(self.failed(&e));
                    }
                }
            }
        }
    }

    async fn attempt(
        &self,
        connection: &Connection,
        session: &mut ClientSession,
        statements: &[RowWrite],
        at: Option<WritePosition>,
        refused: &[RefusedRow],
    ) -> Result<Attempt, MongoError> {
        if connection.has_transactions {
            session.start_transaction().await?;
        }
        let positions = connection.database.collection::<Document>(POSITIONS);
        let id = at.map(|at| format!("{}/{}", self.settings.name, at.partition));
        let mut known = None;
        if let Some(id) = &id {
            known = positions.find_one(doc! { "_id": id }).session(&mut *session).await?;
        }
        if let (Some(at), Some(known)) = (at, &known)
            && let Some(before) = written_before(known, at)
        {
            if connection.has_transactions {
                session.abort_transaction().await?;
            }
            return Ok(Attempt::Done(before));
        }
        let mut refused = refused.to_vec();
        let mut next = 0;
        while next < statements.len() {
            if refused.iter().any(|refused| refused.row == next) {
                next += 1;
                continue;
            }
            let kind = statements[next].kind();
            let mut end = next + 1;
            while end < statements.len()
                && end - next < STATEMENTS_MAX
                && kind != StatementKind::UpdateOrInsert
                && statements[end].kind() == kind
                && !refused.iter().any(|refused| refused.row == end)
            {
                end += 1;
            }
            match self.execute(connection, session, &statements[next..end]).await? {
                None => next = end,
                Some((place, reason)) if connection.has_transactions => {
                    return Ok(Attempt::Refused(next + place, reason));
                }
                // without a transaction those before it are written
                Some((place, reason)) => {
                    refused.push(RefusedRow { row: next + place, reason });
                    next += place + 1;
                }
            }
        }
        if let (Some(at), Some(id)) = (at, id) {
            let position = position(known.as_ref(), at, &refused);
            positions
                .update_one(doc! { "_id": id }, doc! { "$set": position })
                .upsert(true)
                .session(&mut *session)
                .await?;
        }
        if connection.has_transactions {
            let mut committed = session.commit_transaction().await;
            if committed.as_ref().is_err_and(|e| e.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)) {
                committed = session.commit_transaction().await;
            }
            committed?;
        }
        Ok(Attempt::Done(refused))
    }

    /// Executes statements of one kind. Returns the first that the server refuses, with the reason.
    async fn execute(
        &self,
        connection: &Connection,
        session: &mut ClientSession,
        statements: &[RowWrite],
    ) -> Result<Option<(usize, String)>, MongoError> {
        let name = &self.settings.collection;
        let mut all: Vec<Bson> = vec![];
        let mut insert = None;
        let mut command = "insert";
        for statement in statements {
            all.push(Bson::Document(match statement {
                RowWrite::Insert(document) => document.clone(),
                RowWrite::Delete(filter) => {
                    command = "delete";
                    doc! { "q": filter.clone(), "limit": 0 }
                }
                RowWrite::Update(update) => {
                    command = "update";
                    update.clone()
                }
                RowWrite::UpdateOrInsert(update, new) => {
                    command = "update";
                    insert = Some(new.clone());
                    update.clone()
                }
            }));
        }
        let list = match command {
            "insert" => "documents",
            "delete" => "deletes",
            _ => "updates",
        };
        let run = doc! { command: name, list: all, "ordered": true };
        let reply = connection.database.run_command(run).session(&mut *session).await?;
        if let Some(refused) = first_refused(&reply) {
            return Ok(Some(refused));
        }
        match insert {
            Some(new) if number(&reply, "n") == 0 => {
                let run = doc! { "insert": name, "documents": [new], "ordered": true };
                let reply = connection.database.run_command(run).session(&mut *session).await?;
                Ok(first_refused(&reply))
            }
            _ => Ok(None),
        }
    }
}

async fn abort(connection: &Connection, session: &mut ClientSession) {
    if connection.has_transactions {
        // the server may have done so already
        drop(session.abort_transaction().await);
    }
}

fn first_refused(reply: &Document) -> Option<(usize, String)> {
    let errors = reply.get_array("writeErrors").ok()?;
    let error = errors.first()?.as_document()?;
    let place = usize::try_from(number(error, "index")).unwrap_or_default();
    Some((place, error.get_str("errmsg").unwrap_or("the server gives no reason").to_owned()))
}

fn number(document: &Document, name: &str) -> i64 {
    match document.get(name) {
        Some(Bson::Int32(n)) => i64::from(*n),
        Some(Bson::Int64(n)) => *n,
        Some(Bson::Double(x)) => *x as i64,
        _ => -1,
    }
}

fn code_of(error: &MongoError) -> Option<i32> {
    match error.kind.as_ref() {
        MongoErrorKind::Command(command) => Some(command.code),
        _ => None,
    }
}

impl SpecialIndex {
    fn document(&self) -> Document {
        let order = |descending: bool| if descending { -1 } else { 1 };
        let keys: Document =
            self.columns.iter().map(|(name, desc)| (name.clone(), Bson::Int32(order(*desc)))).collect();
        let names: Vec<String> =
            self.columns.iter().map(|(name, desc)| format!("{name}_{}", order(*desc))).collect();
        let mut index = doc! { "key": keys, "name": self.of.name.clone().unwrap_or_else(|| names.join("_")) };
        if self.of.unique {
            index.insert("unique", true);
        }
        if self.of.sparse {
            index.insert("sparse", true);
        }
        if let Some(seconds) = self.of.expire_after_s {
            index.insert("expireAfterSeconds", i64::from(seconds));
        }
        index
    }
}

fn index(columns: &[String], unique: bool) -> Document {
    let keys: Document = columns.iter().map(|column| (column.clone(), Bson::Int32(1))).collect();
    let names: Vec<String> = columns.iter().map(|column| format!("{column}_1")).collect();
    let mut index = doc! { "key": keys, "name": names.join("_") };
    if unique {
        index.insert("unique", true);
    }
    index
}

/// Returns what a call refused that the server has already; `None` if it is new.
fn written_before(known: &Document, at: WritePosition) -> Option<Vec<RefusedRow>> {
    let (offset, call) = (number(known, "offset"), number(known, "call"));
    let own = i64::try_from(at.offset.0).unwrap_or(i64::MAX);
    if (own, i64::from(at.call)) > (offset, call) {
        return None;
    }
    let mut refused = vec![];
    if own == offset {
        let of_call =
            known.get_document("refused").ok().and_then(|all| all.get_array(at.call.to_string()).ok());
        for entry in of_call.into_iter().flatten().filter_map(Bson::as_document) {
            let row = usize::try_from(number(entry, "row")).unwrap_or_default();
            refused.push(RefusedRow { row, reason: entry.get_str("reason").unwrap_or_default().to_owned() });
        }
    }
    Some(refused)
}

/// Returns the position after a call, with what the calls of its record refused.
fn position(known: Option<&Document>, at: WritePosition, refused: &[RefusedRow]) -> Document {
    let offset = i64::try_from(at.offset.0).unwrap_or(i64::MAX);
    let same_record = known.filter(|known| number(known, "offset") == offset);
    let mut all =
        same_record.and_then(|known| known.get_document("refused").ok().cloned()).unwrap_or_default();
    if !refused.is_empty() {
        let rows: Vec<Document> = refused
            .iter()
            .map(|refused| {
                let row = i64::try_from(refused.row).unwrap_or(i64::MAX);
                doc! { "row": row, "reason": &refused.reason }
            })
            .collect();
        all.insert(at.call.to_string(), rows);
    }
    doc! { "offset": offset, "call": i64::from(at.call), "refused": all }
}
