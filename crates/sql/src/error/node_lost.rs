//! The loss of a node that executes a part of a statement.

use std::error::Error as StdError;
use std::fmt;

use datafusion::error::DataFusionError;
use tidemill_types::Error;

/// A node that could not be asked, or that was lost before it had sent all of its rows.
#[derive(Debug)]
pub(crate) struct NodeLost(String);

impl NodeLost {
    /// Creates the error for a node that is lost for this reason.
    pub fn of(node: &str, why: &Error) -> Self {
        Self(format!("node {node} was lost while it executed a part of the statement: {why}"))
    }

    /// Returns the error for the reader of the statement.
    pub fn error(&self) -> Error {
        Error::unavailable(self.0.clone())
    }
}

impl fmt::Display for NodeLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for NodeLost {}

impl From<NodeLost> for DataFusionError {
    fn from(lost: NodeLost) -> Self {
        Self::External(Box::new(lost))
    }
}
