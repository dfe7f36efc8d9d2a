//! Commands for the administrator of a data directory or cluster.

pub(crate) mod backup;
pub(crate) mod cluster;
pub(crate) mod errors;
pub(crate) mod keys;
pub(crate) mod tokens;
pub(crate) mod users;
