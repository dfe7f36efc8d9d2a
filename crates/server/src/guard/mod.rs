//! Middleware in front of the handlers, outermost first.
//!
//! [`observe`] counts and logs every reply, [`host`] rejects foreign host names, [`auth`] finds out who calls,
//! [`permissions`] refuses what the caller may not do, [`concurrency`] limits concurrent requests.

pub(crate) mod auth;
pub(crate) mod concurrency;
pub(crate) mod host;
pub(crate) mod observe;
pub(crate) mod permissions;
