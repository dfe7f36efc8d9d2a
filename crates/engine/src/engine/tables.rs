//! Work on stored events that callers ask for.

use tidemill_types::{Error, Result};
use tidemill_zones::{Rewritten, RowRewriter};

use super::Engine;
use crate::jobs;

impl Engine {
    /// Flushes tails and merges small tablets of all tables until nothing is left to do, instead of in the
    /// background.
    ///
    /// Errors: `Unavailable` when the object store does not answer; `Corrupt` naming a damaged tablet.
    pub fn consolidate(&self) -> Result<()> {
        self.flush()?;
        let node = &self.node;
        node.app.tables.writable().try_for_each(|(_, table)| jobs::consolidation::consolidate(node, table))
    }

    /// Deletes or changes stored events of a stream, in one commit. Events that were acknowledged before are covered.
    /// The ledger counts deleted events as removed; rules, queries and their state stay as they are.
    ///
    /// Errors: `NotFound` for an unknown stream; those of `rewriter` and of [`tidemill_zones::Table::rewrite`]. Nothing
    /// is changed then, unless the error says that the outcome is not known.
    pub fn rewrite_events(&self, stream: &str, rewriter: RowRewriter) -> Result<Rewritten> {
        let tables = &self.node.app.tables;
        let Some(table) = tables.by_name(stream) else {
            let names = self.stream_names();
            let hint = tidemill_types::did_you_mean(stream, names.iter().map(String::as_str));
            return Err(Error::not_found(format!("there is no stream `{stream}`")).with_hint(hint));
        };
        self.catch_up()?;
        self.flush()?;
        self.node.host.runtime.block_on(table.rewrite(rewriter))
    }
}
