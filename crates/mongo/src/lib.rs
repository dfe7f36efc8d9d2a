//! Documents over MongoDB's wire protocol, so that its drivers reach them.
//!
//! A connection is a task that reads one message after the other (`frame`), runs its command (`commands`) against the
//! engine and writes the reply. Bytes of documents pass through in both directions: they are validated, not decoded.
//!
//! A program that has the engine in itself reaches the same documents by function calls: [`embedded`].
//!
//! The server calls itself the primary of a replica set of one member, so that drivers offer transactions, writes that they may
//! send again, and change streams.

mod auth;
mod commands;
mod cursors;
mod documents;
pub mod embedded;
mod error;
mod fail_points;
mod fields;
mod moments;
mod namespace;
mod need;
mod operations;
mod options;
mod profiler;
mod runner;
mod scripts;
mod session;
mod sessions;
mod shared;
mod tail;
mod transactions;
mod wire;

pub use options::MongoOptions;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use wire::fuzzing;
pub use wire::server::{MongoFrontEnd, MongoServer, serve};
