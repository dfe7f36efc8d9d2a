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
use tidemill::mongo::{MongoOptions, MongoServer};
use tidemill::server::{ServerOptions, Token};
use tidemill::{ErrorKind, Tidemill};
use tokio::signal::unix::{SignalKind, signal};

use super::client::{ServerFile, server_file, token_file};
use super::log_sinks::LogSinks;
use super::new_data::NewData;
use super::progress::Progress;
use super::vars::{ConnectionArgs, VarArgs};
use super::{DataArgs, StateArgs, address, allocator, flush_before_stop, stdio, stop_deadline};

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

/// Addresses at which callers reach the program. With --until-idle there are only those that are given.
#[derive(clap::Args)]
struct ListenerArgs {
    /// Address of the HTTP server, such as 127.0.0.1:4700, localhost:4700 or 4700. With --until-idle there is one only when this is given.
    #[arg(long, env = "TIDEMILL_LISTEN", value_name = "HOST:PORT", value_parser = address)]
    listen: Option<SocketAddr>,
    /// Address for MongoDB drivers, such as 127.0.0.1:27017 (the default, unless that port is taken), or `off`. With --until-idle there is one only when this is given.
    #[arg(long, env = "TIDEMILL_MONGO", value_name = "HOST:PORT|off", value_parser = mongo_address)]
    mongo: Option<MongoAddress>,
    /// Let MongoDB drivers in without user and password, on a loopback address only: any program on this machine can then read and change documents.
    #[arg(long)]
    mongo_without_login: bool,
    /// Let tests of MongoDB drivers order errors, closed connections and delays by the command `configureFailPoint`. Not for servers that have other clients.
    #[arg(long)]
    mongo_test_commands: bool,
    /// Encrypt the connections of MongoDB drivers: a PEM file with the server's certificate, those that signed it, and its private key.
    #[arg(long, env = "TIDEMILL_MONGO_TLS", value_name = "FILE")]
    mongo_tls: Option<PathBuf>,
}

/// Address for MongoDB drivers.
#[derive(Clone, Copy)]
enum MongoAddress {
    Off,
    At(SocketAddr),
}

fn mongo_address(text: &str) -> Result<MongoAddress, String> {
    match text {
        "off" => Ok(MongoAddress::Off),
        text => address(text).map(MongoAddress::At).map_err(|e| format!("{e}, or `off`")),
    }
}

fn default_mongo_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 27017))
}

fn default_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 4700))
}

pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let app = args.vars.read_app(&args.app)?;
    let access = open_access(&args.data.data)?;
    let new_data = NewData::look(&args.data.data);
    let tidemill = match Tidemill::start(args.state.add_to(args.data.builder()?).app(app)) {
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
    run_until_stopped(tidemill, callers, RunMode::Run { until_idle: args.until_idle })
}

