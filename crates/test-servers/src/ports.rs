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

/// First ports among which [`PortRange::reserve`] chooses: below those that the system gives to clients. The controller of
/// Kafka listens 10,000 below its broker.
const RANGES: std::ops::Range<u16> = 22_100..31_000;
/// Ports that `scripts/servers.sh` takes.
const RANGE: u16 = 100;

/// 100 ports for servers that `scripts/servers.sh` starts. They belong to this value while it lives: other tests of this
/// process, and other processes, choose others, although nothing may listen on them yet.
#[derive(Debug)]
pub struct PortRange {
    first: u16,
    /// Listens on the last port, which no server takes.
    _claim: TcpListener,
}

impl PortRange {
    /// Reserves 100 ports on which nothing listens.
    ///
    /// # Panics
    ///
    /// All ranges are taken.
    pub fn reserve() -> Self {
        let count = (RANGES.end - RANGES.start) / RANGE;
        let start = (std::process::id() % u32::from(count)) as u16;
        (0..count)
            .find_map(|n| Self::claim(RANGES.start + (start + n) % count * RANGE))
            .unwrap_or_else(|| panic!("something listens in each 100 ports from {} on", RANGES.start))
    }

    fn claim(first: u16) -> Option<Self> {
        let listen = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok();
        let last = first + RANGE - 1;
        let claim = listen(last)?;
        let is_free = (first..last).chain([first - 10_000]).all(|port| listen(port).is_some());
        is_free.then_some(Self { first, _claim: claim })
    }

    /// First of the ports.
    pub fn first(&self) -> u16 {
        self.first
    }
}

#[test]
fn each_call_returns_another_port() {
    let mut ports: Vec<u16> = (0..100).map(|_| free_port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 100);
}

#[test]
fn ranges_that_live_are_apart() {
    let first = PortRange::reserve();
    let second = PortRange::reserve();
    assert!(first.first().abs_diff(second.first()) >= RANGE, "{first:?} {second:?}");
}
