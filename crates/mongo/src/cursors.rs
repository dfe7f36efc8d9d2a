//! Cursors: results that the client has read in part.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bson::raw::RawDocumentBuf;
use parking_lot::Mutex;
use tidemill_access::Principal;
use tidemill_docs::{DocBytes, HeldMemory, Projection};
use tidemill_engine::Engine;
use tidemill_types::budget;

use crate::error::{Code, CommandError, Result};
use crate::need::Need;
use crate::options::MongoOptions;
use crate::tail::TailPosition;

/// All open cursors. Their documents are handles of one moment; writers continue meanwhile.
pub(crate) struct Cursors {
    open: Mutex<HashMap<i64, OpenCursor>>,
    /// Bytes that the open cursors hold, also those that are being read.
    bytes: Arc<AtomicUsize>,
    most: usize,
    bytes_max: usize,
    timeout: Duration,
}

/// A cursor.
pub(crate) struct OpenCursor {
    namespace: String,
    /// The user who has opened it; `None` until its command ends, before anybody knows its number.
    opener: Option<Opener>,
    pub source: CursorSource,
    /// True if a batch as large as the client asked for leaves the cursor open although nothing may follow.
    /// Clients count on it.
    pub end_unknown: bool,
    used: Instant,
    /// The time that all commands that read it may take, of a query that says it.
    time_left: Option<Duration>,
    _held: HeldBytes,
}

/// The user who has opened a cursor, and the rights that its command needed, which each read of the cursor needs again.
struct Opener {
    principal: Principal,
    needs: Arc<[Need]>,
}

/// Bytes that a cursor holds, which are given back when it is dropped.
struct HeldBytes(usize, Arc<AtomicUsize>);

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Changes as a change stream tells them.
pub(crate) trait ChangeSource: Send {
    /// Returns the next changes, at most `most`, and the token with which to resume after them.
    fn next(&mut self, engine: &Engine, most: usize) -> Result<(Vec<DocBytes>, RawDocumentBuf)>;

    /// Returns whether readers can see no more changes by now.
    fn is_at_end(&self) -> bool;

    /// Returns whether no more changes can come, because what is followed was dropped.
    fn has_ended(&self) -> bool;
}

/// Documents that have not been read, whole, and the projection of those that are read.
pub(crate) struct Unread {
    documents: std::vec::IntoIter<DocBytes>,
    projection: Option<Box<Projection>>,
}

impl Unread {
    pub fn new(documents: Vec<DocBytes>, projection: Option<Projection>) -> Self {
        Self { documents: documents.into_iter(), projection: projection.map(Box::new) }
    }

    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Returns the next document. `None` at the end, or if `fits` refuses it by its size in bytes; then it is
    /// returned again.
    pub fn next_if(&mut self, fits: impl FnOnce(usize) -> bool) -> Result<Option<DocBytes>> {
        let Some(next) = self.documents.as_slice().first() else { return Ok(None) };
        let next = match &self.projection {
            None => next.clone(),
            Some(projection) => {
                budget::step()?;
                projection.apply_bytes(next)?
            }
        };
        if !fits(next.len()) {
            return Ok(None);
        }
        self.documents.next();
        Ok(Some(next))
    }

    /// Returns all documents as they are read.
    pub fn into_documents(self) -> Result<std::vec::IntoIter<DocBytes>> {
        let Some(projection) = self.projection else { return Ok(self.documents) };
        let mut held = HeldMemory::default();
        let projected = self.documents.map(|document| {
            let projected = projection.apply_bytes(&document)?;
            held.add_document(&projected)?;
            Ok(projected)
        });
        Ok(projected.collect::<Result<Vec<_>>>()?.into_iter())
    }
}

impl From<Vec<DocBytes>> for Unread {
    fn from(documents: Vec<DocBytes>) -> Self {
        Self::new(documents, None)
    }
}

/// Source of the documents of a cursor.
pub(crate) enum CursorSource {
    /// Documents that have not been read.
    Documents(Unread),
    /// Unread documents of a capped collection, and the position at which the cursor continues.
    Tail(Unread, Box<TailPosition>),
    /// Changes as they come.
    Changes(Box<dyn ChangeSource>),
}

impl CursorSource {
    /// Returns the bytes that the cursor needs when it is opened: handles, and documents that the cursor
    /// alone holds, such as those of a projection. A document of a collection is in memory anyway.
    fn bytes(&self) -> usize {
        const CURSOR_BYTES: usize = 512;
        let documents = match self {
            Self::Documents(unread) | Self::Tail(unread, _) => unread.documents.as_slice(),
            Self::Changes(_) => &[],
        };
        let own = documents.iter().filter(|document| document.is_unique()).map(|document| document.len());
        CURSOR_BYTES + size_of_val(documents) + own.sum::<usize>()
    }
}

impl Cursors {
    pub fn new(options: &MongoOptions) -> Self {
        Self {
            open: Mutex::default(),
            bytes: Arc::default(),
            most: options.cursors_max,
            bytes_max: options.cursor_memory_max,
            timeout: options.cursor_timeout,
        }
    }

    /// Opens a cursor. Returns its number. Errors: there are too many.
    pub fn open(&self, namespace: String, documents: Unread) -> Result<i64> {
        self.add(namespace, CursorSource::Documents(documents), false)
    }

    /// Opens the cursor of a query, which ends with the first batch that is smaller than the client asked for. Returns its number.
    /// Errors: there are too many.
    pub fn open_query(&self, namespace: String, documents: Unread) -> Result<i64> {
        self.add(namespace, CursorSource::Documents(documents), true)
    }

    /// Opens a cursor over changes. Returns its number. Errors: there are too many.
    pub fn open_changes(&self, namespace: String, changes: Box<dyn ChangeSource>) -> Result<i64> {
        self.add(namespace, CursorSource::Changes(changes), false)
    }

