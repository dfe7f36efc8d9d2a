//! What goes wrong during a run, and when.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::app::Places;
use crate::program::Program;
use crate::servers::{NAMES, Servers};

/// Kind of a fault.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// The program is killed.
    KillProgram,
    /// A server is killed. Mosquitto is stopped instead: it stores what it has acknowledged only when it stops.
    KillServer(&'static str),
    /// A server is stopped and started.
    RestartServer(&'static str),
    /// A server stands still.
    PauseServer(&'static str),
    /// Connections to a server are cut after so many bytes.
    CutNetwork(usize, i64),
    /// The network to a server stands still.
    StallNetwork(usize),
}

/// One fault.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    at: Duration,
    kind: Kind,
    /// Duration of the fault.
    pause: Duration,
}

/// Faults of a run, in order of time.
pub struct Plan {
    pub faults: Vec<Fault>,
}

/// Servers behind a proxy, in the order of [`Places::proxies`].
const PROXIED: [&str; 4] = ["postgres", "mariadb", "mosquitto", "redis"];

impl Plan {
    /// Plans faults within `span`.
    pub fn new(seed: u64, count: usize, span: Duration) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut fault = || {
            let server = NAMES[random.random_range(0..NAMES.len())];
            let proxy = random.random_range(0..PROXIED.len());
            let kind = match random.random_range(0..10) {
                0..3 => Kind::KillProgram,
                3..5 if server == "mosquitto" => Kind::RestartServer(server),
                3..5 => Kind::KillServer(server),
                5 => Kind::RestartServer(server),
                6 => Kind::PauseServer(server),
                7..9 => Kind::CutNetwork(proxy, random.random_range(0..60_000)),
                _ => Kind::StallNetwork(proxy),
            };
            Fault {
                at: span.mul_f64(random.random_range(0.0..1.0)),
                kind,
                pause: Duration::from_millis(random.random_range(1..800)),
            }
        };
        let mut faults: Vec<Fault> = (0..count).map(|_| fault()).collect();
        faults.sort_by_key(|fault| fault.at);
        Self { faults }
    }
}

impl Fault {
    /// Returns what happens to whom.
    pub fn name(&self) -> String {
        match self.kind {
            Kind::KillProgram => "program killed".into(),
            Kind::KillServer(server) => format!("{server} killed"),
            Kind::RestartServer(server) => format!("{server} restarted"),
            Kind::PauseServer(server) => format!("{server} paused"),
            Kind::CutNetwork(proxy, _) => format!("network to {} cut", PROXIED[proxy]),
            Kind::StallNetwork(proxy) => format!("network to {} stalled", PROXIED[proxy]),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<String> = self
            .faults
            .iter()
            .map(|fault| format!("{:.1} s {}", fault.at.as_secs_f64(), fault.name()))
            .collect();
        f.write_str(&faults.join(", "))
    }
}

/// Lets the faults of a plan happen, one after the other.
pub fn inflict(plan: &Plan, servers: &Servers, places: &Places, program: &Program) -> Result<()> {
    let started = Instant::now();
    for fault in &plan.faults {
        std::thread::sleep(fault.at.saturating_sub(started.elapsed()));
        match fault.kind {
            Kind::KillProgram => program.kill(fault.pause)?,
            Kind::KillServer(server) => servers.kill(server, fault.pause)?,
            Kind::RestartServer(server) => servers.restart(server, fault.pause)?,
            Kind::PauseServer(server) => servers.pause(server, fault.pause)?,
            Kind::CutNetwork(proxy, bytes) => places.proxies[proxy].1.cut(bytes, fault.pause),
            Kind::StallNetwork(proxy) => places.proxies[proxy].1.stall(fault.pause),
        }
    }
    Ok(())
}
