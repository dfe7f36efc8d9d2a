//! A single event on its way through queries, without columns.

use bumpalo::Bump;

use crate::columns::batch::Batch;
use crate::columns::value_ref::ValueRef;

/// One event: its values in the order of the stream's attributes, and its timestamp.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Values of the attributes.
    pub values: &'a [ValueRef<'a>],
    /// Timestamp in milliseconds since 1970, UTC.
    pub time: i64,
}

/// An event of a query: the port at which it arrives, its values, and the clock of the app.
#[derive(Clone, Copy)]
pub(crate) struct ArrivingRow<'a> {
    pub(crate) port: usize,
    pub(crate) row: Row<'a>,
    pub(crate) clock: i64,
}

/// Output of a query for a single event.
pub(crate) enum RowOutput<'a> {
    /// Current events of one emission. `is_chunk`: whether they are one chunk, not one each.
    Rows { rows: &'a [Row<'a>], is_chunk: bool },
    /// An emission of many events, or with expired ones.
    Batch(Box<Batch>),
}

impl<'a> RowOutput<'a> {
    /// No output.
    pub(crate) const NOTHING: Self = Self::Rows { rows: &[], is_chunk: true };

    /// Creates the output of one row with these values; no output for `None`.
    #[inline]
    pub(crate) fn one(values: Option<&'a [ValueRef<'a>]>, time: i64, arena: &'a Bump) -> Self {
        match values {
            Some(values) => {
                let rows = std::slice::from_ref(arena.alloc(Row { values, time }));
                Self::Rows { rows, is_chunk: true }
            }
            None => Self::NOTHING,
        }
    }
}
