//! Results that a client takes page by page.
//!
//! ```text
//! request, 1,000 rows a page ─▶ page 1 ─▶ the statement rests ─▶ page 2 ─▶ … ─▶ last page
//! ```
//!
//! The statement runs over the moment at which it began, however late a page is asked for. Between two pages it uses no processor and
//! no place among the statements that run for long.

use bytes::Bytes;
use futures::future::BoxFuture;
use tidemill_types::Result;

use crate::ResultColumn;

/// A statement whose rows are taken page by page.
pub struct PagedReply {
    /// Columns in order.
    pub columns: Vec<ResultColumn>,
    /// Number of the statement in `system.statements`.
    pub statement: u64,
    /// Pages in order.
    pub pages: Box<dyn PageStream>,
}

/// Pages of a statement. Dropping it cancels the statement.
pub trait PageStream: Send {
    /// Returns the next page. Every page is whole in its format, with a header line or a schema of its own. After the last page it must not
    /// be called again. Dropping the future loses the page.
    ///
    /// Errors: those of the statement; `LimitReached` when it keeps more memory between two pages than it may. The first error ends it.
    fn next_page(&mut self) -> BoxFuture<'_, Result<Page>>;

    /// Returns whether the statement has been ended from outside, so that the next page is an error. Does not wait.
    fn has_ended(&self) -> bool;
}

/// Some rows of a result in a format.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Output in pieces.
    pub pieces: Vec<Bytes>,
    /// True if no rows follow.
    pub is_last: bool,
}
