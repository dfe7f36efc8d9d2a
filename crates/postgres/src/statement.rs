//! Prepared statements.

use crate::command::Command;
use crate::values::column::Column;
use crate::values::types::ParameterType;

/// A statement that a portal may run.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// Text without the semicolon.
    pub text: String,
    pub command: Command,
    pub parameters: Vec<ParameterType>,
    /// Number of parameters in the text. A client may describe more.
    pub parameters_used: usize,
    /// Columns of its rows; `None` for a statement without rows.
    pub columns: Option<Vec<Column>>,
}

impl Prepared {
    /// Creates a statement without parameters.
    pub fn new(text: &str, command: Command, columns: Option<Vec<Column>>) -> Self {
        Self { text: text.to_owned(), command, parameters: vec![], parameters_used: 0, columns }
    }

    /// Returns the bytes that it is counted with.
    pub fn bytes(&self) -> usize {
        // the text, and for commands that have a statement in them once more
        2 * self.text.len() + 64 * (1 + self.columns.as_ref().map_or(0, Vec::len))
    }
}
