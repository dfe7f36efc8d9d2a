//! The server over real sockets, on a real engine in a temporary directory.

mod auth;
mod bodies;
mod cases;
mod columns;
mod documents;
mod events;
mod harness;
mod http2;
mod line_protocol;
mod load;
mod openapi;
mod pages;
mod shutdown;
mod sql;
mod statements;
mod system;
mod telemetry;
mod tls;
