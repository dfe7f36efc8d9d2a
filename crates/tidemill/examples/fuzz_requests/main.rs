//! Feeds changed requests to a whole server in the same process, and reports those that it does not survive: events as JSON, CSV and
//! columns, line protocol, OTLP, remote write, InfluxQL, and calls of Flight SQL, with bodies that are compressed and frames of gRPC that are
//! wrong.
//!
//! ```text
//! cargo run --release -p tidemill --example fuzz_requests -- --seconds 600 [--seed N]
//! cargo run --release -p tidemill --example fuzz_requests -- --replay HEX
//! ```
//!
//! An input is the number of a route ([`requests::ROUTES`]), the treatment of the body ([`requests::Treatment`]), and the content. A finding is a
//! panic, the end of the process, an error that the server calls a defect, or a request of more than 10 seconds or 64 MiB, where bodies have at
//! most 1 MiB and inputs 16 KiB.

mod protobuf;
mod requests;
mod seeds;
mod server;

use std::time::Duration;

use rand::Rng;
use tidemill_fuzzing::{ByteChanges, InputBounds, StdRng, Target};

use crate::server::Server;

/// Bytes of an input: those of a compressed body that expands to more than is allowed.
const INPUT_BYTES_MAX: usize = 16 << 10;
/// Route and treatment.
const HEAD_BYTES: usize = 2;
const WORDS: [&[u8]; 22] = [
    b"\"", b"'", b"{", b"}", b"[", b"]", b"(", b")", b",", b"=", b" ", b":", b"\\", b"/", b"e", b"NaN",
    b"null", b"i ", b"time", b"\\u0000", b"\x0a", b"\x12",
];

struct Requests {
    /// Inputs as they are, which come first: they show that the routes work.
    seeds: Vec<Vec<u8>>,
    /// Changes of the seeds of each family, which are chosen alike.
    families: Vec<ByteChanges>,
    server: Server,
}

impl Target for Requests {
    fn next(&mut self, number: u64, random: &mut StdRng) -> Vec<u8> {
        if let Some(seed) = usize::try_from(number).ok().and_then(|at| self.seeds.get(at)) {
            return seed.clone();
        }
        let family = random.random_range(0..self.families.len());
        self.families[family].changed(random)
    }

    fn receive(&mut self, input: &[u8]) -> String {
        let Some((head, content)) = input.split_at_checked(HEAD_BYTES) else { return "no route".to_owned() };
        self.server.send(head[0], head[1], content)
    }
}

fn main() {
    // what is wrong in columns is found by the crates that decode them
    let caught = &["/arrow-", "/parquet-", "/flatbuffers-"];
    let bounds =
        InputBounds { time: Duration::from_secs(10), bytes: 64 << 20, caught, ..InputBounds::default() };
    tidemill_fuzzing::main(bounds, || {
        let families = seeds::families();
        let seeds = families.concat();
        let changes =
            |seeds| ByteChanges::new(seeds, &WORDS).with_head(HEAD_BYTES).with_bytes_max(INPUT_BYTES_MAX);
        Requests { seeds, families: families.into_iter().map(changes).collect(), server: Server::start() }
    });
}
