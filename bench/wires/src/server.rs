//! Tidemill as a process of its own, on a fresh data directory.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use arrow_flight::sql::client::FlightSqlServiceClient;
use tidemill_bench_tsbs::app::{self, AppOptions, Flushes};
use tokio_postgres::{Client, Config, NoTls};
use tonic::transport::{Channel, Endpoint};

/// Client of Flight SQL.
pub type Flight = FlightSqlServiceClient<Channel>;

/// A server that runs until this is dropped.
pub struct Server {
    child: Child,
    /// `http://127.0.0.1:PORT`
    pub base: String,
    postgres_port: u16,
    pub token: String,
    /// Held open: the server reports a closed output.
    _output: BufReader<ChildStdout>,
    _dir: tempfile::TempDir,
}

impl Server {
    /// Starts the program with the streams of the data set, and everything in memory.
    pub fn start(program: &Path, scratch: &Path) -> Result<Self> {
        let dir = tempfile::tempdir_in(scratch)?;
        let options =
            AppOptions { partitions: 4, flushes: Flushes::OnDemand, unique: false, settings: vec![] };
        // writes the files of the app, and checks them
        app::app(dir.path(), &options)?;
        let data = dir.path().join("data");
        let postgres_port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut child = Command::new(program)
            .arg("run")
            .arg(dir.path().join("app"))
            .arg("--data")
            .arg(&data)
            .args(["--listen", "127.0.0.1:0", "--mongo", "off", "--postgres"])
            .arg(format!("127.0.0.1:{postgres_port}"))
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!(
                    "{}: --program names the server, which `cargo build --release` makes",
                    program.display()
                )
            })?;
        let mut base = String::new();
        let mut output = BufReader::new(child.stdout.take().context("no output")?);
        for line in output.by_ref().lines().map_while(Result::ok) {
            if let Some(address) = line.strip_prefix("Listening on ") {
                address.clone_into(&mut base);
            }
            if line.starts_with("Ready: ") {
                break;
            }
        }
        ensure!(!base.is_empty(), "the server has ended before it was ready");
        let token = std::fs::read_to_string(data.join("token"))?.trim().to_owned();
        Ok(Self { child, base, postgres_port, token, _output: output, _dir: dir })
    }

    /// Connects over PostgreSQL's protocol.
    pub async fn postgres(&self) -> Result<Client> {
        let mut config = Config::new();
        config
            .host("127.0.0.1")
            .port(self.postgres_port)
            .user("admin")
            .password(&self.token)
            .dbname("tidemill");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Connects over Flight SQL.
    pub async fn flight(&self) -> Result<Flight> {
        let channel = Endpoint::new(self.base.clone())?.tcp_nodelay(true).connect().await?;
        let mut client = Flight::new(channel);
        client.set_token(self.token.clone());
        Ok(client)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
