//! Calls between nodes over real sockets.

mod calls;
mod faults;
mod limits;
mod logs;
mod nodes;
mod security;
mod shutdown;
mod strangers;
mod streams;
