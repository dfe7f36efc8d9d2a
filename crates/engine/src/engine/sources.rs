//! Sources that a caller has, in addition to those of the app.

use tidemill_connect::Source;
use tidemill_types::Result;

use super::Engine;
use crate::sources;

impl Engine {
    /// Reads a source to its end, as those of the app are read: its position is stored with its rows, under its name, so that
    /// a caller that opens it at [`Self::source_position`] after a crash gets each row into the log exactly once. `stream` is
    /// the stream of rejected rows that name none.
    ///
    /// When this returns, all rows are in the log, and as durable as the setting says after [`Self::catch_up`] and
    /// [`Self::stop`].
    ///
    /// One call at a time for a name. Errors: those of the source, and why the log takes no more. The rows before are stored.
    pub fn read_source(&self, source: &mut dyn Source, stream: &str) -> Result<()> {
        // partitions know which rows they have from the records that they have applied
        self.catch_up()?;
        sources::read_to_end(&self.node, source, stream)
    }

    /// Returns the names under which positions of sources are stored.
    ///
    /// Errors: `Unavailable` while a partition cannot be asked.
    pub fn source_names(&self) -> Result<Vec<String>> {
        sources::stored_names(&self.node)
    }

    /// Returns the position at which the source `name` continues; `None` if nothing of it was read.
    ///
    /// Errors: `Unavailable` while a partition cannot be asked.
    pub fn source_position(&self, name: &str) -> Result<Option<u64>> {
        sources::stored_position(&self.node, name)
    }
}
