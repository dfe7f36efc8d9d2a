//! Commands on indexes.

pub(crate) mod hint;
pub(crate) mod index_spec;
pub(crate) mod indexes;
pub(crate) mod search_indexes;
