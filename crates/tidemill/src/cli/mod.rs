//! Subcommands. Exit codes: 0 success, 1 failure, 2 usage error, 141 standard output was closed.

// in the modules below these shadow the standard macros, which panic when the output is closed
macro_rules! print {
    ($($text:tt)*) => { $crate::cli::stdio::out(format_args!($($text)*)) };
}
macro_rules! println {
    () => { $crate::cli::stdio::out(format_args!("\n")) };
    ($($text:tt)*) => { $crate::cli::stdio::out(format_args!("{}\n", format_args!($($text)*))) };
}
macro_rules! eprint {
    ($($text:tt)*) => { $crate::cli::stdio::err(format_args!($($text)*)) };
}
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::cli::stdio::err(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) mod admin;
mod allocator;
pub(crate) mod ask;
mod client;
mod completions;
pub(crate) mod develop;
mod help;
mod listeners;
mod load;
mod log_sinks;
mod new_data;
mod progress;
mod rejections;
mod run;
pub mod stdio;
mod stop_deadline;
mod vars;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::{FromArgMatches, Parser, Subcommand, ValueEnum};
use tidemill::{Engine, EngineBuilder, LogAtUrl, TakeOver, Tidemill, output};
use tidemill_types::{ADDRESS_EXPECTED, host_and_port, nearest};
use tracing_subscriber::EnvFilter;

/// Beginning of the names of our environment variables.
const VARIABLE_PREFIX: &str = "TIDEMILL_";

/// Acts on events within milliseconds and keeps every one of them queryable.
#[derive(Parser)]
#[command(
    name = "tidemill",
    version,
    after_help = "Example:\n  tidemill run examples/flights --data data --until-idle\n  tidemill sql --data data -c 'SELECT * FROM system.ledger'"
)]
pub struct Args {
    /// Print more log lines on standard error, twice for still more. `RUST_LOG` takes precedence.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    New(develop::new::NewArgs),
    Check(develop::check::CheckArgs),
    Test(develop::test::TestArgs),
    Fmt(develop::fmt::FmtArgs),
    Explain(ask::explain::ExplainArgs),
    Replay(develop::replay::ReplayArgs),
    Backtest(develop::backtest::BacktestArgs),
    Run(Box<run::RunArgs>),
    Serve(run::ServeArgs),
    Load(load::LoadArgs),
    Sql(ask::sql::SqlArgs),
    Query(ask::query::QueryArgs),
    Tap(ask::tap::TapArgs),
    Why(ask::why::WhyArgs),
    Errors(admin::errors::ErrorsArgs),
    Backup(admin::backup::BackupArgs),
    Restore(admin::backup::RestoreArgs),
    Verify(admin::backup::VerifyArgs),
    Keys(admin::keys::KeysArgs),
    Users(admin::users::UsersArgs),
    Tokens(admin::tokens::TokensArgs),
    Cluster(admin::cluster::ClusterCommandArgs),
    Connectors(develop::connectors::ConnectorsArgs),
    Declare(develop::declare::DeclareArgs),
    Completions(completions::CompletionsArgs),
}

/// Where data lies, for commands that need it.
#[derive(clap::Args)]
pub struct DataArgs {
    /// Data directory.
    #[arg(long, env = "TIDEMILL_DATA", value_name = "DIR")]
    pub data: PathBuf,
    /// Log of the data directory, instead of files in it or of the setting `log`, such as
    /// kafka://127.0.0.1:9092/events?replication=3.
    // may hold a password, so help does not show its value
    #[arg(long, env = "TIDEMILL_LOG", value_name = "URL", hide_env_values = true)]
    log: Option<String>,
}

impl DataArgs {
    /// Returns the builder of an engine on the data directory with its log.
    fn builder(&self) -> anyhow::Result<EngineBuilder> {
        let log = LogAtUrl::new(self.log.clone()).context("--log")?;
        Ok(Engine::builder(&self.data).log(Arc::new(log)).connectors(tidemill::connectors()))
    }
}

/// State of a data directory in an object store.
#[derive(clap::Args)]
pub struct StateArgs {
    /// Object store that gets the state of the data directory with each checkpoint, such as s3://bucket/state. On a machine whose directory
    /// is empty or older the program continues with what another one has published there. Needs the setting `tables`.
    #[arg(long, env = "TIDEMILL_STATE", value_name = "URL")]
    state: Option<String>,
    /// Go on without what the log of the former machine got after its last checkpoint, because that machine is lost.
    #[arg(long, requires = "state")]
    state_take_over: bool,
}

impl StateArgs {
    /// Adds the place of the state to a builder.
    fn add_to(&self, builder: EngineBuilder) -> EngineBuilder {
        let condition = if self.state_take_over { TakeOver::Always } else { TakeOver::Lossless };
        match &self.state {
            Some(url) => builder.state(url, condition),
            None => builder,
        }
    }
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
    /// Returns the format for the writers of `tidemill_sql`.
    pub fn format(self) -> output::Format {
        match self {
            Self::Table => output::Format::Table,
            Self::Json => output::Format::Json,
            Self::Ndjson => output::Format::Ndjson,
            Self::Csv => output::Format::Csv,
        }
    }

