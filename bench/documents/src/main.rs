//! Measures the document store: through MongoDB's wire protocol, and by function calls in the same process.

mod memory;
mod reads;
mod targets;
mod workload;
mod ycsb;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use tidemill_engine::{App, Durability, Engine};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The events with which a rule changes documents, and events that only take time to apply.
const RULES: &str = "
event Touch { key: string, value: string } key key;
event Tick { machine: string, n: long, value: double } key machine;
entity Usertable key _id;
relation Touch.record(): Usertable by key;
rule Write { when { touch: Touch(); record: touch.record(); } then { update record.field0 = touch.value; } }
";

/// Measures the document store.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    measure: Measure,
}

#[derive(Subcommand)]
enum Measure {
    /// Yahoo's cloud serving benchmark, workloads a to f.
    Ycsb(ycsb::Options),
    /// Reads of single documents while the engine is busy with something large.
    Reads(reads::Options),
    /// Resident bytes of documents and their indexes.
    Memory(memory::Options),
}

/// How durable a write is before it is answered.
#[derive(Clone, Copy, ValueEnum)]
enum Level {
    Memory,
    Os,
    Fsync,
}

fn main() -> Result<()> {
    match Arguments::parse().measure {
        Measure::Ycsb(options) => ycsb::measure(&options),
        Measure::Reads(options) => reads::measure(&options),
        Measure::Memory(options) => memory::measure(&options),
    }
}

fn open(dir: &Path, durability: Level, partitions: u32) -> Result<Arc<Engine>> {
    let mut app = App::from_rules("documents", RULES);
    app.settings.partitions = partitions;
    app.settings.durability = match durability {
        Level::Memory => Durability::Memory,
        Level::Os => Durability::Os,
        Level::Fsync => Durability::Fsync,
    };
    Ok(Arc::new(Engine::open(dir, Some(app))?))
}
