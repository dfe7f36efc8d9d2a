//! The documents as a command sees them: those of its transaction, or the present ones.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use parking_lot::Mutex;
use tidemill_docs::{
    Collation, Collection, CollectionSpec, CommandOutcome, DocBytes, DocumentCommand, Filter, FindOptions,
    ViewSpec,
};
use tidemill_engine::{CollectionInfo, DocumentSnapshot, Durability, Engine, SessionWrite, Transaction};
use tidemill_types::{Result, Value, budget};

/// The documents that one command reads and writes.
pub(crate) struct Documents {
    engine: Arc<Engine>,
    /// The transaction that the command belongs to.
    transaction: Option<Mutex<Transaction>>,
    /// The moment that the command reads instead of the present one.
    moment: Option<DocumentSnapshot>,
    /// The write of a client session that may be sent again.
    write: Option<SessionWrite>,
    /// Number of the next statement of that write.
    statement: AtomicI32,
}

impl Documents {
    /// Returns the present documents. `write` is the write of a client session that the command is.
    pub fn present(engine: Arc<Engine>, write: Option<SessionWrite>) -> Self {
        Self { engine, transaction: None, moment: None, write, statement: AtomicI32::new(0) }
    }

    /// Returns the documents of a transaction.
    pub fn of_transaction(engine: Arc<Engine>, transaction: Transaction) -> Self {
        Self { transaction: Some(Mutex::new(transaction)), ..Self::present(engine, None) }
    }

    /// Returns the documents of a moment that was kept.
    pub fn of_moment(engine: Arc<Engine>, moment: DocumentSnapshot) -> Self {
        Self { moment: Some(moment), ..Self::present(engine, None) }
    }

    /// Returns the transaction.
    pub fn into_transaction(self) -> Option<Transaction> {
        self.transaction.map(Mutex::into_inner)
    }

    /// Returns the documents of the present, of the moment that the command reads, or those that the transaction sees.
    pub fn snapshot(&self) -> Result<DocumentSnapshot> {
        match (&self.transaction, &self.moment) {
            (Some(transaction), _) => Ok(transaction.lock().documents().clone()),
            (None, Some(moment)) => Ok(moment.clone()),
            (None, None) => self.engine.document_snapshot(),
        }
    }

    pub fn find_parsed(
        &self,
        collection: &str,
        filter: &Filter,
        options: &FindOptions,
    ) -> Result<Vec<DocBytes>> {
        self.snapshot()?.find_parsed(collection, filter, options)
    }

    /// Calls `each` for the documents that match, until it breaks. See [`DocumentSnapshot::find_each`].
    pub fn find_each(
        &self,
        collection: &str,
        filter: &Filter,
        options: &FindOptions,
        each: &mut dyn FnMut(&DocBytes) -> ControlFlow<()>,
    ) -> Result<()> {
        self.snapshot()?.find_each(collection, filter, options, each)
    }

    /// Returns the document with that `_id`.
    pub fn find_one(&self, collection: &str, id: &Value<'_>) -> Result<Option<DocBytes>> {
        match (&self.transaction, &self.moment) {
            // a string may equal others, which a query finds
            (Some(_), _) | (None, Some(_)) if self.collation(collection)?.is_some() => Ok(None),
            (Some(transaction), _) => transaction.lock().documents().get(collection, id),
            (None, Some(moment)) => moment.get(collection, id),
            (None, None) => self.engine.collection(collection).find_one(id),
        }
    }

    pub fn count_parsed(&self, collection: &str, filter: &Filter) -> Result<u64> {
        self.snapshot()?.count_parsed(collection, filter)
    }

    /// Returns the collation of a collection; `None` for the order of bytes.
    pub fn collation(&self, name: &str) -> Result<Option<Collation>> {
        match &self.transaction {
            Some(transaction) => Ok(transaction.lock().documents().collation(name).ok().flatten().cloned()),
            None => self.engine.collation(name),
        }
    }

    /// Returns the definition of a collection.
    pub fn collection_spec(&self, name: &str) -> Result<CollectionSpec> {
        match &self.transaction {
            Some(transaction) => transaction.lock().documents().spec(name).cloned(),
            None => self.engine.collection_spec(name),
        }
    }

    /// Returns whether the command belongs to a transaction.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Returns whether the transaction of the command has created the collection.
    pub fn has_created(&self, collection: &str) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.lock().has_created(collection))
    }

    /// Calls `read` with the documents of a collection in each partition; once if every partition has all of them.
    pub fn read_collection<T>(
        &self,
        name: &str,
        read: impl FnMut(&Collection) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.snapshot()?.read_collection(name, read)
    }

    /// Returns the definition of the view of that name; `None` for a collection or an unknown name.
    pub fn view(&self, name: &str) -> Result<Option<ViewSpec>> {
        match &self.transaction {
            Some(transaction) => {
                let transaction = transaction.lock();
                Ok(transaction.documents().spec(name).ok().and_then(|spec| spec.options.view.clone()))
            }
            None => self.engine.view(name),
        }
    }

    pub fn collections(&self) -> Result<Vec<CollectionInfo>> {
        self.engine.collections()
    }

    pub fn collection_names(&self) -> Result<Vec<String>> {
        self.engine.collection_names()
    }

    pub fn write_documents(
        &self,
        command: DocumentCommand,
        durability: Option<Durability>,
    ) -> Result<CommandOutcome> {
        // what is in the log is done; what is not does not begin after the end of its command
        budget::check()?;
        let of_documents = command.writes_documents();
        match &self.transaction {
            Some(transaction) => transaction.lock().write(command),
            _ if of_documents => {
                let write = self.session_write(self.statement.fetch_add(1, Ordering::Relaxed));
                self.engine.write_session_documents(command, durability, write.as_ref())
            }
            _ => self.engine.write_documents(command, durability),
        }
    }

    fn session_write(&self, statement: i32) -> Option<SessionWrite> {
        Some(SessionWrite { statement, ..self.write.clone()? })
    }
}
