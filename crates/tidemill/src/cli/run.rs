//! `tidemill run` and `tidemill serve`.

use std::fs::{File, OpenOptions, Permissions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tidemill::access::{Access, AccessFile};
use tidemill::{ErrorKind, Tidemill};
use tokio::signal::unix::{SignalKind, signal};

use super::admin::cluster::ClusterArgs;
use super::client::{ServerFile, server_file, token_file};
use super::listeners::{KnownCallers, ListenerArgs, Listeners};
use super::log_sinks::LogSinks;
use super::new_data::NewData;
use super::progress::Progress;
use super::stop_deadline::Starting;
use super::vars::{ConnectionArgs, VarArgs};
use super::{DataArgs, StateArgs, allocator, flush_before_stop, stdio, stop_deadline};

/// Time that a shutdown waits for requests in progress.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);

/// Runs an app: loads its documents, reads its sources, applies its rules and serves HTTP.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  tidemill run examples/flights --data data\n  tidemill run examples/flights --data data --until-idle"
)]
pub struct RunArgs {
    /// App directory, or one *.siddhi or *.rules file.
    app: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Stop when all file sources have ended and everything is applied: with exit code 0, or 1 when a source had a
    /// problem or rows were refused.
    #[arg(long)]
    until_idle: bool,
    #[command(flatten)]
    vars: VarArgs,
    #[command(flatten)]
    listeners: ListenerArgs,
}

/// Serves a data directory with the app that was deployed in it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  tidemill serve --data data")]
pub struct ServeArgs {
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    connections: ConnectionArgs,
    #[command(flatten)]
    listeners: ListenerArgs,
}

pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let starting = Starting::begin()?;
    let mut app = args.vars.read_app(&args.app)?;
    let access = open_access(&args.data.data)?;
    let new_data = NewData::look(&args.data.data);
    let builder = args.cluster.add_to(args.state.add_to(args.data.builder()?), &mut app)?;
    let tidemill = match Tidemill::start(builder.app(app)) {
        Ok(tidemill) => tidemill,
        Err(e) => {
            // another program may be making the directory at this moment
            if e.kind() != ErrorKind::Conflict {
                new_data.discard();
            }
            return Err(e.into());
        }
    };
    let callers = Callers { data: &args.data.data, listeners: &args.listeners, access };
    run_until_stopped(tidemill, starting, callers, RunMode::Run { until_idle: args.until_idle })
}

pub fn serve(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let starting = Starting::begin()?;
    let access = open_access(&args.data.data)?;
    let tidemill =
        Tidemill::start(args.state.add_to(args.data.builder()?).connectors(args.connections.connectors()))?;
    let callers = Callers { data: &args.data.data, listeners: &args.listeners, access };
    run_until_stopped(tidemill, starting, callers, RunMode::Serve)
}

/// Addresses at which callers reach the process, and the callers that it knows.
struct Callers<'a> {
    data: &'a Path,
    listeners: &'a ListenerArgs,
    /// Users and tokens beside the first administrator.
    access: Arc<Access>,
}

/// Reads the users and tokens of a data directory, before anything else is started.
fn open_access(data: &Path) -> anyhow::Result<Arc<Access>> {
    let access = Access::open(AccessFile::in_directory(data)).context("users and tokens")?;
    Ok(Arc::new(access))
}

/// Mode of the process, in addition to reading sources and serving requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunMode {
    /// Shows the summary when the sources have ended, and then stops with `until_idle`.
    Run { until_idle: bool },
    /// Reports only that the server is ready.
    Serve,
}

fn run_until_stopped(
    tidemill: Tidemill,
    starting: Starting,
    callers: Callers<'_>,
    mode: RunMode,
) -> anyhow::Result<ExitCode> {
    stdio::continue_when_closed();
    if tidemill.engine().app().settings.memory.is_some() {
        allocator::return_memory_at_once();
    }
    let sinks = LogSinks::start(tidemill.engine()).context("the thread that prints lines of sinks")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(run_until_stopped_async(&tidemill, starting, &callers, mode))?;
    let closed = tidemill.close();
    sinks.finish();
    closed?;
    Ok(code)
}

