//! Feeds changed messages to a connection in process, and reports those that it does not survive.
//!
//! ```text
//! cargo run --release -p tidemill-mongo --features fuzzing --example fuzz_messages -- --seconds 600 [--seed N]
//! cargo run --release -p tidemill-mongo --features fuzzing --example fuzz_messages -- --replay HEX
//! ```
//!
//! Valid messages of all commands are changed as documents and as bytes, and go through the same functions as those of a
//! connection: frame, compression, command, engine, reply. A finding is a panic, the end of the process, a request of more than
//! 5 seconds, or one that needs more than 2 GiB of memory. It is printed with the message as hexadecimal numbers.

#[path = "fuzz_messages/mutate.rs"]
mod mutate;
#[path = "fuzz_messages/seeds.rs"]
mod seeds;

use std::sync::Arc;

use bson::Document;
use tidemill_engine::{App, Durability, Engine};
use tidemill_fuzzing::{InputBounds, StdRng, Target};
use tidemill_mongo::MongoOptions;
use tidemill_mongo::fuzzing::Connection;

/// Memory of a request that is a finding.
const REQUEST_BYTES_MAX: usize = 2 << 30;
/// Characters of a reply that are printed.
const SHOWN_MAX: usize = 2_000;

/// A connection and its engine.
struct Documents {
    connection: Connection,
    seeds: Vec<Document>,
    pool: mutate::Pool,
    _dir: tempfile::TempDir,
}

impl Documents {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut app = App::from_rules("docs", "entity Customer key id;");
        app.settings.partitions = 1;
        app.settings.durability = Durability::Memory;
        let engine = Arc::new(Engine::open(dir.path(), Some(app)).expect("an engine"));
        let seeds = seeds::all();
        let pool = mutate::Pool::of(&seeds);
        Self { connection: Connection::new(engine, MongoOptions::default()), seeds, pool, _dir: dir }
    }
}

impl Target for Documents {
    fn next(&mut self, number: u64, random: &mut StdRng) -> Vec<u8> {
        // first, all of them as they are: they show that the commands work
        match usize::try_from(number).ok().and_then(|at| self.seeds.get(at)) {
            Some(seed) => mutate::plain(seed),
            None => mutate::message(&self.seeds, &self.pool, random),
        }
    }

    fn receive(&mut self, input: &[u8]) -> String {
        match self.connection.receive(input) {
            Ok(bytes) => {
                let document: Result<Document, _> =
                    bson::deserialize_from_slice(bytes.get(21..).unwrap_or_default());
                let text = document.map_or_else(|e| e.to_string(), |d| d.to_string());
                format!("reply {}", text.chars().take(SHOWN_MAX).collect::<String>())
            }
            Err(error) => format!("closed: {error}"),
        }
    }

    /// Makes the documents those of the beginning.
    fn begin_again(&mut self) {
        self.connection.forget();
        for command in seeds::begin() {
            self.receive(&mutate::plain(&command));
        }
    }
}

fn main() {
    tidemill_fuzzing::main(
        InputBounds { bytes: REQUEST_BYTES_MAX, ..InputBounds::default() },
        Documents::new,
    );
}
