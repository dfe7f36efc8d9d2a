//! Commands that ask a data directory or a running server.

pub(crate) mod columns;
pub(crate) mod explain;
pub(crate) mod query;
pub(crate) mod repl;
pub(crate) mod sql;
pub(crate) mod statements;
pub(crate) mod tap;
pub(crate) mod why;