    /// Opens a cursor that continues at `tail`. Returns its number. Errors: there are too many.
    pub fn open_tailable(&self, namespace: String, documents: Unread, tail: TailPosition) -> Result<i64> {
        self.add(namespace, CursorSource::Tail(documents, Box::new(tail)), false)
    }

    fn add(&self, namespace: String, source: CursorSource, end_unknown: bool) -> Result<i64> {
        let bytes = source.bytes();
        let mut open = self.open.lock();
        let full = |open: &HashMap<_, _>| {
            open.len() >= self.most || self.bytes.load(Ordering::Relaxed) >= self.bytes_max
        };
        if full(&open) {
            self.close_unused(&mut open);
        }
        if full(&open) && open.len() < self.most {
            let message = format!(
                "the open cursors hold {} bytes, and the limit is {} (setting cursor_memory_max): read them to the end or close \
                 them, or ask for fewer documents",
                self.bytes.load(Ordering::Relaxed),
                self.bytes_max
            );
            return Err(CommandError::new(Code::ExceededMemoryLimit, message));
        }
        if open.len() >= self.most {
            let message = format!(
                "{} cursors are open, which is the limit (setting cursors_max): read them to the end or close them",
                self.most
            );
            return Err(CommandError::new(Code::ExceededMemoryLimit, message));
        }
        let id = loop {
            let id = (rand::random::<u64>() >> 1).cast_signed();
            if id != 0 && !open.contains_key(&id) {
                break id;
            }
        };
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let _held = HeldBytes(bytes, self.bytes.clone());
        let used = Instant::now();
        open.insert(
            id,
            OpenCursor { namespace, opener: None, source, end_unknown, used, time_left: None, _held },
        );
        Ok(id)
    }

    /// Returns whether a cursor that waits for something new has nothing to give by now; `None` for another cursor.
    pub fn awaits_more(&self, id: i64) -> Option<bool> {
        match &self.open.lock().get(&id)?.source {
            CursorSource::Changes(changes) => Some(changes.is_at_end()),
            CursorSource::Tail(documents, tail) if tail.waits => Some(documents.len() == 0),
            CursorSource::Tail(..) | CursorSource::Documents(_) => None,
        }
    }

    /// Says who has opened a cursor, and with which rights.
    pub fn set_opener(&self, id: i64, principal: &Principal, needs: Vec<Need>) {
        if let Some(cursor) = self.open.lock().get_mut(&id)
            && cursor.opener.is_none()
        {
            cursor.opener = Some(Opener { principal: principal.clone(), needs: needs.into() });
        }
    }

    /// Returns the rights that the command needed that has opened a cursor; none if it is not open.
    pub fn needs(&self, id: i64) -> Arc<[Need]> {
        let open = self.open.lock();
        open.get(&id).and_then(|cursor| cursor.opener.as_ref()).map(|o| o.needs.clone()).unwrap_or_default()
    }

    /// Returns whether the caller may read and close a cursor: it has opened it, or the cursor is not open.
    pub fn is_owned_by(&self, id: i64, caller: &str) -> bool {
        let open = self.open.lock();
        open.get(&id)
            .and_then(|cursor| cursor.opener.as_ref())
            .is_none_or(|opener| opener.principal.name() == caller)
    }

    /// Returns the time that is left for the commands that read a cursor; `None` if it is not limited.
    pub fn time_left(&self, id: i64) -> Option<Duration> {
        self.open.lock().get(&id)?.time_left
    }

    /// Limits the time of the commands that read a cursor.
    pub fn limit_time(&self, id: i64, left: Duration) {
        if let Some(cursor) = self.open.lock().get_mut(&id) {
            cursor.time_left = Some(left);
        }
    }

    /// Takes a cursor out, to read from it. Errors: it does not exist, or it belongs to another collection.
    pub fn take(&self, id: i64, namespace: &str) -> Result<OpenCursor> {
        let mut open = self.open.lock();
        match open.get(&id) {
            None => Err(CommandError::new(Code::CursorNotFound, format!("cursor id {id} not found"))),
            Some(cursor) if cursor.namespace != namespace => {
                let message = format!(
                    "cursor {id} belongs to namespace '{}', but '{namespace}' was asked for",
                    cursor.namespace
                );
                Err(CommandError::new(Code::Unauthorized, message))
            }
            Some(_) => Ok(open.remove(&id).unwrap_or_else(|| unreachable!("found above"))),
        }
    }

    pub fn put_back(&self, id: i64, mut cursor: OpenCursor) {
        cursor.used = Instant::now();
        self.open.lock().insert(id, cursor);
    }

    /// Closes a cursor. Returns whether there was one.
    pub fn close(&self, id: i64) -> bool {
        self.open.lock().remove(&id).is_some()
    }

    /// Closes the cursors whose opener is one of those.
    pub fn close_of(&self, is_gone: impl Fn(&Principal) -> bool) {
        let stays =
            |cursor: &OpenCursor| cursor.opener.as_ref().is_none_or(|opener| !is_gone(&opener.principal));
        self.open.lock().retain(|_, cursor| stays(cursor));
    }

    /// Closes the cursors that were not read within the timeout.
    pub fn close_idle(&self) {
        self.close_unused(&mut self.open.lock());
    }

    /// Closes all cursors.
    #[cfg(feature = "fuzzing")]
    pub fn close_all(&self) {
        self.open.lock().clear();
    }

    pub fn len(&self) -> usize {
        self.open.lock().len()
    }

    fn close_unused(&self, open: &mut HashMap<i64, OpenCursor>) {
        open.retain(|_, cursor| cursor.used.elapsed() < self.timeout);
    }
}
