//! The server under test: a process of its own that can be killed.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mongodb::options::{ClientOptions, ServerAddress};
use mongodb::sync::Client;
use tempfile::TempDir;
use tidemill_engine::{App, Durability, Engine};
use tidemill_mongo::MongoOptions;

use crate::Result;

/// A server process on a data directory, which is deleted in the end.
pub struct Server {
    dir: TempDir,
    partitions: u32,
    port: u16,
    process: Child,
}

impl Server {
    /// Starts a server on a new data directory.
    pub fn start(partitions: u32) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        // the port stays the same over restarts, as clients know it
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = spawn(dir.path(), port, partitions)?;
        Ok(Self { dir, partitions, port, process })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the process without a word, and starts another one on the data that it left.
    pub fn kill_and_start(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        self.process = spawn(self.dir.path(), self.port, self.partitions)?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(dir: &Path, port: u16, partitions: u32) -> Result<Child> {
    let mut process = Command::new(std::env::current_exe()?)
        .arg("serve")
        .arg(dir)
        .args([port.to_string(), partitions.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut ready = String::new();
    BufReader::new(process.stdout.take().ok_or("no output")?).read_line(&mut ready)?;
    if ready.trim() != "ready" {
        let _ = process.kill();
        let _ = process.wait();
        return Err(format!("the server does not start: {ready}").into());
    }
    Ok(process)
}

/// Serves a data directory until the process that asked for it is gone.
pub fn serve(dir: &Path, port: u16, partitions: u32) -> Result<()> {
    let mut app = App::from_rules("check", "entity Check key id;");
    app.settings.partitions = partitions;
    app.settings.durability = Durability::Fsync;
    let engine = Arc::new(Engine::open(dir, Some(app))?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let address = ([127, 0, 0, 1], port).into();
    let _server = runtime.block_on(tidemill_mongo::serve(address, engine, MongoOptions::default()))?;
    println!("ready");
    std::io::stdin().lines().for_each(drop);
    Ok(())
}

/// Returns a client that looks for a killed server until it is back.
pub fn client(port: u16) -> Result<Client> {
    let host = ServerAddress::Tcp { host: "127.0.0.1".to_owned(), port: Some(port) };
    let options = ClientOptions::builder()
        .hosts(vec![host])
        .direct_connection(true)
        .server_selection_timeout(Duration::from_secs(20))
        .heartbeat_freq(Duration::from_millis(500))
        .build();
    Ok(Client::with_options(options)?)
}
