//! The server over real sockets, on a real engine in a temporary directory.

mod auth;
mod bodies;
mod cases;
mod documents;
mod events;
mod harness;
mod load;
mod openapi;
mod shutdown;
mod sql;
mod statements;
mod system;
mod tls;