pub fn serve(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let access = open_access(&args.data.data)?;
    let tidemill =
        Tidemill::start(args.state.add_to(args.data.builder()?).connectors(args.connections.connectors()))?;
    let callers = Callers { data: &args.data.data, listeners: &args.listeners, access };
    run_until_stopped(tidemill, callers, RunMode::Serve)
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

fn run_until_stopped(tidemill: Tidemill, callers: Callers<'_>, mode: RunMode) -> anyhow::Result<ExitCode> {
    stdio::continue_when_closed();
    if tidemill.engine().app().settings.memory.is_some() {
        allocator::return_memory_at_once();
    }
    let sinks = LogSinks::start(tidemill.engine()).context("the thread that prints lines of sinks")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(run_until_stopped_async(&tidemill, &callers, mode))?;
    let closed = tidemill.close();
    sinks.finish();
    closed?;
    Ok(code)
}

async fn run_until_stopped_async(
    tidemill: &Tidemill,
    callers: &Callers<'_>,
    mode: RunMode,
) -> anyhow::Result<ExitCode> {
    let Callers { data, listeners, .. } = *callers;
    stop_deadline::watch()?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let until_idle = mode == RunMode::Run { until_idle: true };
    for change in &tidemill.engine().recovery.changes {
        eprintln!("deployed: {change}");
    }
    let server = match listeners.listen.or_else(|| (!until_idle).then(default_address)) {
        Some(address) => Some(start_server(tidemill, callers, address).await?),
        None => None,
    };
    let mongo = start_mongo(tidemill, callers, until_idle).await?;
    let mut progress = Progress::new(tidemill);
    tidemill.engine().start_sources()?;
    if let Some(server) = server.as_ref().filter(|_| !until_idle) {
        let app = &tidemill.engine().app().name;
        let recovery = &tidemill.engine().recovery;
        println!("Ready: {app}, {} log records recovered in {} ms", recovery.records, recovery.millis);
        // a source need not ever end, so this is not left to the summary
        if mode != RunMode::Serve && tidemill.engine().sources_running() {
            let (address, token) = (server.addr(), token_file(data));
            println!(
                "Reading sources, serving http://{address} (token in {}); Ctrl-C stops.",
                token.display()
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
        if let Some(server) = server.as_ref().filter(|_| !until_idle) {
            if mode != RunMode::Serve {
                println!(
                    "\nServing http://{} (token in {}); Ctrl-C stops.",
                    server.addr(),
                    token_file(data).display()
                );
                stdio::Stdout.flush()?;
            }
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            code = ExitCode::SUCCESS;
        }
    }
    if server.is_some() {
        let _ = std::fs::remove_file(server_file(data));
    }
    let stop_mongo = async {
        if let Some(mongo) = mongo {
            mongo.shutdown(SHUTDOWN_GRACE).await;
        }
    };
    let stop_server = async {
        if let Some(server) = server {
            server.shutdown(SHUTDOWN_GRACE).await;
        }
    };
    tokio::join!(stop_mongo, stop_server);
    Ok(code)
}

async fn start_server(
    tidemill: &Tidemill,
    callers: &Callers<'_>,
    address: SocketAddr,
) -> anyhow::Result<tidemill::server::Server> {
    let data = callers.data;
    let options = ServerOptions {
        token: Some(Token::new(token(data)?)?),
        access: Some(callers.access.clone()),
        ..tidemill.server_options()
    };
    let database = tidemill.database();
    let server = tidemill::server::serve(address, tidemill.engine().clone(), database, options)
        .await
        .map_err(|e| e.context("HTTP (another address: --listen 127.0.0.1:PORT)"))?;
    let file = ServerFile { address: server.addr().to_string(), pid: std::process::id() };
    let path = server_file(data);
    create_private_file(OpenOptions::new().create(true).truncate(true), &path)
        .and_then(|mut out| out.write_all(&serde_json::to_vec(&file)?))
        .with_context(|| path.display().to_string())?;
    println!("Listening on http://{}", server.addr());
    Ok(server)
}

/// Lets MongoDB drivers connect. A default address that is taken is said and not fatal; one that the user gives is.
async fn start_mongo(
    tidemill: &Tidemill,
    callers: &Callers<'_>,
    until_idle: bool,
) -> anyhow::Result<Option<MongoServer>> {
    let Callers { data, listeners, .. } = *callers;
    let asked = listeners.mongo;
    let address = match asked {
        Some(MongoAddress::Off) => return Ok(None),
        Some(MongoAddress::At(address)) => address,
        None if until_idle => return Ok(None),
        None => default_mongo_address(),
    };
    let password = if listeners.mongo_without_login { None } else { Some(token(data)?) };
    let has_password = password.is_some();
    let encrypted = if listeners.mongo_tls.is_some() { "/?tls=true" } else { "" };
    let access = has_password.then(|| callers.access.clone());
    let options = MongoOptions {
        password,
        access,
        tls_file: listeners.mongo_tls.clone(),
        test_commands: listeners.mongo_test_commands,
        ..tidemill.mongo_options()
    };
    match tidemill::mongo::serve(address, tidemill.engine().clone(), options).await {
        Ok(server) => {
            match has_password {
                true => {
                    println!(
                        "MongoDB drivers: mongodb://admin@{}{encrypted} (the password is the token)",
                        server.addr()
                    )
                }
                false => println!("MongoDB drivers: mongodb://{}{encrypted} (without login)", server.addr()),
            }
            Ok(Some(server))
        }
        Err(e) if asked.is_none() => {
            eprintln!("MongoDB drivers cannot connect: {e} (another address: --mongo 127.0.0.1:PORT)");
            Ok(None)
        }
        Err(e) => Err(e.context("MongoDB drivers (another address: --mongo 127.0.0.1:PORT)").into()),
    }
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
