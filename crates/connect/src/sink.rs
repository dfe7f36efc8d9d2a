//! Where events go.

use arrow_array::RecordBatch;
use tidemill_types::Result;

use crate::ConnectorHealth;

/// Connection that takes the events of one stream out.
///
/// Threads: used by one thread at a time. Blocking is allowed.
pub trait Sink: Send {
    /// Returns its name. Its position is stored under it.
    fn name(&self) -> &str;

    /// Accepts a batch whose first columns are the fields of the stream, after those accepted before. The
    /// events may be buffered; [`Self::flush`] sends them.
    ///
    /// Errors: `Invalid` if the events cannot be represented. Never an error of the outside: the batch is
    /// accepted and the failure is reported by [`Self::flush`].
    fn write(&mut self, batch: &RecordBatch) -> Result<()>;

    /// Sends what is buffered. After an error the call may be repeated; it continues where it stopped.
    ///
    /// Errors: why the outside does not take the events.
    fn flush(&mut self) -> Result<()>;

    /// Sends what is buffered, makes everything durable, and returns the position after it. After an error
    /// the call may be repeated.
    ///
    /// Errors: those of [`Self::flush`].
    fn sync(&mut self) -> Result<SinkPosition>;

    /// Syncs and releases the connection. The position stays valid for opening the sink again.
    ///
    /// Errors: those of [`Self::flush`].
    fn close(self: Box<Self>) -> Result<SinkPosition>;

    /// Returns the approximate number of bytes that are buffered.
    fn buffered_bytes(&self) -> usize;

    /// Returns its health.
    fn health(&self) -> ConnectorHealth {
        ConnectorHealth::Working
    }
}

/// Everything that a sink needs to continue after the events written so far and to discard later ones. Its
/// bytes have a meaning for the sink only.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SinkPosition(pub Vec<u8>);