    /// Returns the name used by the HTTP interface.
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Csv => "csv",
        }
    }
}

impl Args {
    /// Reads the arguments of the process.
    ///
    /// Errors: a usage error, with a hint for words that other programs have as commands; help and version count as errors.
    pub fn read() -> Result<Self, clap::Error> {
        command()
            .try_get_matches()
            .and_then(|matches| Self::from_arg_matches(&matches))
            .map_err(|error| help::with_hint(error).with_cmd(&command()))
    }
}

/// Returns the command with its help.
pub fn command() -> clap::Command {
    help::grouped(<Args as clap::CommandFactory>::command())
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::New(args) => develop::new::new(args),
        Command::Completions(args) => completions::completions(args),
        Command::Run(args) => run::run(*args),
        Command::Serve(args) => run::serve(args),
        Command::Sql(args) => ask::sql::sql(args),
        Command::Load(args) => load::load(args),
        Command::Check(args) => develop::check::check(args),
        Command::Cluster(args) => admin::cluster::cluster(args),
        Command::Connectors(args) => develop::connectors::connectors(args),
        Command::Declare(args) => develop::declare::declare(&args),
        Command::Tap(args) => ask::tap::tap(args),
        Command::Errors(args) => admin::errors::errors(args),
        Command::Explain(args) => ask::explain::explain(args),
        Command::Query(args) => ask::query::query(args),
        Command::Backtest(args) => develop::backtest::backtest(args),
        Command::Fmt(args) => develop::fmt::fmt(args),
        Command::Test(args) => develop::test::test(args),
        Command::Why(args) => ask::why::why(args),
        Command::Replay(args) => develop::replay::replay(args),
        Command::Backup(args) => admin::backup::backup(args),
        Command::Restore(args) => admin::backup::restore(args),
        Command::Verify(args) => admin::backup::verify(args),
        Command::Keys(args) => admin::keys::keys(args),
        Command::Users(args) => admin::users::users(args),
        Command::Tokens(args) => admin::tokens::tokens(args),
    }
}

/// Writes rows that are in memory to tables, for commands that end by themselves. A stop waits only some seconds for that,
/// because somebody may wait for it, and reports rows that are left for the next start; these commands take the time.
fn flush_before_stop(tidemill: &Tidemill) {
    if let Err(e) = tidemill.engine().flush() {
        // the stop tries again, and its result is that of the command
        tracing::debug!(error = %e, "rows in memory are not written to tables");
    }
}

/// Initializes logging to standard error, by default of warnings and errors, and of the lines that apps write with
/// `#log` (target `siddhi`). Verbosity applies to these and to Tidemill; lines of the libraries matter to few users and
/// are shown with `RUST_LOG=debug`. The driver of SQL Server reports all that the server refuses as an error, with values
/// of rows; the program reports that itself.
pub fn init_tracing(args: &Args) {
    let default = match args.verbose {
        // what an app prints would stand between the results of its tests
        0 if matches!(args.command, Command::Test(_)) => "warn,siddhi=warn,tiberius=off",
        0 => "warn,siddhi=info,tiberius=off",
        1 => "warn,tidemill=info,siddhi=debug,tiberius=off",
        _ => "warn,tidemill=debug,siddhi=trace,tiberius=off",
    };
    let filter = log_filter(default, std::env::var(EnvFilter::DEFAULT_ENV).ok());
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match std::io::stderr().is_terminal() {
        // with colours, unless `NO_COLOR` is set
        true => lines.init(),
        false => lines.with_ansi(false).init(),
    }
}

/// Returns the lines that are logged: those that the environment asks for, else the default ones.
fn log_filter(default: &str, environment: Option<String>) -> EnvFilter {
    // an empty variable would mean errors only, which is not what emptying it is meant to do
    let wanted = environment.filter(|text| !text.trim().is_empty());
    match wanted.as_deref().map(EnvFilter::try_new) {
        None => EnvFilter::new(default),
        Some(Ok(filter)) => filter,
        Some(Err(e)) => {
            eprintln!("warning: RUST_LOG is not read: {e}");
            EnvFilter::new(default)
        }
    }
}

/// Formats an error with its causes, omitting causes whose text is already contained.
pub fn error_text(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |text, cause| match cause.to_string() {
        cause if text.contains(&cause) => text,
        cause => format!("{text}: {cause}"),
    })
}

