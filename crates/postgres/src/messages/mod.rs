//! Messages of the protocol.

pub(crate) mod input;
pub(crate) mod output;
pub(crate) mod wire;
