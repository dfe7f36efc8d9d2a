//! What a client, its databases, collections, sessions and cursors share: the engine, and how commands run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_access::Principal;
use tidemill_docs::DocBytes;
use tidemill_engine::Engine;

use super::error::{Error, Result};
use super::session::ClientSession;
use crate::cursors::CursorSource;
use crate::documents::Documents;
use crate::options::MongoOptions;
use crate::runner;
use crate::session::Session;
use crate::shared::{MongoServerState, Shared};
use crate::wire::frame::Request;

/// Minimum interval between checks for idle cursors and transactions. Commands trigger them.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// State shared by all handles of one client.
pub(super) struct Core {
    pub server: Arc<MongoServerState>,
    idle_checked: Mutex<Instant>,
}

impl Core {
    pub fn new(engine: Arc<Engine>) -> Self {
        // the caller waits for what it has asked for, and has memory of its own
        let options = MongoOptions {
            command_timeout: Duration::MAX,
            command_memory_max: usize::MAX,
            commands_memory_max: usize::MAX,
            ..MongoOptions::default()
        };
        let server = Arc::new(MongoServerState::new(engine, options));
        Self { server, idle_checked: Mutex::new(Instant::now()) }
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.server.whole_engine
    }

    /// Returns the present documents, for functions that run without a command.
    pub fn present(&self) -> Shared {
        Shared::new(self.server.clone(), Documents::present(self.engine().clone(), None))
    }

    /// Runs a command on a database, in the transaction of `session` if it has one.
    ///
    /// Errors: those of the command. Errors of single documents are in the reply.
    pub fn run(
        &self,
        database: &str,
        session: Option<&mut ClientSession>,
        command: Document,
    ) -> Result<RawDocumentBuf> {
        self.run_with(database, session, command, Vec::new())
    }

    /// Runs a command as [`Self::run`] does, with lists of documents that are not in its body.
    pub fn run_with(
        &self,
        database: &str,
        session: Option<&mut ClientSession>,
        mut command: Document,
        sequences: Vec<(String, Vec<Bytes>)>,
    ) -> Result<RawDocumentBuf> {
        command.insert("$db", database);
        let mut command = encode(&command)?;
        self.close_idle();
        if let Some(session) = session {
            session.append_to(&mut command)?;
        }
        let mut request = Request::inner(command);
        request.sequences = sequences;
        // without a connection, no login is required
        let nowhere = ([127, 0, 0, 1], 0).into();
        let mut connection = Session::new(0, nowhere, nowhere, Some(Principal::system()));
        let reply = runner::run_here(&self.server, &mut connection, &Arc::new(request))?;
        match Error::of_reply(&reply) {
            Some(error) => Err(error),
            None => Ok(reply),
        }
    }

    /// Closes idle cursors and sessions, as a listener does periodically.
    fn close_idle(&self) {
        let Some(mut checked) = self.idle_checked.try_lock() else { return };
        if checked.elapsed() >= IDLE_CHECK_INTERVAL {
            *checked = Instant::now();
            self.server.close_idle();
        }
    }

    /// Takes the documents out of the cursor that a reply names: those of its first batch, and those that have not been read.
    ///
    /// Errors: the cursor is open-ended.
    pub fn documents_of(&self, reply: &RawDocument) -> Result<std::vec::IntoIter<DocBytes>> {
        let mut documents = first_batch(reply)?;
        match self.take_cursor(reply)? {
            Some(CursorSource::Documents(others)) if documents.is_empty() => {
                return Ok(others.into_documents()?);
            }
            Some(CursorSource::Documents(others)) => documents.extend(others.into_documents()?),
            None => {}
            Some(CursorSource::Changes(_) | CursorSource::Tail(..)) => {
                return Err(Error::invalid("a cursor without an end: `watch` follows changes"));
            }
        }
        Ok(documents.into_iter())
    }

    /// Takes what the cursor that a reply names has to give; `None` for one that has nothing left.
    pub fn take_cursor(&self, reply: &RawDocument) -> Result<Option<CursorSource>> {
        let cursor = reply.get_document("cursor").map_err(unexpected)?;
        let id = cursor.get_i64("id").map_err(unexpected)?;
        if id == 0 {
            return Ok(None);
        }
        let namespace = cursor.get_str("ns").map_err(unexpected)?;
        Ok(Some(self.server.cursors.take(id, namespace)?.source))
    }
}

/// Returns the documents of the first batch of a reply.
pub(super) fn first_batch(reply: &RawDocument) -> Result<Vec<DocBytes>> {
    let cursor = reply.get_document("cursor").map_err(unexpected)?;
    let mut documents = Vec::new();
    for document in cursor.get_array("firstBatch").map_err(unexpected)? {
        if let RawBsonRef::Document(document) = document? {
            documents.push(DocBytes::copy_from_slice(document.as_bytes()));
        }
    }
    Ok(documents)
}

/// Returns the error of a reply without a field that its command always has, which is a defect.
pub(super) fn unexpected(error: impl std::fmt::Display) -> Error {
    Error::invalid(format!("a defect in Tidemill: a reply cannot be read: {error}"))
}

/// Encodes a document or another value with fields.
pub(super) fn encode<T: Serialize>(value: &T) -> Result<RawDocumentBuf> {
    Ok(bson::serialize_to_raw_document_buf(value)?)
}

/// Decodes a stored document.
///
/// Errors: it has other fields than the type, with code 22.
pub(super) fn decode<T: DeserializeOwned>(document: &[u8]) -> Result<T> {
    Ok(bson::deserialize_from_slice(document)?)
}

/// Decodes a value of a reply.
pub(super) fn to_bson(value: RawBsonRef<'_>) -> Result<Bson> {
    Ok(Bson::try_from(value)?)
}
