//! Real servers, and a network with faults to those that speak HTTP, for the tests of other crates.

mod faulty_http;
mod ports;
mod servers;

pub use faulty_http::{FaultCounts, FaultyHttp, Outage, ReceivedRequest};
pub use ports::{PortRange, free_port};
pub use servers::{OwnServer, SharedServer, own, shared};
