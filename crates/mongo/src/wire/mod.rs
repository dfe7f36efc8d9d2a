//! The wire protocol: connections, messages and replies.

pub(crate) mod api_version;
pub(crate) mod connection;
pub(crate) mod error_labels;
pub(crate) mod frame;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub(crate) mod reply;
pub(crate) mod server;
