//! SQL over PostgreSQL's wire protocol (version 3), so that its drivers and tools reach a [`tidemill_database::Database`].
//!
//! ```text
//! SELECT …        front end ── text, values of $1, $2, … ──▶ Database ── Arrow batches ──▶ encode ──▶ DataRow
//! INSERT …        front end ── text, values ──▶ Database: rows that are checked ──▶ until the transaction ends ──▶ Database
//! SET, SHOW, BEGIN, PREPARE, DECLARE, FETCH, COPY: the front end itself
//! ```
//!
//! A connection is a task that reads one message after the other. [`mod@self`]'s `input` decodes them and `output` encodes the replies,
//! both without a socket; `command` tells the statements that the front end answers from those of the database; `portal` has
//! the rows of a statement, which a client may take a few at a time; `encode` writes columns as text or in the binary format.
//!
//! The crate knows neither the language nor the engine behind the database.

mod cancel;
mod command;
mod connection;
mod copy;
mod copy_in;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod lexer;
mod login;
mod messages;
mod options;
mod pending;
mod portal;
mod server;
mod session;
mod settings;
mod shared;
mod statement;
mod values;

pub use options::PostgresOptions;
pub use server::PostgresFrontEnd;
