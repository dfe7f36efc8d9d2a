//! Listeners over real sockets, with a protocol of lines.

mod bind;
mod client_certificates;
mod drain;
mod limits;
mod lines;
mod tls;
