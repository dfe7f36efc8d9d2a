//! Real PostgreSQL and MariaDB servers, and a mock of SQL Server, started by `scripts/servers.sh`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tidemill_test_servers::PortRange;

/// Servers of one run. They end with the process.
pub struct Servers {
    dir: PathBuf,
    /// None for servers that were running already.
    ports: Option<PortRange>,
    /// Addresses; empty without a server, which is printed.
    pub databases: Vec<Server>,
}

/// A server with its address.
#[derive(Debug, Clone)]
pub struct Server {
    /// Name in `scripts/servers.sh`.
    pub name: &'static str,
    /// Host and port.
    pub at: String,
}

const NAMES: [(&str, &str); 2] = [("postgres", "SERVERS_POSTGRES"), ("mariadb", "SERVERS_MARIADB")];

/// Returns the servers that all tests share. `SERVERS_POSTGRES` and `SERVERS_MARIADB` name some that run already.
pub fn shared() -> &'static Servers {
    static SHARED: OnceLock<Servers> = OnceLock::new();
    SHARED.get_or_init(|| {
        let given = NAMES.iter().filter_map(|(name, variable)| {
            let url = std::env::var(variable).ok()?;
            let at = url.split('@').next_back()?.split('/').next()?.to_owned();
            Some(Server { name, at })
        });
        let databases: Vec<Server> = given.collect();
        match databases.is_empty() {
            true => Servers::start("shared"),
            false => Servers { dir: PathBuf::new(), ports: None, databases },
        }
    })
}

impl Servers {
    /// Starts servers of a test that ends them.
    pub fn start(purpose: &str) -> Self {
        Self::start_these(purpose, &NAMES.map(|(name, _)| name))
    }

    /// Starts some of the servers of the script.
    pub fn start_these(purpose: &str, names: &[&'static str]) -> Self {
        let dir = std::env::temp_dir().join(format!("tidemill-rdbms-{}-{purpose}", std::process::id()));
        let mut servers = Self { dir, ports: Some(PortRange::reserve()), databases: vec![] };
        let watch = servers.script(&["watch", &std::process::id().to_string()]).stdout(Stdio::null()).spawn();
        assert!(watch.is_ok(), "{watch:?}");
        for name in names.iter().copied() {
            let started = servers.script(&["start", name]).output().unwrap();
            match started.status.code() {
                Some(0) => {
                    let address = String::from_utf8_lossy(&started.stdout).into_owned();
                    let at = address.split('@').next_back().unwrap().split('/').next().unwrap().to_owned();
                    servers.databases.push(Server { name, at });
                }
                Some(3) => eprintln!("skipped {name}: {}", String::from_utf8_lossy(&started.stderr)),
                _ => panic!("{name}: {}", String::from_utf8_lossy(&started.stderr)),
            }
        }
        servers
    }

    /// Returns a file of the servers.
    pub fn file(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    /// Ends a server as a crash does.
    pub fn kill(&self, server: &Server) {
        assert!(self.script(&["kill", server.name]).status().unwrap().success());
    }

    /// Starts a server again, with its data.
    pub fn restart(&self, server: &Server) {
        let started = self.script(&["start", server.name]).output().unwrap();
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    }

    fn script(&self, arguments: &[&str]) -> Command {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/servers.sh");
        let mut command = Command::new(script);
        command.args(arguments).env("SERVERS_DIR", &self.dir);
        if let Some(ports) = &self.ports {
            command.env("SERVERS_PORT", ports.first().to_string());
        }
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }
}
