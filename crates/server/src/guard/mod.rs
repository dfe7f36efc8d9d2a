//! What a request passes before a handler sees it, outermost first.
//!
//! [`observe`] counts and logs every reply, [`host`] refuses names that are not ours, [`auth`] asks for the token,
//! [`load`] keeps the number of requests that are worked on below its limit.

pub(crate) mod auth;
pub(crate) mod host;
pub(crate) mod load;
pub(crate) mod observe;
