//! The data directory: its lock and identity, the deployed app, the key ring, and the places of log and tables.

pub mod datadir;
pub mod encryption;
pub mod environment;
pub mod log_id;
pub mod origin;
pub mod partition_store;
pub mod partitioning;
pub mod tables_location;
