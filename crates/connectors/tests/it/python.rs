//! Clients and servers in Python, with the packages that most people use, as other sides of our connectors.
//!
//! The packages come from PyPI, once for each target directory. Where that is not possible, the tests are skipped with a line
//! that says why.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use crate::helpers::PATIENCE;

/// Packages with the versions that were tried.
const PACKAGES: [&str; 3] = ["grpcio==1.85.1", "protobuf>=6,<9", "websockets==17.4"];

/// Returns the interpreter, or prints the reason why it is not available.
pub fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match PYTHON.get_or_init(install) {
        Ok(path) => Some(path),
        Err(reason) => {
            eprintln!("skipped: Python with {PACKAGES:?} cannot be had: {reason}");
            None
        }
    }
}

fn install() -> Result<PathBuf, String> {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let done = dir.join("python-packages");
    let interpreter = done.join("bin/python");
    if interpreter.exists() {
        return Ok(interpreter);
    }
    // an installation that breaks off leaves nothing behind that looks complete
    let partial = dir.join(format!("python-packages-{}", std::process::id()));
    let installed = run(Command::new("python3").args(["-m", "venv"]).arg(&partial)).and_then(|()| {
        let arguments = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--timeout", "20"];
        run(Command::new(partial.join("bin/python")).args(arguments).args(PACKAGES))
    });
    let moved = installed.and_then(|()| std::fs::rename(&partial, &done).map_err(|e| e.to_string()));
    if moved.is_err() {
        let _ = std::fs::remove_dir_all(&partial);
    }
    match interpreter.exists() {
        true => Ok(interpreter),
        false => Err(moved.err().unwrap_or_default()),
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false => Err(errors.trim().lines().last().unwrap_or("it failed").to_owned()),
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/python").join(name)
}

/// Runs a script to its end and returns the last line that it prints.
pub fn output(python: &Path, name: &str, arguments: &[&str]) -> String {
    let command = Command::new(python).arg(script(name)).args(arguments).stdin(Stdio::null()).output();
    let output = command.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned()
}

/// A script that runs until this value is dropped.
pub struct Running {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a script.
    pub fn start(python: &Path, name: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(python);
        command.arg("-u").arg(script(name)).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// Waits for the next line that the script prints.
    pub fn line(&mut self) -> String {
        let process = self.process.id();
        // reading has no deadline, so a script that hangs is killed
        let (done, waiting) = std::sync::mpsc::channel::<()>();
        let watch = std::thread::spawn(move || {
            if waiting.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").arg(process.to_string()).status();
            }
        });
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        drop(done);
        watch.join().unwrap();
        assert!(!line.is_empty(), "the script prints nothing");
        line.trim_end().to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
