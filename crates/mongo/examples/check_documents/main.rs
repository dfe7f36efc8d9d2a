//! Checks transactions and change streams of a server that is killed and started again while clients use it.
//!
//! `cargo run --release -p tidemill-mongo --example check_documents -- transactions --runs 200` and
//! `… -- changes --changes 1000000 --resumes 100`. Every run prints its seed; `--seed` repeats its plan.

mod bank;
mod changes;
mod history;
mod lists;
mod server;
mod transactions;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Checks transactions and change streams under kills.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    check: Check,
}

#[derive(Subcommand)]
enum Check {
    /// Transfers between accounts, and lists that transactions append to and read.
    Transactions(transactions::Options),
    /// A change stream whose reader is killed and goes on from the last token.
    Changes(changes::Options),
    /// Serves a data directory for another process of the check.
    #[command(hide = true)]
    Serve { dir: PathBuf, port: u16, partitions: u32 },
    /// Reads a change stream into a file for another process of the check.
    #[command(hide = true)]
    Follow { port: u16, file: PathBuf },
}

fn main() -> Result<()> {
    match Arguments::parse().check {
        Check::Transactions(options) => transactions::check(&options),
        Check::Changes(options) => changes::check(&options),
        Check::Serve { dir, port, partitions } => server::serve(&dir, port, partitions),
        Check::Follow { port, file } => changes::follow(port, &file),
    }
}
