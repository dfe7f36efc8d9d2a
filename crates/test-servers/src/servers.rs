//! Real servers, which `scripts/servers.sh` installs and starts for this run of the tests, and which end with it.
//!
//! A server that cannot be had is skipped, with a line that says why.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::ports::PortRange;

/// Exit code of the script for a server that cannot be had.
const MISSING: i32 = 3;
/// One server.
struct Server {
    /// Variables with its addresses, or why it cannot be had.
    started: OnceLock<Result<HashMap<String, String>, String>>,
    /// Tests that kill the server are alone with it.
    users: RwLock<()>,
}

static SERVERS: LazyLock<Mutex<HashMap<&'static str, &'static Server>>> = LazyLock::new(Mutex::default);

/// The directory and the ports of this run. The servers end after this process, whatever ends it.
static PLACE: LazyLock<(PathBuf, PortRange)> = LazyLock::new(|| {
    let process = std::process::id();
    let dir = target_tmpdir().join(format!("servers-{process}"));
    // an earlier process with this number may have been killed together with what would have removed its servers' data
    let _ = std::fs::remove_dir_all(&dir);
    let place = (dir, PortRange::reserve());
    let watcher = script(&place, &["watch", &process.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    // it outlives this process, so nothing waits for it
    std::mem::forget(watcher.expect("a process that ends the servers"));
    place
});

/// Returns `tmp` of the target directory. Cargo tells it to tests only, and their programs are in `debug/deps` beside it.
fn target_tmpdir() -> PathBuf {
    let program = std::env::current_exe().expect("the path of the tests");
    program.ancestors().nth(3).map_or_else(std::env::temp_dir, |target| target.join("tmp"))
}

fn script((dir, ports): &(PathBuf, PortRange), arguments: &[&str]) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/servers.sh");
    // in a group of its own, so that an interrupt of the tests does not end it
    let mut command = Command::new("setsid");
    command.arg(script).args(arguments);
    command.env("SERVERS_DIR", dir).env("SERVERS_PORT", ports.first().to_string());
    command
}

fn server(name: &'static str) -> &'static Server {
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    servers
        .entry(name)
        .or_insert_with(|| Box::leak(Box::new(Server { started: OnceLock::new(), users: RwLock::new(()) })))
}

fn start(name: &str) -> Result<HashMap<String, String>, String> {
    let output = script(&PLACE, &["start", name]).output().map_err(|e| format!("setsid: {e}"))?;
    let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.code() {
        Some(0) => {}
        Some(MISSING) => return Err(errors),
        _ => panic!("{name} does not start: {errors}"),
    }
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(lines.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect())
}

/// Address of a server that runs while this value lives.
pub struct SharedServer {
    addresses: HashMap<String, String>,
    _guard: RwLockReadGuard<'static, ()>,
}

impl SharedServer {
    /// Returns the address in a variable such as `SERVERS_KAFKA`.
    pub fn address(&self, variable: &str) -> &str {
        &self.addresses[variable]
    }
}

/// Server that a test may kill.
pub struct OwnServer {
    name: &'static str,
    addresses: HashMap<String, String>,
    _guard: RwLockWriteGuard<'static, ()>,
}

impl OwnServer {
    /// Returns the address in a variable such as `SERVERS_KAFKA`.
    pub fn address(&self, variable: &str) -> &str {
        &self.addresses[variable]
    }

    /// Ends the server as a crash does.
    pub fn kill(&self) {
        assert!(script(&PLACE, &["kill", self.name]).status().unwrap().success());
    }

    /// Stops the server in order.
    pub fn stop(&self) {
        assert!(script(&PLACE, &["stop", self.name]).status().unwrap().success());
    }

    /// Starts the server again with its data.
    pub fn start_again(&self) {
        start(self.name).unwrap();
    }
}

/// Starts a server if it does not run. `None`, with a message, if it cannot be had.
pub fn shared(name: &'static str) -> Option<SharedServer> {
    let server = server(name);
    let addresses = addresses(name, server)?;
    Some(SharedServer { addresses, _guard: server.users.read().unwrap_or_else(PoisonError::into_inner) })
}

/// Starts a server if it does not run, and waits until no other test uses it. `None`, with a message, if it cannot be
/// had.
pub fn own(name: &'static str) -> Option<OwnServer> {
    let server = server(name);
    let addresses = addresses(name, server)?;
    Some(OwnServer { name, addresses, _guard: server.users.write().unwrap_or_else(PoisonError::into_inner) })
}

fn addresses(name: &str, server: &Server) -> Option<HashMap<String, String>> {
    match server.started.get_or_init(|| start(name)) {
        Ok(addresses) => Some(addresses.clone()),
        Err(reason) => {
            eprintln!("SKIPPED: no {name}: {reason}");
            None
        }
    }
}
