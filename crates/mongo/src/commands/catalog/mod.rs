//! Commands on collections and views as such.

pub(crate) mod coll_mod;
pub(crate) mod collection_options;
pub(crate) mod collections;
pub(crate) mod rename_collection;
pub(crate) mod system_collections;
pub(crate) mod validate;
pub(crate) mod views;