async fn run_until_stopped_async(
    tidemill: &Tidemill,
    starting: Starting,
    callers: &Callers<'_>,
    mode: RunMode,
) -> anyhow::Result<ExitCode> {
    let Callers { data, listeners, .. } = *callers;
    stop_deadline::watch()?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    starting.end();
    let until_idle = mode == RunMode::Run { until_idle: true };
    for change in &tidemill.engine().recovery.changes {
        eprintln!("deployed: {change}");
    }
    tidemill.follow_access(callers.access.clone());
    let known = KnownCallers { token: &|| token(data), access: callers.access.clone() };
    let listeners = Listeners::start(tidemill, listeners, known, until_idle).await?;
    if let Some(address) = listeners.commands() {
        write_server_file(data, address)?;
    }
    let http = listeners.http().filter(|_| !until_idle);
    let mut progress = Progress::new(tidemill);
    tidemill.engine().start_sources()?;
    if let Some(url) = http {
        let app = &tidemill.engine().app().name;
        let recovery = &tidemill.engine().recovery;
        println!("Ready: {app}, {} log records recovered in {} ms", recovery.records, recovery.millis);
        // a source need not ever end, so this is not left to the summary
        if mode != RunMode::Serve && tidemill.engine().sources_running() {
            println!(
                "Reading sources, serving {url} (token in {}); Ctrl-C stops.",
                token_file(data).display()
            );
        }
        stdio::Stdout.flush()?;
    }
    let mut stopped = loop {
        if !tidemill.engine().sources_running() {
            break false;
        }
        tokio::select! {
            _ = interrupt.recv() => break true,
            _ = terminate.recv() => break true,
            () = tokio::time::sleep(Duration::from_millis(20)) => progress.tick(tidemill),
        }
    };
    let mut code = ExitCode::SUCCESS;
    if !stopped {
        let engine = tidemill.engine().clone();
        let mut aggregated = tokio::task::spawn_blocking(move || {
            engine.wait_idle();
            engine.run_all_aggregates()
        });
        tokio::select! {
            aggregated = &mut aggregated => if let Err(e) = aggregated? {
                eprintln!("error: {e}");
                code = ExitCode::FAILURE;
            },
            // a full disk may keep the engine from ever being idle
            _ = interrupt.recv() => stopped = true,
            _ = terminate.recv() => stopped = true,
        }
    }
    if !stopped {
        if mode != RunMode::Serve && !tokio::task::block_in_place(|| progress.summary(tidemill))? {
            code = ExitCode::FAILURE;
        }
        for problem in tidemill.engine().source_problems() {
            eprintln!("error: {problem}");
            code = ExitCode::FAILURE;
        }
        if until_idle {
            tokio::task::block_in_place(|| flush_before_stop(tidemill));
        }
        if let Some(url) = http {
            if mode != RunMode::Serve {
                println!("\nServing {url} (token in {}); Ctrl-C stops.", token_file(data).display());
                stdio::Stdout.flush()?;
            }
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            code = ExitCode::SUCCESS;
        }
    }
    if listeners.commands().is_some() {
        let _ = std::fs::remove_file(server_file(data));
    }
    // the others may finish within the grace period
    tidemill.end_tails();
    listeners.shutdown(SHUTDOWN_GRACE).await;
    Ok(code)
}

/// Writes the file by which commands of this machine find the server.
fn write_server_file(data: &Path, address: SocketAddr) -> anyhow::Result<()> {
    let file = ServerFile { address: address.to_string(), pid: std::process::id() };
    let path = server_file(data);
    create_private_file(OpenOptions::new().create(true).truncate(true), &path)
        .and_then(|mut out| out.write_all(&serde_json::to_vec(&file)?))
        .with_context(|| path.display().to_string())
}

/// Returns the data directory's token, creating it at the first start. Only the owner can read it.
fn token(data: &Path) -> anyhow::Result<String> {
    let path = token_file(data);
    match std::fs::read_to_string(&path) {
        Ok(token) => {
            restrict_token_file(&path)?;
            return Ok(token.trim().to_owned());
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(e).with_context(|| path.display().to_string()),
    }
    let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    create_private_file(OpenOptions::new().create_new(true), &path)
        .and_then(|mut file| writeln!(file, "{token}"))
        .with_context(|| path.display().to_string())?;
    Ok(token)
}

/// Creates a file that only its owner may read.
fn create_private_file(options: &mut OpenOptions, path: &Path) -> std::io::Result<File> {
    options.write(true).mode(0o600).open(path)
}

/// Restricts a token file that other users can read, and warns that they may have read it.
fn restrict_token_file(path: &Path) -> anyhow::Result<()> {
    let mode =
        std::fs::metadata(path).with_context(|| path.display().to_string())?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).with_context(|| {
        format!("{}: other users can read the token (mode {mode:04o}): chmod 600 it", path.display())
    })?;
    tracing::warn!(
        "{}: other users could read the token (mode {mode:04o}); now only its owner can (0600). To have a new one, delete \
         the file and start again",
        path.display()
    );
    Ok(())
}
