//! Documents over MongoDB's wire protocol, so that its drivers reach them.
//!
//! A connection is a task that reads one message after the other ([`frame`]), runs its command ([`commands`]) against the
//! engine and writes the reply. Bytes of documents pass through in both directions: they are validated, not decoded.
//!
//! The server calls itself a standalone server: it has no transactions and change streams yet, and drivers then do not offer them.

mod auth;
mod commands;
mod connection;
mod cursors;
mod error;
mod fields;
mod frame;
mod namespace;
mod options;
mod reply;
mod server;
mod session;
mod shared;
mod tail;

pub use options::MongoOptions;
pub use server::{MongoServer, serve};
