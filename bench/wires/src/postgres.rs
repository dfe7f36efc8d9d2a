//! PostgreSQL on a data directory of its own, with the tables of the data set.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tokio_postgres::{Client, Config, NoTls};

/// Tables as bench/tsbs creates them for PostgreSQL: an index by truck and time.
pub const TABLES: &str = "
CREATE TABLE readings (time timestamptz, tags_id int, latitude float8, longitude float8, elevation float8, velocity float8,
  heading float8, grade float8, fuel_consumption float8);
CREATE INDEX ON readings (tags_id, time DESC);
CREATE TABLE tags (id int PRIMARY KEY, name text, fleet text, driver text, model text, device_version text,
  load_capacity float8, fuel_capacity float8, nominal_fuel_consumption float8);
CREATE INDEX ON tags (name);
CREATE TABLE diagnostics (time timestamptz, tags_id int, fuel_state float8, current_load float8, status int);
CREATE INDEX ON diagnostics (tags_id, time DESC);
";

/// A server that runs until this is dropped.
pub struct Server {
    dir: PathBuf,
    port: u16,
}

/// Returns the directory with the programs of PostgreSQL.
pub fn programs() -> Result<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&paths).find(|dir| dir.join("initdb").exists());
    let debian = || {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
        versions.map(|version| version.path().join("bin")).filter(|dir| dir.join("initdb").exists()).max()
    };
    in_path
        .or_else(debian)
        .context("PostgreSQL is not installed: apt-get install postgresql, or --no-postgres")
}

fn is_root() -> Result<bool> {
    Ok(std::fs::metadata("/proc/self")?.uid() == 0)
}

/// Runs a program of PostgreSQL, which refuses to run as root.
fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let path = programs()?.join(program);
    let mut command = match is_root()? {
        true => {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(&path);
            command
        }
        false => Command::new(&path),
    };
    let status = command.args(arguments).current_dir("/").stdout(Stdio::null()).status();
    let status = status.with_context(|| path.display().to_string())?;
    ensure!(status.success(), "{program} {}: {status}", arguments.join(" "));
    Ok(())
}

impl Server {
    /// Starts a server, in a directory that its user may enter.
    pub fn start() -> Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let dir = tempfile::Builder::new().prefix("bench-wires-postgres").tempdir()?.keep();
        let server = Self { dir, port };
        if is_root()? {
            let status = Command::new("chown").arg("postgres").arg(&server.dir).status()?;
            ensure!(
                status.success(),
                "the directory of PostgreSQL cannot be given to the user postgres: {status}"
            );
        }
        let data = server.data();
        run("initdb", &["-D", &data, "-U", "postgres", "-A", "trust", "--no-locale", "-E", "UTF8"])?;
        let sockets = server.dir.display().to_string();
        let settings = format!(
            "-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={sockets} -c shared_buffers=2GB \
             -c work_mem=64MB -c max_wal_size=8GB -c timezone=UTC"
        );
        let log = server.dir.join("log").display().to_string();
        run("pg_ctl", &["-D", &data, "-l", &log, "-w", "-o", &settings, "start"])?;
        Ok(server)
    }

    fn data(&self) -> String {
        self.dir.join("data").display().to_string()
    }

    /// Connects, and creates the tables anew.
    pub async fn empty(&self) -> Result<Client> {
        let client = self.connect().await?;
        client.batch_execute("DROP TABLE IF EXISTS readings, tags, diagnostics").await?;
        client.batch_execute(TABLES).await?;
        Ok(client)
    }

    /// Connects.
    pub async fn connect(&self) -> Result<Client> {
        let mut config = Config::new();
        config.host("127.0.0.1").port(self.port).user("postgres").dbname("postgres");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = run("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]) {
            eprintln!("PostgreSQL could not be stopped: {error}");
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
