//! What all connections share, and what a command gets of it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Instant;

use bson::Timestamp;
use bson::oid::ObjectId;
use bson::raw::RawDocumentBuf;
use parking_lot::Mutex;
use tidemill_access::{Access, Principal};
use tidemill_engine::Engine;
use tidemill_gateway::MessageMemory;
use tokio::sync::watch;

use crate::auth::Credentials;
use crate::cursors::Cursors;
use crate::documents::Documents;
use crate::error::{CommandError, WriteError};
use crate::fail_points::FailPoints;
use crate::moments::Moments;
use crate::operations::Operations;
use crate::options::MongoOptions;
use crate::profiler::Profiler;
use crate::sessions::ClientSessions;

/// State shared by all connections.
pub(crate) struct MongoServerState {
    /// The engine itself. Commands read and write through [`Shared::engine`].
    pub whole_engine: Arc<Engine>,
    pub options: MongoOptions,
    /// `None` if no login is required.
    pub credentials: Option<Credentials>,
    pub cursors: Cursors,
    pub sessions: ClientSessions,
    pub moments: Moments,
    pub operations: Operations,
    pub profiler: Profiler,
    /// `None` on a server that was not started for tests of drivers.
    pub fail_points: Option<FailPoints>,
    pub message_memory: Arc<MessageMemory>,
    /// Id of this process in `topologyVersion`.
    pub process: ObjectId,
    pub started: Instant,
    cluster_time: Mutex<Timestamp>,
    connections: AtomicUsize,
    next_connection: AtomicI32,
    ticks: AtomicUsize,
    /// Number of the content of the file of users, for connections that wait. It changes at a tick.
    access_generation: watch::Sender<u64>,
}

/// Ticks between two looks for idle cursors and sessions, about ten seconds.
const TICKS_OF_IDLE_CHECK: usize = 10;

/// A connection that is counted as open until this is dropped.
pub(crate) struct CountedConnection<'a> {
    /// Number of the connection.
    pub id: i32,
    open: &'a AtomicUsize,
}

impl Drop for CountedConnection<'_> {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Environment of a command.
pub(crate) struct Shared {
    server: Arc<MongoServerState>,
    /// The documents that it reads and writes.
    pub engine: Documents,
    /// Fields of the error of the command besides code and message.
    error_details: Mutex<Option<RawDocumentBuf>>,
}

impl Shared {
    pub fn new(server: Arc<MongoServerState>, engine: Documents) -> Self {
        Self { server, engine, error_details: Mutex::default() }
    }

    /// Returns the error with which the command ends; its details are in the reply, too.
    pub fn fail(&self, error: WriteError) -> CommandError {
        *self.error_details.lock() = Some(error.details).filter(|details| !details.is_empty());
        error.error
    }

    /// Takes the details of the error of the command.
    pub fn take_error_details(&self) -> Option<RawDocumentBuf> {
        self.error_details.lock().take()
    }
}

impl Deref for Shared {
    type Target = MongoServerState;

    fn deref(&self) -> &MongoServerState {
        &self.server
    }
}

impl MongoServerState {
    pub fn new(engine: Arc<Engine>, options: MongoOptions) -> Self {
        Self {
            credentials: Credentials::new(options.password.as_deref(), options.access.clone()),
            cursors: Cursors::new(&options),
            sessions: ClientSessions::default(),
            moments: Moments::default(),
            operations: Operations::new(&options),
            profiler: Profiler::default(),
            fail_points: options.test_commands.then(FailPoints::default),
            message_memory: MessageMemory::new(options.message_memory_max),
            process: ObjectId::new(),
            whole_engine: engine,
            options,
            started: Instant::now(),
            cluster_time: Mutex::new(Timestamp { time: 0, increment: 0 }),
            connections: AtomicUsize::new(0),
            next_connection: AtomicI32::new(1),
            ticks: AtomicUsize::new(0),
            access_generation: watch::channel(0).0,
        }
    }

    /// Returns the client where no login is required.
    pub fn open_principal(&self) -> Option<Principal> {
        self.credentials.is_none().then(Principal::local)
    }

    /// Returns the present time of the log: every change that was answered has an earlier one or the same.
    pub fn cluster_time(&self) -> Timestamp {
        let now = timestamp(self.whole_engine.now());
        let mut last = self.cluster_time.lock();
        if (now.time, now.increment) > (last.time, last.increment) {
            *last = now;
        }
        *last
    }

    /// Closes idle cursors and sessions, and forgets idle moments.
    pub fn close_idle(&self) {
        self.cursors.close_idle();
        self.sessions.close_idle();
        self.moments.close_idle();
    }

    /// Does what is due without a client, about once a second: closes what is idle, and what users and passwords that have changed
    /// have begun.
    pub fn tick(&self) {
        if self.ticks.fetch_add(1, Ordering::Relaxed).is_multiple_of(TICKS_OF_IDLE_CHECK) {
            self.close_idle();
        }
        if let Some(access) = &self.options.access {
            self.follow(access);
        }
    }

    /// Ends what clients have begun who would not be let in any more, if users have changed.
    fn follow(&self, access: &Access) {
        let generation = access.generation();
        // told first: a connection that opens something later has been renewed by then
        let is_new = self
            .access_generation
            .send_if_modified(|known| std::mem::replace(known, generation) != generation);
        if is_new {
            let is_gone = |principal: &Principal| access.renew(principal).is_none();
            self.operations.end_of(is_gone);
            self.cursors.close_of(is_gone);
            self.sessions.end_of(is_gone);
        }
    }

    /// Returns a receiver that hears when users, passwords or grants have changed.
    pub fn access_changes(&self) -> watch::Receiver<u64> {
        self.access_generation.subscribe()
    }

    /// Counts a new connection.
    pub fn open_connection(&self) -> CountedConnection<'_> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let id = self.next_connection.fetch_add(1, Ordering::Relaxed);
        CountedConnection { id, open: &self.connections }
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Returns a time of the log as drivers know it: seconds, and microseconds as the increment.
pub(crate) fn timestamp(time: tidemill_types::Timestamp) -> Timestamp {
    let seconds = u32::try_from(time.0.div_euclid(1_000_000)).unwrap_or(0);
    Timestamp { time: seconds, increment: u32::try_from(time.0.rem_euclid(1_000_000)).unwrap_or(0) }
}
