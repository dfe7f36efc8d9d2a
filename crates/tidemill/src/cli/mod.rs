//! Subcommands. Exit codes: 0 good, 1 failed, 2 usage.

mod backtest;
mod check;
mod client;
mod explain;
mod fmt;
mod progress;
mod query;
mod repl;
mod replay;
mod replay_files;
mod run;
mod sql;
mod test;
mod why;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use tidemill::output;
use tracing_subscriber::EnvFilter;

/// Acts on events within milliseconds and keeps every one of them queryable.
#[derive(Parser)]
#[command(
    name = "tidemill",
    version,
    after_help = "Example:\n  tidemill run examples/flights --data data --until-idle\n  tidemill sql --data data -c 'SELECT * FROM system.ledger'"
)]
pub struct Args {
    /// More log lines on standard error; twice for still more. `RUST_LOG` decides finely.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::RunArgs),
    Serve(run::ServeArgs),
    Sql(sql::SqlArgs),
    Check(check::CheckArgs),
    Explain(explain::ExplainArgs),
    Query(query::QueryArgs),
    Backtest(backtest::BacktestArgs),
    Fmt(fmt::FmtArgs),
    Test(test::TestArgs),
    Why(why::WhyArgs),
    Replay(replay::ReplayArgs),
}

/// Where data lies, for commands that need it.
#[derive(clap::Args)]
pub struct DataArgs {
    /// Data directory.
    #[arg(long, env = "TIDEMILL_DATA", value_name = "DIR")]
    pub data: PathBuf,
}

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    Table,
    /// One array of objects.
    Json,
    /// One object a line.
    Ndjson,
    /// With a header line.
    Csv,
}

impl OutputFormat {
    /// The writers' name for it.
    pub fn format(self) -> output::Format {
        match self {
            Self::Table => output::Format::Table,
            Self::Json => output::Format::Json,
            Self::Ndjson => output::Format::Ndjson,
            Self::Csv => output::Format::Csv,
        }
    }

    /// The HTTP interface's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Csv => "csv",
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Run(args) => run::run(args),
        Command::Serve(args) => run::serve(args),
        Command::Sql(args) => sql::sql(args),
        Command::Check(args) => check::check(args),
        Command::Explain(args) => explain::explain(args),
        Command::Query(args) => query::query(args),
        Command::Backtest(args) => backtest::backtest(args),
        Command::Fmt(args) => fmt::fmt(args),
        Command::Test(args) => test::test(args),
        Command::Why(args) => why::why(args),
        Command::Replay(args) => replay::replay(args),
    }
}

/// Log lines go to standard error; warnings and worse unless asked for more.
pub fn init_tracing(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
}
