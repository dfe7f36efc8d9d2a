//! Commands that find documents.

pub(crate) mod count;
pub(crate) mod distinct;
pub(crate) mod explain;
pub(crate) mod find;
pub(crate) mod order;
pub(crate) mod return_key;
