//! The servers of the check, which `scripts/servers.sh` starts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Servers that events come from and go to.
pub const NAMES: [&str; 5] = ["kafka", "mosquitto", "postgres", "mariadb", "redis"];

/// Servers, which end with this process.
pub struct Servers {
    dir: PathBuf,
    first_port: u16,
    addresses: String,
}

impl Servers {
    pub fn start(dir: &Path, first_port: u16) -> Result<Self> {
        let mut servers = Self { dir: dir.to_owned(), first_port, addresses: String::new() };
        let process = std::process::id().to_string();
        servers.script(&["watch", &process]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let arguments: Vec<&str> = std::iter::once("start").chain(NAMES).collect();
        let started = servers.script(&arguments).output().context("scripts/servers.sh")?;
        let errors = String::from_utf8_lossy(&started.stderr);
        ensure!(started.status.success(), "the servers do not start: {errors}");
        servers.addresses = String::from_utf8_lossy(&started.stdout).into_owned();
        Ok(servers)
    }

    fn script(&self, arguments: &[&str]) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/servers.sh");
        // in a group of its own, so that an interrupt of the check does not end it
        let mut command = Command::new("setsid");
        command.arg(script).args(arguments);
        command.env("SERVERS_DIR", &self.dir).env("SERVERS_PORT", self.first_port.to_string());
        command
    }

    /// Returns the port of a server without encryption and login.
    pub fn port(&self, server: &str) -> Result<u16> {
        let variable = format!("TIDEMILL_{}=", server.to_uppercase());
        let line = self.addresses.lines().find_map(|line| line.strip_prefix(&variable));
        let address = line.with_context(|| format!("no address of {server} in {}", self.addresses))?;
        let end = address.rsplit(':').next().unwrap_or_default();
        let port: String = end.chars().take_while(char::is_ascii_digit).collect();
        port.parse().with_context(|| format!("no port in {address}"))
    }

    /// Ends a server as a crash does, and starts it again after `pause`.
    pub fn kill(&self, server: &str, pause: Duration) -> Result<()> {
        self.run(&["kill", server])?;
        std::thread::sleep(pause);
        self.run(&["start", server])
    }

    /// Stops a server in order, and starts it again after `pause`.
    pub fn restart(&self, server: &str, pause: Duration) -> Result<()> {
        self.run(&["stop", server])?;
        std::thread::sleep(pause);
        self.run(&["start", server])
    }

    /// Lets a server stand still for `pause`: it keeps its connections and answers nothing.
    pub fn pause(&self, server: &str, pause: Duration) -> Result<()> {
        let file = match server {
            "kafka" => "kafka/broker-1/pid".to_owned(),
            other => format!("{other}/pid"),
        };
        let process = std::fs::read_to_string(self.dir.join(&file)).context(file)?;
        let process = process.trim();
        // processes that serve one connection, as those of PostgreSQL, are children of the first one
        let children = Command::new("pgrep").args(["-P", process]).output()?;
        let children = String::from_utf8_lossy(&children.stdout).into_owned();
        let all: Vec<&str> = std::iter::once(process).chain(children.lines()).collect();
        signal("-STOP", &all)?;
        std::thread::sleep(pause);
        signal("-CONT", &all)
    }

    fn run(&self, arguments: &[&str]) -> Result<()> {
        let output = self.script(arguments).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            bail!("servers.sh {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}

/// Sends a signal. A process that has ended meanwhile needs none.
fn signal(signal: &str, processes: &[&str]) -> Result<()> {
    Command::new("kill").arg(signal).args(processes).stderr(Stdio::null()).status()?;
    Ok(())
}
