//! What the writers of all formats have in common.

use std::io::{BufWriter, Write};

use arrow_array::RecordBatch;
use tidemill_types::Result;

/// Write buffer size in bytes.
pub(crate) const WRITE_BYTES: usize = 256 << 10;

/// Buffered output of a writer.
pub(crate) type FileOutput = BufWriter<Box<dyn Write + Send>>;

/// Writer of one format.
pub(crate) trait EventWriter: Send {
    /// Writes a batch of the declared fields.
    fn write(&mut self, batch: &RecordBatch) -> Result<()>;
    /// Writes buffered data and the end of a container.
    fn finish(self: Box<Self>) -> Result<()>;
}
