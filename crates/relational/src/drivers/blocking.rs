//! Connections of libraries that block: each has a thread of its own.

use std::sync::mpsc;

use tokio::sync::oneshot;

use crate::error::DbError;

type ConnectionJob<C> = Box<dyn FnOnce(&mut C) + Send>;

/// A connection on its thread, which ends when this value is dropped.
pub struct BlockingConnection<C> {
    jobs: mpsc::Sender<ConnectionJob<C>>,
}

impl<C: 'static> BlockingConnection<C> {
    /// Opens a connection on a new thread with this name.
    ///
    /// Errors: those of `open`.
    pub async fn open(
        thread: &str,
        open: impl FnOnce() -> Result<C, DbError> + Send + 'static,
    ) -> Result<Self, DbError> {
        let (jobs, queue) = mpsc::channel::<ConnectionJob<C>>();
        let (opened, is_open) = oneshot::channel();
        let work = move || {
            let mut connection = match open() {
                Ok(connection) => connection,
                // if the answer cannot be sent, no one waits for it any more
                Err(e) => return drop(opened.send(Err(e))),
            };
            drop(opened.send(Ok(())));
            while let Ok(job) = queue.recv() {
                job(&mut connection);
            }
        };
        let thread = std::thread::Builder::new().name(thread.into()).spawn(work);
        thread.map_err(|e| DbError::unavailable(format!("the system gives no thread: {e}")))?;
        is_open.await.map_err(|_| ended())??;
        Ok(Self { jobs })
    }

    /// Calls `work` on the thread of the connection.
    ///
    /// Errors: those of `work`.
    pub async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut C) -> Result<T, DbError> + Send + 'static,
    ) -> Result<T, DbError> {
        let (answer, result) = oneshot::channel();
        let job: ConnectionJob<C> = Box::new(move |connection| drop(answer.send(work(connection))));
        self.jobs.send(job).map_err(|_| ended())?;
        result.await.map_err(|_| ended())?
    }
}

fn ended() -> DbError {
    DbError::unavailable("the connection is closed")
}
