//! Commands that change documents.

pub(crate) mod bulk_write;
pub(crate) mod delete;
pub(crate) mod find_and_modify;
pub(crate) mod insert;
pub(crate) mod let_variables;
pub(crate) mod update;
pub(crate) mod write;
pub(crate) mod write_concern;
