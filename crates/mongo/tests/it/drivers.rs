//! Unmodified clients do their usual work, by `scripts/drivers.sh`.

use std::path::Path;
use std::process::{Command, Stdio};

use tidemill_mongo::MongoOptions;

use crate::{PASSWORD, TestServer};

fn is_there(program: &str) -> bool {
    let run = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

/// Runs the checks against `url`. Returns the lines that are skipped.
fn run(url: &str) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/drivers.sh");
    let output = Command::new(script).arg(url).output().unwrap();
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{lines}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{lines}\n{errors}");
    // a client that ends early says nothing about its last check
    for (client, last) in [("pymongo", "login"), ("node", "login"), ("mongosh", "typed commands")] {
        let skipped = lines.contains("skipped: no ") || lines.contains("cannot be installed");
        assert!(skipped || lines.contains(&format!("{client}: {last}: ")), "{lines}\n{errors}");
    }
    lines.lines().filter(|line| line.contains("skipped: ")).map(str::to_owned).collect()
}

#[test]
fn unmodified_clients_work() {
    if !is_there("python3") && !is_there("npm") {
        println!("skipped: neither python3 nor npm is there");
        return;
    }
    let server = TestServer::start_with(MongoOptions::default());
    let skipped = run(&format!("mongodb://127.0.0.1:{}/", server.port()));
    for line in &skipped {
        // the login that there is not
        let expected = ["the URL has no user", "skipped: no ", "cannot be installed"];
        assert!(expected.iter().any(|reason| line.contains(reason)), "{line}");
    }
}

#[test]
fn unmodified_clients_log_in_and_find_all_of_one_partition() {
    if !is_there("python3") && !is_there("npm") {
        println!("skipped: neither python3 nor npm is there");
        return;
    }
    let server = TestServer::start(1);
    let skipped = run(&format!("mongodb://admin:{PASSWORD}@127.0.0.1:{}/", server.port()));
    assert!(skipped.iter().all(|line| line.starts_with("skipped: ")), "{skipped:?}");
}
