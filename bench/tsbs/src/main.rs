//! The iot use case of TSBS on Tidemill and beside its peers: see README.md.

use anyhow::Result;
use clap::{Parser, Subcommand};
use tidemill_bench_tsbs::{compare, duplicates, generate, ingest, lookups, queries};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Tidemill with trucks that send readings and diagnostics.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes a data set; the same arguments write the same bytes everywhere.
    Generate(generate::Options),
    /// Loads a data set into fresh data directories: from Arrow batches in process, and from CSV by the app's sources.
    Ingest(ingest::Options),
    /// Loads points of which some are repeated, near and far, into streams that keep the first; with a restart in the middle.
    Duplicates(duplicates::Options),
    /// Looks up single points by truck and time, warm and cold.
    Lookups(lookups::Options),
    /// Runs the 14 statements, checks each result, and measures them.
    Queries(queries::Options),
    /// Runs the 14 statements on Tidemill and on its peers, and prints one table.
    Compare(compare::Options),
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Generate(options) => generate::run(&options),
        Command::Ingest(options) => ingest::run(&options),
        Command::Duplicates(options) => duplicates::run(&options),
        Command::Lookups(options) => lookups::run(&options),
        Command::Queries(options) => queries::run(&options),
        Command::Compare(options) => compare::run(&options),
    }
}
