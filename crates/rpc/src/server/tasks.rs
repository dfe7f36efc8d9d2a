//! Tasks of a connection, which end with it.

use std::sync::{Arc, Weak};

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::task::JoinSet;

/// Tasks of a connection, one for each request. Dropping it ends them, so that a connection which the gateway closes leaves none.
#[derive(Debug, Default)]
pub(super) struct ConnectionTasks(Arc<Mutex<JoinSet<()>>>);

/// Starts tasks of a connection as long as it is there. Tasks own such values, so these must not own the tasks.
#[derive(Debug, Clone)]
pub(super) struct ConnectionExecutor(Weak<Mutex<JoinSet<()>>>);

impl ConnectionTasks {
    pub fn executor(&self) -> ConnectionExecutor {
        ConnectionExecutor(Arc::downgrade(&self.0))
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for ConnectionExecutor {
    fn execute(&self, task: F) {
        let Some(tasks) = self.0.upgrade() else { return };
        let mut tasks = tasks.lock();
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "a call of another node hit a defect");
            }
        }
        tasks.spawn(task);
    }
}
