//! What all connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Instant;

use tidemill_engine::Engine;

use crate::auth::Credentials;
use crate::cursors::Cursors;
use crate::options::MongoOptions;

/// What all connections share.
pub(crate) struct Shared {
    pub engine: Arc<Engine>,
    pub options: MongoOptions,
    /// `None` if nobody has to log in.
    pub credentials: Option<Credentials>,
    pub cursors: Cursors,
    pub started: Instant,
    connections: AtomicUsize,
    next_connection: AtomicI32,
}

impl Shared {
    pub fn new(engine: Arc<Engine>, options: MongoOptions) -> Self {
        Self {
            credentials: options.password.as_deref().map(Credentials::new),
            cursors: Cursors::new(options.cursors_max, options.cursor_timeout),
            engine,
            options,
            started: Instant::now(),
            connections: AtomicUsize::new(0),
            next_connection: AtomicI32::new(1),
        }
    }

    /// Counts a new connection. Returns its number.
    pub fn open_connection(&self) -> i32 {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.next_connection.fetch_add(1, Ordering::Relaxed)
    }

    pub fn close_connection(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}
