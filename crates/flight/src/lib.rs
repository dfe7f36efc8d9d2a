//! Arrow Flight SQL, so that ADBC, JDBC, pyarrow and the clients of InfluxDB 3 reach a [`tidemill_database::Database`]. Rows travel as Arrow
//! batches in both directions.
//!
//! ```text
//! GetFlightInfo(SELECT …)   statement ── describe ──▶ columns, and a signed ticket with the statement in it
//! DoGet(ticket)             statement ── query ─────▶ batches, as they are computed
//! DoPut(stream, batches)    put ── Arrow IPC stream ▶ send, acknowledged as over HTTP
//! ```
//!
//! [`FlightSql`] is a service for requests of HTTP/2: the server of HTTP serves it on its own port, and [`FlightFrontEnd`] on listeners of its
//! own. A call passes, from the outside in: its login, the limit of calls, the limits of its body ([`mod@self`]'s `grpc` and `request_body`), and
//! then `service`, which decodes its message. `statement` runs SQL, `reply` sends rows, `put` takes batches, `catalog` answers for tables
//! from `information_schema`.
//!
//! The crate knows neither the language nor the engine behind the database.

mod actions;
mod catalog;
mod command;
mod error;
mod flights;
mod grpc;
mod login;
mod messages;
mod options;
mod prepared;
mod put;
mod reply;
mod reply_body;
mod request_body;
mod running;
mod server;
mod service;
mod shared;
mod statement;
mod ticket;
mod wire;

pub use grpc::FlightSql;
pub use options::FlightOptions;
pub use server::FlightFrontEnd;
