//! Ports for servers of tests.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

/// Ports below those that the system gives to connections, and apart from those of `scripts/servers.sh`: a connection of
/// another test cannot take one between the search for it and its use.
const FIRST: u16 = 31_050;
const COUNT: u16 = 1_700;

/// Returns a port on which nothing listens. Within a process each call returns another one.
///
/// # Panics
///
/// All ports are taken.
pub fn free_port() -> u16 {
    static CALLS: AtomicU16 = AtomicU16::new(0);
    // processes begin at different places
    let start = (std::process::id() % 17) as u16 * 100;
    for _ in 0..COUNT {
        let call = CALLS.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = FIRST + (start + call) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("every port from {FIRST} to {} is taken", FIRST + COUNT - 1);
}

#[test]
fn each_call_returns_another_port() {
    let mut ports: Vec<u16> = (0..100).map(|_| free_port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 100);
}
