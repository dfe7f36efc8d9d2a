//! Change streams: iterators over the changes of documents by all writers.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, DateTime, Document, Timestamp, doc};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidemill_docs::DocBytes;
use tokio::sync::watch::Receiver;

use super::core::{Core, decode, unexpected};
use super::error::{Error, Result};
use super::options::{FullDocumentBeforeChangeType, FullDocumentType};
use super::setters::setters;
use crate::cursors::{ChangeSource, CursorSource};

/// Changes and what they consist of, as the driver has them in its module of this name.
pub mod event {
    pub use super::{ChangeNamespace, ChangeStreamEvent, OperationType, ResumeToken, UpdateDescription};
}

/// Changes that are read from the engine at once.
const BATCH_MAX: usize = 1000;
/// Interval at which a waiting iterator checks whether the engine has stopped, as it gets no notification of
/// that.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Position in a change stream. It can be stored by serde, and is the same over the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResumeToken(Document);

/// A change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ChangeStreamEvent<T> {
    /// The position after it, for [`Watch::resume_after`].
    #[serde(rename = "_id")]
    pub id: ResumeToken,
    /// Kind of the change.
    pub operation_type: OperationType,
    /// The collection; none for the end of the stream.
    pub ns: Option<ChangeNamespace>,
    /// `{_id}` of the document.
    pub document_key: Option<Document>,
    /// Changed fields, for an update.
    pub update_description: Option<UpdateDescription>,
    /// Time of the change: seconds, and microseconds as the increment.
    pub cluster_time: Option<Timestamp>,
    /// The same time with milliseconds.
    pub wall_time: Option<DateTime>,
    /// The document that was inserted or replaced another one, or that [`Watch::full_document`] asks for.
    pub full_document: Option<T>,
    /// The document before the change, if [`Watch::full_document_before_change`] asks for it.
    pub full_document_before_change: Option<T>,
}

/// Kind of a change to a document or a collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum OperationType {
    /// A document was inserted.
    Insert,
    /// It was updated by operators or a pipeline.
    Update,
    /// It was replaced.
    Replace,
    /// It was deleted.
    Delete,
    /// The collection was dropped.
    Drop,
    /// The collection got another name.
    Rename,
    /// The database was dropped, which is not told yet: each of its collections is.
    DropDatabase,
    /// The stream of a collection ends, because that was dropped or has another name.
    Invalidate,
    /// Something else.
    #[serde(untagged)]
    Other(String),
}

/// The collection of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChangeNamespace {
    /// Name of the database.
    pub db: String,
    /// Name of the collection.
    pub coll: Option<String>,
}

/// Fields that an update changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct UpdateDescription {
    /// Fields with their new values, by dotted path.
    pub updated_fields: Document,
    /// Paths of fields that are gone.
    pub removed_fields: Vec<String>,
}

/// Follows changes: [`Collection::watch`](super::Collection::watch), [`Database::watch`](super::Database::watch) and
/// [`Client::watch`](super::Client::watch).
#[must_use]
pub struct Watch<T> {
    core: Arc<Core>,
    database: String,
    /// Name of a collection, or 1.
    target: Bson,
    options: Document,
    stages: Vec<Document>,
    await_time: Option<Duration>,
    types: PhantomData<fn() -> T>,
}

impl<T> Watch<T> {
    pub(super) fn new(core: Arc<Core>, database: &str, target: Bson, options: Document) -> Self {
        let database = database.to_owned();
        Self { core, database, target, options, stages: Vec::new(), await_time: None, types: PhantomData }
    }

    setters! {
        /// Version of the document that is reported with an update, besides the changed fields.
        full_document: FullDocumentType => "fullDocument", Bson::from;
        /// Reports the document before the change.
        full_document_before_change: FullDocumentBeforeChangeType => "fullDocumentBeforeChange", Bson::from;
        /// Begins at a time instead of now.
        start_at_operation_time: Timestamp => "startAtOperationTime", Bson::from;
        /// Begins after a token instead of now.
        start_after: ResumeToken => "startAfter", |token: ResumeToken| token.0;
    }

    /// Begins after a token instead of now.
    pub fn resume_after(mut self, token: impl Into<Option<ResumeToken>>) -> Self {
        self.options.extend(token.into().map(|token| ("resumeAfter".to_owned(), token.0.into())));
        self
    }

    /// Sets the stages that each change passes: `$match`, `$project`, `$addFields`, `$set`, `$unset`, `$replaceRoot` and
    /// `$replaceWith`.
    pub fn pipeline(mut self, stages: impl IntoIterator<Item = Document>) -> Self {
        self.stages = stages.into_iter().collect();
        self
    }

    /// Sets how long [`ChangeStream::next_if_any`] waits for a change. Without it, it does not wait.
    pub fn max_await_time(mut self, time: Duration) -> Self {
        self.await_time = Some(time);
        self
    }

    /// Number of changes that a driver fetches at once. Ignored.
    pub fn batch_size(self, _changes: u32) -> Self {
        self
    }

