//! The command line on real data, as a user and as a crash would see it.

mod commands;
mod flights;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The command with the repository's root as its directory.
fn tidemill(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.args(args).current_dir(root()).env_remove("RUST_LOG");
    command
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Runs to the end and expects this exit code.
fn run(args: &[&str], code: i32) -> (String, String) {
    let output: Output = tidemill(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
    (out, err)
}

/// Rows of a query as JSON.
fn sql(data: &str, query: &str) -> Vec<serde_json::Value> {
    let (out, _) = run(&["sql", "--data", data, "-o", "json", "-c", query], 0);
    serde_json::from_str(&out).unwrap()
}
