//! Tests of the command line on real data, including crashes.

mod access;
mod aggregations;
mod apps;
mod backup;
mod changes;
mod clients;
mod cluster;
mod commands;
mod connected;
mod damage;
mod deploys;
mod directory;
mod embedding;
mod encryption;
mod flight;
mod flights;
mod flips;
mod former;
mod grants;
mod influxql;
mod killed;
mod kubernetes;
mod load;
mod mcp;
mod on_s3;
mod pages;
mod postgres;
mod queries;
mod set_aside;
mod statements;
mod tail;
mod tutorial;
mod why_again;
mod writes;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Returns the command, with the repository's root as working directory.
fn tidemill(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.args(args).current_dir(root()).env_remove("RUST_LOG");
    // variables of the tests, which the program would report as unknown
    command.env_remove("TIDEMILL_SEED").env_remove("TIDEMILL_KILLS");
    // servers run side by side, and the default port of MongoDB is one
    command.env("TIDEMILL_MONGO", "off").env("TIDEMILL_POSTGRES", "off");
    command
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Runs a command, checks its exit code and returns its standard output and error.
fn run(args: &[&str], code: i32) -> (String, String) {
    let output: Output = tidemill(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
    (out, err)
}

/// Returns the rows of a query as JSON.
fn sql(data: &str, query: &str) -> Vec<serde_json::Value> {
    let (out, _) = run(&["sql", "--data", data, "-o", "json", "-c", query], 0);
    serde_json::from_str(&out).unwrap()
}

/// Running server, which ends with the test.
struct Serving {
    child: Child,
    /// `http://127.0.0.1:PORT`
    base: String,
    token: String,
}

impl Serving {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs an app and waits until its sources have ended.
fn serve(app: &str, data: &Path) -> Serving {
    let arguments = ["run", app, "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    served(tidemill(&arguments), data, "Serving ")
}

/// Serves the app deployed in a data directory and waits until it is ready.
fn serve_data(data: &Path) -> Serving {
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    served(tidemill(&arguments), data, "Ready: ")
}

/// Starts a server and waits for the line that begins with `end`.
fn served(mut command: Command, data: &Path, end: &str) -> Serving {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut serving = Serving { child, base: String::new(), token: String::new() };
    for line in lines.map_while(Result::ok) {
        if let Some(address) = line.strip_prefix("Listening on ") {
            serving.base = address.to_owned();
        }
        if line.starts_with(end) {
            break;
        }
    }
    let token = std::fs::read_to_string(data.join("token")).unwrap();
    serving.token = token.trim().to_owned();
    serving
}

fn interrupt(pid: u32) {
    let killed = std::process::Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
}

/// Copies a directory recursively.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}