/// Warns of environment variables that have our prefix but are not read, because a setting in one of them
/// would be ignored.
pub fn warn_of_environment(variables: impl Iterator<Item = (OsString, OsString)>) {
    let names = variables.filter_map(|(name, _)| name.into_string().ok());
    let ours: Vec<String> = names.filter(|name| name.starts_with(VARIABLE_PREFIX)).collect();
    if ours.is_empty() {
        return;
    }
    let known = known_variables();
    for warning in ours.iter().filter_map(|name| unknown_variable(name, &known)) {
        tracing::warn!("{warning}");
    }
}

/// Returns the environment variables that are read, in addition to settings and `RUST_LOG`: those of options of all commands, and
/// the password of a user.
fn known_variables() -> BTreeSet<String> {
    fn add(command: &clap::Command, known: &mut BTreeSet<String>) {
        let names = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
        known.extend(names.map(str::to_owned));
        for subcommand in command.get_subcommands() {
            add(subcommand, known);
        }
    }
    let mut known = BTreeSet::from([admin::users::PASSWORD_VARIABLE.to_owned()]);
    add(&command(), &mut known);
    known
}

fn unknown_variable(name: &str, known: &BTreeSet<String>) -> Option<String> {
    let rest = name.strip_prefix(VARIABLE_PREFIX)?;
    if known.contains(name) || rest.starts_with("SETTINGS__") {
        return None;
    }
    let names = || known.iter().map(String::as_str);
    let setting = rest.split_once("__").map(|(_, setting)| format!("TIDEMILL_SETTINGS__{setting}"));
    let meant = setting.or_else(|| nearest(name, names()).map(str::to_owned));
    let hint = meant.map_or_else(
        || {
            let names: Vec<&str> = names().collect();
            format!("known: {}, and settings as TIDEMILL_SETTINGS__NAME", names.join(", "))
        },
        |meant| format!("did you mean {meant}?"),
    );
    Some(format!("the environment variable {name} is not read: {hint}"))
}

/// Parses `HOST:PORT`, `:PORT` or `PORT`. Without a host, only this machine can connect.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let (host, port) = host_and_port(text)?;
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::from((ip, port)));
    }
    match host.as_str() {
        "" | "localhost" => Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        host => {
            let found = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next());
            found.ok_or_else(|| format!("there is no address for the host `{host}`: {ADDRESS_EXPECTED}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_leave_out_the_host() {
        for (text, expected) in [
            ("127.0.0.1:5704", "127.0.0.1:5704"),
            ("localhost:5704", "127.0.0.1:5704"),
            (":5704", "127.0.0.1:5704"),
            ("5704", "127.0.0.1:5704"),
            ("[::1]:5704", "[::1]:5704"),
            ("0.0.0.0:0", "0.0.0.0:0"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), expected, "{text}");
        }
        for text in ["", "localhost", "localhost:", "localhost:99999", "::1", "http://localhost:80", "4700x"]
        {
            let error = address(text).unwrap_err();
            assert!(error.contains("127.0.0.1:4700"), "{text}: {error}");
        }
    }

    #[test]
    fn variables_that_look_like_ours_are_told() {
        let known = known_variables();
        for name in [
            "HOME",
            "TIDEMILL_DATA",
            "TIDEMILL_FLIGHT",
            "TIDEMILL_LISTEN",
            "TIDEMILL_LOG",
            "TIDEMILL_MONGO",
            "TIDEMILL_MONGO_TLS",
            "TIDEMILL_PASSWORD",
            "TIDEMILL_PEERS_ADVERTISE",
            "TIDEMILL_REPLICAS",
            "TIDEMILL_SETTINGS__FLUSH_INTERVAL",
        ] {
            assert_eq!(unknown_variable(name, &known), None);
        }
        for (name, hint) in [
            ("TIDEMILL_SETTING__FLUSH_INTERVAL", "did you mean TIDEMILL_SETTINGS__FLUSH_INTERVAL?"),
            ("TIDEMILL_DAT", "did you mean TIDEMILL_DATA?"),
            (
                "TIDEMILL_COMPRESSION",
                "known: TIDEMILL_ADVERTISE, TIDEMILL_CLUSTER, TIDEMILL_DATA, TIDEMILL_FLIGHT, ",
            ),
        ] {
            let warning = unknown_variable(name, &known).unwrap();
            assert!(warning.contains(name) && warning.contains(hint), "{warning}");
        }
    }

    #[test]
    fn no_cause_is_said_twice() {
        let denied = || std::io::Error::from_raw_os_error(13);
        let inner = tidemill::Error::unavailable("meta.json: cannot be written").with_source(denied());
        let error = anyhow::Error::from(inner).context("HTTP");
        assert_eq!(error_text(&error), "HTTP: meta.json: cannot be written: Permission denied (os error 13)");
    }
    #[test]
    fn an_empty_variable_decides_nothing() {
        let filter = |text: Option<&str>| log_filter("warn", text.map(str::to_owned)).to_string();
        assert_eq!([filter(None), filter(Some("")), filter(Some(" ")), filter(Some("=,="))], ["warn"; 4]);
        assert_eq!(filter(Some("debug")), "debug");
    }
}