    /// Begins to follow. The first stream makes the engine keep changes from then on.
    ///
    /// Errors: an option or a stage is wrong; the changes after the token are gone, with code 286.
    pub fn run(self) -> Result<ChangeStream<T>> {
        let stages: Vec<Document> =
            std::iter::once(doc! { "$changeStream": self.options }).chain(self.stages).collect();
        // subscribed first, so that no change is missed between reading and waiting
        let published = self.core.engine().changes_published();
        // a first batch without changes leaves the cursor as it begins
        let command = doc! { "aggregate": self.target, "pipeline": stages, "cursor": { "batchSize": 0 } };
        let reply = self.core.run(&self.database, None, command)?;
        let Some(CursorSource::Changes(changes)) = self.core.take_cursor(&reply)? else {
            return Err(unexpected("a change stream has no cursor"));
        };
        let token =
            reply.get_document("cursor").and_then(|cursor| cursor.get_document("postBatchResumeToken"));
        let batch_token = ResumeToken(decode(token.map_err(unexpected)?.as_bytes())?);
        Ok(ChangeStream {
            core: self.core,
            changes: Some(changes),
            published,
            batch: VecDeque::new(),
            token: batch_token.clone(),
            batch_token,
            await_time: self.await_time.unwrap_or_default(),
            types: PhantomData,
        })
    }
}

/// Changes, as they come: an iterator that waits for the next one. It ends when the collection that it follows is dropped, and after
/// an error. It blocks its thread; a program with asynchronous tasks gives it a thread of its own.
pub struct ChangeStream<T> {
    core: Arc<Core>,
    /// `None` when it has ended.
    changes: Option<Box<dyn ChangeSource>>,
    published: Receiver<()>,
    /// Changes that were read from the engine.
    batch: VecDeque<DocBytes>,
    /// Position after that batch.
    batch_token: ResumeToken,
    /// Position after the last change that was returned.
    token: ResumeToken,
    await_time: Duration,
    types: PhantomData<fn() -> T>,
}

impl<T> ChangeStream<T> {
    /// Returns the token with which another stream resumes after the last change that this one returned. It
    /// advances even if nothing happens here, so that it stays valid.
    pub fn resume_token(&self) -> Option<ResumeToken> {
        Some(self.token.clone())
    }

    /// Returns whether changes may come.
    pub fn is_alive(&self) -> bool {
        self.changes.is_some() || !self.batch.is_empty()
    }

    /// Returns the same stream with another type of changes, such as what its pipeline makes of them.
    pub fn with_type<U>(self) -> ChangeStream<U> {
        let Self { core, changes, published, batch, batch_token, token, await_time, .. } = self;
        ChangeStream { core, changes, published, batch, batch_token, token, await_time, types: PhantomData }
    }

    /// Returns the bytes of the next change; `None` if none arrives before `deadline`, or if the stream has
    /// ended.
    fn take(&mut self, deadline: Option<Instant>) -> Result<Option<DocBytes>> {
        loop {
            if let Some(change) = self.batch.pop_front() {
                self.token = match RawDocument::from_bytes(&change)?.get("_id")? {
                    Some(RawBsonRef::Document(token)) if !self.batch.is_empty() => {
                        ResumeToken(decode(token.as_bytes())?)
                    }
                    _ => self.batch_token.clone(),
                };
                return Ok(Some(change));
            }
            let Some(changes) = &mut self.changes else { return Ok(None) };
            self.published.mark_unchanged();
            let (batch, token) = changes.next(self.core.engine(), BATCH_MAX)?;
            self.batch_token = ResumeToken(decode(token.as_bytes())?);
            self.batch.extend(batch);
            let at_end = changes.is_at_end();
            if changes.has_ended() {
                self.changes = None;
            }
            if !self.batch.is_empty() {
                continue;
            }
            self.token = self.batch_token.clone();
            if self.changes.is_none() {
                return Ok(None);
            }
            // a stream that has read only changes of others continues at once
            if at_end && !self.wait(deadline)? {
                return Ok(None);
            }
        }
    }

    /// Waits until there may be something new. Returns whether there may be.
    ///
    /// Errors: the engine has stopped.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<bool> {
        loop {
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(false);
            }
            if self.core.engine().is_stopping() {
                return Err(tidemill_types::Error::unavailable("the engine has stopped").into());
            }
            let check = now + STOP_CHECK_INTERVAL;
            if wait_until(&mut self.published, deadline.map_or(check, |deadline| deadline.min(check))) {
                return Ok(true);
            }
        }
    }
}

impl<T: DeserializeOwned> ChangeStream<T> {
    /// Returns the next change if there is one by now, or within [`Watch::max_await_time`].
    ///
    /// Errors: as those of the iterator.
    pub fn next_if_any(&mut self) -> Result<Option<T>> {
        let deadline = Instant::now() + self.await_time;
        self.next_until(Some(deadline))
    }

    fn next_until(&mut self, deadline: Option<Instant>) -> Result<Option<T>> {
        match self.take(deadline) {
            Ok(change) => change.map(|change| decode(&change)).transpose(),
            Err(error) => {
                self.changes = None;
                Err(error)
            }
        }
    }
}

impl<T: DeserializeOwned> Iterator for ChangeStream<T> {
    type Item = Result<T, Error>;

    /// Returns the next change, and waits for it. Errors: changes are gone before they were read, with code 286; the change has not
    /// the fields of `T`; the engine has stopped, with code 6.
    fn next(&mut self) -> Option<Result<T>> {
        self.next_until(None).transpose()
    }
}

impl<T> std::fmt::Debug for ChangeStream<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeStream").field("token", &self.token).finish_non_exhaustive()
    }
}

/// Wakes a thread that waits in [`wait_until`].
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits until `published` hears of something, or the deadline. Returns whether it has heard. It needs no runtime, so that any thread
/// can wait, also one of a runtime.
fn wait_until(published: &mut Receiver<()>, deadline: Instant) -> bool {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut changed = std::pin::pin!(published.changed());
    loop {
        if let Poll::Ready(heard) = changed.as_mut().poll(&mut Context::from_waker(&waker)) {
            // the sender lives as long as the engine
            return heard.is_ok();
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        std::thread::park_timeout(left);
    }
}
