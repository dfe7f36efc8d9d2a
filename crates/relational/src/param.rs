//! What goes to a server and what comes back.

use tidemill_types::{FieldType, Value};

/// Value of a parameter of a statement.
#[derive(Debug, Clone)]
pub struct Param<'v> {
    /// Type as which it is sent.
    pub ty: FieldType,
    /// Value; `Missing` is NULL.
    pub value: Value<'v>,
}

/// Outcome of a bulk load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadOutcome {
    /// All rows are in the table.
    Loaded,
    /// The server has left rows out or changed values: the transaction must be rolled back to where it was.
    Doubtful,
    /// The server does not allow it.
    Forbidden,
}
