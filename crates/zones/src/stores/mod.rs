//! Object stores and what is kept in them beside tables.

pub(crate) mod checked;
pub(crate) mod durable;
pub(crate) mod location;
pub(crate) mod object_directory;
pub(crate) mod retry;
pub(crate) mod shared_file;
#[cfg(feature = "sim")]
pub mod sim_store;
pub(crate) mod store_options;
