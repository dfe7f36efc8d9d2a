//! Statements as text cases. What needs a server is tested with the connectors.

mod expressions;
mod statements;
mod tables;
