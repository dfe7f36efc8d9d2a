//! The program under test: a process that can be killed.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Longest time until the program answers.
const START_MAX: Duration = Duration::from_secs(60);

/// A process that runs an app.
pub struct Program {
    program: PathBuf,
    app: PathBuf,
    data: PathBuf,
    port: u16,
    process: Mutex<Child>,
}

impl Program {
    /// Starts the program on a new data directory, and waits until it answers.
    pub fn start(program: &Path, app: &Path, data: &Path) -> Result<Self> {
        // the port stays the same over restarts
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let process = Mutex::new(spawn(program, app, data, port)?);
        let this =
            Self { program: program.to_owned(), app: app.to_owned(), data: data.to_owned(), port, process };
        this.wait()?;
        Ok(this)
    }

    /// Kills the program without a word, and starts it again after `pause`.
    pub fn kill(&self, pause: Duration) -> Result<()> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.kill()?;
        process.wait()?;
        std::thread::sleep(pause);
        *process = spawn(&self.program, &self.app, &self.data, self.port)?;
        drop(process);
        self.wait()
    }

    /// Stops the program in order.
    pub fn stop(self) -> Result<()> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        Command::new("kill").args(["-TERM", &process.id().to_string()]).status()?;
        let status = process.wait()?;
        ensure!(status.success(), "the program ended with {status}, see {}", self.data.display());
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        let deadline = Instant::now() + START_MAX;
        while self.sql("SELECT 1 AS one").is_err() {
            let exited = self.process.lock().unwrap_or_else(PoisonError::into_inner).try_wait()?;
            if let Some(status) = exited {
                bail!("the program ended with {status}, see {}", log_file(&self.data).display());
            }
            ensure!(Instant::now() < deadline, "the program does not answer after {START_MAX:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Returns the rows of a query.
    pub fn sql(&self, query: &str) -> Result<Vec<Value>> {
        let token = std::fs::read_to_string(self.data.join("token")).context("no token yet")?;
        let mut reply = ureq::post(format!("http://127.0.0.1:{}/api/v1/sql", self.port))
            .header("Authorization", format!("Bearer {}", token.trim()))
            .send_json(serde_json::json!({ "query": query }))
            .with_context(|| query.to_owned())?;
        reply.body_mut().with_config().limit(1 << 30).read_json().with_context(|| query.to_owned())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = process.kill();
        let _ = process.wait();
    }
}

fn log_file(data: &Path) -> PathBuf {
    data.with_extension("log")
}

fn spawn(program: &Path, app: &Path, data: &Path, port: u16) -> Result<Child> {
    let log = File::options().create(true).append(true).open(log_file(data))?;
    let mut command = Command::new(program);
    command.arg("run").arg(app).arg("--data").arg(data).args(["--listen", &format!("127.0.0.1:{port}")]);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("{} does not start", program.display()))
}
