//! What a request passes before a handler sees it, outermost first.
//!
//! [`observe`] counts and logs every reply, [`host`] refuses names that are not ours, [`auth`] asks for the token,
//! [`concurrency`] keeps the number of requests that are worked on below its limit.

pub(crate) mod auth;
pub(crate) mod concurrency;
pub(crate) mod host;
pub(crate) mod observe;
