//! Documents on their way into a store, and the record of their changes.

pub(crate) mod changes;
pub(crate) mod diff;
pub(crate) mod prepared;
pub(crate) mod transaction;
pub(crate) mod write_digest;
