//! MCP over real sockets, with a scripted engine and database.

mod blocking_client;
mod fixture;
mod hostile;
mod tools;
